//! From the bytes of tokens to parts of an answer that may be shown: whole characters only, calls and reasoning told apart from
//! text, and nothing past a stop string.
//!
//! The result depends on the bytes alone, never on how tokens cut them: a stop string ends the text at the first
//! byte that completes one, and of two that complete at the same byte the longer wins (it began earlier).
//! The work is proportional to the bytes pushed times the number of stop strings.
//!
//! Stop strings are looked for in text for the user, not in reasoning and not in calls: who asks an answer to end at a blank line
//! does not mean that thinking ends there, nor that an argument is cut in two. (llama-server and vLLM look for them in all that is
//! sampled, and lose calls and answers to them.)

#[cfg(test)]
mod tests;

use crate::{Parser, Part};

/// Turns token bytes into parts.
#[derive(Debug)]
pub struct OutputStream {
    /// Tells reasoning and calls from text; without it everything is text.
    parser: Option<Parser>,
    stops: Vec<StopMatcher>,
    /// The beginning of a character whose rest has not arrived: at most 3 bytes.
    partial: Vec<u8>,
    /// Where the whole characters of a push are put together.
    text: String,
    /// Text that may still turn out to be the beginning of a stop string.
    held: String,
    stopped: Option<usize>,
}

/// What one push releases.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Parts that are final; may be none.
    pub parts: Vec<Part>,
    /// Index of the stop string that ended the output. The text ends before it, later pushes give nothing.
    pub stopped: Option<usize>,
}

impl OutputStream {
    /// A stream that ends before the first of the strings in `stop`. Empty strings are ignored.
    #[must_use]
    pub fn new(stop: Vec<String>) -> Self {
        let stops = stop
            .into_iter()
            .enumerate()
            .filter(|(_, text)| !text.is_empty())
            .map(|(index, text)| StopMatcher::new(index, text.into_bytes()))
            .collect();
        Self {
            parser: None,
            stops,
            partial: Vec::new(),
            text: String::new(),
            held: String::new(),
            stopped: None,
        }
    }

    /// The same stream with calls and reasoning told apart.
    #[must_use]
    pub fn with_parser(mut self, parser: Parser) -> Self {
        self.parser = Some(parser);
        self
    }

    /// Takes the bytes of one token. Invalid UTF-8 becomes U+FFFD, one for each maximal broken part, as in the
    /// WHATWG Encoding Standard and [`String::from_utf8_lossy`].
    pub fn push(&mut self, piece: &[u8]) -> Output {
        self.partial.extend_from_slice(piece);
        let mut text = std::mem::take(&mut self.text);
        let mut consumed = 0;
        for chunk in self.partial.utf8_chunks() {
            let (valid, invalid) = (chunk.valid(), chunk.invalid());
            text.push_str(valid);
            consumed += valid.len();
            if consumed + invalid.len() == self.partial.len() && is_incomplete(invalid) {
                break;
            }
            consumed += invalid.len();
            if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.partial.drain(..consumed);
        let mut output = Output::default();
        self.read(&text, &mut output.parts);
        text.clear();
        self.text = text;
        output.stopped = self.stopped;
        output
    }

    /// Takes a control token, which is no text; it may be syntax.
    pub fn push_control(&mut self, token: u32) -> Output {
        let mut output = Output::default();
        self.end_character(&mut output.parts);
        if let Some(parser) = &mut self.parser {
            let parts = parser.push_control(token);
            self.release(parts, &mut output.parts);
        }
        output.stopped = self.stopped;
        output
    }

    /// Ends the stream: releases what was held back; an unfinished character becomes U+FFFD.
    pub fn finish(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        self.end_character(&mut parts);
        if let Some(parser) = &mut self.parser {
            let rest = parser.finish();
            self.release(rest, &mut parts);
        }
        if self.stopped.is_none() {
            self.release_held(&mut parts);
        }
        parts
    }

    /// Whether what comes next is reasoning.
    #[must_use]
    pub fn is_reasoning(&self) -> bool {
        self.parser.as_ref().is_some_and(Parser::is_reasoning)
    }

    /// Whether what comes next is text for the user.
    #[must_use]
    pub fn takes_text(&self) -> bool {
        self.parser.as_ref().is_none_or(Parser::takes_text)
    }

    /// Whether no character is under way.
    #[must_use]
    pub fn is_between_characters(&self) -> bool {
        self.partial.is_empty()
    }

    fn end_character(&mut self, parts: &mut Vec<Part>) {
        if !std::mem::take(&mut self.partial).is_empty() {
            self.read("\u{FFFD}", parts);
        }
    }

    fn read(&mut self, text: &str, parts: &mut Vec<Part>) {
        match &mut self.parser {
            Some(parser) => {
                let read = parser.push_text(text);
                self.release(read, parts);
            }
            None => self.scan(text, parts),
        }
    }

    fn release(&mut self, read: Vec<Part>, parts: &mut Vec<Part>) {
        for part in read {
            match part {
                Part::Text(text) => self.scan(&text, parts),
                other if self.stopped.is_none() => {
                    self.release_held(parts);
                    other.append_to(parts);
                }
                _ => {}
            }
        }
    }

    /// The text ends here, and with it every stop string that had begun.
    fn release_held(&mut self, parts: &mut Vec<Part>) {
        self.stops.iter_mut().for_each(|stop| stop.matched = 0);
        append(std::mem::take(&mut self.held), parts);
    }

    /// Runs the stop matchers over new text and releases what no stop string can claim any more.
    fn scan(&mut self, text: &str, parts: &mut Vec<Part>) {
        if self.stopped.is_some() {
            return;
        }
        let before = self.held.len();
        self.held.push_str(text);
        for (i, byte) in text.bytes().enumerate() {
            let mut hit: Option<(usize, usize)> = None;
            for stop in &mut self.stops {
                if stop.advance(byte) && hit.is_none_or(|(len, _)| stop.text.len() > len) {
                    hit = Some((stop.text.len(), stop.index));
                }
            }
            if let Some((len, index)) = hit {
                self.stopped = Some(index);
                let mut released = std::mem::take(&mut self.held);
                released.truncate(before + i + 1 - len);
                append(released, parts);
                return;
            }
        }
        let keep = self.stops.iter().map(|s| s.matched).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        append(std::mem::replace(&mut self.held, rest), parts);
    }
}

fn append(text: String, parts: &mut Vec<Part>) {
    if !text.is_empty() {
        Part::Text(text).append_to(parts);
    }
}

/// Whether these bytes are a valid beginning of a character rather than an error.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none())
}

/// Knuth-Morris-Pratt search for one stop string over a stream of bytes.
#[derive(Debug)]
struct StopMatcher {
    index: usize,
    text: Vec<u8>,
    /// `border[i]`: length of the longest proper prefix of `text[..=i]` that is also its suffix.
    border: Vec<usize>,
    /// How many bytes of `text` the stream ends with.
    matched: usize,
}

impl StopMatcher {
    fn new(index: usize, text: Vec<u8>) -> Self {
        let mut border = vec![0; text.len()];
        for i in 1..text.len() {
            let mut len = border[i - 1];
            while len > 0 && text[i] != text[len] {
                len = border[len - 1];
            }
            border[i] = len + usize::from(text[i] == text[len]);
        }
        Self {
            index,
            text,
            border,
            matched: 0,
        }
    }

    /// Whether `byte` completes the stop string.
    fn advance(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.text[self.matched] != byte {
            self.matched = self.border[self.matched - 1];
        }
        self.matched += usize::from(self.text[self.matched] == byte);
        self.matched == self.text.len()
    }
}
