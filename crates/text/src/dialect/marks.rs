//! Markers and the alphabet in which they are looked for.
//!
//! A marker such as `<tool_call>` is a control token in one vocabulary, a user-defined one in another and plain text in a third;
//! one like `<｜DSML｜invoke name="` is both, text around a control token. So an answer is read as bytes in which each control
//! token that belongs to the syntax is one byte that never occurs in UTF-8, and a marker is looked for in the same form. Where the
//! vocabulary has a marker as a control token, only that token is the marker, and its spelling in text is text; every other
//! marker is found by its bytes, whichever tokens they come from.

use crate::Tokenizer;
use crate::tokenizer::{Fragment, SpecialTokens, TokenKind};

/// Bytes that are no part of any UTF-8 text.
const CODES: [u8; 13] = [
    0xC0, 0xC1, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF,
];

/// A marker, by its place in the list of its syntax.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark(pub(super) u8);

/// The markers of a syntax as a vocabulary writes them.
#[derive(Debug)]
pub(super) struct Marks {
    /// The coded bytes of each marker.
    coded: Vec<Vec<u8>>,
    /// The control tokens in them with their spellings; the one at `i` is written as `CODES[i]`.
    tokens: Vec<(u32, String)>,
}

impl Marks {
    /// Writes `spellings` in the alphabet of a vocabulary.
    pub(super) fn new(spellings: &[&str], tokenizer: &Tokenizer) -> Self {
        let control: Vec<(u32, &str)> = tokenizer
            .spellings(&[TokenKind::Control])
            .filter(|(_, text)| spellings.iter().any(|spelling| spelling.contains(text)))
            .collect();
        let finder = SpecialTokens::new(control.into_iter());
        let mut tokens = Vec::new();
        let coded = spellings
            .iter()
            .map(|spelling| encode(spelling, &finder, &mut tokens))
            .collect();
        Self { coded, tokens }
    }

    /// The byte of a control token, if it belongs to the syntax.
    pub(super) fn code(&self, token: u32) -> Option<u8> {
        let place = self.tokens.iter().position(|&(known, _)| known == token)?;
        Some(CODES[place])
    }

    /// The control token that a byte stands for, and its spelling.
    pub(super) fn token(&self, code: u8) -> Option<(u32, &str)> {
        let place = CODES.iter().position(|&known| known == code)?;
        let (token, spelling) = self.tokens.get(place)?;
        Some((*token, spelling))
    }

    /// A marker's bytes.
    pub(super) fn bytes(&self, mark: Mark) -> &[u8] {
        &self.coded[usize::from(mark.0)]
    }

    /// What `held`, which some text or marker may go on from, begins with, given the markers that mean something now.
    pub(super) fn next(&self, held: &[u8], wanted: &[Mark]) -> Found {
        let Some(&first) = held.first() else {
            return Found::Nothing;
        };
        let mut waits = false;
        for &mark in wanted {
            let bytes = self.bytes(mark);
            if held.starts_with(bytes) {
                return Found::Mark(mark);
            }
            waits |= bytes.starts_with(held);
        }
        if waits {
            Found::Nothing
        } else {
            Found::Byte(first)
        }
    }

    /// Whether `held` is so much of one of these markers that an answer that ends with it was about to write it.
    pub(super) fn is_cut_marker(&self, held: &[u8], wanted: &[Mark]) -> bool {
        wanted.iter().any(|&mark| {
            let bytes = self.bytes(mark);
            bytes.starts_with(held) && held.len() * 2 > bytes.len()
        })
    }
}

/// What comes next in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// More has to arrive before that can be said.
    Nothing,
    /// A byte that begins no marker.
    Byte(u8),
    /// A whole marker.
    Mark(Mark),
}

/// Whether the byte stands for a control token.
pub(super) fn is_code(byte: u8) -> bool {
    matches!(byte, 0xC0 | 0xC1 | 0xF5..)
}

/// Whether a control token is part of these bytes.
pub(super) fn has_code(bytes: &[u8]) -> bool {
    bytes.iter().any(|&byte| is_code(byte))
}

fn encode(spelling: &str, finder: &SpecialTokens, tokens: &mut Vec<(u32, String)>) -> Vec<u8> {
    let mut coded = Vec::with_capacity(spelling.len());
    let mut done = 0;
    finder.fragments(spelling, |fragment| match fragment {
        Fragment::Text(text) => {
            coded.extend_from_slice(text.as_bytes());
            done += text.len();
        }
        Fragment::Token { id, len } => {
            let text = &spelling[done..done + len];
            done += len;
            let known = tokens.iter().position(|&(known, _)| known == id);
            let place = known.unwrap_or(tokens.len());
            if place == tokens.len() && place < CODES.len() {
                tokens.push((id, text.to_owned()));
            }
            // A sane vocabulary has fewer control tokens in a syntax than there are codes; one more is text.
            match CODES.get(place) {
                Some(&code) => coded.push(code),
                None => coded.extend_from_slice(text.as_bytes()),
            }
        }
    });
    coded
}
