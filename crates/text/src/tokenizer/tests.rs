//! The merge loops against slow definitions, and the rules for special tokens, on vocabularies small enough to check by hand.

use proptest::prelude::*;

use super::{Special, Tokenizer};
use crate::TextError;
use crate::test_vocab::{BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, bpe, file};

/// The texts of the tokens of `text`.
fn tokens(tokenizer: &Tokenizer, text: &str, special: Special) -> Vec<String> {
    let ids = tokenizer.encode(text, special);
    ids.iter()
        .map(|&id| String::from_utf8_lossy(tokenizer.piece(id)).into_owned())
        .collect()
}

fn spm(tokens: &[(&str, i32, f32)], add_space_prefix: bool) -> Tokenizer {
    let file = file("llama", tokens, |writer| {
        writer
            .metadata("tokenizer.ggml.add_space_prefix", add_space_prefix)
            .metadata("tokenizer.ggml.unknown_token_id", 0_u32)
    });
    Tokenizer::from_metadata(file.metadata()).expect("the vocabulary is valid")
}

const LLAMA2: &[(&str, i32, f32)] = &[
    ("<unk>", UNKNOWN, 0.0),
    ("<s>", CONTROL, 0.0),
    ("</s>", CONTROL, 0.0),
    ("<0x0A>", BYTE, 0.0),
    ("<0xC3>", BYTE, 0.0),
    ("<0xA9>", BYTE, 0.0),
    ("▁t", NORMAL, -1.0),
    ("he", NORMAL, -2.0),
    ("▁the", NORMAL, -3.0),
    ("hen", NORMAL, -4.0),
    ("a", NORMAL, -9.0),
    ("e", NORMAL, -10.0),
    ("h", NORMAL, -11.0),
    ("n", NORMAL, -12.0),
    ("t", NORMAL, -13.0),
    ("▁", NORMAL, -14.0),
    ("<", NORMAL, -15.0),
    ("s", NORMAL, -16.0),
    (">", NORMAL, -17.0),
    ("<s", NORMAL, -18.0),
    ("aa", NORMAL, -5.0),
    ("[X]", USER_DEFINED, 0.0),
    ("", UNUSED, 0.0),
];

#[test]
fn merges_go_by_rank_and_stay_within_words() {
    let tokenizer = bpe(
        "gpt-2",
        &[
            ("he", NORMAL),
            ("ll", NORMAL),
            ("hell", NORMAL),
            ("Ġhe", NORMAL),
            ("oĠ", NORMAL),
        ],
        &["h e", "l l", "he ll", "Ġ he", "o Ġ"],
    );
    assert_eq!(
        tokens(&tokenizer, "hello he", Special::Text),
        ["hell", "o", " he"]
    );
    assert_eq!(tokens(&tokenizer, "lll", Special::Text), ["ll", "l"]);
    assert_eq!(
        tokens(&tokenizer, "é", Special::Text),
        ["\u{FFFD}", "\u{FFFD}"]
    );
    assert!(tokenizer.encode("", Special::Parse).is_empty());
    // The vocabulary lacks the bytes of €.
    assert_eq!(tokens(&tokenizer, "h€h", Special::Text), ["h", "h"]);
}

#[test]
fn llama3_takes_whole_words_and_begins_with_bos() {
    let extra = [("abc", NORMAL), ("<B>", CONTROL), ("ab", NORMAL)];
    let of = |pre| bpe(pre, &extra, &["a b"]);
    assert_eq!(tokens(&of("llama-bpe"), "abc", Special::Text), ["abc"]);
    assert_eq!(tokens(&of("llama3"), "abc", Special::Text), ["abc"]);
    assert_eq!(tokens(&of("qwen2"), "abc", Special::Text), ["ab", "c"]);
}

