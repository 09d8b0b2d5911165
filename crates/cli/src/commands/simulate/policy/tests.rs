//! Names of policies, and single decisions. Whole runs are in the world's tests.

use super::*;

fn parts(kind: Kind, prompts: &[u32], decoders: u32) -> (bool, Vec<(usize, u32)>) {
    let turn = Fixed::new(kind, 100).plan(prompts, decoders);
    (turn.decode, turn.parts)
}

#[test]
fn a_chunk_goes_to_the_oldest_first_and_the_rest_to_the_next() {
    assert_eq!(
        parts(Kind::PrefillFirst, &[30, 90, 10], 5),
        (false, vec![(0, 30), (1, 70)])
    );
    // Decode rows count.
    assert_eq!(
        parts(Kind::Mixed, &[30, 90], 5),
        (true, vec![(0, 30), (1, 65)])
    );
    assert_eq!(parts(Kind::Mixed, &[30], 100), (true, vec![]));
    assert_eq!(parts(Kind::DecodeFirst, &[30], 1), (true, vec![]));
    assert_eq!(parts(Kind::DecodeFirst, &[30], 0), (false, vec![(0, 30)]));
}

#[test]
fn alternate_owes_a_turn_after_a_prompt() {
    let mut policy = Fixed::new(Kind::Alternate, 100);
    let turns: Vec<bool> = [(1, 0), (1, 1), (1, 1), (0, 1), (1, 1)]
        .into_iter()
        .map(|(prompts, decoders)| policy.plan(&[500; 1][..prompts], decoders).decode)
        .collect();
    assert_eq!(turns, [false, true, false, true, false]);
}

#[test]
fn nothing_to_do_is_an_empty_turn() {
    for kind in [
        Kind::PrefillFirst,
        Kind::DecodeFirst,
        Kind::Alternate,
        Kind::Mixed,
    ] {
        assert_eq!(parts(kind, &[], 0), (false, vec![]));
        assert_eq!(parts(kind, &[], 2), (true, vec![]));
    }
}

#[test]
fn policies_are_known_by_name() {
    let choice = |text: &str| text.parse::<Choice>().ok();
    assert_eq!(choice("ours"), Some(Choice::Ours { stall_ms: None }));
    assert_eq!(choice("ours:60"), Some(Choice::Ours { stall_ms: Some(60) }));
    for kind in [
        Kind::PrefillFirst,
        Kind::DecodeFirst,
        Kind::Alternate,
        Kind::Mixed,
    ] {
        assert_eq!(
            choice(&format!("{kind}:512")),
            Some(Choice::Fixed {
                kind,
                chunk: Some(512)
            })
        );
    }
    for wrong in ["mine", "mixed:", "mixed:0", "mixed:many", ":5"] {
        assert_eq!(choice(wrong), None, "{wrong}");
    }
}
