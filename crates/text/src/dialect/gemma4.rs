//! Gemma 4 and FunctionGemma: `call:name{…}` with bare keys and strings between quotation tokens.
//!
//! ```text
//! <|tool_call>call:read{path:<|"|>a.txt<|"|>,lines:[1,2]}<tool_call|>
//! <start_function_call>call:read{path:<escape>a.txt<escape>}<end_function_call>
//! ```
//!
//! Gemma 4 thinks in `<|channel>thought … <channel|>`. Source: Google's documentation of function calling with these models.

use std::sync::Arc;

use super::Syntax;
use super::block::{Block, Flow, MAX_NAME, Tools};
use super::grammar::{Arguments, Form};
use super::marks::{Found, Mark, is_code};
use super::out::Out;
use super::tagged::escape;

const THINK: Mark = Mark(0);
const THINK_END: Mark = Mark(1);
const CALL: Mark = Mark(2);
const CALL_END: Mark = Mark(3);
const QUOTE: Mark = Mark(4);

pub(super) const GEMMA4: Syntax = Syntax {
    names: &["gemma4"],
    marks: &[
        "<|channel>thought\n",
        "<channel|>",
        "<|tool_call>",
        "<tool_call|>",
        "<|\"|>",
    ],
    thinks: &[(THINK, THINK_END)],
    blocks: &[(CALL, call)],
    closers: &[CALL_END],
    forms: &[("", FORM)],
    reasoning_end: "<channel|>",
    is_written_in: |evidence| evidence.template_has("<|tool_call>"),
    ..Syntax::PLAIN
};

pub(super) const FUNCTION_GEMMA: Syntax = Syntax {
    names: &["function-gemma"],
    marks: &[
        "<think>",
        "</think>",
        "<start_function_call>",
        "<end_function_call>",
        "<escape>",
    ],
    thinks: &[(THINK, THINK_END)],
    blocks: &[(CALL, call)],
    closers: &[CALL_END],
    forms: &[("", FUNCTION_FORM)],
    is_written_in: |evidence| evidence.template_has("<start_function_call>"),
    ..Syntax::PLAIN
};

const FORM: Form = Form {
    begin: "",
    open: "<|tool_call>call:NAME",
    arguments: Arguments::Bare { quote: "<|\"|>" },
    close: "<tool_call|>",
    between: Some(""),
    end: "",
};

const FUNCTION_FORM: Form = Form {
    open: "<start_function_call>call:NAME",
    arguments: Arguments::Bare { quote: "<escape>" },
    close: "<end_function_call>",
    ..FORM
};

fn call(_: &Arc<Tools>) -> Box<dyn Block> {
    Box::new(Call {
        state: State::Name(Vec::new()),
        open: Vec::new(),
    })
}

#[derive(Debug)]
struct Call {
    state: State,
    /// The objects and lists that are open, by their closing bracket.
    open: Vec<u8>,
}

#[derive(Debug)]
enum State {
    /// `call:` and the name.
    Name(Vec<u8>),
    /// Where a key may begin.
    Key(Vec<u8>),
    /// Where a value may begin.
    Value,
    /// In a number or a word.
    Word,
    /// In a string that ends with the quotation token, and one that ends with a quotation mark.
    String,
    Quoted {
        escaped: bool,
    },
    /// After all arguments.
    After,
}