#[test]
fn text_never_becomes_a_control_token() {
    let special = [
        ("<|c|>", CONTROL),
        ("<u>", USER_DEFINED),
        ("xy", CONTROL),
        ("<unk>", UNKNOWN),
    ];
    let tokenizer = bpe("gpt-2", &special, &["x y"]);
    assert_eq!(
        tokens(&tokenizer, "a<|c|>b<u>", Special::Parse),
        ["a", "<|c|>", "b", "<u>"]
    );
    assert_eq!(
        tokens(&tokenizer, "<|c|><u>", Special::Text),
        ["<", "|", "c", "|", ">", "<u>"]
    );
    // A merge list that would make one is not followed.
    assert_eq!(tokens(&tokenizer, "xy", Special::Text), ["x", "y"]);
    assert_eq!(tokenizer.encode("xy", Special::Parse), [2]);
    assert!(!tokenizer.encode("<unk>", Special::Text).contains(&3));
    assert_eq!(tokenizer.encode("<unk>", Special::Parse), [3]);
    // SentencePiece has "<s" and ">", whose union is BOS with the highest score of all.
    let tokenizer = spm(LLAMA2, false);
    assert_eq!(tokens(&tokenizer, "<s>", Special::Text), ["<s", ">"]);
    assert_eq!(tokenizer.encode("<s>", Special::Parse), [1]);
}

#[test]
fn the_leftmost_and_longest_special_token_wins() {
    let special = [
        ("<a", USER_DEFINED),
        ("<a>", USER_DEFINED),
        ("a>b", USER_DEFINED),
    ];
    let tokenizer = bpe("gpt-2", &special, &[]);
    assert_eq!(
        tokens(&tokenizer, "<a>b<ab", Special::Text),
        ["<a>", "b", "<a", "b"]
    );
}

#[test]
fn sentencepiece_merges_by_score() {
    let tokenizer = spm(LLAMA2, false);
    assert_eq!(tokens(&tokenizer, "then", Special::Text), ["t", "hen"]);
    // "▁t" is better than "he", but then "he" remains and "▁the" is made of both.
    assert_eq!(tokens(&tokenizer, "a the", Special::Text), ["a", " the"]);
    // Equal scores: leftmost first.
    assert_eq!(tokens(&tokenizer, "aaa", Special::Text), ["aa", "a"]);
    // Characters outside the vocabulary become bytes, bytes outside it the unknown token.
    assert_eq!(tokenizer.encode("é\n", Special::Text), [4, 5, 3]);
    assert_eq!(tokenizer.encode("€", Special::Text), [0, 0, 0]);
}

#[test]
fn a_blank_is_put_first_and_after_special_tokens() {
    let tokenizer = spm(LLAMA2, true);
    assert_eq!(tokens(&tokenizer, "the", Special::Text), [" the"]);
    assert_eq!(
        tokens(&tokenizer, "<s>the[X]the a", Special::Parse),
        ["<s>", " the", "[X]", " the", " ", "a"]
    );
    assert!(tokenizer.encode("", Special::Text).is_empty());
}

#[test]
fn pieces_are_raw_bytes() {
    let tokenizer = spm(LLAMA2, true);
    assert_eq!(tokenizer.piece(4), [0xC3]);
    assert_eq!(tokenizer.piece(8), b" the");
    assert_eq!(tokenizer.piece(2), b"</s>");
    assert_eq!(tokenizer.piece(22), b"");
    assert_eq!(tokenizer.piece(9999), b"");
}

#[test]
fn ids_with_a_role_come_from_the_file_or_the_kind_of_vocabulary() {
    let tokenizer = spm(LLAMA2, true);
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(1), Some(2)));
    assert!(tokenizer.add_bos() && !tokenizer.add_eos());
    assert!(tokenizer.is_end(2) && !tokenizer.is_end(1));
    assert!(tokenizer.is_control(1) && !tokenizer.is_control(21));
    // Known by its text, although the file calls it normal.
    let tokenizer = bpe("gpt-2", &[("<|im_end|>", NORMAL)], &[]);
    assert!(tokenizer.is_end(0) && tokenizer.is_control(0));
    assert_eq!((tokenizer.bos(), tokenizer.add_bos()), (None, false));
}

