//! Mistral's calls: a list of JSON objects, or, from the eleventh version of its tokenizer on, a name and JSON for each.
//!
//! ```text
//! [TOOL_CALLS] [{"name": "read", "arguments": {"path": "a.txt"}, "id": "123456789"}]
//! [TOOL_CALLS]read[CALL_ID]123456789[ARGS]{"path": "a.txt"}
//! ```
//!
//! Source: mistral-common's instruct tokenizers. Reasoning stands in `[THINK]…[/THINK]`, or in `<think>…</think>` in the first
//! models that had it.

use std::sync::Arc;

use super::Syntax;
use super::block::{Block, Flow, MAX_NAME, Tools};
use super::grammar::{Arguments, Form};
use super::json::{JsonCalls, JsonValue, Rules, Step, begin_object};
use super::marks::{Found, Mark, is_code};
use super::out::Out;

const THINK: Mark = Mark(0);
const THINK_END: Mark = Mark(1);
const FORMER_THINK: Mark = Mark(2);
const FORMER_THINK_END: Mark = Mark(3);
const CALLS: Mark = Mark(4);
const ARGUMENTS: Mark = Mark(5);
const CALL_ID: Mark = Mark(6);

pub(super) const MISTRAL: Syntax = Syntax {
    names: &["mistral"],
    marks: &[
        "[THINK]",
        "[/THINK]",
        "<think>",
        "</think>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[CALL_ID]",
    ],
    thinks: &[(THINK, THINK_END), (FORMER_THINK, FORMER_THINK_END)],
    blocks: &[(CALLS, calls)],
    closers: &[ARGUMENTS, CALL_ID],
    forms: &[("[ARGS]", FORM), ("", LIST_FORM)],
    reasoning_end: "[/THINK]",
    is_written_in: |evidence| {
        evidence.template_has("[TOOL_CALLS]") || evidence.template_has("[INST]")
    },
    ..Syntax::PLAIN
};

const LIST_FORM: Form = Form {
    begin: "[TOOL_CALLS] [",
    open: "{\"name\": \"NAME\", \"arguments\": ",
    arguments: Arguments::Json,
    close: "}",
    between: Some(", "),
    end: "]",
};

/// From the eleventh version of the tokenizer on, which has a token for the arguments.
const FORM: Form = Form {
    begin: "",
    open: "[TOOL_CALLS]NAME[ARGS]",
    arguments: Arguments::Json,
    close: "",
    between: Some(""),
    end: "",
};

fn calls(tools: &Arc<Tools>) -> Box<dyn Block> {
    Box::new(Call {
        tools: Arc::clone(tools),
        state: State::Name(Vec::new()),
    })
}

#[derive(Debug)]
struct Call {
    tools: Arc<Tools>,
    state: State,
}

#[derive(Debug)]
enum State {
    List(JsonCalls),
    Name(Vec<u8>),
    /// After the name: in the id that the model gives the call, or before its arguments.
    Named(Vec<u8>),
    Arguments(JsonValue),
    After,
}

impl Call {
    fn byte(&mut self, byte: u8, raw: &[u8], out: &mut Out) -> Flow {
        match &mut self.state {
            State::Name(name) => {
                let empty = name.trim_ascii().is_empty();
                match byte {
                    b'[' | b'{' if empty => {
                        let rules = Rules {
                            open: Some(CALLS),
                            wanted: &[CALLS],
                            known_only: false,
                            tools: Arc::clone(&self.tools),
                        };
                        let mut list = JsonCalls::new(rules);
                        let flow = list.push(Found::Byte(byte), raw, out);
                        self.state = State::List(list);
                        flow
                    }
                    b'{' => self.begin(out),
                    byte if is_code(byte) => Flow::Goes,
                    byte => {
                        name.push(byte);
                        // A name is one word.
                        let word = name.trim_ascii_start();
                        let ended = word.iter().position(u8::is_ascii_whitespace);
                        let second = ended.is_some_and(|at| !word[at..].trim_ascii().is_empty());
                        if second || name.len() > MAX_NAME {
                            Flow::Rejects { is_text: true }
                        } else {
                            Flow::Goes
                        }
                    }
                }
            }
            State::Named(_) if byte == b'{' => self.begin(out),
            State::Named(_) if out.head_len() > 2 * MAX_NAME => Flow::Rejects { is_text: true },
            State::Named(_) => Flow::Goes,
            State::Arguments(value) => {
                let step = value.push(byte);
                out.arguments(&[byte]);
                if step == Step::Last {
                    self.state = State::After;
                }
                Flow::Goes
            }
            State::After if byte.is_ascii_whitespace() => Flow::Goes,
            State::After => Flow::Ended,
            State::List(list) => list.push(Found::Byte(byte), raw, out),
        }
    }

    /// The opening brace of the arguments.
    fn begin(&mut self, out: &mut Out) -> Flow {
        let (State::Name(name) | State::Named(name)) = &self.state else {
            return Flow::Ended;
        };
        let Some(value) = begin_object(name, out) else {
            return Flow::Rejects { is_text: true };
        };
        self.state = State::Arguments(value);
        Flow::Goes
    }

    fn mark(&mut self, mark: Mark, found: Found, raw: &[u8], out: &mut Out) -> Flow {
        match (mark, &mut self.state) {
            (CALLS, State::List(list)) => list.push(found, raw, out),
            (CALLS, State::Arguments(_) | State::After) => Flow::Ended,
            (_, State::Name(name)) if name.trim_ascii().is_empty() => Flow::Goes,
            (ARGUMENTS | CALL_ID, State::Name(name)) => {
                self.state = State::Named(std::mem::take(name));
                Flow::Goes
            }
            (ARGUMENTS | CALL_ID, State::Named(_)) => Flow::Goes,
            (_, State::Name(_)) => Flow::Rejects { is_text: false },
            (CALLS, State::Named(name)) => {
                out.call(&String::from_utf8_lossy(name.trim_ascii()));
                out.arguments(b"{}");
                Flow::Ended
            }
            _ => Flow::Ended,
        }
    }
}

impl Block for Call {
    fn wanted(&self) -> &'static [Mark] {
        match &self.state {
            State::List(list) => list.wanted(),
            _ => &[CALLS, ARGUMENTS, CALL_ID],
        }
    }

    fn push(&mut self, found: Found, raw: &[u8], out: &mut Out) -> Flow {
        match found {
            Found::Nothing => Flow::Goes,
            Found::Byte(byte) => self.byte(byte, raw, out),
            Found::Mark(_) if self.is_quoting() && !is_code(raw[0]) => {
                raw.iter()
                    .for_each(|byte| _ = self.byte(*byte, &[*byte], out));
                Flow::Goes
            }
            Found::Mark(mark) => self.mark(mark, found, raw, out),
        }
    }

    fn is_quoting(&self) -> bool {
        match &self.state {
            State::List(list) => list.is_quoting(),
            State::Arguments(value) => value.is_in_string(),
            _ => false,
        }
    }

    fn end(&mut self, out: &mut Out) -> Flow {
        match &mut self.state {
            State::List(list) => list.end(out),
            State::Arguments(_) | State::After => Flow::Ends,
            State::Named(name) => {
                out.call(&String::from_utf8_lossy(name.trim_ascii()));
                Flow::Ends
            }
            State::Name(_) => Flow::Rejects { is_text: false },
        }
    }
}
