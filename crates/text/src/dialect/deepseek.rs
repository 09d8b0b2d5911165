//! DeepSeek V3 and R1, and V3.1, whose calls are shorter.
//!
//! ```text
//! <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read
//! ```json
//! {"path": "a.txt"}
//! ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//!
//! <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read<｜tool▁sep｜>{"path": "a.txt"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//! ```
//!
//! Source: the models' chat templates.

use std::sync::Arc;

use super::Syntax;
use super::block::{Block, Flow, MAX_NAME, Tools};
use super::grammar::{Arguments, Form};
use super::json::{JsonValue, Step, begin_object};
use super::marks::{Found, Mark, is_code};
use super::out::Out;

const THINK: Mark = Mark(0);
const THINK_END: Mark = Mark(1);
const CALLS: Mark = Mark(2);
const CALLS_END: Mark = Mark(3);
const CALL: Mark = Mark(4);
const CALL_END: Mark = Mark(5);
const SEPARATOR: Mark = Mark(6);

pub(super) const DEEPSEEK: Syntax = Syntax {
    names: &["deepseek", "deepseek-v3", "deepseek-v3.1", "deepseek-r1"],
    marks: &[
        "<think>",
        "</think>",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁sep｜>",
    ],
    thinks: &[(THINK, THINK_END)],
    blocks: &[(CALLS, calls), (CALL, call)],
    closers: &[CALLS_END, CALL_END, SEPARATOR],
    forms: &[("", FORM)],
    is_written_in: |evidence| {
        evidence.template_has("<｜tool▁call") || evidence.template_has("<｜Assistant｜>")
    },
    ..Syntax::PLAIN
};

const FORM: Form = Form {
    begin: "<｜tool▁calls▁begin｜>",
    open: "<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>",
    arguments: Arguments::Json,
    close: "<｜tool▁call▁end｜>",
    between: Some(""),
    end: "<｜tool▁calls▁end｜>",
};

fn calls(_: &Arc<Tools>) -> Box<dyn Block> {
    Box::new(Calls {
        state: State::Outside,
    })
}

fn call(_: &Arc<Tools>) -> Box<dyn Block> {
    Box::new(Calls {
        state: State::Head(Vec::new()),
    })
}

#[derive(Debug)]
struct Calls {
    state: State,
}

#[derive(Debug)]
enum State {
    /// Between calls.
    Outside,
    /// Before the separator: the name, or the word `function`.
    Head(Vec<u8>),
    /// After it: the arguments, or the line of the name.
    Separated {
        head: Vec<u8>,
        line: Vec<u8>,
    },
    /// Before the arguments, in the line that opens their fence.
    Fence {
        name: Vec<u8>,
        skipped: usize,
    },
    Arguments(JsonValue),
    /// After the arguments, in the line that closes their fence.
    Tail,
}

impl Calls {
    fn begin(&mut self, name: &[u8], out: &mut Out) -> Flow {
        let Some(value) = begin_object(name, out) else {
            return stray(out);
        };
        self.state = State::Arguments(value);
        Flow::Goes
    }

    /// The call's name, where it is known and the arguments have not begun.
    fn name(&self) -> Option<String> {
        let name = match &self.state {
            State::Separated { head, line } if line.trim_ascii().is_empty() => head,
            State::Fence { name, .. } => name,
            _ => return None,
        };
        let name = String::from_utf8_lossy(name.trim_ascii());
        (!matches!(&name[..], "" | "function")).then(|| name.into_owned())
    }

    fn byte(&mut self, byte: u8, out: &mut Out) -> Flow {
        match &mut self.state {
            State::Outside | State::Tail if byte.is_ascii_whitespace() || is_code(byte) => {}
            State::Tail if byte == b'`' => {}
            State::Outside | State::Tail => return stray(out),
            State::Head(head) => {
                head.push(byte);
                if head.len() > MAX_NAME || is_code(byte) {
                    return stray(out);
                }
            }
            State::Separated { head, line } => match byte {
                b'{' => {
                    let name = if line.trim_ascii().is_empty() {
                        head
                    } else {
                        line
                    };
                    let name = std::mem::take(name);
                    return self.begin(&name, out);
                }
                b'\n' if !line.trim_ascii().is_empty() => {
                    let name = std::mem::take(line);
                    self.state = State::Fence { name, skipped: 0 };
                }
                _ => {
                    line.push(byte);
                    if line.len() > MAX_NAME {
                        return stray(out);
                    }
                }
            },
            State::Fence { name, skipped } => {
                *skipped += 1;
                if byte == b'{' {
                    let name = std::mem::take(name);
                    return self.begin(&name, out);
                }
                if *skipped > MAX_NAME {
                    return stray(out);
                }
            }
            State::Arguments(value) => {
                let step = value.push(byte);
                out.arguments(&[byte]);
                if step == Step::Last {
                    self.state = State::Tail;
                }
            }
        }
        Flow::Goes
    }

    fn mark(&mut self, mark: Mark, found: Found, raw: &[u8], out: &mut Out) -> Flow {
        if mark == CALL_END
            && let Some(name) = self.name()
        {
            out.call(&name);
            out.arguments(b"{}");
            self.state = State::Outside;
            return Flow::Goes;
        }
        match (mark, &mut self.state) {
            (SEPARATOR, State::Head(head)) => {
                let head = std::mem::take(head);
                self.state = State::Separated {
                    head,
                    line: Vec::new(),
                };
            }
            (CALL, State::Outside | State::Tail | State::Arguments(_)) => {
                if !out.is_in_head() {
                    out.begin_head(found, raw);
                }
                self.state = State::Head(Vec::new());
            }
            (CALL_END, State::Tail | State::Arguments(_)) => self.state = State::Outside,
            (CALLS_END, State::Outside | State::Tail | State::Arguments(_))
                if !out.is_in_head() =>
            {
                return Flow::Ends;
            }
            (CALLS | CALL_END, State::Outside) => {}
            _ => return stray(out),
        }
        Flow::Goes
    }
}

/// Something that does not belong here: the call under way, or the head of one, ends before it.
fn stray(out: &Out) -> Flow {
    if out.is_in_head() {
        Flow::Rejects { is_text: false }
    } else {
        Flow::Ended
    }
}

impl Block for Calls {
    fn wanted(&self) -> &'static [Mark] {
        &[CALLS, CALLS_END, CALL, CALL_END, SEPARATOR]
    }

    fn push(&mut self, found: Found, raw: &[u8], out: &mut Out) -> Flow {
        let quoted = matches!(&self.state, State::Arguments(value) if value.is_in_string());
        match found {
            Found::Nothing => Flow::Goes,
            Found::Byte(byte) => self.byte(byte, out),
            Found::Mark(_) if quoted && !is_code(raw[0]) => {
                raw.iter().for_each(|&byte| _ = self.byte(byte, out));
                Flow::Goes
            }
            Found::Mark(mark) => self.mark(mark, found, raw, out),
        }
    }

    fn is_quoting(&self) -> bool {
        matches!(&self.state, State::Arguments(value) if value.is_in_string())
    }

    fn end(&mut self, out: &mut Out) -> Flow {
        if let Some(name) = self.name() {
            out.call(&name);
        }
        stray(out)
    }
}
