//! Tables and figures of rounds made by hand.

use std::time::Duration;

use super::*;

fn measures(longest: f64, alone: Option<f64>) -> Measures {
    Measures {
        longest_gap_ms: longest,
        longest_gap_by_victim_ms: vec![longest, longest / 2.0],
        tokens_by_victim: vec![9, 7],
        alone_ttft_s: alone,
        ..Measures::default()
    }
}

fn answer(start: Instant, sent_ms: u64, tokens_ms: &[u64]) -> Answer {
    let at = |ms: &u64| start + Duration::from_millis(*ms);
    Answer {
        sent: at(&sent_ms),
        ended: at(tokens_ms.last().unwrap()),
        first_byte: None,
        tokens: tokens_ms.iter().map(at).collect(),
        usage: None,
        status: Some(200),
        stopped: false,
        failure: None,
    }
}

#[test]
fn the_table_has_a_column_per_round_and_the_median() {
    let text = table(&[
        measures(100.0, None),
        measures(300.0, None),
        measures(120.0, None),
    ]);
    assert!(text.starts_with(
        "| measure | round 1 | round 2 | round 3 | median |\n| --- | ---: | ---: | ---: | ---: |\n"
    ));
    assert!(
        text.contains("| longest gap ms | 100.00 | 300.00 | 120.00 | 120.00 |\n"),
        "{text}"
    );
    assert!(
        text.contains(
            "| longest gap of the best-off answer ms | 50.00 | 150.00 | 60.00 | 60.00 |\n"
        )
    );
    assert!(!text.contains("alone"), "what was not measured has no line");
}

#[test]
fn json_has_every_round_and_the_medians() {
    let json = json(&[measures(100.0, Some(4.0)), measures(200.0, Some(6.0))]);
    assert_eq!(json["median"]["longest_gap_ms"], 150.0);
    assert_eq!(json["median"]["alone_ttft_s"], 5.0);
    assert_eq!(json["rounds"][1]["longest_gap_by_victim_ms"][1], 100.0);
}

#[test]
fn the_figure_marks_the_longest_contended_gap() {
    let start = Instant::now();
    let round = Round {
        alone: None,
        // The gap of 900 ms before the long prompt is none of its doing; that of 580 ms is.
        victims: vec![answer(start, 0, &[10, 910, 920, 1500, 1900, 1910])],
        long: answer(start, 1000, &[1800]),
        short: answer(start, 1500, &[1600]),
    };
    let svg = figure("heading", &round).unwrap();
    assert!(svg.contains("580 ms") && !svg.contains("900 ms"), "{svg}");
    for lane in ["running answer 1", "the long prompt", "the newcomer"] {
        assert!(svg.contains(lane), "{lane} is missing");
    }
}

#[test]
fn several_tokens_in_one_event_are_mentioned() {
    let start = Instant::now();
    let counted = |completion| Answer {
        usage: Some(super::super::answer::Usage {
            prompt: 1,
            completion,
            cached: 0,
        }),
        ..answer(start, 0, &[1, 2])
    };
    let round = |completion| Round {
        alone: None,
        victims: Vec::new(),
        long: counted(completion),
        short: counted(completion),
    };
    assert_eq!(coalesced(&round(2)), None);
    assert!(
        coalesced(&round(4))
            .unwrap()
            .contains("8 tokens in 4 events")
    );
}
