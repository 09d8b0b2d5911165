//! The lines to the letter.

use super::*;

fn log(traits: Traits) -> RequestLog {
    RequestLog {
        name: "req_1".into(),
        kind: "chat",
        traits,
        told_us: None,
    }
}

fn usage() -> Usage {
    Usage {
        prompt_tokens: 812,
        cached_tokens: 768,
        completion_tokens: 128,
        reasoning_tokens: 20,
    }
}

fn line(traits: Traits, what: What) -> String {
    let log = log(traits);
    let usage = usage();
    Line {
        log: &log,
        usage,
        what,
    }
    .to_string()
}

const BOTH: Traits = Traits {
    tools: true,
    thinking: true,
    form: false,
};

#[test]
fn a_request_has_a_line_for_each_part_of_its_life() {
    let none = Traits::default();
    let begins = |queued_us| What::Begins { queued_us };
    let ends = What::Ends {
        prefill_per_s: 210.4,
        decode_per_s: 35.49,
        reason: "stop",
    };
    let computes = |per_s| What::Computes { done: 790, per_s };
    for (traits, what, expected) in [
        (
            BOTH,
            begins(999_999),
            "ctx 768..812 cached 768 new 44 | tools think",
        ),
        (
            none,
            begins(1_500_000),
            "ctx 768..812 cached 768 new 44 | queued 1.5 s",
        ),
        (
            BOTH,
            computes(2.0),
            "ctx 768..812 at 790 (97 %) | prefill 2.0 t/s, 11 s left",
        ),
        (
            none,
            computes(0.0),
            "ctx 768..812 at 790 (97 %) | prefill 0.0 t/s",
        ),
        (
            BOTH,
            ends,
            "ctx 768..812 cached 768 new 44 | prefill 210 t/s | decode 35 t/s, 128 tokens | tools think | stop",
        ),
        (
            none,
            What::Fails(Failure::QueueTimeout),
            &format!(
                "ctx 768..812 cached 768 new 44 | 128 tokens | failed: {}",
                Failure::QueueTimeout
            ),
        ),
        (
            none,
            What::Leaves,
            "ctx 768..812 cached 768 new 44 | 128 tokens | the client has gone",
        ),
    ] {
        assert_eq!(line(traits, what), format!("req_1 chat: {expected}"));
    }
}

#[test]
fn a_long_prompt_is_spoken_of_every_few_seconds() {
    let mut log = log(BOTH);
    let mut told = |now_us| {
        log.prompt(usage(), 790, (now_us, 1_000_000, 0));
        log.told_us
    };
    assert_eq!(told(1_000_000), Some(1_000_000));
    assert_eq!(told(5_999_999), Some(1_000_000), "too soon");
    assert_eq!(told(6_000_000), Some(6_000_000));
    assert_eq!(told(7_000_000), Some(6_000_000));
}

#[test]
fn rates_are_of_what_was_computed() {
    assert!((per_second(44, 2_000_000) - 22.0).abs() < 1e-9);
    assert_eq!(per_second(44, 0).to_bits(), 0.0_f64.to_bits());
}
