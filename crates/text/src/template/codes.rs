//! One character for each control token that a template spells.
//!
//! The characters are the last 4,096 code points, U+10F000 to U+10FFFF: private use and two noncharacters, the last for
//! escapes, the one before for [`CUT`]. A user's text may
//! contain them too; then they are written as [`ESCAPE`] and a CJK character, which no cut, slice or join can turn into
//! a code, and are restored after rendering. So a code in a rendered prompt was written by the template.

use std::borrow::Cow;

use crate::Prompt;
use crate::tokenizer::{Fragment, SpecialTokens};

const FIRST: u32 = 0x10_F000;
/// Begins an escaped character.
const ESCAPE: char = '\u{10FFFF}';
/// Where a prompt ends that goes on with its last message. It reaches the template at the end of that message's text.
pub(super) const CUT: char = '\u{10FFFE}';
/// An escaped character is as far from this one as the original from [`FIRST`].
const ESCAPED_FIRST: u32 = 0x4E00;
/// More codes than any template spells.
const MAX_CODES: usize = (CUT as u32 - FIRST) as usize;

/// The control tokens of a vocabulary, and the codes that a template needed so far.
#[derive(Debug)]
pub(super) struct Codes {
    finder: SpecialTokens,
    /// Token and spelling of every code, from [`FIRST`].
    coded: Vec<(u32, String)>,
}

impl Codes {
    pub(super) fn new<'v>(control: impl Iterator<Item = (u32, &'v str)>) -> Self {
        Self {
            finder: SpecialTokens::new(control),
            coded: Vec::new(),
        }
    }

    /// The text with every spelling of a control token replaced by its code.
    pub(super) fn encode(&mut self, text: &str) -> String {
        let Self { finder, coded } = self;
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        finder.fragments(text, |fragment| match fragment {
            Fragment::Text(part) => {
                out.push_str(&escape(part));
                done += part.len();
            }
            Fragment::Token { id, len } => {
                let spelling = &text[done..done + len];
                done += len;
                match code_of(coded, id, spelling) {
                    Some(code) => out.push(code),
                    None => out.push_str(spelling),
                }
            }
        });
        out
    }

    /// Cuts a rendered text at its codes and restores escaped characters.
    pub(super) fn decode(&self, text: &str) -> Prompt {
        let mut prompt = Prompt::new();
        let mut plain = String::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            if u32::from(c) < FIRST {
                plain.push(c);
            } else if c == ESCAPE {
                // A template that cut an escape in two left a character that stands for nothing.
                let mut rest = chars.clone();
                if let Some(original) = rest.next().and_then(unescape) {
                    plain.push(original);
                    chars = rest;
                }
            } else if let Some((id, spelling)) = self.coded.get((u32::from(c) - FIRST) as usize) {
                prompt.push_text(&std::mem::take(&mut plain));
                prompt.push_control(*id, spelling);
            }
        }
        prompt.push_text(&plain);
        prompt
    }
}

/// The code of a token, a new one if need be.
fn code_of(coded: &mut Vec<(u32, String)>, id: u32, spelling: &str) -> Option<char> {
    let known = coded.iter().position(|&(coded_id, _)| coded_id == id);
    let index = known.unwrap_or_else(|| {
        coded.push((id, spelling.to_owned()));
        coded.len() - 1
    });
    if index >= MAX_CODES {
        return None;
    }
    char::from_u32(FIRST + u32::try_from(index).ok()?)
}

/// User text in a form that contains no code.
pub(super) fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| u32::from(c) >= FIRST) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match u32::from(c).checked_sub(FIRST) {
            Some(distance) => {
                out.push(ESCAPE);
                out.extend(char::from_u32(ESCAPED_FIRST + distance));
            }
            None => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// The original of the second character of an escape.
fn unescape(c: char) -> Option<char> {
    let distance = u32::from(c).checked_sub(ESCAPED_FIRST)?;
    char::from_u32(FIRST + distance)
}
