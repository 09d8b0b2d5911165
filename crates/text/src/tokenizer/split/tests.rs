//! Words against the original patterns, lookahead included, as Python's `regex` module cuts by them.

use serde::Deserialize;

use super::PreTokenizer;

#[derive(Deserialize)]
struct Case {
    pre: String,
    text: String,
    /// Lengths of the words in characters.
    words: Vec<usize>,
}

fn words<'t>(pre: &str, text: &'t str) -> Vec<&'t str> {
    let mut words = Vec::new();
    let pre_tokenizer = PreTokenizer::new(pre).expect("the name is known");
    pre_tokenizer.split(text, &mut |word| words.push(word));
    words
}

#[test]
fn words_are_those_of_the_original_patterns() {
    let cases = include_str!("../../../tests/fixtures/split.jsonl");
    let mut count = 0;
    for line in cases.lines() {
        let case: Case = serde_json::from_str(line).expect("the fixture is JSON");
        let words = words(&case.pre, &case.text);
        let lengths: Vec<usize> = words.iter().map(|word| word.chars().count()).collect();
        assert_eq!(lengths, case.words, "{}: {words:?}", case.pre);
        count += 1;
    }
    assert!(count > 500);
}

#[test]
fn each_family_cuts_in_its_own_way() {
    let text = "it's IT'S  x\n\n y 12345é";
    assert_eq!(
        words("gpt-2", text),
        [
            "it", "'s", " IT", "'", "S", " ", " x", "\n\n", " y", " 12345", "é"
        ]
    );
    assert_eq!(
        words("smollm", text),
        [
            "it", "'s", " IT", "'", "S", " ", " x", "\n\n", " y", " ", "1", "2", "3", "4", "5", "é"
        ]
    );
    assert_eq!(
        words("llama-bpe", text),
        [
            "it", "'s", " IT", "'S", " ", " x", "\n\n", " y", " ", "123", "45", "é"
        ]
    );
    assert_eq!(
        words("qwen2", text),
        [
            "it", "'s", " IT", "'S", " ", " x", "\n\n", " y", " ", "1", "2", "3", "4", "5", "é"
        ]
    );
    assert_eq!(
        words("gpt-4o", "it's IT'S  getHTTPCode x\n\n y 12345é ./a//\n b"),
        [
            "it's", " IT'S", " ", " get", "HTTPCode", " x", "\n\n", " y", " ", "123", "45", "é",
            " ./", "a", "//\n", " b"
        ]
    );
    assert_eq!(
        words("deepseek-v3", text),
        [
            "it", "'s", " IT", "'S", " ", " x", "\n\n", " y", " ", "123", "45", "é"
        ]
    );
    assert_eq!(
        words("default", text),
        [
            "it", "'", "s", " IT", "'", "S", " ", " x", "\n\n", " y", " ", "123", "45", "é"
        ]
    );
}
