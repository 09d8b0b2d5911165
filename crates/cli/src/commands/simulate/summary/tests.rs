//! Percentiles, classes and goodput, computed by hand.

use super::*;

const SLO: Slo = Slo {
    ttft_us: 2_000_000,
    gap_us: 100_000,
};

/// Requests by prompt length and by when their tokens come, µs after their arrival at 1 s.
fn run(requests: &[(u32, &[u64])]) -> Run {
    let mut run = Run::default();
    for (index, &(prompt, tokens)) in requests.iter().enumerate() {
        run.arrive(1_000_000, prompt);
        for &token in tokens {
            run.emit(index, 1_000_000 + token);
            run.end_us = run.end_us.max(1_000_000 + token);
        }
    }
    run
}

#[test]
fn figures_of_a_run() {
    let run = run(&[
        // Good: at both bounds.
        (1024, &[2_000_000, 2_100_000, 2_150_000]),
        // First token too late; one token has no gap.
        (1025, &[2_000_001]),
        // One gap too long.
        (16_384, &[500_000, 600_001]),
        // Never answered.
        (16_385, &[]),
    ]);
    let summary = Summary::new("x", &run, SLO);
    assert_eq!((summary.requests, summary.unanswered), (4, 1));
    assert_eq!(summary.goodput_percent, 25.0);
    assert_eq!(
        (summary.max_gap_ms, summary.gap_p99_ms),
        (Some(100.001), Some(100.001))
    );
    // The longest of each: 100 and 100.001 ms.
    assert_eq!(summary.request_max_gap_p50_ms, Some(100.0));
    assert_eq!(summary.request_max_gap_p99_ms, Some(100.001));
    assert_eq!(
        (summary.ttft.p50_s, summary.ttft.p99_s),
        (Some(2.0), Some(2.000001))
    );
    let classes = summary
        .ttft_by_length
        .map(|class| (class.requests, class.p50_s));
    assert_eq!(
        classes,
        [
            (1, Some(2.0)),
            (1, Some(2.000001)),
            (1, Some(0.5)),
            (0, None)
        ]
    );
    assert_eq!(summary.end_s, 3.15);
    assert!((summary.tokens_per_s - 6.0 / 3.15).abs() < 1e-9);
    assert_eq!(run.longest_gap, (1_500_000, 1_600_001));
}

#[test]
fn a_run_of_nothing_has_no_figures() {
    let summary = Summary::new("x", &Run::default(), SLO);
    assert_eq!((summary.max_gap_ms, summary.ttft.p50_s), (None, None));
    assert_eq!((summary.goodput_percent, summary.tokens_per_s), (0.0, 0.0));
    assert!(table(&[summary]).lines().all(|line| !line.contains("NaN")));
}

#[test]
fn lines_of_the_table_are_aligned() {
    let run = run(&[(100, &[10_000, 60_000]), (200_000, &[3_000_000, 3_010_000])]);
    let summaries = ["ours:100", "prefill-first:8192"].map(|name| Summary::new(name, &run, SLO));
    insta::assert_snapshot!(table(&summaries));
}
