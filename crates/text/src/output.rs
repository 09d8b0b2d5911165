//! From the bytes of tokens to text that may be shown: whole characters only, and nothing past a stop string.
//!
//! The result depends on the bytes alone, never on how tokens cut them: a stop string ends the text at the first
//! byte that completes one, and of two that complete at the same byte the longer wins (it began earlier).
//! The work is proportional to the bytes pushed times the number of stop strings.

#[cfg(test)]
mod tests;

/// Turns token bytes into text deltas.
#[derive(Debug)]
pub struct OutputStream {
    stops: Vec<StopMatcher>,
    /// The beginning of a character whose rest has not arrived: at most 3 bytes.
    partial: Vec<u8>,
    /// Text that may still turn out to be the beginning of a stop string.
    held: String,
    stopped: Option<usize>,
}

/// What one push releases.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Text that is final; may be empty.
    pub text: String,
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
            stops,
            partial: Vec::new(),
            held: String::new(),
            stopped: None,
        }
    }

    /// Takes the bytes of one token. Invalid UTF-8 becomes U+FFFD, one for each maximal broken part, as in the
    /// WHATWG Encoding Standard and [`String::from_utf8_lossy`].
    pub fn push(&mut self, piece: &[u8]) -> Output {
        if self.stopped.is_some() {
            return self.output(String::new());
        }
        self.partial.extend_from_slice(piece);
        let bytes = std::mem::take(&mut self.partial);
        let mut text = String::with_capacity(bytes.len());
        let mut consumed = 0;
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            consumed += chunk.valid().len() + invalid.len();
            if consumed == bytes.len() && is_incomplete(invalid) {
                self.partial.extend_from_slice(invalid);
            } else if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.scan(&text)
    }

    /// Ends the stream: releases what was held back; an unfinished character becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        if self.stopped.is_some() {
            return String::new();
        }
        let mut text = String::new();
        if !std::mem::take(&mut self.partial).is_empty() {
            text = self.scan("\u{FFFD}").text;
        }
        if self.stopped.is_none() {
            text.push_str(&std::mem::take(&mut self.held));
        }
        text
    }

    /// Runs the stop matchers over new text and releases what no stop string can claim any more.
    fn scan(&mut self, text: &str) -> Output {
        if self.stops.is_empty() {
            return self.output(text.to_owned());
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
                return self.output(released);
            }
        }
        let keep = self.stops.iter().map(|s| s.matched).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        let released = std::mem::replace(&mut self.held, rest);
        self.output(released)
    }

    fn output(&self, text: String) -> Output {
        Output {
            text,
            stopped: self.stopped,
        }
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
