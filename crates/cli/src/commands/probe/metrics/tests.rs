//! Cases small enough to be computed by hand.

use std::time::Duration;

use super::*;

fn at(start: Instant, ms: &[u64]) -> Vec<Instant> {
    ms.iter()
        .map(|ms| start + Duration::from_millis(*ms))
        .collect()
}

#[test]
fn a_gap_counts_whole_when_it_touches_the_window() {
    let start = Instant::now();
    let tokens = at(start, &[0, 10, 20, 520, 530, 540]);
    let window = |from: u64, to: u64| Window {
        start: start + Duration::from_millis(from),
        end: start + Duration::from_millis(to),
    };
    assert_eq!(gaps_ms(&tokens, window(100, 200)), [500.0]);
    assert_eq!(gaps_ms(&tokens, window(15, 525)), [10.0, 500.0, 10.0]);
    assert_eq!(gaps_ms(&tokens, window(545, 600)), [0.0; 0]);
    assert_eq!(window(100, 350).seconds(), 0.25);
}

#[test]
fn percentiles_are_values_that_occurred() {
    let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
    assert_eq!(percentile(&values, 50), 50.0);
    assert_eq!(percentile(&values, 99), 99.0);
    assert_eq!(percentile(&values, 100), 100.0);
    assert_eq!(percentile(&[3.0, 1.0, 2.0], 99), 3.0);
    assert_eq!(percentile(&[], 50), 0.0);
}

#[test]
fn the_median_of_an_even_number_lies_between() {
    assert_eq!(median(&[4.0, 1.0, 3.0]), 3.0);
    assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
    assert_eq!(median(&[]), 0.0);
    assert_eq!(
        (mean(&[1.0, 2.0, 6.0]), longest(&[1.0, 6.0, 2.0])),
        (3.0, 6.0)
    );
}

#[test]
fn the_stall_ratio_counts_only_what_exceeds_twice_the_calm_gap() {
    // Twice 10 is 20: of 10 + 20 + 100 ms, 80 are stalled.
    assert_eq!(stall_ratio(&[10.0, 20.0, 100.0], 10.0), 80.0 / 130.0);
    assert_eq!(stall_ratio(&[], 10.0), 0.0);
}

#[test]
fn jain_of_equal_shares_is_one_and_of_one_taker_one_over_n() {
    assert_eq!(jain(&[7.0, 7.0, 7.0]), 1.0);
    assert_eq!(jain(&[9.0, 0.0, 0.0]), 1.0 / 3.0);
    // (1+2+3)² / (3·14) = 36/42
    assert_eq!(jain(&[1.0, 2.0, 3.0]), 36.0 / 42.0);
    assert_eq!(jain(&[0.0, 0.0]), 0.0);
}
