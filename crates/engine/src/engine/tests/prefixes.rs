//! What agents do to a prefix cache: every case that users of ds4 have reported (issues of antirez/ds4, by number), to the
//! token. `docs/kv-format.md` lists the tests of them all.

use super::*;

/// Tokens of a block of the fake model.
const BLOCK: usize = 16;

/// Two sequences of 256 tokens.
fn two_sessions() -> Rig {
    let config = EngineConfig {
        sessions: 2,
        ..small()
    };
    Rig::new(FakeModel::new(VOCAB), &config)
}

/// Asks, and gives the answer and how many tokens of the prompt were computed for it.
fn ask(rig: &mut Rig, prompt: &str, tokens: u32) -> (String, usize) {
    let before = rig.engine.scheduler.stats().prefill_tokens;
    let sampling = Sampling {
        ignore_eos: true,
        ..greedy(tokens)
    };
    let answer = rig.answer(prompt, sampling);
    assert_eq!(answer.text, letters(prompt, tokens as usize));
    let computed = rig.engine.scheduler.stats().prefill_tokens - before;
    assert_eq!(
        prompt.len() as u64 - computed,
        u64::from(answer.usage().cached_tokens)
    );
    (answer.text, usize::try_from(computed).expect("few"))
}

#[test]
fn ds4_765_1069_alternating_conversations_and_side_requests_recompute_nothing() {
    // One ends in the middle of a block, one with it.
    for system in [70, 64] {
        let mut rig = two_sessions();
        let system = long(system);
        let mut histories = [format!("{system}ANN"), format!("{system}BOB")];
        let mut known = [0, system.len() / BLOCK * BLOCK];
        for turn in 0..8 {
            for (history, known) in histories.iter_mut().zip(&mut known) {
                *history += &format!("{turn} and then? ");
                let (answer, computed) = ask(&mut rig, history, 5);
                assert_eq!(computed, history.len() - *known, "turn {turn}");
                // All but the answer's last token, which nobody has computed yet.
                *known = history.len() + answer.len() - 1;
                *history += &answer;
            }
            let side = format!("{system}title of {turn}");
            let (_, computed) = ask(&mut rig, &side, 5);
            // What goes on in different ways is shared in whole blocks.
            let shared = system.len() / BLOCK * BLOCK;
            assert_eq!(computed, side.len() - shared, "turn {turn}");
        }
        rig.assert_empty();
    }
}

#[test]
fn ds4_698_710_818_a_retry_after_an_abort_goes_on_where_it_was() {
    let mut rig = two_sessions();
    let prompt = long(150);
    let aborted = rig.submit(&prompt, greedy(20));
    while rig.engine.scheduler.stats().prefill_tokens < 64 {
        rig.step();
    }
    let done = rig.engine.scheduler.stats().prefill_tokens;
    drop(aborted);
    rig.settle();
    rig.assert_empty();
    let done = usize::try_from(done).expect("few");
    assert_eq!(ask(&mut rig, &prompt, 5).1, 150 - done);
    // An answer that is cut off is known as far as it came.
    let stream = rig.submit(&prompt, greedy(50));
    while stream.ring_len() < 9 {
        rig.step();
    }
    drop(stream);
    rig.settle();
    let again = format!("{prompt}{}", letters(&prompt, 8));
    assert!(ask(&mut rig, &again, 5).1 <= 2);
}

#[test]
fn ds4_1007_a_last_token_that_differs_costs_its_block() {
    let mut rig = two_sessions();
    let prompt = long(200);
    ask(&mut rig, &prompt, 2);
    let other = format!("{}!", &prompt[..199]);
    assert_eq!(ask(&mut rig, &other, 2).1, 200 - 192);
    // Neither took anything from the other.
    assert_eq!(
        ask(&mut rig, &format!("{prompt}{}", letters(&prompt, 1)), 2).1,
        1
    );
}

#[test]
fn ds4_174_nested_prefixes_live_side_by_side() {
    let mut rig = two_sessions();
    let prompt = long(200);
    for length in [50, 100, 150, 200, 150, 100, 50] {
        ask(&mut rig, &prompt[..length], 1);
    }
    for length in [50, 100, 150, 200] {
        let computed = ask(&mut rig, &format!("{}?", &prompt[..length]), 1).1;
        assert!(computed <= BLOCK, "{computed} of {length}");
    }
    assert!(
        rig.engine.scheduler.stats().blocks.cached <= 13 + 8,
        "they share"
    );
}

#[test]
fn ds4_68_what_stands_before_a_date_is_found_whatever_the_date() {
    let mut rig = two_sessions();
    let prompt = |date: &str| format!("{}{date}{}", long(100), long(60));
    ask(&mut rig, &prompt("2026-01-01"), 1);
    assert_eq!(ask(&mut rig, &prompt("2026-01-02"), 1).1, 170 - 96);
    assert_eq!(
        ask(&mut rig, &prompt("2026-01-01"), 1).1,
        1,
        "and the same day whole"
    );
}

#[test]
fn ds4_604_memory_full_of_prefixes_takes_every_new_session() {
    let mut rig = two_sessions();
    for number in 0..20 {
        ask(&mut rig, &format!("{number} {}", long(200)), 5);
    }
    assert_eq!(rig.engine.scheduler.stats().blocks.free, 0);
    let longest = [0, 1].map(|number| rig.submit(&format!("{number}{}", long(200)), greedy(55)));
    rig.settle();
    for stream in longest {
        assert_eq!(Answer::of(stream).text.len(), 55);
    }
    rig.assert_empty();
}
