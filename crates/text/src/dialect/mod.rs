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
mod grammar;
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
use grammar::Form;
pub use grammar::is_strict;
use marks::{Mark, Marks, is_code};
pub use parser::Parser;

use crate::prompt::Piece;
use crate::replay::{Header, role};
use crate::tokenizer::{Encoder, Fragment, Special, SpecialTokens, TokenKind};
use crate::{ChatTemplate, Part, Prompt, Tokenizer};

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
    /// How calls are written that the model must make: the first form whose token the vocabulary has, the
    /// last without one.
    forms: &'static [(&'static str, Form)],
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
        forms: &[("", hermes::FORM)],
        reasoning_end: "\n</think>\n\n",
        is_written_in: |_| false,
    };
}

/// What a model file says about its syntax.
struct Evidence<'e> {
    template: Option<&'e ChatTemplate>,
    tokenizer: &'e Tokenizer,
}

impl Evidence<'_> {
    fn has_template(&self) -> bool {
        self.template.is_some()
    }

    fn knows_tools(&self) -> bool {
        self.template.is_none_or(ChatTemplate::knows_tools)
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
    /// The token that begins it.
    reasoning_token: Option<u32>,
}

impl std::fmt::Debug for Dialect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Dialect").field(&self.name()).finish()
    }
}

impl Dialect {
    /// The dialect of a model, from its chat template and its vocabulary. A template that knows no tools gets a prompt about them
    /// that is not its own ([`ChatTemplate::render`](crate::ChatTemplate::render)), so the answer is in no dialect of its own.
    #[must_use]
    pub fn of_model(template: Option<&ChatTemplate>, tokenizer: &Tokenizer) -> Self {
        let evidence = Evidence {
            template,
            tokenizer,
        };
        let mut own = SYNTAXES.iter().filter(|_| evidence.knows_tools());
        let syntax = own.find(|syntax| (syntax.is_written_in)(&evidence));
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
        let open = syntax
            .thinks
            .first()
            .map(|&(open, _)| syntax.marks[usize::from(open.0)]);
        let reasoning_token = match open.map(|open| structure(open, tokenizer)).as_deref() {
            Some(&[token]) => Some(token),
            _ => None,
        };
        Self {
            syntax,
            marks,
            reasoning_end,
            reasoning_token,
        }
    }

    /// What is known of the answer to `prompt`. Without tools, calls are text like any other; reasoning is told apart all the
    /// same, also where the prompt has opened it.
    #[must_use]
    pub fn opening(self: &Arc<Self>, tools: &[Value], prompt: &Prompt) -> Opening {
        let end = self.end_of(prompt);
        let said = end.coded.trim_ascii_end();
        let opens = |mark: Mark| said.ends_with(self.marks.bytes(mark).trim_ascii_end());
        let thinks = self.syntax.thinks;
        Opening {
            dialect: Arc::clone(self),
            tools: Arc::new(Tools::new(tools)),
            is_thinking: thinks.iter().any(|&(open, _)| opens(open)),
            has_thought: thinks.iter().any(|&(_, close)| opens(close)),
            end: Arc::new(end),
        }
    }

    /// The tokens that end reasoning in the model's own way, for a budget that is used up.
    #[must_use]
    pub fn reasoning_end(&self) -> &[u32] {
        &self.reasoning_end
    }

    /// The token that begins reasoning, if it is one.
    #[must_use]
    pub fn reasoning_token(&self) -> Option<u32> {
        self.reasoning_token
    }

    fn syntax(&self) -> &'static Syntax {
        self.syntax
    }

    fn marks(&self) -> &Marks {
        &self.marks
    }

    /// What the prompt says of the answer: all that follows the last control token that is not the dialect's own, or the
    /// marker with which its answers begin.
    fn end_of(&self, prompt: &Prompt) -> End {
        let mut end = End::default();
        let mut before = None;
        for piece in prompt.pieces() {
            match piece {
                Piece::Text(text) => end.coded.extend_from_slice(text.as_bytes()),
                Piece::Control { id, .. } => match self.marks.code(id) {
                    Some(code) if !self.is_header(&[code]) => end.coded.push(code),
                    _ => {
                        end.token = Some(id);
                        end.role = role(before.as_ref()).map(str::to_owned);
                        end.coded.clear();
                    }
                },
            }
            before = Some(piece);
        }
        if end.token.is_none()
            && let Some(header) = self.syntax.header
        {
            let mark = self.marks.bytes(header);
            if let Some(at) = rfind(&end.coded, mark) {
                end.coded.drain(..at + mark.len());
            }
        }
        end
    }

    fn is_header(&self, bytes: &[u8]) -> bool {
        self.syntax
            .header
            .is_some_and(|header| self.marks.bytes(header) == bytes)
    }

    /// How many of these pieces of a prompt, which follow the control token before an answer, are the answer: up to the
    /// token that ends it, or one that is not the dialect's.
    pub(crate) fn answer_len(&self, pieces: &[Piece<'_>], tokenizer: &Tokenizer) -> usize {
        let ends = |at: &usize| match pieces[*at] {
            Piece::Text(_) => false,
            Piece::Control { id, .. } if tokenizer.is_end(id) => true,
            Piece::Control { id, .. } => match self.marks.code(id) {
                // A message of somebody else.
                Some(code) if self.is_header(&[code]) => {
                    !matches!(pieces.get(at + 1), Some(Piece::Text(text)) if text.starts_with(ANSWERER))
                }
                Some(_) => false,
                None => true,
            },
        };
        let len = (0..pieces.len()).find(ends).unwrap_or(pieces.len());
        // Where messages have an end of their own, that of the last one is left to the template.
        match len.checked_sub(1).map(|last| pieces[last]) {
            Some(Piece::Control { .. }) if self.syntax.header.is_some() => len - 1,
            _ => len,
        }
    }

    /// The beginning of an answer that `coded` is the beginning of, as a prompt.
    fn decode(&self, coded: &[u8]) -> Prompt {
        let mut prompt = Prompt::new();
        for chunk in coded.chunk_by(|&a, &b| !is_code(a) && !is_code(b)) {
            match self.marks.token(chunk[0]) {
                Some((token, spelling)) => prompt.push_control(token, spelling),
                None => prompt.push_text(&String::from_utf8_lossy(chunk)),
            }
        }
        prompt
    }
}

