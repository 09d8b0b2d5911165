//! How prompts and answers were spelt, for later prompts that begin with the same words.
//!
//! A model does not spell as the tokenizer does: what it sampled comes back in the next prompt as text, and encoded anew it may
//! become other tokens, whose keys and values nobody has. So the tokens of ended requests are kept, in a trie of
//! pieces as long as a KV block, and where they say how a prompt begins, they stand for that part of it; only the rest is
//! encoded.
//!
//! They may stand for a prompt only up to where the tokenizer would begin afresh (a control token), or up to the end of a prompt
//! or answer: in the middle of a text the rest would be encoded differently than with what is before it, and the same prompt
//! would give other tokens from one time to the next.
//!
//! A store keeps them as [`Piece`]s, so that prompts have the same tokens after a restart too.

mod trie;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use andante_text::{Prompt, Spelling, Tokenizer};

pub(crate) use trie::PIECE;
use trie::Trie;
pub(crate) use trie::{Piece, PieceId};

/// Requests that wait for the next text to be encoded; where prompts come as tokens and nothing is stored, it never is.
const MOST_ENDED: usize = 64;

/// What has been said to this engine, and by it.
#[derive(Debug, Default)]
pub(crate) struct Spellings {
    /// What has ended and is not yet in the trie: the engine's thread puts it here and goes on.
    ended: Mutex<VecDeque<Spelt>>,
    /// Something has ended that no store was told of.
    news: AtomicBool,
    trie: Mutex<Trie>,
}

/// A request that has ended.
#[derive(Debug)]
pub(crate) struct Spelt {
    pub(crate) salt: u64,
    pub(crate) prompt: Arc<[u32]>,
    pub(crate) answer: Vec<u32>,
}

impl Spellings {
    /// Remembers a request.
    pub(crate) fn note(&self, said: Spelt) {
        let mut ended = lock(&self.ended);
        if ended.len() == MOST_ENDED {
            ended.pop_front();
        }
        ended.push_back(said);
        self.news.store(true, Ordering::Relaxed);
    }

    /// Whether something has ended since the last call.
    pub(crate) fn have_news(&self) -> bool {
        self.news.swap(false, Ordering::Relaxed)
    }

    /// The tokens of a prompt: those that said its beginning before, under the same salt, if they are others than its own,
    /// and its own.
    pub(crate) fn encode(&self, prompt: &Prompt, tokenizer: &Tokenizer, salt: u64) -> Vec<u32> {
        let tokens = prompt.encode(tokenizer);
        let mut trie = self.trie();
        let Some(known) = trie.find(salt, Spelling::new(prompt, tokenizer)) else {
            return tokens;
        };
        let before = trie.tokens(known.place);
        drop(trie);
        if tokens.starts_with(&before) {
            tokens
        } else {
            known.spelling.rest(before)
        }
    }

    /// Takes in what a store has kept, each piece after the one that it continues.
    pub(crate) fn add(&self, pieces: Vec<Piece>) {
        self.trie().add(pieces);
    }

    /// What was said since the last call, each piece after the one that it continues.
    pub(crate) fn take_unwritten(&self) -> Vec<Piece> {
        self.trie().take_unwritten()
    }

    /// The pieces that were wanted last, as many as `most` at most, in the order in which [`add`](Self::add) takes them.
    pub(crate) fn latest(&self, most: usize) -> Vec<Piece> {
        self.trie().latest(most)
    }

    /// The sequences that were wanted last, the latest first, with their salts.
    pub(crate) fn last_said(&self, most: usize) -> Vec<(u64, Vec<u32>)> {
        self.trie().last_said(most)
    }

    /// The trie with all that has ended in it.
    fn trie(&self) -> MutexGuard<'_, Trie> {
        let ended = std::mem::take(&mut *lock(&self.ended));
        let mut trie = lock(&self.trie);
        for said in ended {
            trie.insert(&said);
        }
        trie
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
