//! Every syntax, every cut, every way in which an answer can keep to none.

mod cases;
mod choice;
mod dsml;
mod random;

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Dialect, Parser};
use crate::test_vocab::{self, CONTROL, NORMAL};
use crate::tokenizer::{Fragment, SpecialTokens, TokenKind};
use crate::{OutputStream, Part, Prompt, Tokenizer};

/// The markers that are control tokens in the vocabularies of the models that write them, or may be.
const CONTROL_TOKENS: &[&str] = &[
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "[THINK]",
    "[/THINK]",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "<|python_tag|>",
    "｜DSML｜",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
    "<|constrain|>",
    "<|channel>",
    "<channel|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|\"|>",
    "<start_function_call>",
    "<end_function_call>",
    "<escape>",
    "<|unrelated|>",
];

/// A vocabulary that has these markers as control tokens, or none.
fn vocabulary(control: bool) -> Tokenizer {
    let kind = if control { CONTROL } else { NORMAL };
    let tokens: Vec<(&str, i32)> = CONTROL_TOKENS.iter().map(|&text| (text, kind)).collect();
    test_vocab::bpe("default", if control { &tokens } else { &[] }, &[])
}

fn tools() -> Vec<Value> {
    vec![
        json!({"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {
            "path": {"type": "string"}, "lines": {"type": "array"}, "n": {"type": "integer"},
        }}}}),
        json!({"type": "function", "function": {"name": "now"}}),
    ]
}

/// What an answer consists of for a stream.
#[derive(Debug, Clone, PartialEq)]
enum Said {
    Bytes(Vec<u8>),
    Control(u32),
}

/// A dialect with one of the vocabularies.
struct Rig {
    dialect: Arc<Dialect>,
    finder: SpecialTokens,
}

impl Rig {
    fn new(name: &str, control: bool) -> Self {
        Self::of(name, &vocabulary(control))
    }

    fn of(name: &str, tokenizer: &Tokenizer) -> Self {
        let dialect = Dialect::named(name, tokenizer).expect("a known dialect");
        Self {
            dialect: Arc::new(dialect),
            finder: SpecialTokens::new(tokenizer.spellings(&[TokenKind::Control])),
        }
    }

    /// The answer's bytes, with its control tokens if the vocabulary has them.
    fn said(&self, answer: &str) -> Vec<Said> {
        let mut said = Vec::new();
        self.finder.fragments(answer, |fragment| {
            said.push(match fragment {
                Fragment::Text(text) => Said::Bytes(text.as_bytes().to_vec()),
                Fragment::Token { id, .. } => Said::Control(id),
            });
        });
        said
    }

    fn parser(&self, tools: &[Value], prompt: &str) -> Parser {
        let mut rendered = Prompt::new();
        self.finder.fragments(prompt, |fragment| match fragment {
            Fragment::Text(text) => rendered.push_text(text),
            Fragment::Token { id, .. } => rendered.push_control(id, "<…>"),
        });
        self.dialect.opening(tools, &rendered).parser()
    }

    fn stream(&self, tools: &[Value], prompt: &str) -> OutputStream {
        OutputStream::new(vec![]).with_parser(self.parser(tools, prompt))
    }

    /// The parts of an answer that arrives in these pieces.
    fn parse(&self, tools: &[Value], prompt: &str, pieces: &[Said]) -> Vec<Part> {
        let mut stream = self.stream(tools, prompt);
        let mut parts = Vec::new();
        for piece in pieces {
            let output = match piece {
                Said::Bytes(bytes) => stream.push(bytes),
                Said::Control(token) => stream.push_control(*token),
            };
            output
                .parts
                .into_iter()
                .for_each(|part| part.append_to(&mut parts));
        }
        stream
            .finish()
            .into_iter()
            .for_each(|part| part.append_to(&mut parts));
        parts
    }
}

/// Cuts every text in two at `at` bytes from its beginning, or into bytes.
fn cut(said: &[Said], at: Option<usize>) -> Vec<Said> {
    let mut pieces = Vec::new();
    for piece in said {
        match (piece, at) {
            (Said::Control(_), _) => pieces.push(piece.clone()),
            (Said::Bytes(bytes), Some(at)) => {
                let (first, second) = bytes.split_at(at.min(bytes.len()));
                pieces.extend([Said::Bytes(first.to_vec()), Said::Bytes(second.to_vec())]);
            }
            (Said::Bytes(bytes), None) => {
                pieces.extend(bytes.iter().map(|&byte| Said::Bytes(vec![byte])));
            }
        }
    }
    pieces
}

/// `t(…)` text, `r(…)` reasoning, `c(name)` call, `a(…)` arguments.
fn show(parts: &[Part]) -> String {
    let show = |part: &Part| match part {
        Part::Text(text) => format!("t({text})"),
        Part::Reasoning(text) => format!("r({text})"),
        Part::Call { name, .. } => format!("c({name})"),
        Part::Arguments(text) => format!("a({text})"),
    };
    parts.iter().map(show).collect::<Vec<_>>().join(" ")
}

/// The parts of an answer, whole and however cut, must be these in a vocabulary with control tokens, or one without.
fn check_in(control: bool, dialect: &str, prompt: &str, answer: &str, wanted: &str) {
    let (rig, tools) = (Rig::new(dialect, control), tools());
    let said = rig.said(answer);
    let whole = show(&rig.parse(&tools, prompt, &said));
    assert_eq!(
        whole, wanted,
        "{dialect}, control tokens: {control}: {answer}"
    );
    let lengths = said.iter().map(|piece| match piece {
        Said::Bytes(bytes) => bytes.len(),
        Said::Control(_) => 0,
    });
    for at in (1..lengths.max().unwrap_or(0)).map(Some).chain([None]) {
        let parts = show(&rig.parse(&tools, prompt, &cut(&said, at)));
        assert_eq!(
            parts, wanted,
            "{dialect}, control tokens: {control}, cut at {at:?}: {answer}"
        );
    }
}

/// The same in both.
fn check(dialect: &str, answer: &str, wanted: &str) {
    check_after(dialect, "", answer, wanted);
}

/// The same after a prompt.
fn check_after(dialect: &str, prompt: &str, answer: &str, wanted: &str) {
    check_in(false, dialect, prompt, answer, wanted);
    check_in(true, dialect, prompt, answer, wanted);
}
