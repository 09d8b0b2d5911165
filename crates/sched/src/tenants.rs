//! Weighted fair service between tenants, and between the priorities of one tenant.
//!
//! Every measured microsecond is charged to the flow it was spent for, divided by the flow's weight; the flow that has been
//! charged least goes first (virtual service, as in VTC, arXiv 2401.00588, but in measured time instead of tokens). Decode
//! rows are charged and never withheld. Nothing can be saved up: a flow whose work starts to wait is lifted to the level
//! of the least-served one that waited already.

use std::collections::BTreeMap;

use crate::config::Config;
use crate::stats::TenantStats;
use crate::step::{Priority, TenantId};

/// The sequences of one tenant with one priority.
pub(crate) type Flow = (TenantId, Priority);

/// Fraction bits of charged microseconds.
pub(crate) const CHARGE_BITS: u32 = 10;

/// Tenants whose accounts are kept although they have nothing to do: their debts, and their totals for the status.
const MOST_IDLE: usize = 1024;

/// What one of several rivals has been charged.
#[derive(Debug, Clone, Copy, Default)]
struct Level {
    /// Charged time over weight, in 2⁻¹⁰ µs.
    charged: u64,
    /// It has prompts that wait, in the plan that is being made.
    waits: bool,
    /// It had, in the plan before.
    waited: bool,
}

#[derive(Debug, Clone, Default)]
struct Account {
    weight_permille: u32,
    level: Level,
    /// By priority.
    levels: [Level; 3],
    clock: u64,
    queued: [u32; 3],
    resident: [u32; 3],
    /// Slots that were given to each flow, or passed it because nothing of it fitted.
    turns: [u64; 3],
    /// In 2⁻¹⁰ µs.
    service: u64,
}

impl Account {
    fn is_idle(&self) -> bool {
        self.queued == [0; 3] && self.resident == [0; 3]
    }

    fn residents(&self) -> u32 {
        self.resident.iter().sum()
    }
}

/// All accounts.
#[derive(Debug, Clone)]
pub(crate) struct Tenants {
    weights: BTreeMap<TenantId, u32>,
    most_slots: u32,
    accounts: BTreeMap<TenantId, Account>,
    /// Level of the least-served tenant of those that wait; never falls.
    clock: u64,
}

/// Order in which flows get slots: fewest held for the weight first, then least served.
pub(crate) type SlotRank = (u64, u64, u64, u64);