/// Whose message an answer is, where messages say that.
const ANSWERER: &str = "assistant";

/// A part of a prompt, from one place to another in bytes, where a control token of the dialect counts as one and others as none.
pub(crate) fn rest_of(prompt: &Prompt, range: std::ops::Range<usize>, dialect: &Dialect) -> Prompt {
    let mut part = Prompt::new();
    let mut at = 0;
    for piece in prompt.pieces() {
        match piece {
            Piece::Text(text) => {
                let place = |end: usize| end.saturating_sub(at).min(text.len());
                part.push_text(&text[place(range.start)..place(range.end)]);
                at += text.len();
            }
            Piece::Control { id, text } => {
                let len = usize::from(dialect.marks.code(id).is_some());
                if range.contains(&at) {
                    part.push_control(id, text);
                }
                at += len;
            }
        }
    }
    part
}

/// What a prompt says of its answer.
#[derive(Debug, Default)]
struct End {
    /// The last control token before it.
    token: Option<u32>,
    /// The word before that, see [`Header::role`].
    role: Option<String>,
    /// What follows it, control tokens of the dialect coded.
    coded: Vec<u8>,
}

/// What is known of an answer before it begins.
#[derive(Debug, Clone)]
pub struct Opening {
    dialect: Arc<Dialect>,
    tools: Arc<Tools>,
    /// Whether the prompt has opened reasoning.
    is_thinking: bool,
    /// Whether it has closed it, as where the model is not to think.
    has_thought: bool,
    end: Arc<End>,
}

impl Opening {
    /// A parser for one such answer.
    #[must_use]
    pub fn parser(&self) -> Parser {
        let mut parser = Parser::new(&self.dialect, &self.tools);
        if self.is_thinking {
            parser.open_reasoning();
        } else if self.dialect.syntax.header.is_some() {
            parser.prime(&self.end.coded);
        }
        parser
    }

    /// Whether the answer begins with reasoning, since the prompt has opened it.
    #[must_use]
    pub fn is_thinking(&self) -> bool {
        self.is_thinking
    }

    /// Whose answer it is.
    #[must_use]
    pub fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// The token with which the answer may begin to think, if it is one; none where the prompt has closed its reasoning.
    #[must_use]
    pub fn reasoning_token(&self) -> Option<u32> {
        self.dialect.reasoning_token.filter(|_| !self.has_thought)
    }

    /// The place at which the answer stands in a prompt, and what the prompt has said of it.
    pub(crate) fn answered(&self) -> Option<(Header, Prompt)> {
        let End { token, role, coded } = &*self.end;
        let marks = &self.dialect.marks;
        let begins = |at: &usize| {
            let thinks = self.dialect.syntax.thinks.iter();
            let mut thinks = thinks.flat_map(|&(open, close)| [open, close]);
            is_code(coded[*at]) || thinks.any(|mark| coded[*at..].starts_with(marks.bytes(mark)))
        };
        let at = (0..coded.len()).find(begins).unwrap_or(coded.len());
        let header = Header {
            role: role.clone(),
            token: (*token)?,
            text: String::from_utf8(coded[..at].to_vec()).ok()?,
        };
        Some((header, self.dialect.decode(&coded[at..])))
    }

    /// The parts of an answer that a prompt repeats, and where its calls begin.
    pub(crate) fn read_again(&self, answer: &Prompt) -> (Vec<Part>, Option<usize>) {
        let mut parser = Parser::new(&self.dialect, &self.tools);
        let mut parts = Vec::new();
        for piece in answer.pieces() {
            let read = match piece {
                Piece::Text(text) => parser.push_text(text),
                Piece::Control { id, .. } => parser.push_control(id),
            };
            read.into_iter().for_each(|part| part.append_to(&mut parts));
        }
        let rest = parser.finish();
        rest.into_iter().for_each(|part| part.append_to(&mut parts));
        (parts, parser.calls_start())
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
