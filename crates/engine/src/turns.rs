//! The answers of late, as they were sampled, for prompts that repeat them.
//!
//! An answer with calls is found by the ids of its calls, which nobody can guess; one without by its text, which whoever sends it
//! back has. Both only under the salt they were asked under. What is found is checked against the message, so an id under which a client
//! sends something else gives nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use andante_text::{ChatRequest, Message, Role, Turn};
use rustc_hash::FxHashMap;

/// What is kept, in bytes.
const MOST_BYTES: usize = 64 << 20;

/// Answers that have ended.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    by_key: FxHashMap<Key, Arc<Turn>>,
    /// With their keys, oldest first.
    order: VecDeque<(Arc<Turn>, Vec<Key>)>,
    bytes: usize,
}

/// A hash of the salt and what a turn is found by.
type Key = [u8; 16];

impl Turns {
    /// Remembers an answer.
    pub(crate) fn note(&self, salt: u64, turn: Turn) {
        let keys = keys(
            salt,
            turn.call_ids().iter().map(String::as_str),
            turn.text(),
        );
        let turn = Arc::new(turn);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for &key in &keys {
            kept.by_key.insert(key, Arc::clone(&turn));
        }
        kept.bytes += turn.size();
        kept.order.push_back((turn, keys));
        while kept.bytes > MOST_BYTES {
            kept.forget();
        }
    }

    /// The answers that a conversation repeats, in its order. Messages that lack the reasoning of theirs get it back, where an id
    /// says that it is theirs.
    pub(crate) fn find(&self, salt: u64, chat: &mut ChatRequest) -> Vec<Arc<Turn>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut turns = Vec::new();
        // A message that is to be continued is no answer yet.
        let said = chat.messages.len() - usize::from(chat.continue_final_message);
        for message in &mut chat.messages[..said] {
            if message.role != Role::Assistant {
                continue;
            }
            if let Some(turn) = kept.find(salt, message) {
                if message.reasoning.is_none() && !turn.call_ids().is_empty() {
                    message.reasoning = turn.reasoning().map(str::to_owned);
                }
                turns.push(turn);
            }
        }
        turns
    }

    /// Whether nothing is kept.
    pub(crate) fn is_empty(&self) -> bool {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.order.is_empty()
    }
}

impl Kept {
    fn find(&self, salt: u64, message: &Message) -> Option<Arc<Turn>> {
        let ids = message
            .tool_calls
            .iter()
            .filter_map(|call| call.id.as_deref());
        let text = message.content.as_deref().unwrap_or_default().trim();
        if ids.clone().count() != message.tool_calls.len() {
            return None;
        }
        let mut found = keys(salt, ids, text)
            .into_iter()
            .map(|key| self.by_key.get(&key));
        let turn = found.next()??;
        let same = found.all(|other| other.is_some_and(|other| Arc::ptr_eq(other, turn)));
        (same && turn.is_said_by(message)).then(|| Arc::clone(turn))
    }

    fn forget(&mut self) {
        let Some((turn, keys)) = self.order.pop_front() else {
            return;
        };
        self.bytes -= turn.size();
        for key in keys {
            if self
                .by_key
                .get(&key)
                .is_some_and(|kept| Arc::ptr_eq(kept, &turn))
            {
                self.by_key.remove(&key);
            }
        }
    }
}

/// What a turn is found by: its calls' ids, or its text.
fn keys<'i>(salt: u64, ids: impl Iterator<Item = &'i str>, text: &str) -> Vec<Key> {
    let key = |kind: &[u8], what: &str| {
        let mut hasher = blake3::Hasher::new();
        hasher
            .update(&salt.to_le_bytes())
            .update(kind)
            .update(what.as_bytes());
        *hasher
            .finalize()
            .as_bytes()
            .first_chunk()
            .expect("a hash has 32 bytes")
    };
    // APIs write ids with beginnings of their own.
    let id = |id: &str| key(b"call", id.rsplit('_').next().unwrap_or(id));
    let ids: Vec<Key> = ids.map(id).collect();
    if ids.is_empty() {
        vec![key(b"text", text)]
    } else {
        ids
    }
}

#[cfg(test)]
mod tests;
