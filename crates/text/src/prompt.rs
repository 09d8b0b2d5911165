//! A rendered prompt: text and control tokens, kept apart.

use crate::tokenizer::{Encoder, Special, Tokenizer};

/// Rendered text in which user text can never be read as control tokens; only the template's own text can.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    segments: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
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
        let mut encoder = Encoder::new(tokenizer);
        if let Some(bos) = tokenizer.bos().filter(|_| tokenizer.add_bos())
            && !matches!(self.segments.first(), Some(Segment::Control { id, .. }) if *id == bos)
        {
            encoder.token(bos);
        }
        for segment in &self.segments {
            match segment {
                Segment::Text(text) => encoder.text(text, Special::Text),
                Segment::Control { id, .. } => encoder.token(*id),
            }
        }
        encoder.finish()
    }
}
