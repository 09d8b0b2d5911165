//! gpt-oss's harmony: every message of an answer has a channel, and calls have a recipient.
//!
//! ```text
//! <|channel|>analysis<|message|>…<|end|>
//! <|start|>assistant<|channel|>commentary to=functions.read <|constrain|>json<|message|>{"path": "a.txt"}<|call|>
//! <|start|>assistant<|channel|>final<|message|>…<|return|>
//! ```
//!
//! `analysis` is reasoning, `final` and `commentary` without a recipient (which announces calls) are text. The recipient may stand
//! before the channel too. A message without header, or of another channel, is text. Source: OpenAI's description of the format.

use std::sync::Arc;

use super::Syntax;
use super::block::{Block, Flow, Tools};
use super::grammar::{Arguments, Form};
use super::marks::{Found, Mark, is_code};
use super::out::Out;

const START: Mark = Mark(0);
const CHANNEL: Mark = Mark(1);
const MESSAGE: Mark = Mark(2);
const END: Mark = Mark(3);
const CALL: Mark = Mark(4);
const RETURN: Mark = Mark(5);
const CONSTRAIN: Mark = Mark(6);

pub(super) const HARMONY: Syntax = Syntax {
    names: &["harmony", "gpt-oss"],
    marks: &[
        "<|start|>",
        "<|channel|>",
        "<|message|>",
        "<|end|>",
        "<|call|>",
        "<|return|>",
        "<|constrain|>",
    ],
    whole: Some(messages),
    header: Some(START),
    forms: &[("", FORM)],
    reasoning_end: "<|end|><|start|>assistant",
    is_written_in: |evidence| {
        evidence.template_has("<|channel|>") && evidence.template_has("<|message|>")
    },
    ..Syntax::PLAIN
};

/// The token that ends a call ends the answer.
const FORM: Form = Form {
    begin: "",
    open: "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>",
    arguments: Arguments::Json,
    close: "",
    between: None,
    end: "",
};

/// The longest header. One that is longer is text.
const MAX_HEADER: usize = 512;

/// Whose messages an answer consists of; the prompt has said it for the first.
const ROLE: &[u8] = b"assistant";

fn messages(tools: &Arc<Tools>) -> Box<dyn Block> {
    Box::new(Messages {
        calls: !tools.is_empty(),
        state: State::Header(Header::default()),
    })
}

#[derive(Debug)]
struct Messages {
    /// Whether recipients mean calls.
    calls: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Before `<|message|>`.
    Header(Header),
    Text,
    Reasoning,
    Arguments {
        some: bool,
    },
}

/// What comes before `<|message|>`.
#[derive(Debug, Default)]
struct Header {
    text: Vec<u8>,
    /// A marker was among it, so that it is a header and not the text of an answer that has none.
    marked: bool,
    channel: Option<usize>,
}

impl Header {
    fn recipient(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.text);
        let (_, after) = text.split_once("to=")?;
        let end = after.find(char::is_whitespace).unwrap_or(after.len());
        let name = after[..end].trim();
        let name = name.strip_prefix("functions.").unwrap_or(name);
        (!name.is_empty()).then(|| name.to_owned())
    }

    /// Whether something follows the recipient, so that no more of it can.
    fn has_whole_recipient(&self) -> bool {
        let text = String::from_utf8_lossy(&self.text);
        let after = text.split_once("to=").map(|(_, after)| after);
        after.is_some_and(|after| after.contains(char::is_whitespace))
    }

    fn is_analysis(&self) -> bool {
        self.channel
            .and_then(|at| self.text.get(at..))
            .is_some_and(|channel| channel.trim_ascii_start().starts_with(b"analysis"))
    }

    /// What follows the role.
    fn body(&self) -> &[u8] {
        self.text.strip_prefix(ROLE).unwrap_or(&self.text)
    }

    /// Whether it can only be the text of an answer without header.
    fn is_text(&self) -> bool {
        let body = self.body().trim_ascii_start();
        let recipient = body.starts_with(b"to=") || b"to=".starts_with(body);
        !self.marked && !recipient && !ROLE.starts_with(&self.text)
    }
}

impl Messages {
    fn byte(&mut self, byte: u8, out: &mut Out) {
        match &mut self.state {
            State::Text => out.text(byte),
            State::Reasoning => out.reasoning(byte),
            State::Arguments { some } => {
                if *some || !byte.is_ascii_whitespace() {
                    *some = true;
                    out.arguments(&[byte]);
                }
            }
            State::Header(header) => {
                header.text.push(byte);
                if header.is_text() || header.text.len() > MAX_HEADER {
                    let text = header.body().to_vec();
                    self.state = State::Text;
                    text.iter().for_each(|&byte| out.text(byte));
                }
            }
        }
    }

    fn mark(&mut self, mark: Mark, raw: &[u8], out: &mut Out) {
        match (mark, &mut self.state) {
            (MESSAGE, State::Header(_)) => self.begin(out),
            (CHANNEL | CONSTRAIN, State::Header(header)) => {
                if mark == CHANNEL {
                    header.channel = Some(header.text.len());
                }
                // A marker separates words too.
                header.text.push(b' ');
                header.marked = true;
            }
            (START | CHANNEL | END | CALL | RETURN, _) => {
                self.end_message(out);
                out.set_reasoning(false);
                out.begin_block(raw.len());
                let mut header = Header::default();
                if mark == CHANNEL {
                    header.channel = Some(0);
                }
                header.marked = true;
                self.state = State::Header(header);
            }
            // Nothing but a header holds these.
            _ => {}
        }
    }

    /// The header is complete.
    fn begin(&mut self, out: &mut Out) {
        let State::Header(header) = &self.state else {
            return;
        };
        self.state = match header.recipient().filter(|_| self.calls) {
            Some(name) => {
                out.set_reasoning(false);
                out.call(&name);
                State::Arguments { some: false }
            }
            None if header.is_analysis() && header.recipient().is_none() => {
                out.set_reasoning(true);
                State::Reasoning
            }
            None => {
                out.set_reasoning(false);
                State::Text
            }
        };
    }

    fn end_message(&self, out: &mut Out) {
        match &self.state {
            State::Arguments { some: false } => out.arguments(b"{}"),
            // Text that might have been a header.
            State::Header(header) if !header.marked => {
                header.body().iter().for_each(|&byte| out.text(byte));
            }
            _ => {}
        }
    }
}

impl Block for Messages {
    fn wanted(&self) -> &'static [Mark] {
        &[START, CHANNEL, MESSAGE, END, CALL, RETURN, CONSTRAIN]
    }

    fn push(&mut self, found: Found, raw: &[u8], out: &mut Out) -> Flow {
        match found {
            Found::Byte(byte) if !is_code(byte) => self.byte(byte, out),
            Found::Mark(mark) => self.mark(mark, raw, out),
            Found::Byte(_) | Found::Nothing => {}
        }
        Flow::Goes
    }

    fn takes_text(&self) -> bool {
        matches!(self.state, State::Text)
    }

    fn end(&mut self, out: &mut Out) -> Flow {
        match &self.state {
            State::Header(header)
                if self.calls && header.marked && header.has_whole_recipient() =>
            {
                header.recipient().iter().for_each(|name| out.call(name));
            }
            _ => self.end_message(out),
        }
        Flow::Ends
    }
}
