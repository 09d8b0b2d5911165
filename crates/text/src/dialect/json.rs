//! Calls as JSON objects, `{"name": …, "arguments": {…}}`: alone, in a list, or one after the other in a block.
//!
//! Name and arguments may come in any order; arguments that come before the name are held until it is known. `parameters` is
//! another word for arguments; `{"function": {…}}` and `{"function": "name"}` are read too. Arguments are passed on as they were
//! written, and arguments written as a string are what the string says. Keys that are neither are left out.

use std::sync::Arc;

use super::block::{Block, Flow, MAX_HEAD, Tools};
use super::marks::{Found, Mark, is_code};
use super::out::Out;

/// Follows one JSON value.
#[derive(Debug, Default, Clone)]
pub(super) struct JsonValue {
    depth: u32,
    in_string: bool,
    escaped: bool,
    begun: bool,
}

/// What a byte is to the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A part of it.
    Inside,
    /// Its last byte.
    Last,
    /// No part of it any more: a number or word has ended before.
    Past,
}

impl JsonValue {
    /// Takes the next byte, from the value's first on.
    pub(super) fn push(&mut self, byte: u8) -> Step {
        let first = !std::mem::replace(&mut self.begun, true);
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => {
                    self.in_string = false;
                    return self.closed();
                }
                _ => {}
            }
            return Step::Inside;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' if self.depth > 0 => {
                self.depth -= 1;
                return self.closed();
            }
            b',' | b'}' | b']' if self.depth == 0 => return Step::Past,
            byte if byte.is_ascii_whitespace() && self.depth == 0 && !first => return Step::Past,
            _ => {}
        }
        Step::Inside
    }

    fn closed(&self) -> Step {
        if self.depth == 0 {
            Step::Last
        } else {
            Step::Inside
        }
    }

    pub(super) fn is_in_string(&self) -> bool {
        self.in_string
    }
}

/// Where in its object a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before a key, or the end of the object.
    Key,
    InKey,
    Colon,
    Value,
    InValue,
    /// After a value.
    Comma,
}

/// What a value is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Name,
    Function,
    Arguments,
    Other,
}

/// Reads one call, from behind its opening brace.
#[derive(Debug)]
struct JsonCall {
    place: Place,
    /// Inside of `"function": {`.
    nested: bool,
    /// The key or value under way, as written.
    written: Vec<u8>,
    value: JsonValue,
    role: Role,
    name: Option<String>,
    /// Arguments that came before the name, or are a string.
    held: Option<Vec<u8>>,
    /// The call was passed on.
    begun: bool,
    /// Its arguments were.
    argued: bool,
}

/// What a call makes of a byte.
enum Read {
    Goes,
    /// The object is complete.
    Done,
    /// This is no JSON object of a call.
    Wrong,
}

impl JsonCall {
    fn new() -> Self {
        Self {
            place: Place::Key,
            nested: false,
            written: Vec::new(),
            value: JsonValue::default(),
            role: Role::Other,
            name: None,
            held: None,
            begun: false,
            argued: false,
        }
    }

    fn is_in_string(&self) -> bool {
        match self.place {
            Place::InKey => true,
            Place::InValue => self.value.is_in_string(),
            _ => false,
        }
    }

    fn push(&mut self, byte: u8, rules: &Rules, out: &mut Out) -> Read {
        let blank = byte.is_ascii_whitespace();
        match self.place {
            Place::InKey => return self.push_key(byte),
            Place::InValue => return self.push_value(byte, rules, out),
            _ if blank => {}
            Place::Key => match byte {
                b'"' => {
                    self.written = vec![byte];
                    self.value = JsonValue::default();
                    self.value.push(byte);
                    self.place = Place::InKey;
                }
                b'}' => return self.close(rules, out),
                _ => return Read::Wrong,
            },
            Place::Colon if byte == b':' => self.place = Place::Value,
            Place::Value if self.role == Role::Function && byte == b'{' && !self.nested => {
                self.nested = true;
                self.place = Place::Key;
            }
            Place::Value => {
                self.value = JsonValue::default();
                self.written.clear();
                self.place = Place::InValue;
                return self.push_value(byte, rules, out);
            }
            Place::Comma => match byte {
                b',' => self.place = Place::Key,
                b'}' => return self.close(rules, out),
                _ => return Read::Wrong,
            },
            Place::Colon => return Read::Wrong,
        }
        Read::Goes
    }

    fn push_key(&mut self, byte: u8) -> Read {
        self.written.push(byte);
        if self.value.push(byte) == Step::Last {
            self.role = match &self.written[..] {
                b"\"name\"" => Role::Name,
                b"\"function\"" => Role::Function,
                b"\"arguments\"" | b"\"parameters\"" if !self.argued && self.held.is_none() => {
                    Role::Arguments
                }
                _ => Role::Other,
            };
            self.place = Place::Colon;
        }
        Read::Goes
    }

