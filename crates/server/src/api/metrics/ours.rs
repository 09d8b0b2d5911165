//! The families of the engine and the server.

use andante_engine::{Failure, Health, Latencies, StallLimit, Status, StepKind, StoreStats};

use super::Source;
use super::family::{Family, Labels, Samples, seconds, whole};
use crate::api::scheduler::limit_name;

/// Tenants that are shown: those that were served most.
pub(super) const MOST_TENANTS: usize = 100;

/// All of them. Those of a store are there if there is one, those of the stall bound if there is one.
pub(super) fn families(source: &Source<'_>) -> Vec<Family> {
    let status = source.status;
    let mut all = server(source);
    all.extend(requests(status));
    all.extend(latencies(&status.latencies));
    all.extend(tokens(status));
    all.extend(steps(status));
    all.extend(stall(status));
    all.extend(kv(status));
    all.extend(status.store.iter().flat_map(store));
    all.extend(constraints(status));
    all.extend(tenants(status));
    all
}

fn server(source: &Source<'_>) -> Vec<Family> {
    let ready = f64::from(source.status.health == Health::Ready);
    let build = Samples::info([("version", env!("CARGO_PKG_VERSION"))]);
    let model = Samples::info([
        ("name", source.model),
        ("architecture", &source.info.architecture),
        ("backend", &source.info.backend),
        ("kv_format", &source.info.kv_format),
    ]);
    let refusals = source.refusals.iter();
    let refusals = refusals.map(|(status, &n)| (vec![("status", status.to_string())], whole(n)));
    vec![
        Family::ours("ready", "1 while requests are taken", Samples::value(ready)),
        Family::ours("build_info", "Always 1; says which program this is", build),
        Family::ours("model_info", "Always 1; says what is served", model),
        Family::ours(
            "http_refusals",
            "HTTP requests that were refused before an answer began, by status code",
            Samples::Counter(refusals.collect()),
        ),
    ]
}

fn requests(status: &Status) -> Vec<Family> {
    let mut ended = vec![
        ("stop", status.finished - status.cut),
        ("length", status.cut),
        ("cancelled", status.cancelled),
        ("queue_full", status.refused),
    ];
    ended.extend(Failure::ALL.map(|failure| {
        let count = status.failures.get(&failure).copied();
        (failure_name(failure), count.unwrap_or(0))
    }));
    let ended = ended.into_iter();
    let ended = ended.map(|(outcome, n)| (vec![("outcome", outcome.to_owned())], whole(n)));
    let stats = &status.scheduler;
    let now = [
        ("queued", stats.queued),
        ("prefilling", stats.prefilling),
        ("active", stats.active),
        ("parked", stats.parked),
    ];
    vec![
        Family::ours(
            "requests",
            "Requests by how they ended: with an answer (stop, length), without a client (cancelled), without a place \
             (queue_full), or failed",
            Samples::Counter(ended.collect()),
        ),
        Family::ours(
            "sequences",
            "Requests inside, by what they do: wait for a slot, have their prompt computed, generate, wait for their \
             client to read",
            Samples::values("state", now),
        ),
        Family::ours(
            "sequences_resident",
            "Requests that hold KV memory",
            Samples::value(stats.resident.into()),
        ),
    ]
}

fn latencies(times: &Latencies) -> Vec<Family> {
    let parts = [
        ("queue", times.queue),
        ("load", times.load),
        ("prefill", times.prefill),
        ("wait", times.wait),
    ];
    vec![
        Family::ours(
            "first_token",
            "From a request's arrival to its first token",
            Samples::durations(times.first_token),
        )
        .in_seconds(),
        Family::ours(
            "first_token_part",
            "The parts of that: until it had a slot, while KV of its prompt was loaded, in steps that computed its prompt, and \
             while others were served",
            Samples::durations_by("part", parts),
        )
        .in_seconds(),
        Family::ours(
            "token_gap",
            "Between two tokens of an answer, but for the time in which its client did not read",
            Samples::durations(times.gap),
        )
        .in_seconds(),
        Family::ours(
            "longest_gap",
            "The longest of these gaps of each answer",
            Samples::durations(times.longest_gap),
        )
        .in_seconds(),
        Family::ours(
            "request",
            "From a request's arrival to the end of its answer",
            Samples::durations(times.whole),
        )
        .in_seconds(),
        Family::ours(
            "request_prompt_tokens",
            "Tokens of the prompts of answered requests",
            Samples::sizes(times.prompt_tokens),
        ),
        Family::ours(
            "request_answer_tokens",
            "Tokens of answers",
            Samples::sizes(times.answer_tokens),
        ),
    ]
}

