//! The syntaxes in which models write tool calls and reasoning, and their parsers.
//!
//! A [`Dialect`] is one row of the table below, bound to a vocabulary. Its [`Parser`] reads an answer byte by byte and gives
//! [`Part`](crate::Part)s, the same wherever the answer is cut. `docs/dialects.md` says what becomes of answers that keep to no
//! syntax: one outcome for each case.
//!
//! A syntax is a file with a [`Syntax`]: its markers and the [`Block`](block::Block) that reads what follows an opening one.

mod block;
mod deepseek;
mod dsml;
mod fences;
mod gemma4;
mod generic;
mod harmony;
mod hermes;
mod json;
mod llama;
mod marks;
mod mistral;
mod out;
mod parser;
mod python_call;
mod tagged;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::Value;

use block::{Block, Tools};
use marks::{Mark, Marks};
pub use parser::Parser;

use crate::prompt::Piece;
use crate::tokenizer::{Encoder, Fragment, Special, SpecialTokens, TokenKind};
use crate::{Prompt, Tokenizer};

/// All syntaxes; the first that a template is written in is a model's own, and the last is for all others.
const SYNTAXES: &[&Syntax] = &[
    &harmony::HARMONY,
    &dsml::DSML,
    &deepseek::DEEPSEEK,
    &gemma4::GEMMA4,
    &gemma4::FUNCTION_GEMMA,
    &hermes::QWEN_CODER,
    &hermes::HERMES,
    &mistral::MISTRAL,
    &llama::LLAMA3,
    &fences::GEMMA,
    &generic::GENERIC,
];

/// Makes the reader of a block.
type NewBlock = fn(&Arc<Tools>) -> Box<dyn Block>;

/// How one family of models writes calls and reasoning.
struct Syntax {
    /// What it is called, by the user and in logs; the first is its own name.
    names: &'static [&'static str],
    /// Its markers; a [`Mark`] is a place in this list.
    marks: &'static [&'static str],
    /// What opens and closes reasoning.
    thinks: &'static [(Mark, Mark)],
    /// What opens calls.
    blocks: &'static [(Mark, NewBlock)],
    /// Calls that no marker opens, where an answer begins with a bracket.
    bare: Option<NewBlock>,
    /// Markers that mean nothing outside of a block; there they are left out.
    closers: &'static [Mark],
    /// A reader of whole answers, in place of all the others.
    whole: Option<NewBlock>,
    /// For those: the marker in the prompt with which an answer begins.
    header: Option<Mark>,
    /// What ends reasoning, as the model would write it.
    reasoning_end: &'static str,
    /// Whether a model writes this.
    is_written_in: fn(&Evidence<'_>) -> bool,
}

impl Syntax {
    /// No syntax at all: what the others differ from.
    const PLAIN: Self = Self {
        names: &[],
        marks: &[],
        thinks: &[],
        blocks: &[],
        bare: None,
        closers: &[],
        whole: None,
        header: None,
        reasoning_end: "\n</think>\n\n",
        is_written_in: |_| false,
    };
}

/// What a model file says about its syntax.
struct Evidence<'e> {
    template: Option<&'e str>,
    tokenizer: &'e Tokenizer,
}

impl Evidence<'_> {
    fn has_template(&self) -> bool {
        self.template.is_some()
    }

    fn template_has(&self, text: &str) -> bool {
        self.template
            .is_some_and(|template| template.contains(text))
    }

    fn has_token(&self, text: &str) -> bool {
        let kinds = [TokenKind::Control, TokenKind::UserDefined];
        self.tokenizer
            .spellings(&kinds)
            .any(|(_, token)| token == text)
    }
}

/// How a model writes tool calls and reasoning.
pub struct Dialect {
    syntax: &'static Syntax,
    marks: Marks,
    /// The tokens that end reasoning.
    reasoning_end: Vec<u32>,
}

impl std::fmt::Debug for Dialect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Dialect").field(&self.name()).finish()
    }
}

impl Dialect {
    /// The dialect of a model, from its chat template and its vocabulary.
    #[must_use]
    pub fn of_model(template: Option<&str>, tokenizer: &Tokenizer) -> Self {
        let evidence = Evidence {
            template,
            tokenizer,
        };
        let syntax = SYNTAXES
            .iter()
            .find(|syntax| (syntax.is_written_in)(&evidence));
        Self::new(syntax.unwrap_or(&&generic::GENERIC), tokenizer)
    }

    /// The dialect of this name, see [`Self::names`].
    #[must_use]
    pub fn named(name: &str, tokenizer: &Tokenizer) -> Option<Self> {
        let syntax = SYNTAXES
            .iter()
            .find(|syntax| syntax.names.contains(&name))?;
        Some(Self::new(syntax, tokenizer))
    }

    /// The names of all dialects.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SYNTAXES.iter().map(|syntax| syntax.names[0])
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.syntax.names[0]
    }

    fn new(syntax: &'static Syntax, tokenizer: &Tokenizer) -> Self {
        let marks = Marks::new(syntax.marks, tokenizer);
        let reasoning_end = structure(syntax.reasoning_end, tokenizer);
        Self {
            syntax,
            marks,
            reasoning_end,
        }
    }

    /// A parser for the answer to `prompt`. Without tools, calls are text like any other; reasoning is told apart all the same,
    /// also where the prompt has opened it.
    #[must_use]
    pub fn parser(self: &Arc<Self>, tools: &[Value], prompt: &Prompt) -> Parser {
        let mut parser = Parser::new(self, Tools::new(tools));
        let end = self.end_of(prompt);
        if let Some(header) = self.syntax.header {
            let mark = self.marks.bytes(header);
            if let Some(at) = rfind(&end, mark) {
                parser.prime(&end[at + mark.len()..]);
            }
        } else {
            let end = end.trim_ascii_end();
            let opens = |mark: Mark| end.ends_with(self.marks.bytes(mark).trim_ascii_end());
            if self.syntax.thinks.iter().any(|&(open, _)| opens(open)) {
                parser.open_reasoning();
            }
        }
        parser
    }

    /// The tokens that end reasoning in the model's own way, for a budget that is used up.
    #[must_use]
    pub fn reasoning_end(&self) -> &[u32] {
        &self.reasoning_end
    }

    fn syntax(&self) -> &'static Syntax {
        self.syntax
    }

    fn marks(&self) -> &Marks {
        &self.marks
    }

    /// The last bytes of a prompt, control tokens of the dialect coded. Others end what markers could be part of.
    fn end_of(&self, prompt: &Prompt) -> Vec<u8> {
        let mut end: Vec<u8> = Vec::new();
        for piece in prompt.pieces() {
            match piece {
                Piece::Text(text) => end.extend_from_slice(text.as_bytes()),
                Piece::Control { id, .. } => match self.marks.code(id) {
                    Some(code) => end.push(code),
                    None => end.clear(),
                },
            }
        }
        end
    }
}

/// The tokens of structure that the model would write: control tokens where the vocabulary has them, text otherwise.
fn structure(text: &str, tokenizer: &Tokenizer) -> Vec<u32> {
    let finder = SpecialTokens::new(tokenizer.spellings(&[TokenKind::Control]));
    let mut encoder = Encoder::continuing(tokenizer, Vec::new(), false);
    finder.fragments(text, |fragment| match fragment {
        Fragment::Token { id, .. } => encoder.token(id),
        Fragment::Text(text) => encoder.text(text, Special::Text),
    });
    encoder.finish()
}

fn rfind(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    (0..bytes.len())
        .rev()
        .find(|&at| bytes[at..].starts_with(wanted))
}
