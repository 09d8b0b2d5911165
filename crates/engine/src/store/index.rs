//! What is in the folder: in memory, by key, with the order in which blocks would be given up.
//!
//! The order is Greedy-Dual-Size-Frequency (Cherkasova, HPL-98-69R1): a block is worth the clock at its last use plus what it
//! saves per byte, its uses times the cost to compute it again; who is evicted moves the clock on to its worth. So age
//! counts in turnovers of the folder, not in seconds. Only blocks that nothing continues are ever given up: a chain never
//! gets a hole.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use super::key::{Key, ObjectName};
use super::objects::Listed;

/// Tokens of depth at which attention costs as much as the rest of a token.
const EVEN_TOKENS: u64 = 4096;

/// What the file system takes at least, and rounds up to.
const PAGE: u64 = 4096;

/// The clock's units in a block of one page, used once, at the beginning of a sequence.
const ONE: u64 = 1 << 30;
/// Where the clock starts: what was used before has room below it.
const START: u64 = 1 << 40;

/// The objects of a folder.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    /// Keys are hashes already.
    entries: FxHashMap<Key, Entry>,
    /// Blocks that nothing continues, by their worth.
    leaves: BTreeSet<(u64, Key)>,
    block_tokens: u64,
    used_bytes: u64,
    clock: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    parent: Key,
    depth: u32,
    bytes: u64,
    children: u32,
    hits: u32,
    /// The clock at its last use.
    used: u64,
}

impl Index {
    pub(crate) fn new(block_tokens: u32) -> Self {
        Self {
            entries: FxHashMap::default(),
            leaves: BTreeSet::new(),
            block_tokens: u64::from(block_tokens),
            used_bytes: 0,
            clock: START,
        }
    }

    /// The index of what a listing shows, with what this one knows of how blocks were used. What it does not know was used
    /// when it was modified. Gives also the objects that no chain leads to.
    pub(crate) fn renewed(&self, mut listed: Vec<Listed>) -> (Self, Vec<ObjectName>) {
        listed.sort_unstable_by_key(|object| object.name.depth);
        let mut index = Self::new(u32::try_from(self.block_tokens).expect("it was made from one"));
        index.clock = self.clock;
        index.entries.reserve(listed.len());
        let mut orphans = Vec::new();
        let ages = ages(&listed);
        for object in listed {
            if !index.takes(&object.name) {
                orphans.push(object.name);
                continue;
            }
            let ObjectName { key, parent, depth } = object.name;
            let known = self.entries.get(&key);
            let aged = || self.clock - ages[&object.modified_s];
            let entry = Entry {
                parent,
                depth,
                bytes: charged(object.bytes),
                children: 0,
                hits: known.map_or(0, |entry| entry.hits),
                used: known.map_or_else(aged, |entry| entry.used),
            };
            index.used_bytes += entry.bytes;
            index.entries.insert(key, entry);
            if let Some(before) = index.entries.get_mut(&parent) {
                before.children += 1;
            }
        }
        let ends = index
            .entries
            .iter()
            .filter(|(_, entry)| entry.children == 0);
        index.leaves = ends
            .map(|(key, entry)| (index.worth(entry), *key))
            .collect();
        (index, orphans)
    }