fn tokens(status: &Status) -> Vec<Family> {
    let stats = &status.scheduler;
    let found = stats.cached_tokens.saturating_sub(stats.loaded_tokens);
    let tokens = [
        ("prefill", stats.prefill_tokens),
        ("decode", stats.decode_tokens),
        ("cached", found),
        ("loaded", stats.loaded_tokens),
    ];
    let missed = [
        ("new", stats.missed.new),
        ("evicted", stats.missed.evicted),
        ("state", stats.missed.state),
        ("tail", stats.missed.tail),
        ("off", stats.missed.off),
    ];
    vec![
        Family::ours(
            "tokens",
            "Tokens computed (of prompts, with every chunk, and of answers) or found (in memory, in the store)",
            Samples::counts("kind", tokens),
        ),
        Family::ours(
            "prompt_tokens",
            "Tokens of the prompts that are complete",
            Samples::count(status.prompt_tokens),
        ),
        Family::ours(
            "prompt_tokens_found",
            "Those of them that were found in memory or in the store",
            Samples::count(status.cached_tokens),
        ),
        Family::ours(
            "prompt_tokens_missed",
            "Those that had to be computed, by why: nobody had computed them (new), they had made room for others (evicted), \
             no running state was kept behind them (state), they end the prompt (tail), or the request did not want what is \
             cached (off)",
            Samples::counts("reason", missed),
        ),
        Family::ours(
            "generated_tokens",
            "Tokens generated",
            Samples::count(status.generated_tokens),
        ),
    ]
}

fn steps(status: &Status) -> Vec<Family> {
    let stats = &status.scheduler;
    let names = StepKind::ALL.map(|kind| match kind {
        StepKind::Decode => "decode",
        StepKind::Prefill => "prefill",
        StepKind::Mixed => "mixed",
        StepKind::Io => "io",
    });
    let times = std::array::from_fn(|kind| (names[kind], status.step_time[kind]));
    let times: [_; StepKind::ALL.len()] = times;
    let service = [
        ("prefill", stats.times.prefill_us),
        ("decode", stats.times.decode_us),
        ("io", stats.times.io_us),
    ];
    vec![
        Family::ours(
            "step",
            "Duration of steps, by what they computed",
            Samples::durations_by("kind", times),
        )
        .in_seconds(),
        Family::ours(
            "step_time_ratio",
            "What steps took over what was predicted",
            Samples::Histogram(vec![(Labels::new(), status.step_ratio)], 1000.0),
        ),
        Family::ours(
            "steps_predicted",
            "Predicted time of all steps",
            Samples::time(stats.predicted_us),
        )
        .in_seconds(),
        Family::ours(
            "step_disturbances",
            "Steps of more than three times their predicted time",
            Samples::count(stats.disturbances),
        ),
        Family::ours(
            "service",
            "Time of steps, by what it was spent on",
            Samples::times("kind", service),
        )
        .in_seconds(),
        Family::ours(
            "contended",
            "Time of steps beside running answers",
            Samples::time(stats.times.contended_us),
        )
        .in_seconds(),
        Family::ours(
            "contended_prefill",
            "What prompts took of that: over it, their share",
            Samples::time(stats.times.contended_prefill_us),
        )
        .in_seconds(),
    ]
}

fn stall(status: &Status) -> Vec<Family> {
    let stats = &status.scheduler;
    let broken = [
        ("decode", stats.violations.decode),
        ("floor", stats.violations.floor),
        ("model", stats.violations.model),
        ("disturbance", stats.violations.disturbance),
    ];
    let mut families = vec![Family::ours(
        "stall_violations",
        "Steps beside running answers that were over a tenth longer than the stall bound, by cause: the answers alone took \
         longer (decode), or the smallest piece of a prompt (floor), the prediction was wrong (model), or something else \
         held the machine (disturbance)",
        Samples::counts("cause", broken),
    )];
    if let Some(us) = status.stall_asked_us {
        families.push(
            Family::ours(
                "stall_bound_asked",
                "Stall bound that was asked for",
                Samples::value(seconds(us)),
            )
            .in_seconds(),
        );
    }
    if stats.stall_us != u64::MAX {
        families.push(
            Family::ours(
                "stall_bound",
                "Stall bound in force",
                Samples::value(seconds(stats.stall_us)),
            )
            .in_seconds(),
        );
    }
    if let Some((us, limit)) = stats.stall_kept {
        families.push(stall_kept(us, limit));
    }
    families
}

fn stall_kept(us: u64, limit: StallLimit) -> Family {
    let labels = vec![("limit", limit_name(limit).to_owned())];
    Family::ours(
        "stall_bound_kept",
        "Stall bound that can be kept, where the one in force cannot, and what is in its way: running answers alone (decode), \
         or the smallest piece of a prompt (floor)",
        Samples::Gauge(vec![(labels, seconds(us))]),
    )
    .in_seconds()
}

