//! Answers keep their spelling, prompts keep their tokens, and memory is bounded.

use andante_gguf::{GgufFile, GgufWriter};
use andante_text::Special;

use super::*;

const END: u32 = 0;

/// Letters, and all pairs of a and b.
fn tokenizer() -> Tokenizer {
    let mut tokens: Vec<String> = vec!["<end>".into()];
    tokens.extend(('!'..='~').chain("ĠĊ".chars()).map(String::from));
    let merges = ["a a", "a b", "b a", "b b"];
    tokens.extend(merges.map(|merge| merge.replace(' ', "")));
    let mut kinds = vec![1_i32; tokens.len()];
    kinds[END as usize] = 3;
    let file = GgufWriter::new()
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.pre", "default")
        .metadata("tokenizer.ggml.tokens", tokens)
        .metadata("tokenizer.ggml.token_type", kinds)
        .metadata("tokenizer.ggml.merges", merges.map(String::from).to_vec())
        .metadata("tokenizer.ggml.eos_token_id", END)
        .metadata("tokenizer.ggml.add_bos_token", false)
        .finish();
    let file = GgufFile::from_bytes(file).expect("a file just written");
    Tokenizer::from_metadata(file.metadata()).expect("a small vocabulary")
}

/// One token for each letter, as the tokenizer never spells a and b.
fn letters(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let letter = |c: char| tokenizer.encode(&c.to_string(), Special::Text)[0];
    text.chars().map(letter).collect()
}

fn text(text: &str) -> Prompt {
    let mut prompt = Prompt::new();
    prompt.push_text(text);
    prompt
}

fn turns(turns: &[&str]) -> Prompt {
    let mut prompt = Prompt::new();
    for turn in turns {
        prompt.push_text(turn);
        prompt.push_control(END, "<end>");
    }
    prompt
}

/// What the engine does with a prompt and a sampled answer.
fn ask(spellings: &Spellings, tokenizer: &Tokenizer, prompt: &Prompt, answer: &[u32]) -> Vec<u32> {
    let prompt: Arc<[u32]> = spellings.encode(prompt, tokenizer, 0).into();
    spellings.note(Spelt {
        salt: 0,
        prompt: Arc::clone(&prompt),
        answer: answer.to_vec(),
    });
    [&prompt, answer].concat()
}

#[test]
fn an_answer_keeps_its_spelling_in_the_next_prompt() {
    let (tokenizer, spellings) = (tokenizer(), Spellings::default());
    let mut said = vec!["aabb"];
    let mut before = Vec::new();
    for round in 0..20 {
        // The answer is told apart from the question by the template only, as some do.
        let prompt = turns(&said);
        let encoded = spellings.encode(&prompt, &tokenizer, 0);
        assert!(encoded.starts_with(&before), "round {round}");
        let rest: Vec<u32> = encoded[before.len()..].to_vec();
        let expected = if round == 0 {
            prompt.encode(&tokenizer)
        } else {
            [&[END], &tokenizer.encode("aabb", Special::Text)[..], &[END]].concat()
        };
        assert_eq!(rest, expected, "round {round}: the rest as ever");
        before = ask(
            &spellings,
            &tokenizer,
            &prompt,
            &letters(&tokenizer, "abbaabba"),
        );
        said.extend(["abbaabba", "aabb"]);
    }
    let stranger = Spellings::default().encode(&turns(&said), &tokenizer, 0);
    assert!(!stranger.starts_with(&before), "nobody said it there");
}

#[test]
fn a_text_goes_on_from_its_answer() {
    let (tokenizer, spellings) = (tokenizer(), Spellings::default());
    let said = ask(
        &spellings,
        &tokenizer,
        &text("ab"),
        &letters(&tokenizer, "ba"),
    );
    let next = spellings.encode(&text("abbaab"), &tokenizer, 0);
    let rest = tokenizer.encode("ab", Special::Text);
    assert_eq!(next, [said, rest].concat());
}

#[test]
fn the_same_prompt_has_the_same_tokens_every_time() {
    let (tokenizer, spellings) = (tokenizer(), Spellings::default());
    // Longer than a piece, and pieces end in the middle of words.
    let long = "ababba ".repeat(40);
    let prompt = turns(&["ab", &long]);
    let canonical = prompt.encode(&tokenizer);
    for answer in ["", "abab", "b"] {
        let tokens = ask(
            &spellings,
            &tokenizer,
            &prompt,
            &letters(&tokenizer, answer),
        );
        assert_eq!(tokens[..canonical.len()], canonical);
    }
    assert_eq!(spellings.encode(&prompt, &tokenizer, 0), canonical);
    // A prompt that parts from it inside the text is encoded as if nobody had said the other.
    let other = turns(&["ab", &format!("{}x", &long[..150])]);
    assert_eq!(
        spellings.encode(&other, &tokenizer, 0),
        other.encode(&tokenizer)
    );
}

#[test]
fn dropped_reasoning_costs_only_what_follows_it() {
    let (tokenizer, spellings) = (tokenizer(), Spellings::default());
    let answer = letters(&tokenizer, "abba");
    let first = ask(&spellings, &tokenizer, &turns(&["aa"]), &answer);
    // The second answer begins with reasoning, which the client drops.
    let thought = [letters(&tokenizer, "bb"), vec![END], answer].concat();
    let second = turns(&["aa", "abba", "bb"]);
    let asked = ask(&spellings, &tokenizer, &second, &thought);
    assert!(asked.starts_with(&first));
    let third = spellings.encode(&turns(&["aa", "abba", "bb", "abba", "aa"]), &tokenizer, 0);
    let kept = asked.len() - thought.len();
    assert_eq!(third[..kept], asked[..kept]);
    assert_eq!(
        third[kept..],
        turns(&["abba", "aa"]).encode(&tokenizer),
        "what follows is encoded anew"
    );
}

