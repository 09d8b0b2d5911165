//! Tenants and priorities, from the request to the status.

use andante_sched::Priority;

use super::*;
use crate::tenant::Tenant;

#[test]
fn a_busy_tenant_does_not_hold_up_another() {
    let config = EngineConfig {
        sessions: 2,
        max_queue: 40,
        tenant_sessions: Some(1),
        ..small()
    };
    let mut rig = Rig::ticking(&config);
    let submit = |rig: &Rig, tenant: &str, prompt: &str| {
        let mut request = rig.request(prompt, greedy(30));
        request.set_account(Tenant::named(tenant), Priority::Normal);
        rig.handle.submit(request).expect("room")
    };
    let crowd: Vec<_> = (0..10)
        .map(|i| submit(&rig, "crowd", &format!("{i}")))
        .collect();
    rig.step();
    assert_eq!(rig.engine.scheduler.stats().resident, 1, "one place of two");
    let guest = submit(&rig, "guest", "GUEST");
    while !guest.is_done() && guest.ring_len() < 32 {
        rig.step();
    }
    let finished = crowd
        .iter()
        .filter(|stream| stream.ring_len() == 32)
        .count();
    assert!(
        finished <= 2,
        "{finished} of the crowd were before the guest"
    );
    rig.settle();
    let status = rig.handle.status();
    let account = |name: &str| {
        let found = status.tenants.iter().find(|tenant| &*tenant.name == name);
        found.expect("a tenant that was served").stats
    };
    assert!(account("crowd").service_us > 5 * account("guest").service_us);
    assert!(account("guest").service_us > 0);
    assert_eq!(account("guest").weight_permille, 1000);
    for stream in crowd.into_iter().chain([guest]) {
        assert!(matches!(Answer::of(stream).end, Event::Finished { .. }));
    }
}

#[test]
fn high_priority_comes_first_within_a_tenant() {
    let config = EngineConfig {
        sessions: 1,
        max_queue: 40,
        ..small()
    };
    let mut rig = Rig::ticking(&config);
    let running = rig.submit("RUNS", greedy(10));
    rig.step();
    let ask = |priority| {
        let mut request = rig.request("SAME", greedy(10));
        request.set_account(Tenant::default(), priority);
        rig.handle.submit(request).expect("room")
    };
    let low: Vec<_> = (0..4).map(|_| ask(Priority::Low)).collect();
    let high: Vec<_> = (0..4).map(|_| ask(Priority::High)).collect();
    while high.iter().any(|stream| stream.ring_len() < 12) {
        rig.step();
    }
    let early = low.iter().filter(|stream| stream.ring_len() == 12).count();
    assert!(
        early <= 2,
        "{early} low ones were done before the last high one"
    );
    rig.settle();
    assert!(
        low.iter().all(|stream| stream.ring_len() == 12),
        "none starves"
    );
    drop(running);
}

#[test]
fn a_weight_given_by_name_is_in_force() {
    let heavy = Tenant::named("heavy");
    let config = EngineConfig {
        tenant_weights: [(heavy.id(), 3000)].into(),
        ..small()
    };
    let mut rig = Rig::new(FakeModel::new(VOCAB), &config);
    let mut request = rig.request("A", greedy(2));
    request.set_account(heavy, Priority::Normal);
    let stream = rig.handle.submit(request).expect("room");
    rig.settle();
    drop(stream);
    let tenants = rig.handle.status().tenants;
    assert_eq!(
        (&*tenants[0].name, tenants[0].stats.weight_permille),
        ("heavy", 3000)
    );
}

#[test]
fn prefixes_and_spellings_of_another_salt_are_not_taken_over() {
    let mut rig = Rig::new(FakeModel::new(VOCAB), &small());
    let ask = |rig: &mut Rig, salt: u64| {
        let handle = rig.handle.with_salt(salt);
        let request = handle
            .prepare_text(PromptInput::Text(long(100)), greedy(3))
            .expect("valid");
        let stream = rig.handle.submit(request).expect("room");
        rig.settle();
        Answer::of(stream).cached
    };
    let (ann, bob) = (Tenant::named("ann").salt(), Tenant::named("bob").salt());
    let cached = [0, ann, bob, ann, 0, bob].map(|salt| ask(&mut rig, salt));
    assert_eq!(cached, [0, 0, 0, 96, 96, 96].map(Some));
    assert!(ann != 0 && ann != bob && Tenant::default().salt() != 0);
}
