//! Which dialect a model is taken to speak.

use super::{Rig, Said, show, tools, vocabulary};
use crate::test_vocab::{self, CONTROL};
use crate::{ChatTemplate, Dialect};

#[test]
fn the_template_says_which() {
    let tokenizer = vocabulary(true);
    let of = |template: &str| {
        let with_tools = format!("{{% if tools %}}…{{% endif %}}{template}");
        let template = ChatTemplate::new(&with_tools, &tokenizer).expect("a valid template");
        Dialect::of_model(Some(&template), &tokenizer).name()
    };
    let cases = [
        ("<|im_start|>…<tool_call>\\n{\"name\": …", "hermes"),
        (
            "<tool_call>\n<function={{ name }}>\n<parameter={{ key }}>",
            "qwen-coder",
        ),
        ("<|start_header_id|>{{ role }}<|end_header_id|>", "llama3"),
        ("[INST] {{ content }} [/INST]", "mistral"),
        ("[TOOL_CALLS]{{ name }}[ARGS]{{ arguments }}", "mistral"),
        ("<start_of_turn>user\n", "gemma"),
        ("<|tool_call>call:", "gemma4"),
        (
            "<start_of_turn>model\n<start_function_call>call:",
            "function-gemma",
        ),
        ("<|start|>assistant<|channel|>final<|message|>", "harmony"),
        ("<｜User｜>…<｜tool▁calls▁begin｜>", "deepseek"),
        ("<｜DSML｜invoke name=", "deepseek-v4"),
        ("{{ content }}", "generic"),
    ];
    for (template, dialect) in cases {
        assert_eq!(of(template), dialect, "{template}");
    }
    // A template without tools gets our own prompt about them.
    let old = ChatTemplate::new("<start_of_turn>user\n", &tokenizer).expect("a valid template");
    let old = Dialect::of_model(Some(&old), &tokenizer);
    assert_eq!(old.name(), "generic");
    // Without a template the vocabulary has to do.
    assert_eq!(Dialect::of_model(None, &tokenizer).name(), "deepseek-v4");
    assert_eq!(
        Dialect::of_model(None, &vocabulary(false)).name(),
        "generic"
    );
}

#[test]
fn every_name_is_known_and_stands_for_one() {
    let tokenizer = vocabulary(false);
    for name in Dialect::names() {
        assert_eq!(
            Dialect::named(name, &tokenizer).map(|dialect| dialect.name()),
            Some(name)
        );
    }
    let mut all: Vec<&str> = super::super::SYNTAXES
        .iter()
        .flat_map(|syntax| syntax.names)
        .copied()
        .collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
    assert!(Dialect::named("klingon", &tokenizer).is_none());
}

#[test]
fn a_vocabulary_may_cut_markers_into_too_many_control_tokens() {
    let letters = "<tolcahnki_efuprm>=";
    let letters: Vec<String> = letters.chars().map(String::from).collect();
    let tokens: Vec<(&str, i32)> = letters.iter().map(|text| (&text[..], CONTROL)).collect();
    let tokenizer = test_vocab::bpe("default", &tokens, &[]);
    for name in Dialect::names() {
        assert!(Dialect::named(name, &tokenizer).is_some(), "{name}");
    }
    let rig = Rig::of("qwen-coder", &tokenizer);
    let said = rig.said("<tool_call>{\"");
    assert!(said.len() > 11, "each letter is a token");
    let mut answer = said[..11].to_vec();
    answer.push(Said::Bytes(
        br#"{"name": "read", "arguments": {"path": "a.txt"}}"#.to_vec(),
    ));
    assert_eq!(
        show(&rig.parse(&tools(), "", &answer)),
        r#"c(read) a({"path": "a.txt"})"#
    );
}

#[test]
fn reasoning_ends_in_the_models_own_way() {
    let (with, without) = (vocabulary(true), vocabulary(false));
    for name in Dialect::names() {
        for tokenizer in [&with, &without] {
            let rig = Rig::of(name, tokenizer);
            let open = match rig.dialect.syntax.thinks.first() {
                Some(&(open, _)) => rig.dialect.syntax.marks[usize::from(open.0)],
                None => "<|start|>assistant<|channel|>analysis<|message|>",
            };
            let mut parser = rig.parser(&tools(), open);
            assert!(parser.is_reasoning());
            for &token in rig.dialect.reasoning_end() {
                if tokenizer.is_control(token) {
                    parser.push_control(token);
                } else {
                    parser.push_text(std::str::from_utf8(tokenizer.piece(token)).unwrap());
                }
            }
            assert!(!parser.is_reasoning(), "{name}");
            assert!(parser.finish().is_empty(), "{name}");
        }
    }
}