#[test]
fn what_nobody_asks_for_does_not_pile_up() {
    let spellings = Spellings::default();
    for token in 0..1000 {
        spellings.note(Spelt {
            salt: 0,
            prompt: [token].into(),
            answer: Vec::new(),
        });
    }
    let ended = lock(&spellings.ended);
    assert_eq!((ended.len(), ended[0].prompt[0]), (MOST_ENDED, 936));
}

#[test]
fn text_that_spells_a_control_token_is_no_end_of_a_turn() {
    let (tokenizer, spellings) = (tokenizer(), Spellings::default());
    ask(&spellings, &tokenizer, &turns(&["aa", "bb"]), &[]);
    let typed = text("aa<end>bb<end>");
    let tokens = spellings.encode(&typed, &tokenizer, 0);
    assert_eq!(tokens, typed.encode(&tokenizer));
    assert!(!tokens.contains(&END));
}

#[test]
fn what_was_not_wanted_for_longest_goes_first() {
    let tokenizer = tokenizer();
    let mut trie = Trie::new(100);
    let prompt = |name: &str| format!("{name} {}", "ab ".repeat(100));
    let spelt = |name: &str| Spelt {
        salt: 0,
        prompt: letters(&tokenizer, &prompt(name)).into(),
        answer: Vec::new(),
    };
    let wanted = turns(&[&prompt("wanted")]);
    for round in 0..200 {
        trie.insert(&spelt(&format!("r{round}")));
        if round == 0 {
            trie.insert(&spelt("wanted"));
        }
        assert!(trie.len() <= 100 + 10);
        let known = trie
            .find(0, Spelling::new(&wanted, &tokenizer))
            .expect("used all the time");
        assert_eq!(
            trie.tokens(known.place),
            letters(&tokenizer, &prompt("wanted"))
        );
    }
    let last = turns(&[&prompt("r199")]);
    assert!(trie.find(0, Spelling::new(&last, &tokenizer)).is_some());
    let first = turns(&[&prompt("r0")]);
    assert!(trie.find(0, Spelling::new(&first, &tokenizer)).is_none());
    trie.check();
}

#[test]
fn what_was_said_under_another_salt_is_not_known() {
    let (tokenizer, spellings) = (tokenizer(), Spellings::default());
    let (prompt, answer) = (turns(&["ab"]), letters(&tokenizer, "abba"));
    spellings.note(Spelt {
        salt: 5,
        prompt: prompt.encode(&tokenizer).into(),
        answer: answer.clone(),
    });
    let next = turns(&["ab", "abba"]);
    let known = spellings.encode(&next, &tokenizer, 5);
    assert_eq!(known[2..6], answer);
    let canonical = next.encode(&tokenizer);
    assert_ne!(known, canonical);
    assert_eq!(spellings.encode(&next, &tokenizer, 0), canonical);
    assert_eq!(spellings.encode(&next, &tokenizer, 6), canonical);
}

#[test]
fn spellings_are_the_same_after_a_restart() {
    let tokenizer = tokenizer();
    let (first, mut said, mut kept) = (Spellings::default(), vec!["aabb"], Vec::new());
    for round in 0..30 {
        let answer = letters(&tokenizer, &"abba".repeat(round));
        ask(&first, &tokenizer, &turns(&said), &answer);
        kept.extend(first.take_unwritten());
        assert!(first.take_unwritten().is_empty(), "once is enough");
        said.push("aabb");
    }
    let answers: Vec<String> = (0..30).map(|round| "abba".repeat(round)).collect();
    let prompts = (0..30).map(|round| turns(&[&said[..=round], &[&answers[round], "b"]].concat()));
    let prompts: Vec<Prompt> = prompts.collect();
    let expected: Vec<_> = prompts
        .iter()
        .map(|p| first.encode(p, &tokenizer, 0))
        .collect();
    assert_ne!(
        expected[29],
        prompts[29].encode(&tokenizer),
        "it was spelt otherwise"
    );
    let whole = first.latest(usize::MAX);
    let sorted = |mut pieces: Vec<Piece>| {
        pieces.sort_by_key(|piece| (piece.parent.0, piece.tokens.clone(), piece.ends));
        pieces
    };
    let dedup = sorted(whole.clone());
    assert_eq!(dedup.len(), first.trie().len() - 2, "all but the two roots");
    for pieces in [kept, whole] {
        let second = Spellings::default();
        second.add(pieces.clone());
        second.add(pieces);
        for (prompt, expected) in prompts.iter().zip(&expected) {
            assert_eq!(second.encode(prompt, &tokenizer, 0), *expected);
        }
        assert!(second.take_unwritten().is_empty(), "it came from there");
        assert_eq!(sorted(second.latest(usize::MAX)), dedup);
        second.trie().check();
    }
    // Few pieces are those of the last sequence.
    let last = first.latest(3);
    let third = Spellings::default();
    third.add(last);
    assert_eq!(third.trie().len(), 3 + 2);
}

#[test]
fn what_is_read_again_was_not_wanted_again() {
    let (tokenizer, spellings) = (tokenizer(), Spellings::default());
    for said in ["ab", "ba", "bb"] {
        ask(
            &spellings,
            &tokenizer,
            &turns(&[said]),
            &letters(&tokenizer, "abba"),
        );
    }
    let pieces = spellings.take_unwritten();
    spellings.encode(&turns(&["ab", "abba", "b"]), &tokenizer, 0);
    let order = spellings.latest(10);
    assert_ne!(order, pieces, "the first was wanted last");
    spellings.add(pieces);
    assert_eq!(spellings.latest(10), order);
}
