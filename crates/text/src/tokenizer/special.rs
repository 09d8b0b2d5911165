//! Finding the spellings of special tokens in a text.

use aho_corasick::{AhoCorasick, MatchKind};

/// Tokens that are found by their spelling before anything else is done with a text.
#[derive(Debug)]
pub(crate) struct SpecialTokens {
    /// `None` when there are none.
    finder: Option<AhoCorasick>,
    ids: Vec<u32>,
}

/// A stretch of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fragment<'t> {
    /// No special token in it.
    Text(&'t str),
    /// The spelling of a special token, of `len` bytes.
    Token { id: u32, len: usize },
}

impl SpecialTokens {
    /// The given ids with their spellings, none of them empty.
    pub(crate) fn new<'v>(tokens: impl Iterator<Item = (u32, &'v str)>) -> Self {
        let (ids, texts): (Vec<u32>, Vec<&str>) = tokens.unzip();
        let finder = (!ids.is_empty()).then(|| {
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(&texts)
                .expect("a vocabulary is far smaller than the automaton's limits")
        });
        Self { finder, ids }
    }

    /// Whether no special token is spelt in a text.
    pub(crate) fn is_absent(&self, text: &str) -> bool {
        self.finder
            .as_ref()
            .is_none_or(|finder| !finder.is_match(text))
    }

    /// Cuts a text: the leftmost special token first, the longest of those that begin there.
    pub(crate) fn fragments<'t>(&self, text: &'t str, mut each: impl FnMut(Fragment<'t>)) {
        let mut done = 0;
        for found in self.finder.iter().flat_map(|finder| finder.find_iter(text)) {
            if found.start() > done {
                each(Fragment::Text(&text[done..found.start()]));
            }
            each(Fragment::Token {
                id: self.ids[found.pattern().as_usize()],
                len: found.len(),
            });
            done = found.end();
        }
        if done < text.len() {
            each(Fragment::Text(&text[done..]));
        }
    }
}
