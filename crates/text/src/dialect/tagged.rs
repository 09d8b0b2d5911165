//! Calls as tags: a function's name in one tag, each argument in another. Qwen coder's `<function=…><parameter=…>` and
//! DeepSeek's DSML are written so; the JSON of the arguments is made here as they arrive.
//!
//! A string's text is passed on as it comes; what is no string is held to its end, and is a string after all when it is not JSON.
//! Only the closing tag of the function closes the JSON: a call that was cut must not look like a whole one.

use std::sync::Arc;

use super::block::{Block, Flow, MAX_NAME, Tools};
use super::json::{JsonValue, Step};
use super::marks::{Found, Mark, is_code};
use super::out::Out;

/// The tags of a syntax.
#[derive(Debug)]
pub(super) struct Tags {
    pub(super) function: Mark,
    pub(super) function_end: Mark,
    pub(super) parameter: Mark,
    pub(super) parameter_end: Mark,
    /// What opens a block of calls.
    pub(super) calls: &'static [Mark],
    /// What closes it.
    pub(super) calls_end: &'static [Mark],
    /// The markers that mean something between arguments.
    pub(super) in_body: &'static [Mark],
    /// The markers that mean something in an argument. All but its own end count only at the beginning of a line.
    pub(super) in_value: &'static [Mark],
    /// Names end with a quotation mark, after which `string="false"` says that the argument is JSON. Otherwise the tool's
    /// schema says so, names end with the tag, and a line break on each side of a value belongs to the tags.
    pub(super) quoted: bool,
}

/// Reads calls that are written as tags.
#[derive(Debug)]
pub(super) struct Tagged {
    tags: &'static Tags,
    tools: Arc<Tools>,
    /// Only the request's tools are called; anything else is text.
    known_only: bool,
    /// In a block of calls, rather than one function alone.
    in_calls: bool,
    state: State,
    /// The function called last.
    function: String,
    /// Arguments of it that were written.
    written: usize,
    /// They were one object, which is complete.
    whole: bool,
}

#[derive(Debug)]
enum State {
    /// Between functions.
    Outside,
    /// In the tag that names a function.
    Function(Vec<u8>),
    /// Between arguments.
    Body,
    /// In the tag that names an argument.
    Parameter(Vec<u8>),
    /// In an argument.
    Value(Value),
    /// In an object that holds all arguments.
    Object(JsonValue),
}

/// An argument under way.
#[derive(Debug)]
struct Value {
    /// What is held until the end, where it is not known to be a string.
    held: Option<Vec<u8>>,
    /// Nothing was read of it.
    empty: bool,
    /// The next byte begins a line.
    line_start: bool,
    /// A line break that belongs to it unless its end follows.
    line_break: bool,
}

impl Tagged {
    /// A block of functions.
    pub(super) fn calls(tags: &'static Tags, tools: &Arc<Tools>) -> Self {
        Self {
            tags,
            tools: Arc::clone(tools),
            known_only: false,
            in_calls: true,
            state: State::Outside,
            function: String::new(),
            written: 0,
            whole: false,
        }
    }

    /// One function, whose opening tag has been read.
    pub(super) fn function(tags: &'static Tags, tools: &Arc<Tools>, known_only: bool) -> Self {
        Self {
            known_only,
            in_calls: false,
            state: State::Function(Vec::new()),
            ..Self::calls(tags, tools)
        }
    }

    fn byte(&mut self, byte: u8, out: &mut Out) -> Flow {
        match &mut self.state {
            State::Outside if byte.is_ascii_whitespace() || is_code(byte) => Flow::Goes,
            State::Outside => stray(out),
            State::Function(name) => {
                if byte == b'>' {
                    let name = std::mem::take(name);
                    return self.begin(&name, out);
                }
                name.push(byte);
                if name.len() > MAX_NAME || matches!(byte, b'\n' | b'<') || is_code(byte) {
                    return stray(out);
                }
                Flow::Goes
            }
            State::Body if byte == b'{' && self.written == 0 && !self.whole => {
                let mut value = JsonValue::default();
                value.push(byte);
                out.arguments(b"{");
                self.state = State::Object(value);
                Flow::Goes
            }
            State::Body if byte.is_ascii_whitespace() || is_code(byte) => Flow::Goes,
            State::Body => stray(out),
            State::Parameter(name) => {
                if byte == b'>' {
                    let name = std::mem::take(name);
                    return self.begin_value(&name, out);
                }
                name.push(byte);
                if name.len() > MAX_NAME {
                    return stray(out);
                }
                Flow::Goes
            }
            State::Value(value) => {
                value.push(byte, self.tags.quoted, out);
                Flow::Goes
            }
            State::Object(value) => {
                let step = value.push(byte);
                out.arguments(&[byte]);
                if step == Step::Last {
                    self.whole = true;
                    self.state = State::Body;
                }
                Flow::Goes
            }
        }
    }

    fn begin(&mut self, header: &[u8], out: &mut Out) -> Flow {
        let (name, _) = self.header(header);
        if name.is_empty() || (self.known_only && !self.tools.knows(&name)) {
            return stray(out);
        }
        out.call(&name);
        self.function = name;
        self.written = 0;
        self.whole = false;
        self.state = State::Body;
        Flow::Goes
    }

