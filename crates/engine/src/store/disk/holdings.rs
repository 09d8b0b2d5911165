//! Which prefixes of memory a store has, too: named by whoever asks, since hashing all their tokens is no work for the engine's thread.

use std::fmt;
use std::sync::Arc;

use andante_sched::PrefixMap;

use crate::store::key::Key;
use crate::store::state::Shared;

/// Tells which prefixes a store has, from any thread.
#[derive(Clone)]
pub struct Holdings(Arc<Shared>);

impl Holdings {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// For each run of a map, how many of its blocks the store has.
    #[must_use]
    pub fn of(&self, map: &PrefixMap) -> Vec<u32> {
        let keys = self.keys(map);
        let state = self.0.state();
        let held = keys.iter().map(|keys| {
            let held = keys.iter().filter(|key| state.index.contains(key));
            u32::try_from(held.count()).expect("a run's blocks are counted in u32")
        });
        held.collect()
    }

    /// The keys of each run's whole blocks.
    fn keys(&self, map: &PrefixMap) -> Vec<Vec<Key>> {
        let naming = self.0.naming;
        let block_tokens = self.0.config.block_tokens as usize;
        let mut all: Vec<Vec<Key>> = Vec::with_capacity(map.runs.len());
        let mut rest = &map.tokens[..];
        for run in &map.runs {
            let tokens;
            (tokens, rest) = rest.split_at(run.tokens as usize);
            let mut key = match run.parent {
                Some(parent) => *all[parent as usize]
                    .last()
                    .expect("what is continued has a whole block"),
                None => naming.root(run.salt),
            };
            let keys = tokens.chunks_exact(block_tokens).map(|tokens| {
                key = naming.child(&key, tokens);
                key
            });
            all.push(keys.collect());
        }
        all
    }
}

impl fmt::Debug for Holdings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holdings").finish_non_exhaustive()
    }
}
