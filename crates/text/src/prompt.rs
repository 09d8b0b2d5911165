//! A rendered prompt: text and control tokens, kept apart; and other tokens than its own that spell it.
//!
//! A model spells as it likes: what it sampled as `Hel`, `lo` comes back in the next prompt as text, which is encoded as `Hello`.
//! [`Spelling`] follows tokens along a prompt as long as they say the same, so that tokens whose work is done can stand for
//! the text.

use serde::{Deserialize, Serialize};

use crate::tokenizer::{Encoder, Special, Tokenizer};

/// Rendered text in which user text can never be read as control tokens; only the template's own text can.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    segments: Vec<Segment>,
}

/// A part of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'p> {
    Text(&'p str),
    Control { id: u32, text: &'p str },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Segment {
    Text(String),
    Control { id: u32, text: String },
}

impl Prompt {
    /// An empty prompt.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends text; spellings of control tokens in it mean nothing.
    pub fn push_text(&mut self, text: &str) {
        match self.segments.last_mut() {
            Some(Segment::Text(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.segments.push(Segment::Text(text.to_owned())),
        }
    }

    /// Appends a control token; `text` is its spelling.
    pub fn push_control(&mut self, id: u32, text: &str) {
        self.segments.push(Segment::Control {
            id,
            text: text.to_owned(),
        });
    }

    /// Appends tokens of an answer, so that encoding gives the same text again.
    ///
    /// # Errors
    /// When they are not whole characters.
    pub(crate) fn push_tokens(
        &mut self,
        tokens: &[u32],
        tokenizer: &Tokenizer,
    ) -> Result<(), std::string::FromUtf8Error> {
        let mut text: Vec<u8> = Vec::new();
        // A text after a special token is encoded with a blank before it, which is not to be written twice.
        let mut first = tokenizer.begins_with_blank()
            && !matches!(self.segments.last(), Some(Segment::Text(_)));
        for &token in tokens {
            let piece = tokenizer.piece(token);
            if tokenizer.is_control(token) {
                self.push_text(&String::from_utf8(std::mem::take(&mut text))?);
                self.push_control(token, &String::from_utf8_lossy(piece));
            } else {
                let is_special = tokenizer.is_user_defined(token);
                let blank = first && !is_special;
                let said = piece.strip_prefix(b" ").filter(|_| blank).unwrap_or(piece);
                text.extend_from_slice(said);
            }
            let special = tokenizer.is_control(token) || tokenizer.is_user_defined(token);
            first = special && tokenizer.begins_with_blank();
        }
        self.push_text(&String::from_utf8(text)?);
        Ok(())
    }

    /// What it consists of, in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        self.segments.iter().map(|segment| match segment {
            Segment::Text(text) => Piece::Text(text),
            Segment::Control { id, text } => Piece::Control { id: *id, text },
        })
    }

    /// The prompt as text, control tokens spelt out.
    #[must_use]
    pub fn text(&self) -> String {
        self.segments
            .iter()
            .map(|segment| match segment {
                Segment::Text(text) | Segment::Control { text, .. } => text.as_str(),
            })
            .collect()
    }

    /// The tokens. Where the model wants BOS first and the template did not write it, it is put first.
    #[must_use]
    pub fn encode(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        Spelling::new(self, tokenizer).rest(Vec::new())
    }
}

/// A place in a prompt, up to which tokens have spelt it.
#[derive(Debug, Clone)]
pub struct Spelling<'p> {
    tokenizer: &'p Tokenizer,
    segments: &'p [Segment],
    /// The BOS that is put first is still to come.
    bos: Option<u32>,
    /// Bytes of the first segment that are spelt.
    spelt: usize,
    /// Some of the first segment is spelt.
    inside: bool,
    /// Nothing but special tokens stands before what comes next.
    first: bool,
}

impl<'p> Spelling<'p> {
    /// The beginning of a prompt.
    #[must_use]
    pub fn new(prompt: &'p Prompt, tokenizer: &'p Tokenizer) -> Self {
        let segments = &prompt.segments[..];
        let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
        Self {
            tokenizer,
            segments,
            bos: bos.filter(
                |&bos| !matches!(segments.first(), Some(Segment::Control { id, .. }) if *id == bos),
            ),
            spelt: 0,
            inside: false,
            first: true,
        }
    }

    /// Whether `token` spells what comes next; if so, this moves behind it.
    pub fn take(&mut self, token: u32) -> bool {
        if let Some(bos) = self.bos {
            let taken = token == bos;
            self.bos = self.bos.filter(|_| !taken);
            return taken;
        }
        match self.segments.first() {
            Some(Segment::Control { id, .. }) if *id == token => {
                self.segments = &self.segments[1..];
                self.first = true;
                true
            }
            Some(Segment::Text(text)) if self.tokenizer.is_text(token) => {
                self.take_text(token, &text.as_bytes()[self.spelt..])
            }
            _ => false,
        }
    }

    fn take_text(&mut self, token: u32, rest: &[u8]) -> bool {
        let piece = self.tokenizer.piece(token);
        let is_special = self.tokenizer.is_user_defined(token);
        let said = if self.first && !is_special && self.tokenizer.begins_with_blank() {
            piece.strip_prefix(b" ")
        } else {
            Some(piece)
        };
        let Some(said) = said.filter(|said| !piece.is_empty() && rest.starts_with(said)) else {
            return false;
        };
        self.first = is_special;
        self.inside = said.len() < rest.len();
        if self.inside {
            self.spelt += said.len();
        } else {
            (self.segments, self.spelt) = (&self.segments[1..], 0);
        }
        true
    }

    /// Whether what comes next is encoded as if the prompt began here: a control token or its neighbour, not the middle of
    /// a text.
    #[must_use]
    pub fn is_between_segments(&self) -> bool {
        !self.inside
    }

    /// Whether it is between two characters.
    #[must_use]
    pub fn is_between_characters(&self) -> bool {
        match self.segments.first() {
            Some(Segment::Text(text)) => text.is_char_boundary(self.spelt),
            _ => true,
        }
    }

    /// Appends the tokens of what comes next to those that spelt what is before.
    ///
    /// # Panics
    /// When this is inside a character.
    #[must_use]
    pub fn rest(self, tokens: Vec<u32>) -> Vec<u32> {
        let mut encoder = Encoder::continuing(self.tokenizer, tokens, self.first);
        if let Some(bos) = self.bos {
            encoder.token(bos);
        }
        let mut spelt = self.spelt;
        for segment in self.segments {
            match segment {
                Segment::Text(text) => encoder.text(&text[spelt..], Special::Text),
                Segment::Control { id, .. } => encoder.token(*id),
            }
            spelt = 0;
        }
        encoder.finish()
    }
}

#[cfg(test)]
mod tests;
