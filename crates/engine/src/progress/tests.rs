//! Estimates of what is left of a prompt.

use andante_sched::micros;

use super::*;

fn after(processed: u32, cached_tokens: u32, cost: &CostModel) -> Option<u64> {
    let prompt = Usage {
        prompt_tokens: 1000,
        cached_tokens,
        ..Usage::default()
    };
    PromptProgress::new(prompt, processed, 1_000_000, cost).remaining_us
}

fn cost(token: i64, attend: i64) -> CostModel {
    CostModel {
        token,
        attend,
        ..CostModel::default()
    }
}

#[test]
fn the_rest_takes_what_its_work_is_worth() {
    let flat = cost(micros(100), 0);
    assert_eq!(after(250, 0, &flat), Some(3_000_000));
    // What was found costs nothing.
    assert_eq!(after(600, 200, &flat), Some(1_000_000));
    assert_eq!(after(1000, 0, &flat), Some(0));
    // The second half attends to three times as much as the first.
    let steep = cost(0, micros(1));
    let rest = after(500, 0, &steep).expect("half is done");
    assert!((2_990_000..3_010_000).contains(&rest), "{rest}");
}

#[test]
fn nothing_is_foretold_before_anything_is_computed() {
    assert_eq!(after(200, 200, &cost(micros(100), micros(1))), None);
    assert_eq!(after(200, 0, &cost(0, 0)), None);
}