fn kv(status: &Status) -> Vec<Family> {
    let stats = &status.scheduler;
    let blocks = stats.blocks;
    let now = [
        ("used", blocks.used),
        ("cached", blocks.cached),
        ("free", blocks.free),
    ];
    let occupied = f64::from(blocks.used) / f64::from(blocks.total.max(1));
    vec![
        Family::ours(
            "kv_blocks",
            "KV blocks in memory: held by requests, kept for later ones, free",
            Samples::values("state", now),
        ),
        Family::ours(
            "kv_blocks_reserved",
            "KV blocks promised to requests inside",
            Samples::value(blocks.reserved.into()),
        ),
        Family::ours(
            "kv_block_tokens",
            "Tokens of one KV block",
            Samples::value(status.block_tokens.into()),
        ),
        Family::ours(
            "kv_used_ratio",
            "KV blocks that requests hold, over all",
            Samples::value(occupied),
        ),
        Family::ours(
            "saved_blocks",
            "KV blocks saved to the store",
            Samples::count(stats.saved_blocks),
        ),
        Family::ours(
            "io_failures",
            "Loads and saves that were not completed",
            Samples::count(stats.io_failures),
        ),
    ]
}

fn store(stats: &StoreStats) -> Vec<Family> {
    let blocks = [
        ("loaded", stats.loaded_blocks),
        ("saved", stats.saved_blocks),
        ("deduplicated", stats.deduplicated),
        ("unsaved", stats.unsaved),
        ("evicted", stats.evicted),
    ];
    let misses = [
        ("absent", stats.absent),
        ("damaged", stats.damaged),
        ("foreign", stats.foreign),
        ("unreadable", stats.unreadable),
    ];
    let moved = [("read", stats.read_bytes), ("written", stats.written_bytes)];
    vec![
        Family::ours(
            "kv_store_blocks",
            "Blocks by what became of them: loaded from the store, saved to it, there already, not to be saved, given up for \
             others",
            Samples::counts("event", blocks),
        ),
        Family::ours(
            "kv_store_misses",
            "Blocks of prompts that the store could not give, by why: not there, damaged, of another model or key, unreadable",
            Samples::counts("reason", misses),
        ),
        Family::ours(
            "kv_store_moved_bytes",
            "Bytes of objects read and written",
            Samples::counts("direction", moved),
        ),
        Family::ours(
            "kv_store_held_blocks",
            "Blocks in the store",
            Samples::value(whole(stats.blocks)),
        ),
        Family::ours(
            "kv_store_used_bytes",
            "What they take",
            Samples::value(whole(stats.used_bytes)),
        ),
        Family::ours(
            "kv_store_budget_bytes",
            "What they may take",
            Samples::value(whole(stats.budget_bytes)),
        ),
    ]
}

fn constraints(status: &Status) -> Vec<Family> {
    vec![
        Family::ours(
            "masks",
            "Tokens chosen among those that a constraint allows",
            Samples::count(status.masks),
        ),
        Family::ours(
            "masks_computed",
            "Time spent on finding out what constraints allow, beside the model",
            Samples::time(status.mask_us),
        )
        .in_seconds(),
        Family::ours(
            "masks_awaited",
            "How much of that the engine waited for",
            Samples::time(status.mask_wait_us),
        )
        .in_seconds(),
    ]
}

fn tenants(status: &Status) -> Vec<Family> {
    let mut shown: Vec<_> = status.tenants.iter().collect();
    shown.sort_by_key(|tenant| std::cmp::Reverse(tenant.stats.service_us));
    shown.truncate(MOST_TENANTS);
    // Names are cut short for showing, so two tenants may have one.
    let mut sums = std::collections::BTreeMap::<&str, [f64; 3]>::new();
    for tenant in shown {
        let [service, queued, resident] = sums.entry(&tenant.name).or_default();
        *service += seconds(tenant.stats.service_us);
        *queued += f64::from(tenant.stats.queued);
        *resident += f64::from(tenant.stats.resident);
    }
    let column = |which: usize| {
        let samples = sums.iter();
        let samples = samples.map(|(&name, sums)| (vec![("tenant", name.to_owned())], sums[which]));
        samples.collect::<Vec<_>>()
    };
    vec![
        Family::ours(
            "tenants",
            "Tenants whose accounts are kept; the hundred that were served most are told apart in what follows",
            Samples::value(status.tenants.len() as f64),
        ),
        Family::ours(
            "tenant_service",
            "Time spent for a tenant",
            Samples::Counter(column(0)),
        )
        .in_seconds(),
        Family::ours(
            "tenant_queued",
            "Requests of a tenant that wait for a slot",
            Samples::Gauge(column(1)),
        ),
        Family::ours(
            "tenant_resident",
            "Requests of a tenant that hold KV memory",
            Samples::Gauge(column(2)),
        ),
    ]
}

pub(super) fn failure_name(failure: Failure) -> &'static str {
    match failure {
        Failure::ShuttingDown => "shutting_down",
        Failure::NonFiniteLogits => "non_finite_logits",
        Failure::DeadEnd => "dead_end",
        Failure::Constraint => "constraint",
        Failure::Model => "model_failed",
        Failure::TooLong => "too_long",
        Failure::QueueTimeout => "queue_timeout",
        Failure::FirstTokenTimeout => "first_token_timeout",
        Failure::ReaderTimeout => "reader_timeout",
        Failure::EngineStopped => "engine_stopped",
    }
}