    fn push_value(&mut self, byte: u8, rules: &Rules, out: &mut Out) -> Read {
        let first = !self.value.begun;
        if first && self.role == Role::Arguments {
            // What is passed on as it comes must be an object or a list; the rest is looked at whole.
            let streams = matches!(byte, b'{' | b'[') && self.begin(rules, out);
            if streams {
                self.argued = true;
            } else {
                self.held = Some(Vec::new());
            }
        }
        let step = self.value.push(byte);
        if step != Step::Past {
            match (self.role, &mut self.held) {
                (Role::Arguments, Some(held)) => held.push(byte),
                (Role::Arguments, None) => out.arguments(&[byte]),
                (Role::Name | Role::Function, _) => self.written.push(byte),
                (Role::Other, _) => {}
            }
        }
        match step {
            Step::Inside => Read::Goes,
            Step::Last => {
                self.place = Place::Comma;
                self.end_value(rules, out)
            }
            Step::Past if first => Read::Wrong,
            Step::Past => {
                self.place = Place::Comma;
                match self.end_value(rules, out) {
                    Read::Goes => self.push(byte, rules, out),
                    read => read,
                }
            }
        }
    }

    fn end_value(&mut self, rules: &Rules, out: &mut Out) -> Read {
        match self.role {
            Role::Name | Role::Function => {
                let name = serde_json::from_slice::<String>(&self.written).ok();
                match name.filter(|name| !name.is_empty()) {
                    Some(name) if !self.begun => self.name = Some(name),
                    Some(_) => {}
                    None => return Read::Wrong,
                }
                if self.held.is_some() && self.begin(rules, out) {
                    self.pass_held(out);
                }
            }
            Role::Arguments if self.held.is_some() => {
                if self.begin(rules, out) {
                    self.pass_held(out);
                }
            }
            Role::Arguments | Role::Other => {}
        }
        Read::Goes
    }

    /// Passes the call on, if its name is known and allowed.
    fn begin(&mut self, rules: &Rules, out: &mut Out) -> bool {
        if let Some(name) = &self.name
            && !self.begun
            && rules.allows(name)
        {
            out.call(name);
            self.begun = true;
        }
        self.begun
    }

    /// Passes the call on that ends here, before its arguments have begun, if its name is known.
    fn begin_cut(&mut self, rules: &Rules, out: &mut Out) -> bool {
        // An object without marker may be anything until it comes to its arguments.
        let has_come = self.role == Role::Arguments && !matches!(self.place, Place::Key);
        if rules.known_only && !has_come || !self.begin(rules, out) {
            return false;
        }
        if let Some(held) = self.held.take() {
            self.argued = true;
            out.arguments(&said_so_far(held));
        }
        true
    }

    /// Passes on arguments that were held.
    fn pass_held(&mut self, out: &mut Out) {
        let Some(held) = self.held.take() else {
            return;
        };
        self.argued = true;
        match serde_json::from_slice(&held) {
            Ok(serde_json::Value::String(text)) => out.arguments(text.as_bytes()),
            Ok(serde_json::Value::Null) => out.arguments(b"{}"),
            _ => out.arguments(&held),
        }
    }

    /// The object's closing brace.
    fn close(&mut self, rules: &Rules, out: &mut Out) -> Read {
        if std::mem::take(&mut self.nested) {
            self.place = Place::Comma;
            return Read::Goes;
        }
        if !self.argued && !rules.known_only && self.begin(rules, out) {
            self.finish(out);
        }
        if self.begun { Read::Done } else { Read::Wrong }
    }

    /// Whatever was begun is complete: a call without arguments has none.
    fn finish(&mut self, out: &mut Out) {
        if self.begun && !self.argued {
            self.argued = true;
            match self.held.take() {
                Some(held) => out.arguments(&held),
                None => out.arguments(b"{}"),
            }
        }
    }
}

/// What a string says that has no end yet; other values as they are.
fn said_so_far(mut value: Vec<u8>) -> Vec<u8> {
    if value.first() != Some(&b'"') {
        return value;
    }
    // A character may take two escapes, of which the last is not whole.
    for _ in 0.."\\uD83D\\uDE42".len() {
        value.push(b'"');
        if let Ok(text) = serde_json::from_slice::<String>(&value) {
            return text.into_bytes();
        }
        value.truncate(value.len().saturating_sub(2));
    }
    value
}

/// Begins a call whose arguments begin with a brace; `None` where it has no name.
pub(super) fn begin_object(name: &[u8], out: &mut Out) -> Option<JsonValue> {
    let name = String::from_utf8_lossy(name.trim_ascii()).into_owned();
    if name.is_empty() {
        return None;
    }
    out.call(&name);
    out.arguments(b"{");
    let mut value = JsonValue::default();
    value.push(b'{');
    Some(value)
}

/// How a block of JSON calls is written.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    /// What opens the block, and is ignored where it is repeated.
    pub(super) open: Option<Mark>,
    /// That, and what closes it.
    pub(super) wanted: &'static [Mark],
    /// Whether only objects that name one of the request's tools, and hold arguments, are calls.
    pub(super) known_only: bool,
    pub(super) tools: Arc<Tools>,
}

