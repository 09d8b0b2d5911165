//! The verdict on reports made by hand.

use serde_json::json;

use super::*;

fn report(gap: f64, newcomer: f64, tokens: f64) -> Value {
    json!({"longest_gap_ms": gap, "newcomer_ttft_ms": newcomer, "work_tokens_per_s": tokens})
}

#[test]
fn gates_compare_medians_with_the_peer_and_the_best_fixed_chunk() {
    let ours = vec![
        report(90.0, 100.0, 700.0),
        report(500.0, 100.0, 980.0),
        report(100.0, 100.0, 990.0),
    ];
    let theirs = vec![report(10_000.0, 1_000.0, 100.0)];
    let fixed = |tokens| vec![report(1.0, 1.0, tokens)];
    let results = [ours, theirs, fixed(600.0), fixed(1000.0), fixed(900.0)];
    let (text, all_hold) = gates(&results);
    assert!(all_hold, "{text}");
    assert!(
        text.contains("| 100.000 | 100 | holds |") && text.contains("| 0.980 | 0.97 | holds |"),
        "{text}"
    );
    let mut slower = results.clone();
    slower[0].push(report(100.0, 100.1, 940.0));
    let (text, all_hold) = gates(&slower);
    assert!(
        !all_hold && text.contains("| 0.960 | 0.97 | missed |"),
        "{text}"
    );
}

#[test]
fn what_was_not_measured_is_missed() {
    let nothing = vec![vec![json!({})]; 5];
    assert!(!gates(&nothing).1);
}
