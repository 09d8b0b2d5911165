//! The verdict on reports made by hand.

use serde_json::json;

use super::*;

fn report(gap: f64, newcomer: f64, tokens: f64) -> Value {
    json!({"longest_gap_ms": gap, "newcomer_ttft_ms": newcomer, "work_tokens_per_s": tokens})
}

/// Three rounds of ours, and of the others the same report in each.
fn results(ours: [Value; 3]) -> Vec<Vec<Value>> {
    let others = [
        report(10_000.0, 1_000.0, 100.0),
        report(1.0, 1.0, 600.0),
        report(1.0, 1.0, 1000.0),
        report(1.0, 1.0, 900.0),
    ];
    let mut all = vec![Vec::from(ours)];
    all.extend(others.map(|report| vec![report; 3]));
    all
}

#[test]
fn gates_compare_medians_with_the_peer_and_the_best_fixed_chunk() {
    let (text, all_hold) = gates(&results([
        report(50.0, 100.0, 700.0),
        report(500.0, 50.0, 980.0),
        report(100.0, 100.0, 990.0),
    ]));
    assert!(all_hold, "{text}");
    assert!(
        text.contains("| 100.000 | 100 | holds | 200.000 20.000 100.000 |"),
        "{text}"
    );
    assert!(
        text.contains("| 10.000 | 10 | holds | 10.000 20.000 10.000 |"),
        "{text}"
    );
    assert!(
        text.contains("| 0.980 | 0.97 | holds | 0.700 0.980 0.990 |"),
        "{text}"
    );
    let slow = report(100.0, 100.0, 960.0);
    let (text, all_hold) = gates(&results([slow.clone(), slow.clone(), slow]));
    assert!(
        !all_hold && text.contains("| 0.960 | 0.97 | missed |"),
        "{text}"
    );
}

#[test]
fn what_was_not_measured_is_missed() {
    assert!(!gates(&vec![vec![json!({})]; 5]).1);
    assert!(!gates(&vec![Vec::new(); 5]).1);
}

#[test]
fn options_are_numbers_with_names() {
    let parse = |line: &str| {
        Options::parse(
            &line
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
    };
    let options = parse("--rounds 5 --long 700").unwrap();
    assert_eq!(
        (options.rounds, options.long, options.sessions),
        (5, 700, 3)
    );
    for wrong in ["--rounds", "--rounds 0", "--rounds x", "--speed 9"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}