impl Rules {
    fn allows(&self, name: &str) -> bool {
        !self.known_only || self.tools.knows(name)
    }
}

/// Where a block stands.
#[derive(Debug)]
enum State {
    Before,
    Inside(JsonCall),
    After,
}

/// Reads a block of JSON calls.
#[derive(Debug)]
pub(super) struct JsonCalls {
    rules: Rules,
    state: State,
    /// Inside of a list.
    list: bool,
    /// A call of this block was passed on.
    some: bool,
    /// Something of a call was seen.
    begun: bool,
    /// A closing marker inside of a string: the string's text, unless nothing follows it.
    closing: Vec<u8>,
}

impl JsonCalls {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            state: State::Before,
            list: false,
            some: false,
            begun: false,
            closing: Vec::new(),
        }
    }

    fn before(&mut self, byte: u8) -> Flow {
        match byte {
            b'{' => {
                self.begun = true;
                self.state = State::Inside(JsonCall::new());
            }
            b'[' if !self.list => self.list = true,
            byte if byte.is_ascii_whitespace() || is_code(byte) => {}
            _ => return self.reject(),
        }
        Flow::Goes
    }

    fn reject(&self) -> Flow {
        Flow::Rejects {
            is_text: self.rules.known_only || (!self.begun && !self.some),
        }
    }

    fn inside(&mut self, byte: u8, out: &mut Out) -> Flow {
        let State::Inside(call) = &mut self.state else {
            return Flow::Ended;
        };
        let read = call.push(byte, &self.rules, out);
        self.some |= call.begun;
        match read {
            Read::Goes if !call.begun && out.head_len() > MAX_HEAD => self.reject(),
            Read::Goes => Flow::Goes,
            Read::Done => {
                self.state = State::After;
                Flow::Goes
            }
            Read::Wrong if call.begun => {
                // The call is whole; what follows its arguments is not JSON.
                call.finish(out);
                self.state = State::After;
                self.after(byte, out)
            }
            Read::Wrong => self.reject(),
        }
    }

    fn after(&mut self, byte: u8, out: &mut Out) -> Flow {
        match byte {
            b'{' => {
                out.begin_head(Found::Byte(byte), b"{");
                self.state = State::Inside(JsonCall::new());
                Flow::Goes
            }
            b']' if self.list => {
                self.list = false;
                Flow::Goes
            }
            b',' | b';' => Flow::Goes,
            byte if byte.is_ascii_whitespace() || is_code(byte) => Flow::Goes,
            _ => Flow::Ended,
        }
    }

    fn marker(&mut self, mark: Mark, raw: &[u8], out: &mut Out) -> Flow {
        let in_string = matches!(&self.state, State::Inside(call) if call.is_in_string());
        if in_string && !is_code(raw[0]) {
            self.closing = raw.to_vec();
            return Flow::Goes;
        }
        if let State::Inside(call) = &mut self.state {
            if !call.begun && !call.begin_cut(&self.rules, out) {
                self.begun = true;
                return self.reject();
            }
            self.some = true;
            call.finish(out);
            self.state = State::After;
        }
        if Some(mark) == self.rules.open {
            // Repeated: one is as good as two, unless a call stands between them.
            return if self.some { Flow::Ended } else { Flow::Goes };
        }
        if self.some {
            Flow::Ends
        } else {
            self.begun = true;
            self.reject()
        }
    }
}

impl Block for JsonCalls {
    fn wanted(&self) -> &'static [Mark] {
        self.rules.wanted
    }

    fn push(&mut self, found: Found, raw: &[u8], out: &mut Out) -> Flow {
        let byte = match found {
            Found::Byte(byte) if !self.closing.is_empty() && byte.is_ascii_whitespace() => {
                self.closing.push(byte);
                return Flow::Goes;
            }
            Found::Byte(byte) => byte,
            Found::Mark(mark) if self.closing.is_empty() => return self.marker(mark, raw, out),
            Found::Mark(_) => {
                self.closing.extend_from_slice(raw);
                return Flow::Goes;
            }
            Found::Nothing => return Flow::Goes,
        };
        for held in std::mem::take(&mut self.closing) {
            self.inside(held, out);
        }
        match self.state {
            State::Before => self.before(byte),
            State::Inside(_) => self.inside(byte, out),
            State::After => self.after(byte, out),
        }
    }

    fn is_quoting(&self) -> bool {
        matches!(&self.state, State::Inside(call) if call.is_in_string())
    }

    fn end(&mut self, out: &mut Out) -> Flow {
        match &mut self.state {
            State::Inside(call) => {
                if call.begun || call.begin_cut(&self.rules, out) {
                    Flow::Ends
                } else {
                    self.reject()
                }
            }
            State::After => Flow::Ends,
            State::Before if self.some => Flow::Ends,
            State::Before => {
                // Nothing but markers.
                self.begun = true;
                self.reject()
            }
        }
    }
}
