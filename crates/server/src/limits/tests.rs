//! Each limit in virtual time.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::*;

fn most(most: u32) -> Option<NonZeroU32> {
    Some(NonZeroU32::new(most).expect("a limit"))
}

fn meter(change: impl FnOnce(&mut Limits)) -> Meter {
    let mut limits = Limits::default();
    change(&mut limits);
    Meter::new(limits)
}

/// The limit's name and the wait.
fn refused(entered: Result<(), Breach>) -> (String, Option<u32>) {
    let breach = entered.expect_err("refused");
    (breach.limit.to_string(), breach.wait_s)
}

#[test]
fn requests_of_a_minute_are_limited_and_the_oldest_makes_room() {
    let mut meter = meter(|limits| limits.requests = most(2));
    meter.enter(1000).expect("the first");
    meter.enter(1010).expect("the second");
    let limit = "this key's requests a minute are limited to 2";
    for (now_s, wait_s) in [(1010, 50), (1030, 30), (1059, 1)] {
        let expected = (limit.to_owned(), Some(wait_s));
        assert_eq!(refused(meter.enter(now_s)), expected);
    }
    meter.enter(1060).expect("the first is a minute old");
    assert_eq!(refused(meter.enter(1060)).1, Some(10));
    // Nothing is saved up in a long silence.
    for _ in 0..2 {
        meter.enter(9000).expect("room for two");
    }
    assert_eq!(refused(meter.enter(9000)).1, Some(60));
}

#[test]
fn tokens_of_a_minute_are_limited_whatever_a_request_takes() {
    let mut meter = meter(|limits| limits.tokens = most(100));
    meter.enter(0).expect("nothing is counted");
    meter.charge(60, 0);
    meter.enter(5).expect("40 are left");
    meter.charge(39, 5);
    meter.enter(5).expect("1 is left");
    meter.charge(500, 6);
    let limit = "this key's tokens a minute are limited to 100";
    assert_eq!(refused(meter.enter(6)), (limit.to_owned(), Some(60)));
    assert_eq!(refused(meter.enter(65)).1, Some(1));
    meter.enter(66).expect("what was beyond is not owed");
}

#[test]
fn requests_at_once_are_limited_until_one_leaves() {
    let mut meter = meter(|limits| limits.parallel = most(2));
    meter.enter(0).expect("the first");
    meter.enter(0).expect("the second");
    let expected = (
        "this key's requests at once are limited to 2".to_owned(),
        None,
    );
    // Time makes no room.
    for now_s in [0, 1_000_000] {
        assert_eq!(refused(meter.enter(now_s)), expected);
    }
    meter.leave();
    meter.enter(0).expect("one has left");
    assert_eq!(refused(meter.enter(0)), expected);
}

#[test]
fn of_several_limits_the_longest_wait_is_told() {
    let mut meter = meter(|limits| {
        limits.parallel = most(1);
        limits.requests = most(1);
        limits.tokens = most(10);
    });
    meter.enter(0).expect("the first");
    assert!(refused(meter.enter(1)).0.contains("requests a minute"));
    meter.charge(10, 20);
    let (limit, wait_s) = refused(meter.enter(30));
    assert_eq!(
        (limit.contains("tokens"), wait_s),
        (true, Some(50)),
        "{limit}"
    );
    assert!(refused(meter.enter(80)).0.contains("at once"));
    meter.leave();
    meter.enter(80).expect("what was refused is not counted");
}

#[test]
fn without_limits_everybody_is_let_in() {
    let mut meter = meter(|_| {});
    for _ in 0..1000 {
        meter.enter(7).expect("no limit");
        meter.charge(u32::MAX, 7);
    }
}

/// Beside a list of all that was let in: no sixty seconds hold more than the limit, and the wait is the shortest that helps.
#[test]
fn a_minute_is_any_sixty_seconds() {
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    for most_requests in [1, 2, 7, 20] {
        let mut meter = meter(|limits| limits.requests = most(most_requests));
        let mut entered: Vec<u64> = Vec::new();
        let mut refusals = 0;
        let mut now_s = 5;
        for _ in 0..20_000 {
            now_s += match rng.random_range(0..40) {
                0 => rng.random_range(0..150),
                1..5 => 1,
                _ => 0,
            };
            let within = |now_s: u64| entered.iter().rev().take_while(move |&&at| at + 60 > now_s);
            let has_room = |now_s| within(now_s).count() < most_requests as usize;
            let wait_s = (0..).find(|wait_s| has_room(now_s + wait_s));
            match meter.enter(now_s) {
                Ok(()) => {
                    assert_eq!(wait_s, Some(0));
                    entered.push(now_s);
                }
                Err(breach) => {
                    assert_eq!(breach.wait_s.map(u64::from), wait_s);
                    refusals += 1;
                }
            }
        }
        assert!(refusals > 100 && entered.len() > 100);
    }
}
