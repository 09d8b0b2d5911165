//! What a parser has read so far: parts of an answer, with the whitespace around syntax left out.
//!
//! Whitespace between text and a marker belongs to the syntax (templates write it as they like), so it is held back until what
//! follows is known. Whitespace before the first text of an answer, and after the last, is the model's own and stays. Where no calls
//! can follow, whitespace in text is passed on at once, so that a stop string of line breaks ends an answer in time.

use super::marks::{Found, is_code};
use crate::Part;

/// What the bytes of a part belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
    Arguments,
}

/// Where text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fresh {
    /// Nothing has been said.
    Start,
    /// A marker came last.
    Syntax,
    /// Text came last.
    Text,
}

/// What may turn out to be no call.
#[derive(Debug)]
pub(super) struct Head {
    /// The marker that began it; empty where its first byte did.
    pub(super) opener: Vec<u8>,
    /// What has been read since.
    pub(super) rest: Vec<u8>,
    /// Nothing but markers and whitespace followed the opening marker.
    is_bare: bool,
}

/// Collects parts.
#[derive(Debug)]
pub(super) struct Out {
    parts: Vec<Part>,
    /// Bytes of the part under way: whole characters at the end of each push.
    bytes: Vec<u8>,
    kind: Kind,
    /// Whitespace whose meaning depends on what follows.
    blanks: Vec<u8>,
    fresh: Fresh,
    /// Nothing follows text but text and reasoning.
    no_calls: bool,
    /// Nothing but whitespace followed the last line break.
    line_start: bool,
    /// What is read now is reasoning.
    reasoning: bool,
    head: Option<Head>,
    /// Bytes taken so far.
    position: usize,
    #[cfg(test)]
    bytes_read: usize,
    /// Where what was said last ended.
    said: usize,
    /// Where the block under way begins, with the whitespace before it.
    block_start: usize,
    /// The same of the first block that held a call.
    calls_start: Option<usize>,
}

impl Out {
    /// For an answer without calls, or one that may hold some.
    pub(super) fn new(no_calls: bool) -> Self {
        Self {
            no_calls,
            line_start: true,
            parts: Vec::new(),
            bytes: Vec::new(),
            kind: Kind::Text,
            blanks: Vec::new(),
            fresh: Fresh::Start,
            reasoning: false,
            head: None,
            position: 0,
            #[cfg(test)]
            bytes_read: 0,
            said: 0,
            block_start: 0,
            calls_start: None,
        }
    }

    /// A byte of text for the user.
    pub(super) fn text(&mut self, byte: u8) {
        self.said(Kind::Text, byte);
    }

    /// A byte of reasoning.
    pub(super) fn reasoning(&mut self, byte: u8) {
        self.said(Kind::Reasoning, byte);
    }

    fn said(&mut self, kind: Kind, byte: u8) {
        if is_code(byte) {
            return;
        }
        if byte.is_ascii_whitespace() {
            self.line_start |= byte == b'\n';
            if self.no_calls && kind == Kind::Text && self.fresh == Fresh::Text {
                self.bytes.push(byte);
            } else {
                self.blanks.push(byte);
            }
            return;
        }
        self.line_start = false;
        let blanks = std::mem::take(&mut self.blanks);
        self.switch(kind);
        if self.fresh != Fresh::Syntax {
            self.bytes.extend_from_slice(&blanks);
        }
        self.bytes.push(byte);
        self.fresh = Fresh::Text;
        self.said = self.position;
    }

    /// A marker was read that separates what was before it from what follows.
    pub(super) fn syntax(&mut self) {
        self.blanks.clear();
        self.fresh = Fresh::Syntax;
    }

    /// Reasoning begins or ends.
    pub(super) fn set_reasoning(&mut self, on: bool) {
        self.syntax();
        self.reasoning = on;
        self.said = self.position;
    }

