//! The machine that every dialect runs on: text, reasoning and blocks of calls, byte by byte.

use std::sync::Arc;

use super::Dialect;
use super::block::{Block, Flow, Tools};
use super::marks::{Found, Mark, has_code, is_code};
use super::out::{Head, Out};
use crate::Part;

/// Reads an answer and gives its parts, the same wherever it is cut.
///
/// [`Part::Call`] comes without an id; the engine makes it.
#[derive(Debug)]
pub struct Parser {
    dialect: Arc<Dialect>,
    tools: Arc<Tools>,
    out: Out,
    /// What has arrived and may be the beginning of a marker.
    held: Vec<u8>,
    /// What is read again, first byte last.
    again: Vec<u8>,
    /// The markers that mean something in text.
    in_text: Vec<Mark>,
    /// The markers that mean something in reasoning.
    in_reasoning: Vec<Mark>,
    block: Option<Box<dyn Block>>,
    /// Opening markers that turned out to be text: as many closing ones are text too.
    open_texts: usize,
}

impl Parser {
    pub(super) fn new(dialect: &Arc<Dialect>, tools: &Arc<Tools>) -> Self {
        let syntax = dialect.syntax();
        let mut in_text: Vec<Mark> = syntax.thinks.iter().flat_map(|&(a, b)| [a, b]).collect();
        if !tools.is_empty() {
            in_text.extend(syntax.blocks.iter().map(|&(mark, _)| mark));
            in_text.extend(syntax.closers);
        }
        Self {
            dialect: Arc::clone(dialect),
            out: Out::new(tools.is_empty()),
            held: Vec::new(),
            again: Vec::new(),
            in_text,
            in_reasoning: syntax.thinks.iter().map(|&(_, close)| close).collect(),
            block: syntax.whole.map(|new| new(tools)),
            tools: Arc::clone(tools),
            open_texts: 0,
        }
    }

    /// Takes text: whole characters.
    pub fn push_text(&mut self, text: &str) -> Vec<Part> {
        text.bytes().for_each(|byte| self.feed(byte));
        self.out.take()
    }

    /// Takes a control token. One that belongs to the dialect is syntax, the others are left out.
    pub fn push_control(&mut self, token: u32) -> Vec<Part> {
        if let Some(code) = self.dialect.marks().code(token) {
            self.feed(code);
        }
        self.out.take()
    }

    /// Ends the answer: gives what was held back.
    pub fn finish(&mut self) -> Vec<Part> {
        loop {
            self.drain();
            if !self.held.is_empty() {
                self.release();
            } else if self.dialect.syntax().whole.is_some() {
                if let Some(mut block) = self.block.take() {
                    block.end(&mut self.out);
                }
                return self.out.finish();
            } else if let Some(mut block) = self.block.take() {
                let flow = match block.end(&mut self.out) {
                    Flow::Goes => Flow::Ends,
                    flow => flow,
                };
                self.react(block, flow, &[]);
            } else {
                return self.out.finish();
            }
        }
    }

    /// Whether what comes next is reasoning.
    #[must_use]
    pub fn is_reasoning(&self) -> bool {
        self.out.is_reasoning()
    }

    /// Whether what comes next is text for the user: not reasoning, not a call, not a header.
    #[must_use]
    pub fn takes_text(&self) -> bool {
        match &self.block {
            Some(block) => block.takes_text(),
            None => !self.out.is_reasoning(),
        }
    }