#[test]
fn what_is_wrong_is_named() {
    let load = |pre: &str, merge: &str| {
        let file = file(
            "gpt2",
            &[("a", NORMAL, 0.0), ("b", NORMAL, 0.0)],
            |writer| {
                writer
                    .metadata("tokenizer.ggml.pre", pre)
                    .metadata("tokenizer.ggml.merges", vec![merge])
            },
        );
        Tokenizer::from_metadata(file.metadata())
            .expect_err("something is wrong")
            .to_string()
    };
    let error = load("klingon", "a b");
    for part in [
        "klingon",
        "smollm",
        "llama-bpe",
        "llama3",
        "llama-v3",
        "gpt-2",
        "qwen2",
        "deepseek-v3",
        "joyai-llm",
        "default",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert!(load("gpt-2", "a b").contains("merges[0] 'a b'"));
    assert!(load("gpt-2", "ab").contains("merges[0] 'ab'"));
    let file = file("t5", &[], |writer| writer);
    let error = Tokenizer::from_metadata(file.metadata()).expect_err("not supported");
    assert!(matches!(error, TextError::UnknownTokenizer { name, .. } if name == "t5"));
}

#[test]
fn long_words_are_cut_completely() {
    let tokenizer = bpe(
        "gpt-2",
        &[("aa", NORMAL), ("ĠĠ", NORMAL), ("aaaa", NORMAL)],
        &["a a", "Ġ Ġ", "aa aa"],
    );
    let spm = spm(LLAMA2, false);
    for text in [
        "a".repeat(1 << 20),
        " ".repeat(1 << 20),
        " a".repeat(1 << 19),
    ] {
        for tokenizer in [&tokenizer, &spm] {
            let ids = tokenizer.encode(&text, Special::Text);
            let length: usize = ids.iter().map(|&id| tokenizer.piece(id).len()).sum();
            assert_eq!(length, text.len());
        }
    }
    assert_eq!(
        tokenizer.encode(&"a".repeat(1 << 20), Special::Text),
        vec![2; 1 << 18]
    );
}

/// The definition: join the best pair, leftmost among equals, until none is left.
fn slow(text: &str, join: impl Fn(&str, &str) -> Option<f32>) -> Vec<String> {
    let mut parts: Vec<String> = text.chars().map(String::from).collect();
    loop {
        let mut best: Option<(f32, usize)> = None;
        for i in 1..parts.len() {
            if let Some(score) = join(&parts[i - 1], &parts[i])
                && best.is_none_or(|(best, _)| score > best)
            {
                best = Some((score, i));
            }
        }
        let Some((_, i)) = best else { return parts };
        let right = parts.remove(i);
        parts[i - 1].push_str(&right);
    }
}

proptest! {
    #[test]
    fn sentencepiece_is_the_slow_definition(
        text in "[ab ]{0,24}",
        words in prop::collection::vec(("[ab▁]{2,5}", 0..6_u8), 0..20),
    ) {
        let mut all: Vec<(&str, i32, f32)> = vec![("<unk>", UNKNOWN, 0.0), ("a", NORMAL, -20.0), ("b", NORMAL, -20.0), ("▁", NORMAL, -20.0)];
        for (word, score) in &words {
            if all.iter().all(|&(known, _, _)| known != word) {
                all.push((word, NORMAL, -f32::from(*score)));
            }
        }
        let tokenizer = spm(&all, false);
        let score = |left: &str, right: &str| {
            let joined = format!("{left}{right}");
            all.iter().find(|&&(known, _, _)| known == joined).map(|&(_, _, score)| score)
        };
        let want: Vec<String> = slow(&text.replace(' ', "▁"), score).iter().map(|part| part.replace('▁', " ")).collect();
        prop_assert_eq!(tokens(&tokenizer, &text, Special::Text), want);
    }

    #[test]
    fn byte_pairs_are_the_slow_definition(
        text in "[ab]{0,24}",
        merges in prop::collection::vec(("[ab]{1,2}", "[ab]{1,2}"), 0..12),
    ) {
        // Keep what a training run could have made: both sides exist before the merge.
        let mut known = vec!["a".to_owned(), "b".to_owned()];
        let mut lines: Vec<(String, String)> = Vec::new();
        for (left, right) in merges {
            if known.contains(&left) && known.contains(&right) && !lines.contains(&(left.clone(), right.clone())) {
                known.push(format!("{left}{right}"));
                lines.push((left, right));
            }
        }
        known.sort();
        known.dedup();
        let extra: Vec<(&str, i32)> = known.iter().filter(|t| t.len() > 1).map(|t| (t.as_str(), NORMAL)).collect();
        let merges: Vec<String> = lines.iter().map(|(left, right)| format!("{left} {right}")).collect();
        let merges: Vec<&str> = merges.iter().map(String::as_str).collect();
        let tokenizer = bpe("gpt-2", &extra, &merges);
        let rank = |left: &str, right: &str| {
            let at = lines.iter().position(|(l, r)| l == left && r == right);
            at.map(|rank| -(rank as f32))
        };
        prop_assert_eq!(tokens(&tokenizer, &text, Special::Text), slow(&text, rank));
    }
}
