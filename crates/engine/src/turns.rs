//! The answers of late, as they were sampled, for prompts that repeat them.
//!
//! An answer with calls is found by the ids of its calls, which nobody can guess; one without by its text, which whoever sends it
//! back has. Both only under the salt they were asked under. What is found is checked against the message, so an id under which a client
//! sends something else gives nothing.
//!
//! A store keeps them, so that prompts repeat them after a restart too.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use andante_text::{ChatRequest, Message, Role, Turn};
use rustc_hash::FxHashMap;

use crate::store;

/// What is kept, in bytes.
const MOST_BYTES: usize = 64 << 20;
/// Of records.
const VERSION: u32 = 1;
const VERSION_BYTES: usize = 4;

/// Answers that have ended.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    by_key: FxHashMap<Key, Arc<Turn>>,
    /// Oldest first.
    order: VecDeque<Entry>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    turn: Arc<Turn>,
    salt: u64,
    keys: Vec<Key>,
    /// No store was told of it.
    unwritten: bool,
}

/// A hash of the salt and what a turn is found by.
type Key = [u8; 16];

impl Turns {
    /// Remembers an answer.
    pub(crate) fn note(&self, salt: u64, turn: Turn) {
        self.lock().put(salt, turn, true);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answers that a conversation repeats, in its order. Messages that lack the reasoning of theirs get it back, where an id
    /// says that it is theirs.
    pub(crate) fn find(&self, salt: u64, chat: &mut ChatRequest) -> Vec<Arc<Turn>> {
        let kept = self.lock();
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
        self.lock().order.is_empty()
    }
}

impl Kept {
    fn put(&mut self, salt: u64, turn: Turn, unwritten: bool) {
        let ids = turn.call_ids().iter().map(String::as_str);
        let keys = keys(salt, ids, turn.text());
        let known = keys.first().and_then(|key| self.by_key.get(key));
        if !unwritten && known.is_some_and(|known| **known == turn) {
            return;
        }
        let turn = Arc::new(turn);
        for &key in &keys {
            self.by_key.insert(key, Arc::clone(&turn));
        }
        self.bytes += turn.size();
        self.order.push_back(Entry {
            turn,
            salt,
            keys,
            unwritten,
        });
        while self.bytes > MOST_BYTES {
            self.forget();
        }
    }

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
        let Some(Entry { turn, keys, .. }) = self.order.pop_front() else {
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

impl store::Kept for Turns {
    fn take_unwritten(&self) -> Option<Vec<u8>> {
        let mut new = Vec::new();
        for entry in &mut self.lock().order {
            if std::mem::take(&mut entry.unwritten) {
                new.push((entry.salt, Arc::clone(&entry.turn)));
            }
        }
        let new: Vec<Vec<u8>> = new.iter().map(encode).collect();
        (!new.is_empty()).then(|| record(&new))
    }

    fn latest(&self, most_bytes: usize) -> Vec<u8> {
        let entries = |kept: &Kept| -> Vec<(u64, Arc<Turn>)> {
            let entries = kept.order.iter().rev();
            entries
                .map(|entry| (entry.salt, Arc::clone(&entry.turn)))
                .collect()
        };
        let newest_first = entries(&self.lock());
        let mut left = most_bytes.saturating_sub(VERSION_BYTES);
        let mut latest = Vec::new();
        for turn in newest_first.iter().map(encode) {
            let Some(less) = left.checked_sub(turn.len()) else {
                break;
            };
            left = less;
            latest.push(turn);
        }
        latest.reverse();
        record(&latest)
    }

    fn add(&self, record: &[u8]) -> bool {
        let Some(turns) = decode(record) else {
            return false;
        };
        let mut kept = self.lock();
        for (salt, turn) in turns {
            kept.put(salt, turn, false);
        }
        true
    }
}

fn encode((salt, turn): &(u64, Arc<Turn>)) -> Vec<u8> {
    let json = turn.to_json();
    let length = u32::try_from(json.len()).expect("an answer is short");
    let head = [&salt.to_le_bytes()[..], &length.to_le_bytes()].concat();
    [&head[..], json.as_bytes()].concat()
}

fn record(turns: &[Vec<u8>]) -> Vec<u8> {
    [&VERSION.to_le_bytes()[..], &turns.concat()].concat()
}

/// `None` for what is no record.
fn decode(record: &[u8]) -> Option<Vec<(u64, Turn)>> {
    let (version, mut rest) = record.split_first_chunk::<VERSION_BYTES>()?;
    if u32::from_le_bytes(*version) != VERSION {
        return None;
    }
    let mut turns = Vec::new();
    while !rest.is_empty() {
        let (salt, more) = rest.split_first_chunk()?;
        let (length, more) = more.split_first_chunk()?;
        let (json, more) = more.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let turn = Turn::from_json(std::str::from_utf8(json).ok()?)?;
        turns.push((u64::from_le_bytes(*salt), turn));
        rest = more;
    }
    Some(turns)
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
