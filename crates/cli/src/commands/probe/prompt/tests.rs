//! Prompts have the length asked for and never repeat, unless a seed asks for it.

use super::*;

#[test]
fn ids_are_exact_and_in_range() {
    let mut prompts = Prompts::new(None);
    let prompt = prompts.prompt(500);
    let ids = prompt.as_array().unwrap();
    assert_eq!(ids.len(), 500);
    assert!(
        ids.iter()
            .all(|id| IDS.contains(&(id.as_u64().unwrap() as u32)))
    );
    assert_ne!(prompts.prompt(500), prompt, "a prompt must not come twice");
    assert_ne!(
        Prompts::new(None).prompt(500),
        prompt,
        "nor in a second run"
    );
}

#[test]
fn text_has_as_many_words_as_the_measured_ratio_asks_for() {
    let mut prompts = Prompts::new(Some(1));
    prompts.ids = false;
    prompts.tokens_per_word = 1.25;
    let prompt = prompts.prompt(100);
    assert_eq!(prompt.as_str().unwrap().split(' ').count(), 80);
}

#[test]
fn a_seed_repeats_the_prompts() {
    assert_eq!(
        Prompts::new(Some(7)).prompt(20),
        Prompts::new(Some(7)).prompt(20)
    );
    assert_ne!(
        Prompts::new(Some(7)).prompt(20),
        Prompts::new(Some(8)).prompt(20)
    );
}

#[test]
fn one_prompt_continues_another_in_both_forms() {
    let mut prompts = Prompts::new(Some(1));
    for ids in [true, false] {
        prompts.ids = ids;
        let (beginning, rest) = (prompts.prompt(5), prompts.prompt(3));
        let whole = join(&beginning, rest);
        let (whole, beginning) = (whole.to_string(), beginning.to_string());
        let beginning = beginning.trim_end_matches(['"', ']']);
        assert!(whole.starts_with(beginning), "{whole} after {beginning}");
        assert_eq!(whole.split([',', ' ']).count(), 8);
    }
}
