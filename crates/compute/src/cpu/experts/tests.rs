//! How rows choose and where their places are. What comes of it is checked by the conformance suite.

use super::*;

const SPEC: ExpertsSpec = ExpertsSpec {
    experts: 5,
    chosen: 2,
    activation: Activation::Silu,
};

fn chosen(count: usize, logits: &[f32]) -> Vec<u32> {
    let mut choices = vec![Choice::default(); count];
    take_largest(&mut choices, logits);
    choices.iter().map(|choice| choice.expert).collect()
}

#[test]
fn the_largest_logits_are_taken_and_the_first_of_equal_ones() {
    assert_eq!(chosen(3, &[0.5, -1.0, 2.0, 0.7]), [2, 3, 0]);
    assert_eq!(chosen(2, &[1.0, 3.0, 3.0, 3.0]), [1, 2]);
    assert_eq!(chosen(3, &[f32::NEG_INFINITY; 3]), [0, 1, 2]);
}

#[test]
fn logits_that_are_no_numbers_still_choose_different_experts() {
    let mut experts = chosen(3, &[f32::NAN, 1.0, f32::NAN, f32::INFINITY]);
    experts.sort_unstable();
    experts.dedup();
    assert_eq!(experts.len(), 3);
    let mut choices = [Choice::default(); 2];
    let logits = [f32::NAN, 1.0];
    take_largest(&mut choices, &logits);
    weigh(&mut choices);
    assert!(choices.iter().any(|choice| choice.weight.is_nan()));
}

#[test]
fn weights_are_shares_of_the_chosen() {
    let mut choices = [Choice::default(); 2];
    take_largest(&mut choices, &[0.0, 2.0_f32.ln(), 5.0_f32.ln()]);
    weigh(&mut choices);
    for (choice, expected) in choices.iter().zip([5.0 / 7.0, 2.0 / 7.0]) {
        assert!((choice.weight - expected).abs() < 1e-6);
    }
}

#[test]
fn places_of_an_expert_follow_each_other_in_row_order() {
    let pool = Pool::new(2, false).expect("threads start");
    let mut scratch = ExpertsScratch::default();
    let logits = [
        [0.0, 9.0, 0.0, 8.0, 0.0],
        [7.0, 0.0, 0.0, 8.0, 0.0],
        [0.0, 6.0, 0.0, 9.0, 0.0],
    ]
    .concat();
    // What an earlier, larger call left does not matter.
    let earlier = [4.0, 3.0, 2.0, 1.0, 0.0].repeat(9);
    for logits in [&earlier, &logits] {
        let rows = logits.len() / SPEC.experts;
        scratch.choose(&pool, &SPEC, rows, Preference::Logits(logits));
        scratch.group(&SPEC);
    }
    assert_eq!(scratch.active, [0, 1, 3]);
    assert_eq!(scratch.bounds, [0, 1, 3, 6]);
    assert_eq!(scratch.rows, [1, 0, 2, 0, 1, 2]);
    // Row 0 took experts 1 and 3, row 1 took 3 and 0, row 2 took 3 and 1.
    assert_eq!(scratch.places, [1, 3, 4, 0, 5, 2]);
}
