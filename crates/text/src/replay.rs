//! What a model said, exactly as it said it, in later prompts.
//!
//! A template writes earlier answers as it likes: other whitespace around a call, its arguments as JSON anew. The model said
//! something else, and the keys and values of what it said are there. So a [`Turn`] keeps an answer as it was sampled, and where a
//! rendered prompt repeats that answer, [`replay`] puts the original in its place.
//!
//! Where an answer begins in a prompt is known from the prompt that it answered: behind the same control token and the same text (its
//! header, and the role that two control tokens may hold). No user's text can be taken for that, since none can become a control token. What stands there is read by the dialect's
//! own parser, and only where it says the same as the turn, the turn takes its place: the whole answer, or, where the template has
//! left the reasoning of earlier turns out, its calls alone. So a prompt is never changed in what it says.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dialect::{Opening, rest_of};
use crate::prompt::Piece;
use crate::{Message, Part, Prompt, Tokenizer};

/// An answer as it was sampled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    header: Header,
    /// What follows the header: the rest of the prompt, and the answer.
    exact: Prompt,
    said: Said,
    ids: Vec<String>,
}

/// Where an answer begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// Who speaks, where that is the word between the last two control tokens: in `<|start_header_id|>assistant<|end_header_id|>` it alone
    /// tells an answer from a user's message.
    pub(crate) role: Option<String>,
    /// The last control token that is not the answer's own.
    pub(crate) token: u32,
    /// The text that follows it.
    pub(crate) text: String,
}

impl Header {
    /// Whether an answer may stand behind this control token, given what stands before that.
    fn may_be_at(&self, token: u32, before: Option<&Piece<'_>>) -> bool {
        let roles = (self.role.as_deref(), role(before));
        token == self.token && !matches!(roles, (Some(own), Some(other)) if own != other)
    }
}

/// The role that the text before a control token names, if it is one word.
pub(crate) fn role<'p>(before: Option<&Piece<'p>>) -> Option<&'p str> {
    match before {
        Some(Piece::Text(text)) if !text.contains(char::is_whitespace) => Some(text),
        _ => None,
    }
}

/// What an answer consists of, less the whitespace around it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Said {
    reasoning: String,
    text: String,
    calls: Vec<(String, String)>,
}

impl Said {
    fn of(parts: &[Part]) -> Self {
        let mut said = Self::default();
        for part in parts {
            match part {
                Part::Text(text) => said.text.push_str(text),
                Part::Reasoning(text) => said.reasoning.push_str(text),
                Part::Call { name, .. } => said.calls.push((name.clone(), String::new())),
                Part::Arguments(more) => {
                    if let Some((_, arguments)) = said.calls.last_mut() {
                        arguments.push_str(more);
                    }
                }
            }
        }
        said
    }

    fn has_calls_of(&self, other: &Self) -> bool {
        let same =
            |((name, arguments), (other, others)): (&(String, String), &(String, String))| {
                name == other && are_same(arguments, others)
            };
        self.calls.len() == other.calls.len() && self.calls.iter().zip(&other.calls).all(same)
    }
}

impl Turn {
    /// What was answered with `tokens` in `parts`, the ids of its calls among them; `None` where it cannot be repeated: the prompt has
    /// no control tokens, or half a character was said.
    #[must_use]
    pub fn new(
        opening: &Opening,
        tokens: &[u32],
        tokenizer: &Tokenizer,
        parts: &[Part],
    ) -> Option<Self> {
        let (header, mut exact) = opening.answered()?;
        exact.push_tokens(tokens, tokenizer).ok()?;
        let id = |part: &Part| match part {
            Part::Call { id, .. } => Some(id.clone()),
            _ => None,
        };
        Some(Self {
            header,
            exact,
            said: Said::of(parts),
            ids: parts.iter().filter_map(id).collect(),
        })
    }

    /// It as JSON, for [`from_json`](Self::from_json) alone.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("it consists of numbers and text")
    }

    /// What [`to_json`](Self::to_json) has written; `None` for anything else.
    #[must_use]
    pub fn from_json(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// The ids of its calls.
    #[must_use]
    pub fn call_ids(&self) -> &[String] {
        &self.ids
    }

    /// The text for the user, less the whitespace around it.
    #[must_use]
    pub fn text(&self) -> &str {
        self.said.text.trim()
    }

    /// What the model thought, if it did.
    #[must_use]
    pub fn reasoning(&self) -> Option<&str> {
        Some(self.said.reasoning.trim()).filter(|text| !text.is_empty())
    }

    /// Bytes that it takes, about.
    #[must_use]
    pub fn size(&self) -> usize {
        let Said {
            reasoning,
            text,
            calls,
        } = &self.said;
        let calls: usize = calls
            .iter()
            .map(|(name, arguments)| name.len() + arguments.len())
            .sum();
        let exact: usize = self
            .exact
            .pieces()
            .map(|(Piece::Text(text) | Piece::Control { text, .. })| text.len() + 32)
            .sum();
        let said = reasoning.len() + text.len() + calls;
        self.header.text.len() + exact + said + 256 * (1 + self.ids.len())
    }

    /// Whether a client's message is this answer: the same calls and, if it has any, the same text and reasoning.
    #[must_use]
    pub fn is_said_by(&self, message: &Message) -> bool {
        let calls = message.tool_calls.iter();
        let message_said = Said {
            calls: calls
                .map(|call| (call.name.clone(), call.arguments.clone()))
                .collect(),
            ..Said::default()
        };
        let text = message.content.as_deref().unwrap_or_default().trim();
        let reasoning = message.reasoning.as_deref().unwrap_or_default().trim();
        // Some clients leave out the text beside calls.
        let same_text = text == self.said.text.trim() || (text.is_empty() && !self.ids.is_empty());
        self.said.has_calls_of(&message_said)
            && same_text
            && (reasoning.is_empty() || reasoning == self.said.reasoning.trim())
    }
}