impl Tenants {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            weights: config.tenant_weights.clone(),
            most_slots: config.tenant_slots.max(1),
            accounts: BTreeMap::new(),
            clock: 0,
        }
    }

    /// A request of `flow` has come into the queue.
    pub(crate) fn arrive(&mut self, (tenant, priority): Flow) {
        if !self.accounts.contains_key(&tenant) {
            self.forget_idle();
        }
        let weight = self.weights.get(&tenant).copied().unwrap_or(1000).max(1);
        let account = self.accounts.entry(tenant).or_default();
        account.weight_permille = weight;
        account.queued[priority as usize] += 1;
    }

    /// A queued request of `flow` has got a slot.
    pub(crate) fn admit(&mut self, flow: Flow) {
        self.leave_queue(flow);
        let account = self.account(flow.0);
        account.resident[flow.1 as usize] += 1;
        account.turns[flow.1 as usize] += 1;
    }

    /// Another flow has got a slot because nothing of `flow`, whose turn it was, fitted.
    pub(crate) fn pass_over(&mut self, flow: Flow) {
        self.account(flow.0).turns[flow.1 as usize] += 1;
    }

    /// A queued request of `flow` is queued no more.
    pub(crate) fn leave_queue(&mut self, flow: Flow) {
        self.account(flow.0).queued[flow.1 as usize] -= 1;
    }

    /// A resident sequence of `flow` has ended.
    pub(crate) fn leave(&mut self, flow: Flow) {
        self.account(flow.0).resident[flow.1 as usize] -= 1;
    }

    /// Takes in which flows have prompts that wait, for a slot or for their next tokens. Who did not wait before is lifted
    /// to the level of those who did.
    pub(crate) fn update_waiting(&mut self, waiting: impl Iterator<Item = Flow>) {
        for (tenant, priority) in waiting {
            let account = self.account(tenant);
            account.level.waits = true;
            account.levels[priority as usize].waits = true;
        }
        let accounts = self.accounts.values_mut();
        lift(&mut self.clock, accounts.map(|account| &mut account.level));
        for account in self.accounts.values_mut() {
            if account.level.waited {
                lift(&mut account.clock, account.levels.iter_mut());
            }
        }
    }

    /// Adds time that was spent for `flow`, in 2⁻¹⁰ µs.
    pub(crate) fn charge(&mut self, (tenant, priority): Flow, time: u64) {
        let account = self.account(tenant);
        let over = |weight: u32| u64::try_from(u128::from(time) * 1000 / u128::from(weight));
        let (level, levels) = (&mut account.level, &mut account.levels);
        let level = &mut level.charged;
        *level = level.saturating_add(over(account.weight_permille).unwrap_or(u64::MAX));
        let level = &mut levels[priority as usize].charged;
        *level = level.saturating_add(over(priority.weight_permille()).unwrap_or(u64::MAX));
        account.service = account.service.saturating_add(time);
    }

    /// Less for a flow whose prompts come sooner.
    pub(crate) fn rank(&self, (tenant, priority): Flow) -> (u64, u64) {
        let account = &self.accounts[&tenant];
        let class = account.levels[priority as usize];
        (account.level.charged, class.charged)
    }

    /// Less for a flow that gets the next slot sooner; `None` when its tenant holds as many as it may.
    pub(crate) fn slot_rank(&self, (tenant, priority): Flow) -> Option<SlotRank> {
        let account = &self.accounts[&tenant];
        if account.residents() >= self.most_slots {
            return None;
        }
        let held = |slots: u32, weight: u32| u64::from(slots) * 1_000_000 / u64::from(weight);
        let (level, class) = self.rank((tenant, priority));
        Some((
            held(account.residents(), account.weight_permille),
            level,
            held(
                account.resident[priority as usize],
                priority.weight_permille(),
            ),
            class,
        ))
    }

    /// Whether the next slot of `flow` is for the one of it that waits longest: every `every`-th is.
    pub(crate) fn is_oldest_turn(&self, (tenant, priority): Flow, every: u64) -> bool {
        (self.accounts[&tenant].turns[priority as usize] + 1).is_multiple_of(every)
    }

    pub(crate) fn stats(&self) -> impl Iterator<Item = TenantStats> {
        self.accounts.iter().map(|(&tenant, account)| TenantStats {
            tenant,
            weight_permille: account.weight_permille,
            service_us: account.service >> CHARGE_BITS,
            queued: account.queued.iter().sum(),
            resident: account.residents(),
        })
    }

    fn account(&mut self, tenant: TenantId) -> &mut Account {
        self.accounts
            .get_mut(&tenant)
            .expect("whoever has a sequence has an account")
    }

    /// Makes room for one more account: of the idle ones, those with the least debt go.
    fn forget_idle(&mut self) {
        let idle = |(_, account): &(&TenantId, &Account)| account.is_idle();
        if self.accounts.iter().filter(idle).count() < MOST_IDLE {
            return;
        }
        let debt = |(tenant, account): (&TenantId, &Account)| (account.level.charged, *tenant);
        if let Some((_, tenant)) = self.accounts.iter().filter(idle).map(debt).min() {
            self.accounts.remove(&tenant);
        }
    }
}

/// Lifts the rivals that begin to wait to `clock`, the least level of those that waited, and moves the clock on.
fn lift<'a>(clock: &mut u64, rivals: impl Iterator<Item = &'a mut Level>) {
    let mut least = None;
    for rival in rivals {
        rival.waited = std::mem::take(&mut rival.waits) && {
            if !rival.waited {
                rival.charged = rival.charged.max(*clock);
            }
            least = Some(least.map_or(rival.charged, |least: u64| least.min(rival.charged)));
            true
        };
    }
    *clock = least.map_or(*clock, |least| least.max(*clock));
}

#[cfg(test)]
impl Tenants {
    /// What decides about turns to come: levels above the least, who waited, turns.
    pub(crate) fn key(&self) -> Vec<u64> {
        let level = |level: &Level, clock: u64| {
            [level.charged.saturating_sub(clock), u64::from(level.waited)]
        };
        let mut key = Vec::new();
        for (&tenant, account) in &self.accounts {
            key.push(tenant);
            // Levels matter between rivals only.
            if self.accounts.len() > 1 {
                key.extend(level(&account.level, self.clock));
            }
            if account.turns.iter().filter(|&&turns| turns > 0).count() > 1 {
                for class in &account.levels {
                    key.extend(level(class, account.clock));
                }
            }
            key.extend(account.turns.map(|turns| turns % 4));
        }
        key
    }
}

#[cfg(test)]
mod tests;
