//! Which tokens spell a prompt, and what is encoded behind them.

use super::{Prompt, Spelling};
use crate::Tokenizer;
use crate::test_vocab::{BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, bpe, file};

const END: u32 = 0;
const THINK: u32 = 1;
const HE: u32 = 2;
const LLO: u32 = 3;

fn byte_level() -> Tokenizer {
    let tokens = [
        ("<end>", CONTROL),
        ("<think>", USER_DEFINED),
        ("He", NORMAL),
        ("llo", NORMAL),
        ("ll", NORMAL),
        ("Hello", NORMAL),
    ];
    bpe("default", &tokens, &["H e", "l l", "ll o", "He llo"])
}

/// Scores make `Hello` of a text, and a blank comes before it.
fn with_blanks() -> Tokenizer {
    let tokens = [
        ("<end>", CONTROL, 0.0),
        ("<think>", USER_DEFINED, 0.0),
        ("He", NORMAL, -3.0),
        ("llo", NORMAL, -3.5),
        ("<unk>", UNKNOWN, 0.0),
        ("▁", NORMAL, -9.0),
        ("▁He", NORMAL, -2.0),
        ("▁Hello", NORMAL, -1.0),
        ("ll", NORMAL, -4.0),
        ("H", NORMAL, -9.0),
        ("e", NORMAL, -9.0),
        ("l", NORMAL, -9.0),
        ("o", NORMAL, -9.0),
        ("<0xC3>", BYTE, 0.0),
        ("<0xA9>", BYTE, 0.0),
        ("<", NORMAL, -9.0),
    ];
    let file = file("llama", &tokens, |writer| {
        writer
            .metadata("tokenizer.ggml.bos_token_id", END)
            .metadata("tokenizer.ggml.unknown_token_id", 4_u32)
    });
    Tokenizer::from_metadata(file.metadata()).expect("the vocabulary is valid")
}

fn prompt(parts: &[Result<&str, u32>]) -> Prompt {
    let mut prompt = Prompt::new();
    for part in parts {
        match part {
            Ok(text) => prompt.push_text(text),
            Err(id) => prompt.push_control(*id, "<end>"),
        }
    }
    prompt
}

/// Takes all of them, and encodes the rest.
fn spelt(prompt: &Prompt, tokenizer: &Tokenizer, tokens: &[u32]) -> Option<Vec<u32>> {
    let mut spelling = Spelling::new(prompt, tokenizer);
    let all = tokens.iter().all(|&token| spelling.take(token));
    all.then(|| spelling.rest(tokens.to_vec()))
}

#[test]
fn other_tokens_stand_for_the_same_text() {
    let tokenizer = byte_level();
    let prompt = prompt(&[Ok("Hello"), Err(END), Ok("Hello")]);
    let hello = tokenizer.encode("Hello", crate::Special::Text)[0];
    assert_eq!(prompt.encode(&tokenizer), [hello, END, hello]);
    let other = [HE, LLO, END];
    assert_eq!(
        spelt(&prompt, &tokenizer, &other),
        Some(vec![HE, LLO, END, hello])
    );
    // In the middle of a text the rest of it is encoded on its own.
    assert_eq!(
        spelt(&prompt, &tokenizer, &[HE]),
        Some(vec![HE, LLO, END, hello])
    );
    assert_eq!(spelt(&prompt, &tokenizer, &[HE, HE]), None);
    assert_eq!(spelt(&prompt, &tokenizer, &[hello, hello]), None, "no end");
    assert_eq!(spelt(&prompt, &tokenizer, &[END]), None);
    assert_eq!(spelt(&prompt, &tokenizer, &[9999]), None);
}

#[test]
fn the_spelling_of_a_control_token_is_not_the_token() {
    let tokenizer = byte_level();
    let text = prompt(&[Ok("<end>He")]);
    assert_eq!(spelt(&text, &tokenizer, &[END]), None);
    let typed = tokenizer.encode("<end>", crate::Special::Text);
    let control = prompt(&[Err(END), Ok("He")]);
    assert_eq!(spelt(&control, &tokenizer, &typed[..1]), None);
    // One that is found in all text is.
    let thought = prompt(&[Ok("He<think>He")]);
    let tokens = [HE, THINK, HE];
    assert_eq!(spelt(&thought, &tokenizer, &tokens), Some(tokens.to_vec()));
}

#[test]
fn a_blank_before_a_text_is_said_by_its_first_token() {
    let tokenizer = with_blanks();
    let whole = prompt(&[Ok("Hello"), Err(END), Ok("Hello")]);
    let canonical = whole.encode(&tokenizer);
    let (blank, blank_he, blank_hello) = (5, 6, 7);
    // BOS comes first.
    assert_eq!(canonical, [END, blank_hello, END, blank_hello]);
    for first in [[blank_he, LLO].as_slice(), &[blank, HE, LLO]] {
        let tokens = [&[END], first].concat();
        let expected = [&tokens[..], &[END, blank_hello]].concat();
        assert_eq!(spelt(&whole, &tokenizer, &tokens), Some(expected));
    }
    assert_eq!(spelt(&whole, &tokenizer, &[END, HE, LLO]), None, "no blank");
    assert_eq!(spelt(&whole, &tokenizer, &[blank_he]), None, "no BOS");
    // The rest of a text has its blank already.
    let half = spelt(&whole, &tokenizer, &[END, blank]).expect("spelt");
    assert!(!half[2..3].contains(&blank_hello), "{half:?}");
    // After a token that is found in all text comes a blank again.
    let thought = prompt(&[Ok("Hello<think>Hello")]);
    let canonical = thought.encode(&tokenizer);
    assert_eq!(canonical, [END, blank_hello, THINK, blank_hello]);
    assert_eq!(
        spelt(&thought, &tokenizer, &[END, blank_he, LLO, THINK]),
        Some(vec![END, blank_he, LLO, THINK, blank_hello])
    );
}

#[test]
fn what_stands_for_anything_unknown_says_nothing() {
    let tokenizer = with_blanks();
    let unknown = prompt(&[Ok("<unk>")]);
    assert_eq!(spelt(&unknown, &tokenizer, &[END, 4]), None);
}

#[test]
fn half_a_character_is_no_place_to_go_on_from() {
    let tokenizer = with_blanks();
    let prompt = prompt(&[Ok("é")]);
    let mut spelling = Spelling::new(&prompt, &tokenizer);
    assert!(spelling.is_between_segments() && spelling.is_between_characters());
    let places = [END, 5, 13, 14].map(|token| {
        assert!(spelling.take(token));
        (
            spelling.is_between_segments(),
            spelling.is_between_characters(),
        )
    });
    assert_eq!(
        places,
        [(true, true), (false, true), (false, false), (true, true)]
    );
}
