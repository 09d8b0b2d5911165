//! Charges, lifts, slots and what is forgotten.

use super::*;

const N: Priority = Priority::Normal;
const US: u64 = 1 << CHARGE_BITS;

fn tenants(change: impl FnOnce(&mut Config)) -> Tenants {
    let mut config = Config::new(8, 8, 1);
    change(&mut config);
    Tenants::new(&config)
}

/// The flows, by their turns.
fn order(tenants: &Tenants, mut flows: Vec<Flow>) -> Vec<Flow> {
    flows.sort_by_key(|&flow| tenants.rank(flow));
    flows
}

#[test]
fn the_least_served_for_its_weight_comes_first() {
    let mut tenants = tenants(|config| {
        config.tenant_weights.insert(2, 3000);
    });
    let flows = [(1, N), (2, N), (3, N)];
    flows.into_iter().for_each(|flow| tenants.arrive(flow));
    tenants.update_waiting(flows.into_iter());
    for (flow, us) in flows.into_iter().zip([100, 270, 95]) {
        tenants.charge(flow, us * US);
    }
    assert_eq!(order(&tenants, flows.to_vec()), [(2, N), (3, N), (1, N)]);
    let stats: Vec<_> = tenants.stats().collect();
    assert_eq!(
        (
            stats[1].weight_permille,
            stats[1].service_us,
            stats[1].queued
        ),
        (3000, 270, 1)
    );
}

#[test]
fn priorities_weigh_within_their_tenant_only() {
    let mut tenants = tenants(|_| {});
    let flows = [(1, Priority::Low), (1, Priority::High), (2, N)];
    flows.into_iter().for_each(|flow| tenants.arrive(flow));
    tenants.update_waiting(flows.into_iter());
    tenants.charge(flows[0], 10 * US);
    tenants.charge(flows[1], 100 * US);
    tenants.charge(flows[2], 105 * US);
    // The first tenant has had 110 µs, its low ones 40 for their weight and its high ones 25.
    assert_eq!(
        order(&tenants, flows.to_vec()),
        [(2, N), (1, Priority::High), (1, Priority::Low)]
    );
}

#[test]
fn who_begins_to_wait_starts_level_and_keeps_its_debts() {
    let mut tenants = tenants(|_| {});
    let (old, lazy, new) = ((1, N), (2, N), (3, N));
    [old, lazy]
        .into_iter()
        .for_each(|flow| tenants.arrive(flow));
    tenants.update_waiting([old, lazy].into_iter());
    tenants.charge(lazy, 500 * US);
    // Alone for a long time.
    for _ in 0..10 {
        tenants.update_waiting([old].into_iter());
        tenants.charge(old, 100 * US);
    }
    tenants.update_waiting([old].into_iter());
    tenants.arrive(new);
    tenants.update_waiting([old, lazy, new].into_iter());
    let levels = [old, lazy, new].map(|flow| tenants.rank(flow).0 / US);
    assert_eq!(levels, [1000, 1000, 1000], "nothing was saved up");
    // Leaving and coming back does not clear a debt.
    tenants.charge(new, 300 * US);
    tenants.update_waiting([old].into_iter());
    tenants.update_waiting([old, new].into_iter());
    assert_eq!(tenants.rank(new).0 / US, 1300);
}

#[test]
fn slots_go_to_who_holds_fewest_for_the_weight() {
    let mut tenants = tenants(|config| {
        config.tenant_weights.insert(2, 2000);
        config.tenant_slots = 3;
    });
    for _ in 0..9 {
        tenants.arrive((1, N));
        tenants.arrive((2, N));
    }
    let mut given = Vec::new();
    while let Some((_, flow)) = [(1, N), (2, N)]
        .into_iter()
        .filter_map(|flow| Some((tenants.slot_rank(flow)?, flow)))
        .min()
    {
        tenants.admit(flow);
        given.push(flow.0);
    }
    assert_eq!(given, [1, 2, 2, 1, 2, 1], "three at most for each");
}

#[test]
fn only_idle_tenants_are_forgotten() {
    let mut tenants = tenants(|_| {});
    tenants.arrive((7, N));
    for tenant in 1000..4000 {
        tenants.arrive((tenant, N));
        tenants.charge((tenant, N), tenant * US);
        tenants.leave_queue((tenant, N));
    }
    let known: Vec<TenantId> = tenants.stats().map(|tenant| tenant.tenant).collect();
    assert_eq!(known.len(), MOST_IDLE + 1);
    assert_eq!((known[0], known[1]), (7, 2976), "the least debts go");
}
