//! A vocabulary as the grammar engine sees it: a trie over the bytes of all tokens that say text.
//!
//! Control tokens and those that end an answer stand apart, behind a byte that no text has, so that no grammar takes one for
//! the text that it is spelt with, and none says it by accident. Tokens that say nothing, or something that no UTF-8 text
//! holds, are left out and never allowed.

use std::sync::Arc;

use llguidance::toktrie::{INVALID_TOKEN, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use rustc_hash::FxHashMap;

use crate::TextError;
use crate::tokenizer::{TokenKind, Tokenizer};

/// Longer tokens are left out: the trie counts the steps from a leaf to the root in 10 bits.
const MAX_TOKEN_BYTES: usize = 1000;
/// The trie counts nodes in 22 bits.
const MAX_NODES: usize = 1 << 22;
/// The trie keeps ids in 24 bits, of which the highest number is none.
const MAX_TOKENS: usize = 0xff_ffff;

/// What grammars are compiled against.
pub(super) struct Vocabulary {
    pub(super) environment: TokEnv,
    /// Of tokens with the same bytes the trie holds one. Here are the others: the one in the trie, and another.
    pub(super) twins: Arc<[(TokenId, TokenId)]>,
}

impl Vocabulary {
    /// # Errors
    /// A vocabulary beyond the limits of the trie.
    pub(super) fn new(tokenizer: &Tokenizer) -> Result<Self, TextError> {
        let tokens = tokenizer.vocab();
        if tokens == 0 || tokens >= MAX_TOKENS {
            return Err(TextError::Unconstrainable);
        }
        let mut words: Vec<Vec<u8>> = (0..).take(tokens).map(|id| word(tokenizer, id)).collect();
        let twins = part_twins(tokenizer, &mut words);
        if nodes(&words) >= MAX_NODES {
            return Err(TextError::Unconstrainable);
        }
        let ends: Vec<TokenId> = (0..)
            .take(tokens)
            .filter(|&id| tokenizer.is_end(id))
            .collect();
        let size = u32::try_from(tokens).expect("checked above");
        let info = TokRxInfo::new(size, ends.first().copied().unwrap_or(INVALID_TOKEN));
        let mut trie = TokTrie::from(&info, &words);
        if !ends.is_empty() {
            trie = trie.with_eos_tokens(&ends);
        }
        Ok(Self {
            environment: Arc::new(Environment(trie)),
            twins: twins.into(),
        })
    }
}

/// The bytes of a token in the trie; none for one that is never allowed.
fn word(tokenizer: &Tokenizer, id: TokenId) -> Vec<u8> {
    let piece = tokenizer.piece(id);
    if piece.len() > MAX_TOKEN_BYTES {
        return Vec::new();
    }
    match tokenizer.kind(id) {
        _ if tokenizer.is_end(id) || tokenizer.is_control(id) => apart(piece),
        TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte => {
            if piece.contains(&TokTrie::SPECIAL_TOKEN_MARKER) {
                Vec::new()
            } else {
                piece.to_vec()
            }
        }
        TokenKind::Control | TokenKind::Unknown | TokenKind::Unused => Vec::new(),
    }
}

/// A name for a control token. A bracket behind the marker would stand for a token's number.
fn apart(spelling: &[u8]) -> Vec<u8> {
    let mut word = vec![TokTrie::SPECIAL_TOKEN_MARKER];
    if spelling.first() == Some(&b'[') {
        word.push(b'<');
    }
    word.extend_from_slice(spelling);
    word
}

/// Leaves one of the tokens with the same bytes, rather a word of the vocabulary than a byte for want of one.
fn part_twins(tokenizer: &Tokenizer, words: &mut [Vec<u8>]) -> Vec<(TokenId, TokenId)> {
    let mut first: FxHashMap<&[u8], TokenId> = FxHashMap::default();
    let mut twins = Vec::new();
    for bytes in [false, true] {
        for (id, word) in (0..).zip(words.iter()) {
            if !word.is_empty() && bytes == (tokenizer.kind(id) == TokenKind::Byte) {
                let kept = *first.entry(word).or_insert(id);
                if kept != id {
                    twins.push((kept, id));
                }
            }
        }
    }
    for &(_, other) in &twins {
        words[other as usize].clear();
    }
    twins
}

/// Nodes of the trie over these words.
fn nodes(words: &[Vec<u8>]) -> usize {
    let mut sorted: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    sorted.sort_unstable();
    let mut before: &[u8] = &[];
    let mut nodes = 1;
    for word in sorted {
        let shared = word.iter().zip(before).take_while(|(a, b)| a == b).count();
        nodes += word.len() - shared;
        before = word;
    }
    nodes
}

struct Environment(TokTrie);

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        &self.0
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.0.greedy_tokenize(bytes)
    }

    /// Where a grammar leaves no choice of bytes, the engine would force the tokens of all of them, if it were told how the
    /// tokenizer spells them. It looks for their end first: a million of them, which takes a grammar a line to demand, would
    /// keep every other answer waiting for seconds. So the model chooses the spelling, as it does everywhere else.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}