    /// So many more bytes have been taken.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.position += bytes;
        #[cfg(test)]
        {
            self.bytes_read += bytes;
        }
    }

    /// How many bytes were read, those that were read again counted each time.
    #[cfg(test)]
    pub(super) fn bytes_read(&self) -> usize {
        self.bytes_read
    }

    /// So many of them are taken again.
    pub(super) fn go_back(&mut self, bytes: usize) {
        self.position -= bytes;
    }

    /// A block begins, with the last `taken` bytes, after what was said.
    pub(super) fn begin_block(&mut self, taken: usize) {
        self.block_start = self.said.min(self.position - taken);
    }

    /// Where the first block that held a call begins, with the whitespace before it.
    pub(super) fn calls_start(&self) -> Option<usize> {
        self.calls_start
    }

    pub(super) fn is_reasoning(&self) -> bool {
        self.reasoning
    }

    /// Whether the next byte begins a line, or is the first since a marker.
    pub(super) fn is_at_line_start(&self) -> bool {
        self.is_run_empty() || self.line_start
    }

    /// Whether there was no text since the beginning or a marker, but for whitespace.
    pub(super) fn is_run_empty(&self) -> bool {
        self.fresh != Fresh::Text
    }

    /// A call begins.
    pub(super) fn call(&mut self, name: &str) {
        self.flush();
        self.syntax();
        self.head = None;
        self.calls_start.get_or_insert(self.block_start);
        self.parts.push(Part::Call {
            id: String::new(),
            name: name.to_owned(),
        });
        self.kind = Kind::Arguments;
    }

    /// Bytes of the latest call's arguments.
    pub(super) fn arguments(&mut self, bytes: &[u8]) {
        debug_assert_eq!(self.kind, Kind::Arguments, "arguments belong to a call");
        let bytes = bytes.iter().copied().filter(|&byte| !is_code(byte));
        self.bytes.extend(bytes);
    }

    /// What follows may turn out to be no call; it begins with this marker or byte.
    pub(super) fn begin_head(&mut self, found: Found, raw: &[u8]) {
        let (opener, rest) = match found {
            Found::Mark(_) => (raw, &[][..]),
            Found::Byte(_) | Found::Nothing => (&[][..], raw),
        };
        self.head = Some(Head {
            is_bare: rest.is_empty(),
            opener: opener.to_vec(),
            rest: rest.to_vec(),
        });
    }

    /// Notes what was read, if a head is under way.
    pub(super) fn note(&mut self, found: Found, raw: &[u8]) {
        if let Some(head) = &mut self.head {
            let is_syntax = |byte: u8| byte.is_ascii_whitespace() || is_code(byte);
            head.is_bare &= !matches!(found, Found::Byte(byte) if !is_syntax(byte));
            head.rest.extend_from_slice(raw);
        }
    }

    /// Forgets what a head began with, where it is as good as begun by `raw`: its marker is repeated. Heads that are read
    /// again would otherwise be read once for each marker in them.
    pub(super) fn restart_head(&mut self, raw: &[u8]) {
        if let Some(head) = &mut self.head
            && head.is_bare
            && head.opener == raw
        {
            head.rest.clear();
        }
    }

    /// Whether what is being read may turn out to be no call.
    pub(super) fn is_in_head(&self) -> bool {
        self.head.is_some()
    }

    /// How long the head under way is.
    pub(super) fn head_len(&self) -> usize {
        let head = self.head.as_ref();
        head.map_or(0, |head| head.opener.len() + head.rest.len())
    }

    /// The head under way, which was no call.
    pub(super) fn take_head(&mut self) -> Option<Head> {
        self.head.take()
    }

    /// The parts since the last time.
    pub(super) fn take(&mut self) -> Vec<Part> {
        self.flush();
        std::mem::take(&mut self.parts)
    }

    /// The last parts: nothing follows the whitespace that was held back.
    pub(super) fn finish(&mut self) -> Vec<Part> {
        let blanks = std::mem::take(&mut self.blanks);
        if self.fresh != Fresh::Syntax {
            let kind = if self.reasoning {
                Kind::Reasoning
            } else {
                Kind::Text
            };
            self.switch(kind);
            self.bytes.extend_from_slice(&blanks);
        }
        self.take()
    }

    fn switch(&mut self, kind: Kind) {
        if self.kind != kind {
            self.flush();
            self.kind = kind;
        }
    }

    fn flush(&mut self) {
        if self.bytes.is_empty() {
            return;
        }
        let bytes = std::mem::take(&mut self.bytes);
        let text = String::from_utf8(bytes).expect("parts are cut between characters");
        let part = match self.kind {
            Kind::Text => Part::Text(text),
            Kind::Reasoning => Part::Reasoning(text),
            Kind::Arguments => Part::Arguments(text),
        };
        part.append_to(&mut self.parts);
    }
}