impl Call {
    fn byte(&mut self, byte: u8, out: &mut Out) -> Flow {
        let blank = byte.is_ascii_whitespace() || is_code(byte);
        match &mut self.state {
            State::Name(name) => {
                if byte != b'{' {
                    name.push(byte);
                    let wrong =
                        name.len() > MAX_NAME || matches!(byte, b'\n' | b'<') || is_code(byte);
                    return if wrong {
                        Flow::Rejects { is_text: true }
                    } else {
                        Flow::Goes
                    };
                }
                let name = String::from_utf8_lossy(name).into_owned();
                let name = name.trim();
                let name = name.strip_prefix("call:").unwrap_or(name).trim();
                if name.is_empty() || name.contains(char::is_whitespace) {
                    return Flow::Rejects { is_text: true };
                }
                out.call(name);
                self.open_with(b'{', out);
            }
            State::String => escape(byte, out),
            State::Quoted { escaped } => {
                out.arguments(&[byte]);
                match byte {
                    _ if *escaped => *escaped = false,
                    b'\\' => *escaped = true,
                    b'"' => self.state = State::Word,
                    _ => {}
                }
            }
            State::After => return if blank { Flow::Goes } else { Flow::Ended },
            State::Key(key) => match byte {
                b':' => {
                    let text = String::from_utf8_lossy(key.trim_ascii()).into_owned();
                    let text = serde_json::Value::from(text.trim_matches('"'));
                    out.arguments(format!("{text}:").as_bytes());
                    self.state = State::Value;
                }
                b'}' if key.trim_ascii().is_empty() => self.close(byte, out),
                b',' if key.trim_ascii().is_empty() => {}
                _ => key.push(byte),
            },
            State::Value | State::Word if blank => {}
            State::Value | State::Word => self.value(byte, out),
        }
        Flow::Goes
    }

    fn value(&mut self, byte: u8, out: &mut Out) {
        match byte {
            b'{' | b'[' => self.open_with(byte, out),
            b'}' | b']' => self.close(byte, out),
            b',' => {
                out.arguments(b",");
                self.next();
            }
            b'"' => {
                out.arguments(b"\"");
                self.state = State::Quoted { escaped: false };
            }
            _ => {
                out.arguments(&[byte]);
                self.state = State::Word;
            }
        }
    }

    fn open_with(&mut self, bracket: u8, out: &mut Out) {
        out.arguments(&[bracket]);
        self.open.push(if bracket == b'{' { b'}' } else { b']' });
        self.next();
    }

    fn close(&mut self, bracket: u8, out: &mut Out) {
        out.arguments(&[bracket]);
        self.open.pop();
        self.state = if self.open.is_empty() {
            State::After
        } else {
            State::Word
        };
    }

    /// What follows an opening bracket or a comma.
    fn next(&mut self) {
        self.state = match self.open.last() {
            Some(b'}') => State::Key(Vec::new()),
            _ => State::Value,
        };
    }

    fn mark(&mut self, mark: Mark, raw: &[u8], out: &mut Out) -> Flow {
        match (mark, &self.state) {
            (QUOTE, State::Value) => {
                out.arguments(b"\"");
                self.state = State::String;
            }
            (QUOTE, State::String) => {
                out.arguments(b"\"");
                self.state = State::Word;
            }
            // Keys may be quoted too.
            (QUOTE, State::Key(_)) => {}
            (QUOTE, _) => return stray(out),
            (CALL, State::Name(_)) => {}
            (_, State::String | State::Quoted { .. }) if !is_code(raw[0]) => {
                raw.iter().for_each(|byte| _ = self.byte(*byte, out));
            }
            (CALL_END, _) if !out.is_in_head() => return Flow::Ends,
            _ => return stray(out),
        }
        Flow::Goes
    }
}

/// Something that does not belong here.
fn stray(out: &Out) -> Flow {
    if out.is_in_head() {
        Flow::Rejects { is_text: false }
    } else {
        Flow::Ended
    }
}

impl Block for Call {
    fn wanted(&self) -> &'static [Mark] {
        &[CALL, CALL_END, QUOTE]
    }

    fn push(&mut self, found: Found, raw: &[u8], out: &mut Out) -> Flow {
        match found {
            Found::Nothing => Flow::Goes,
            Found::Byte(byte) => self.byte(byte, out),
            Found::Mark(mark) => self.mark(mark, raw, out),
        }
    }

    fn is_quoting(&self) -> bool {
        matches!(self.state, State::String | State::Quoted { .. })
    }

    fn end(&mut self, out: &mut Out) -> Flow {
        stray(out)
    }
}
