//! What the engine shows of itself, after every step.

use std::sync::atomic::Ordering;

use andante_sched::{StallLimit, TenantStats};

use super::Engine;
use crate::status::TenantStatus;
use crate::store::Stores;
use crate::timeline::{Moment, StepMoment};

/// How often the tenants' accounts are shown while the engine works, in µs.
const TENANTS_EVERY_US: u64 = 100_000;

impl Engine {
    /// Makes the step's results visible in the status, before any client hears of them.
    pub(super) fn publish_step(&mut self, now_us: u64) {
        self.publish(false);
        self.show_step();
        let mut status = self.shared.status();
        for id in &self.launched.sampled {
            let generation = self.generations.get_mut(id);
            let generation = generation.expect("a planned sequence has a generation");
            generation.count(now_us, &mut status);
        }
        status.remember(&mut self.launched.record);
    }

    /// Writes the step into the timeline.
    fn show_step(&mut self) {
        let stats = self.scheduler.stats();
        let record = std::mem::take(&mut self.launched.record);
        let step = Moment::Step(StepMoment {
            rows: u32::try_from(record.decode.len()).expect("slots are counted so"),
            queued: stats.queued,
            resident: stats.resident,
            blocks_used: stats.blocks.used,
            blocks_cached: stats.blocks.cached,
            record,
        });
        self.timeline.add(&step);
        if let Moment::Step(step) = step {
            self.launched.record = step.record;
        }
    }

    /// Shows the scheduler's figures; the tenants' only now and then, unless `all`.
    pub(super) fn publish(&mut self, all: bool) {
        if let Some(recording) = &mut self.recording {
            recording.fetch(&mut self.scheduler, all);
        }
        self.tell_what_was_said();
        let stats = self.scheduler.stats();
        if let Some((kept_us, limit)) = stats.stall_kept
            && !std::mem::replace(&mut self.told_stall, true)
        {
            tell_stall(stats.stall_us, kept_us, limit);
        }
        let drain_s = self.scheduler.drain_estimate_us().div_ceil(1_000_000);
        self.shared.retry_after_s.store(
            u32::try_from(drain_s).unwrap_or(u32::MAX),
            Ordering::Relaxed,
        );
        let now_us = self.shared.clock.now_us();
        let due = |since: u64| now_us.saturating_sub(since) >= TENANTS_EVERY_US;
        let tenants = (all || self.tenants_us.is_none_or(due)).then(|| {
            self.tenants_us = Some(now_us);
            let named = |stats: TenantStats| TenantStatus {
                name: self.names.get(stats.tenant),
                stats,
            };
            self.scheduler.tenants().map(named).collect()
        });
        let store = self.store.as_ref().map(Stores::stats);
        let mut status = self.shared.status();
        status.scheduler = stats;
        status.store = store;
        if let Some(tenants) = tenants {
            status.tenants = tenants;
        }
    }
}

/// Said once: it is a property of the machine, the model and what is asked of them.
fn tell_stall(asked_us: u64, kept_us: u64, limit: StallLimit) {
    let why = match limit {
        StallLimit::Decode => "the running answers alone take longer",
        StallLimit::Floor => "the smallest worthwhile piece of a prompt takes longer",
    };
    tracing::warn!(
        "the stall bound of {} ms cannot be kept on this machine: {why}; {} ms can",
        asked_us / 1000,
        kept_us.div_ceil(1000),
    );
}