    /// Forgets everything but the clock.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.leaves.clear();
        self.used_bytes = 0;
    }

    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.entries.contains_key(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What the objects take, each rounded up as the file system does.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Notes that somebody is about to use a block; whether it is there.
    pub(crate) fn touch(&mut self, key: &Key) -> bool {
        let clock = self.clock;
        self.change(key, |entry| entry.used = clock)
    }

    /// Notes that a block has been of use.
    pub(crate) fn hit(&mut self, key: &Key) {
        self.change(key, |entry| entry.hits = entry.hits.saturating_add(1));
    }

    /// Whether an object of this name has its place: what it continues is there, and it is not.
    pub(crate) fn takes(&self, name: &ObjectName) -> bool {
        let follows = match self.entries.get(&name.parent) {
            Some(before) => before.depth.checked_add(1) == Some(name.depth),
            None => name.depth == 0,
        };
        follows && !self.contains(&name.key)
    }

    /// Adds an object that it [`takes`](Self::takes).
    pub(crate) fn insert(&mut self, name: &ObjectName, bytes: u64) {
        debug_assert!(self.takes(name));
        self.put(
            name.key,
            Entry {
                parent: name.parent,
                depth: name.depth,
                bytes: charged(bytes),
                children: 0,
                hits: 0,
                used: self.clock,
            },
        );
    }

    /// The block of least worth that nothing continues, `kept` excepted.
    pub(crate) fn victim(&self, kept: &Key) -> Option<ObjectName> {
        let (_, key) = self.leaves.iter().find(|(_, key)| key != kept)?;
        Some(self.name(key))
    }

    /// Moves the clock on to the worth of a block that makes room for another, and forgets it.
    pub(crate) fn evict(&mut self, key: &Key) {
        if let Some(entry) = self.entries.get(key) {
            self.clock = self.clock.max(self.worth(entry));
        }
        self.remove(key);
    }

    /// Forgets a block that nothing continues.
    pub(crate) fn remove(&mut self, key: &Key) {
        let Some(entry) = self.entries.remove(key) else {
            return;
        };
        debug_assert_eq!(entry.children, 0, "leaves before parents");
        self.leaves.remove(&(self.worth(&entry), *key));
        self.used_bytes -= entry.bytes;
        self.change_children(&entry.parent, |children| children - 1);
    }

    /// A block and everything that continues it, the last first.
    pub(crate) fn subtree(&self, key: &Key) -> Vec<ObjectName> {
        let Some(root) = self.entries.get(key) else {
            return Vec::new();
        };
        let mut deeper: Vec<(&Key, &Entry)> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.depth > root.depth)
            .collect();
        deeper.sort_by_key(|(_, entry)| entry.depth);
        let mut found: FxHashSet<Key> = [*key].into_iter().collect();
        let mut names = vec![self.name(key)];
        for (key, entry) in deeper {
            if found.contains(&entry.parent) {
                found.insert(*key);
                names.push(self.name(key));
            }
        }
        names.reverse();
        names
    }

    fn put(&mut self, key: Key, entry: Entry) {
        self.used_bytes += entry.bytes;
        self.leaves.insert((self.worth(&entry), key));
        self.entries.insert(key, entry);
        self.change_children(&entry.parent, |children| children + 1);
    }

    fn change_children(&mut self, key: &Key, change: impl FnOnce(u32) -> u32) {
        self.change(key, |entry| entry.children = change(entry.children));
    }

    /// Changes an entry and its place among the leaves; whether there is one.
    fn change(&mut self, key: &Key, change: impl FnOnce(&mut Entry)) -> bool {
        let Some(entry) = self.entries.get_mut(key) else {
            return false;
        };
        let before = *entry;
        change(entry);
        let after = *entry;
        if before.children == 0 {
            self.leaves.remove(&(self.worth(&before), *key));
        }
        if after.children == 0 {
            self.leaves.insert((self.worth(&after), *key));
        }
        true
    }

    fn name(&self, key: &Key) -> ObjectName {
        let entry = &self.entries[key];
        ObjectName {
            key: *key,
            parent: entry.parent,
            depth: entry.depth,
        }
    }

    fn worth(&self, entry: &Entry) -> u64 {
        let uses = u128::from(entry.hits) + 1;
        let tokens_before = u128::from(entry.depth) * u128::from(self.block_tokens);
        let cost = u128::from(EVEN_TOKENS) + tokens_before;
        let saved = uses * cost * u128::from(ONE)
            / (u128::from(EVEN_TOKENS) * u128::from(entry.bytes / PAGE));
        entry
            .used
            .saturating_add(u64::try_from(saved).unwrap_or(u64::MAX))
    }
}

/// What an object of so many bytes counts as.
pub(crate) fn charged(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(PAGE)
}

/// How long ago times of modification were, in units of the clock: from the newest to the oldest it has gone on by about a
/// block's worth.
fn ages(listed: &[Listed]) -> FxHashMap<u64, u64> {
    let mut times: Vec<u64> = listed.iter().map(|object| object.modified_s).collect();
    times.sort_unstable();
    times.dedup();
    let pages: u64 = listed
        .iter()
        .map(|object| charged(object.bytes) / PAGE)
        .sum();
    let (objects, count) = (listed.len() as u64, times.len() as u64);
    let turnover = ONE * objects / pages.max(1);
    let newest_first = times.into_iter().rev().zip(0..);
    newest_first
        .map(|(time, rank)| (time, turnover * rank / count))
        .collect()
}

#[cfg(test)]
mod tests;