/// The prompt with these turns, in the order of the conversation, as they were sampled.
#[must_use]
pub fn replay(
    prompt: &Prompt,
    turns: &[Arc<Turn>],
    opening: &Opening,
    tokenizer: &Tokenizer,
) -> Prompt {
    let pieces: Vec<Piece<'_>> = prompt.pieces().collect();
    let mut replayed = Prompt::new();
    let (mut waiting, mut at) = (turns, 0);
    while at < pieces.len() {
        push(pieces[at], &mut replayed);
        at += 1;
        let Piece::Control { id, .. } = pieces[at - 1] else {
            continue;
        };
        let before = pieces[..at - 1].last();
        let mut fitting = waiting
            .iter()
            .enumerate()
            .filter(|(_, turn)| turn.header.may_be_at(id, before))
            .peekable();
        let Some(header) = fitting.peek().map(|(_, first)| &first.header.text) else {
            continue;
        };
        let Some(span) = Span::after(header, &pieces[at..], opening, tokenizer) else {
            continue;
        };
        let found = fitting
            .filter(|(_, turn)| turn.header.text == *header)
            .find_map(|(found, turn)| Some((found, span.replacement(turn, opening)?)));
        if let Some((found, replacement)) = found {
            replayed.push_text(header);
            replacement
                .pieces()
                .for_each(|piece| push(piece, &mut replayed));
            at += span.len;
            waiting = &waiting[found + 1..];
        }
    }
    replayed
}

/// An answer as a template has written it.
struct Span {
    /// The pieces that it takes, that of its header among them.
    len: usize,
    written: Prompt,
    said: Said,
    /// Where its calls begin.
    calls_start: Option<usize>,
}

impl Span {
    /// The answer that follows `header` at the beginning of `pieces`.
    fn after(
        header: &str,
        pieces: &[Piece<'_>],
        opening: &Opening,
        tokenizer: &Tokenizer,
    ) -> Option<Self> {
        let len = opening.dialect().answer_len(pieces, tokenizer);
        let mut written = Prompt::new();
        let mut answer = pieces[..len].iter();
        if !header.is_empty() {
            match answer.next()? {
                Piece::Text(text) => written.push_text(text.strip_prefix(header)?),
                Piece::Control { .. } => return None,
            }
        }
        answer.for_each(|&piece| push(piece, &mut written));
        let (parts, calls_start) = opening.read_again(&written);
        Some(Self {
            len,
            written,
            said: Said::of(&parts),
            calls_start,
        })
    }

    /// What is to stand in its place, if it is that turn.
    fn replacement(&self, turn: &Turn, opening: &Opening) -> Option<Prompt> {
        let (here, there) = (&self.said, &turn.said);
        // Some templates leave out the text beside calls.
        let text = here.text.trim();
        let same_text = text == there.text.trim() || (text.is_empty() && !there.calls.is_empty());
        if !same_text || !here.has_calls_of(there) {
            return None;
        }
        let thought = here.reasoning.trim();
        if thought == there.reasoning.trim() {
            return Some(turn.exact.clone());
        }
        if !thought.is_empty() {
            return None;
        }
        // The template keeps no reasoning of so long ago.
        let (_, exact_start) = opening.read_again(&turn.exact);
        let mut replacement = rest_of(&self.written, 0..self.calls_start?, opening.dialect());
        let calls = rest_of(&turn.exact, exact_start?..usize::MAX, opening.dialect());
        calls
            .pieces()
            .for_each(|piece| push(piece, &mut replacement));
        Some(replacement)
    }
}

fn push(piece: Piece<'_>, prompt: &mut Prompt) {
    match piece {
        Piece::Text(text) => prompt.push_text(text),
        Piece::Control { id, text } => prompt.push_control(id, text),
    }
}

/// Whether two texts are the same JSON, or the same text where they are none.
fn are_same(one: &str, other: &str) -> bool {
    match (serde_json::from_str(one), serde_json::from_str(other)) {
        (Ok(one), Ok(other)) => same_values(&one, &other),
        _ => one.trim() == other.trim(),
    }
}

/// Equal, but for the type of a value that a syntax without types has written.
fn same_values(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let same = |(key, value): (&String, &Value)| {
                other
                    .get(key)
                    .is_some_and(|other| same_values(value, other))
            };
            one.len() == other.len() && one.iter().all(same)
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(a, b)| same_values(a, b))
        }
        (Value::String(_), Value::String(_)) => one == other,
        (Value::String(text), value) | (value, Value::String(text)) => {
            let written = value.to_string();
            *text == written
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests;