    /// Reads the end of the prompt, where it has begun the answer.
    pub(super) fn prime(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.feed(byte));
        self.out.take();
    }

    /// Says that the prompt has opened the reasoning already.
    pub(super) fn open_reasoning(&mut self) {
        self.out.set_reasoning(true);
    }

    /// The bytes before the first block that held a call and the whitespace before it, a control token of the dialect counting as one.
    pub(super) fn calls_start(&self) -> Option<usize> {
        self.out.calls_start()
    }

    #[cfg(test)]
    pub(super) fn bytes_read(&self) -> usize {
        self.out.bytes_read()
    }

    fn feed(&mut self, byte: u8) {
        self.held.push(byte);
        self.drain();
    }

    /// Takes as much as can be told.
    fn drain(&mut self) {
        loop {
            while self.step() {}
            match self.again.pop() {
                Some(byte) => self.held.push(byte),
                None => return,
            }
        }
    }

    /// Takes the next byte or marker; `false` when more has to arrive.
    fn step(&mut self) -> bool {
        let marks = self.dialect.marks();
        let found = marks.next(&self.held, self.wanted());
        let len = match found {
            Found::Nothing => return false,
            Found::Byte(_) => 1,
            Found::Mark(mark) => marks.bytes(mark).len(),
        };
        let rest = self.held.split_off(len);
        let raw = std::mem::replace(&mut self.held, rest);
        self.take(found, &raw);
        true
    }

    /// At the end of the answer: what waits for the rest of a marker is a cut marker, or text.
    fn release(&mut self) {
        let quotes = self.block.as_ref().is_some_and(|block| block.is_quoting());
        let cut = self
            .dialect
            .marks()
            .is_cut_marker(&self.held, self.wanted());
        if cut && !quotes {
            self.held.clear();
        } else {
            let first = self.held.remove(0);
            self.take(Found::Byte(first), &[first]);
        }
    }

    fn wanted(&self) -> &[Mark] {
        match &self.block {
            Some(block) => block.wanted(),
            None if self.out.is_reasoning() => &self.in_reasoning,
            None => &self.in_text,
        }
    }

    fn take(&mut self, found: Found, raw: &[u8]) {
        self.out.advance(raw.len());
        if let Some(mut block) = self.block.take() {
            self.out.note(found, raw);
            if let Found::Byte(code) = found
                && is_code(code)
                && block.spells_tokens()
            {
                self.spell(code, block.as_mut());
                self.block = Some(block);
                return;
            }
            let flow = block.push(found, raw, &mut self.out);
            if flow == Flow::Goes {
                self.out.restart_head(raw);
            }
            self.react(block, flow, raw);
            return;
        }
        match found {
            Found::Nothing => {}
            Found::Byte(byte) if self.out.is_reasoning() => self.out.reasoning(byte),
            Found::Byte(b'{' | b'[') if self.may_be_bare() => self.open_bare(found, raw),
            Found::Byte(byte) => self.out.text(byte),
            Found::Mark(_) if self.out.is_reasoning() => self.out.set_reasoning(false),
            Found::Mark(mark) => self.mark(mark, raw),
        }
    }

    /// Gives a block a control token as the content that it is spelt like.
    fn spell(&mut self, code: u8, block: &mut dyn Block) {
        let dialect = Arc::clone(&self.dialect);
        let token = dialect.marks().token(code);
        for byte in token.into_iter().flat_map(|(_, spelling)| spelling.bytes()) {
            block.push(Found::Byte(byte), &[byte], &mut self.out);
        }
    }

    /// A marker in text.
    fn mark(&mut self, mark: Mark, raw: &[u8]) {
        let syntax = self.dialect.syntax();
        let is_text = !has_code(raw);
        if let Some(&(_, new)) = syntax.blocks.iter().find(|&&(open, _)| open == mark) {
            self.out.begin_block(raw.len());
            self.out.begin_head(Found::Mark(mark), raw);
            self.block = Some(new(&self.tools));
        } else if syntax.thinks.iter().any(|&(open, _)| open == mark) {
            if is_text && !self.out.is_at_line_start() {
                raw.iter().for_each(|&byte| self.out.text(byte));
            } else {
                self.out.set_reasoning(true);
            }
        } else if is_text && self.open_texts > 0 && syntax.closers.contains(&mark) {
            self.open_texts -= 1;
            raw.iter().for_each(|&byte| self.out.text(byte));
        }
        // Any other marker means nothing here, and is left out.
    }

    /// Whether a call without a marker may begin here.
    fn may_be_bare(&self) -> bool {
        self.dialect.syntax().bare.is_some() && !self.tools.is_empty() && self.out.is_run_empty()
    }

    fn open_bare(&mut self, found: Found, raw: &[u8]) {
        let Some(new) = self.dialect.syntax().bare else {
            return;
        };
        self.out.begin_block(raw.len());
        self.out.begin_head(found, raw);
        let mut block = new(&self.tools);
        let flow = block.push(found, raw, &mut self.out);
        self.react(block, flow, raw);
    }

    /// Does what a block has answered to `raw`.
    fn react(&mut self, block: Box<dyn Block>, flow: Flow, raw: &[u8]) {
        match flow {
            Flow::Goes => self.block = Some(block),
            Flow::Ends => {
                self.out.take_head();
                self.out.syntax();
            }
            Flow::Ended => {
                self.out.take_head();
                self.out.syntax();
                self.read_again(raw);
            }
            Flow::Rejects { is_text } => self.reject(is_text),
        }
    }

    /// The head under way is no call: it is read again, as text.
    fn reject(&mut self, is_text: bool) {
        let Some(Head { opener, rest, .. }) = self.out.take_head() else {
            return;
        };
        match &opener[..] {
            // No marker opened it, but its first byte, which must not do so again.
            [] => {
                self.out.text(rest[0]);
                self.read_again(&rest[1..]);
                return;
            }
            marker if is_text && !has_code(marker) => {
                self.open_texts += 1;
                opener.iter().for_each(|&byte| self.out.text(byte));
            }
            _ => {}
        }
        self.read_again(&rest);
    }

    fn read_again(&mut self, bytes: &[u8]) {
        self.out.go_back(bytes.len());
        self.again.extend(self.held.drain(..).rev());
        self.again.extend(bytes.iter().rev());
    }
}
