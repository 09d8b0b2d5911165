//! Calls as tags: a function's name in one tag, each argument in another. Qwen coder's `<function=…><parameter=…>` and
//! DeepSeek's DSML are written so; the JSON of the arguments is made here as they arrive.
//!
//! A string's text is passed on as it comes, control tokens of the dialect as they are spelt; what is no string is held to its end, and is
//! a string after all when it is not JSON. An argument whose closing tag is missing ends where a line begins with the next tag.
//! Only the closing tag of the function closes the JSON: a call that was cut must not look like a whole one.

use std::sync::Arc;

use super::block::{Block, Flow, MAX_NAME, Tools};
use super::json::{JsonValue, Step};
use super::marks::{Found, Mark, has_code, is_code};
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
    /// The markers that mean something in an argument at the beginning of a line.
    pub(super) in_value: &'static [Mark],
    /// Those that mean something elsewhere in it. All but its own end count there only with a control token in them.
    pub(super) in_line: &'static [Mark],
    /// Tags have attributes: `name="…"`, and for an argument `string="false"` where it is JSON. Otherwise the tool's schema
    /// says so, the tag holds the name alone, and a line break on each side of a value belongs to the tags.
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
    /// A line break that belongs to it unless a tag follows; where tags have attributes, unless another than its end does.
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
            State::Function(header) => match read_tag(header, byte, self.tags.quoted) {
                Some(true) => {
                    let header = std::mem::take(header);
                    self.begin(&header, out)
                }
                Some(false) => Flow::Goes,
                None => stray(out),
            },
            State::Body if byte == b'{' && self.written == 0 && !self.whole => {
                let mut value = JsonValue::default();
                value.push(byte);
                out.arguments(b"{");
                self.state = State::Object(value);
                Flow::Goes
            }
            State::Body if byte.is_ascii_whitespace() || is_code(byte) => Flow::Goes,
            State::Body => stray(out),
            State::Parameter(header) => match read_tag(header, byte, self.tags.quoted) {
                Some(true) => {
                    let header = std::mem::take(header);
                    self.begin_value(&header, out)
                }
                Some(false) => Flow::Goes,
                None => stray(out),
            },
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
        let Some(Tag { name, .. }) = Tag::of(header, self.tags.quoted) else {
            return stray(out);
        };
        if self.known_only && !self.tools.knows(&name) {
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
        let Some(Tag { name, is_json }) = Tag::of(header, self.tags.quoted) else {
            return stray(out);
        };
        out.take_head();
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

    fn mark(&mut self, mark: Mark, raw: &[u8], out: &mut Out) -> Flow {
        if let State::Value(value) = &mut self.state {
            let own = mark == self.tags.parameter_end;
            if !own && !value.line_start && !has_code(raw) {
                for &byte in raw {
                    value.push(byte, self.tags.quoted, out);
                }
                return Flow::Goes;
            }
            value.end(own && self.tags.quoted, out);
            self.state = State::Body;
            if own {
                return Flow::Goes;
            }
        }
        if mark == self.tags.parameter && matches!(self.state, State::Body) && !self.whole {
            out.begin_head(Found::Mark(mark), raw);
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

/// Takes a byte of a tag that names something: whether it is the last; `None` where it cannot belong to one.
fn read_tag(header: &mut Vec<u8>, byte: u8, quoted: bool) -> Option<bool> {
    let in_quotes = quoted && header.iter().filter(|&&byte| byte == b'"').count() % 2 == 1;
    if byte == b'>' && !in_quotes {
        return Some(true);
    }
    header.push(byte);
    let is_stray = !in_quotes && (byte == b'<' || byte == b'\n' && !quoted);
    (header.len() <= MAX_NAME && !is_code(byte) && !is_stray).then_some(false)
}

/// What a tag says of a function or an argument.
struct Tag {
    name: String,
    /// The argument is JSON.
    is_json: bool,
}

impl Tag {
    /// The tag of this inside; `None` where it names nothing, or says something else too.
    fn of(header: &[u8], quoted: bool) -> Option<Self> {
        let header = std::str::from_utf8(header).ok()?;
        let (name, is_json) = if quoted {
            attributes(header)?
        } else {
            (header.trim().trim_matches(['"', '\'']), false)
        };
        let name = name.to_owned();
        (!name.is_empty()).then_some(Self { name, is_json })
    }
}

/// What a tag that was cut has said of the name that it gives: there is no call, so that is text.
fn cut_name(header: &[u8]) -> &[u8] {
    let said = header.trim_ascii_start();
    let value = said.strip_prefix(b"name").map(<[u8]>::trim_ascii_start);
    let value = value
        .and_then(|rest| rest.strip_prefix(b"="))
        .map(<[u8]>::trim_ascii_start);
    match value.and_then(|rest| rest.strip_prefix(b"\"")) {
        Some(name) => name,
        None if value == Some(b"")
            || b"name".starts_with(said)
            || said.trim_ascii_end() == b"name" =>
        {
            b""
        }
        None => header,
    }
}

/// The value of `name`, and whether there is `string="false"`.
fn attributes(tag: &str) -> Option<(&str, bool)> {
    let (mut name, mut is_string) = (None, None);
    let mut rest = tag.trim();
    while !rest.is_empty() {
        let (key, value) = rest.split_once('=')?;
        let (value, after) = value.trim_start().strip_prefix('"')?.split_once('"')?;
        let place = match key.trim_end() {
            "name" => &mut name,
            "string" => &mut is_string,
            _ => return None,
        };
        if place.replace(value).is_some() {
            return None;
        }
        rest = after.trim_start();
    }
    match is_string {
        None | Some("true") => Some((name?, false)),
        Some("false") => Some((name?, true)),
        Some(_) => None,
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
            // One line break after a tag without attributes belongs to it.
            b'\n' if !quoted && first => {}
            b'\n' => self.line_break = true,
            byte => self.write(byte, out),
        }
    }

    fn write(&mut self, byte: u8, out: &mut Out) {
        match &mut self.held {
            Some(held) => held.push(byte),
            None => escape(byte, out),
        }
    }

    /// Ends it, with or without the line break before the tag.
    fn end(&mut self, with_break: bool, out: &mut Out) {
        if with_break && self.line_break {
            self.write(b'\n', out);
        }
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

    /// The answer was cut in it: what there is, as it was written.
    fn cut(&mut self, out: &mut Out) {
        out.arguments(&self.held.take().unwrap_or_default());
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
            State::Value(ref value) if value.line_start => self.tags.in_value,
            State::Value(_) => self.tags.in_line,
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

    fn spells_tokens(&self) -> bool {
        match &self.state {
            State::Value(_) => true,
            State::Object(value) => value.is_in_string(),
            _ => false,
        }
    }

    fn end(&mut self, out: &mut Out) -> Flow {
        match &mut self.state {
            State::Value(value) => value.cut(out),
            State::Function(header) | State::Parameter(header) if self.tags.quoted => {
                out.take_head();
                let named = cut_name(header);
                named.iter().for_each(|&byte| out.text(byte));
            }
            _ => {}
        }
        if out.is_in_head() {
            Flow::Rejects { is_text: false }
        } else {
            Flow::Ends
        }
    }
}