    fn begin_value(&mut self, header: &[u8], out: &mut Out) -> Flow {
        let (name, is_json) = self.header(header);
        let separator = if self.written == 0 { "{" } else { ", " };
        let key = serde_json::Value::from(&name[..]);
        out.arguments(format!("{separator}{key}: ").as_bytes());
        let is_text = match self.tags.quoted {
            true => !is_json,
            false => self.tools.is_text(&self.function, &name),
        };
        if is_text {
            out.arguments(b"\"");
        }
        self.written += 1;
        self.state = State::Value(Value {
            held: (!is_text).then(Vec::new),
            empty: true,
            line_start: true,
            line_break: false,
        });
        Flow::Goes
    }

    /// The name in a tag, and whether the tag says that its value is no string.
    fn header(&self, header: &[u8]) -> (String, bool) {
        let header = String::from_utf8_lossy(header);
        if self.tags.quoted {
            let (name, rest) = header.split_once('"').unwrap_or((&header, ""));
            (name.to_owned(), rest.contains("string=\"false\""))
        } else {
            let name = header.trim().trim_matches(['"', '\'']);
            (name.to_owned(), false)
        }
    }

    fn mark(&mut self, mark: Mark, raw: &[u8], out: &mut Out) -> Flow {
        if let State::Value(value) = &mut self.state {
            let at_line_start = value.line_start || is_code(raw[0]);
            if mark != self.tags.parameter_end && !at_line_start {
                for &byte in raw {
                    value.push(byte, self.tags.quoted, out);
                }
                return Flow::Goes;
            }
            value.end(out);
            self.state = State::Body;
            if mark == self.tags.parameter_end {
                return Flow::Goes;
            }
        }
        if mark == self.tags.parameter && matches!(self.state, State::Body) && !self.whole {
            self.state = State::Parameter(Vec::new());
            return Flow::Goes;
        }
        self.close(out);
        if mark == self.tags.function_end {
            return if self.in_calls {
                Flow::Goes
            } else {
                Flow::Ends
            };
        }
        if mark == self.tags.function && (self.in_calls || out.is_in_head()) {
            if !out.is_in_head() {
                out.begin_head(Found::Mark(mark), raw);
            }
            self.state = State::Function(Vec::new());
            return Flow::Goes;
        }
        let in_head = out.is_in_head();
        match self.tags.calls_end.contains(&mark) {
            true if in_head => Flow::Rejects { is_text: false },
            true => Flow::Ends,
            false if in_head && self.tags.calls.contains(&mark) => Flow::Goes,
            false => stray(out),
        }
    }

    /// Ends the call under way.
    fn close(&mut self, out: &mut Out) {
        match (&self.state, self.written) {
            (State::Body, _) if self.whole => {}
            (State::Body, 0) => out.arguments(b"{}"),
            (State::Body, _) => out.arguments(b"}"),
            _ => {}
        }
        self.state = State::Outside;
    }
}

/// Something that does not belong here: the call under way, or the head of one, ends before it.
fn stray(out: &Out) -> Flow {
    if out.is_in_head() {
        Flow::Rejects { is_text: true }
    } else {
        Flow::Ended
    }
}

impl Value {
    fn push(&mut self, byte: u8, quoted: bool, out: &mut Out) {
        let first = std::mem::replace(&mut self.empty, false);
        self.line_start = byte == b'\n';
        if std::mem::take(&mut self.line_break) {
            self.write(b'\n', out);
        }
        match byte {
            // One line break after the tag belongs to it, and so does one before the next.
            b'\n' if !quoted && first => {}
            b'\n' if !quoted => self.line_break = true,
            byte => self.write(byte, out),
        }
    }

    fn write(&mut self, byte: u8, out: &mut Out) {
        match &mut self.held {
            Some(held) => held.push(byte),
            None => escape(byte, out),
        }
    }

    fn end(&mut self, out: &mut Out) {
        let Some(held) = self.held.take() else {
            out.arguments(b"\"");
            return;
        };
        let text = held.trim_ascii();
        if serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok() {
            out.arguments(text);
        } else {
            out.arguments(b"\"");
            held.iter().for_each(|&byte| escape(byte, out));
            out.arguments(b"\"");
        }
    }
}

/// A byte of a JSON string's text.
pub(super) fn escape(byte: u8, out: &mut Out) {
    match byte {
        b'"' => out.arguments(b"\\\""),
        b'\\' => out.arguments(b"\\\\"),
        b'\n' => out.arguments(b"\\n"),
        b'\r' => out.arguments(b"\\r"),
        b'\t' => out.arguments(b"\\t"),
        0..0x20 => out.arguments(format!("\\u{byte:04x}").as_bytes()),
        _ => out.arguments(&[byte]),
    }
}

impl Block for Tagged {
    fn wanted(&self) -> &'static [Mark] {
        match self.state {
            State::Value(_) => self.tags.in_value,
            State::Function(_) | State::Parameter(_) => &[],
            State::Object(ref value) if value.is_in_string() => &[],
            State::Object(_) | State::Outside | State::Body => self.tags.in_body,
        }
    }

    fn push(&mut self, found: Found, raw: &[u8], out: &mut Out) -> Flow {
        match found {
            Found::Nothing => Flow::Goes,
            Found::Byte(byte) => self.byte(byte, out),
            Found::Mark(mark) => self.mark(mark, raw, out),
        }
    }

    fn end(&mut self, out: &mut Out) -> Flow {
        if out.is_in_head() {
            Flow::Rejects { is_text: false }
        } else {
            Flow::Ends
        }
    }
}
