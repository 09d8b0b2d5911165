//! Responses that were asked to be kept, within bounds: the oldest go first.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use andante_engine::Tenant;
use serde_json::Value;

use crate::config::{MAX_STORED_BYTES, MAX_STORED_RESPONSES};

/// The responses kept. Each belongs to the tenant who asked for it: others do not find it.
#[derive(Default)]
pub(crate) struct ResponseStore(Mutex<Kept>);

/// One of them.
pub(crate) struct Stored {
    /// As it was answered.
    pub(super) response: Value,
    /// All items before the answer, those of earlier responses included.
    pub(super) input: Vec<Arc<Value>>,
    pub(super) owner: Tenant,
}

#[derive(Default)]
struct Kept {
    by_id: HashMap<String, (Arc<Stored>, usize)>,
    oldest_first: VecDeque<String>,
    bytes: usize,
}

impl ResponseStore {
    pub(super) fn insert(&self, stored: Stored) {
        let id = stored.response["id"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        // Items that earlier responses hold too count for each: too much rather than too little.
        let items = stored.input.iter().map(|item| size(item));
        let bytes = size(&stored.response) + items.sum::<usize>();
        let mut kept = self.lock();
        kept.bytes += bytes;
        kept.oldest_first.push_back(id.clone());
        kept.by_id.insert(id, (Arc::new(stored), bytes));
        while kept.bytes > MAX_STORED_BYTES || kept.oldest_first.len() > MAX_STORED_RESPONSES {
            let Some(id) = kept.oldest_first.pop_front() else {
                break;
            };
            kept.forget(&id);
        }
    }

    pub(super) fn get(&self, id: &str, owner: &Tenant) -> Option<Arc<Stored>> {
        let kept = self.lock();
        let (stored, _) = kept.by_id.get(id)?;
        (stored.owner == *owner).then(|| Arc::clone(stored))
    }

    pub(super) fn remove(&self, id: &str, owner: &Tenant) -> Option<Arc<Stored>> {
        let stored = self.get(id, owner)?;
        let mut kept = self.lock();
        kept.forget(id);
        kept.oldest_first.retain(|other| other != id);
        Some(stored)
    }

    /// The items with these ids that responses were made from, or that they consist of: one look for all of them.
    pub(super) fn items(&self, ids: &HashSet<&str>, owner: &Tenant) -> HashMap<String, Value> {
        let mut found = HashMap::new();
        if ids.is_empty() {
            return found;
        }
        let kept = self.lock();
        let stored = kept.by_id.values().map(|(stored, _)| stored);
        for stored in stored.filter(|stored| stored.owner == *owner) {
            let output = stored.response["output"].as_array().into_iter().flatten();
            for item in output.chain(stored.input.iter().map(Arc::as_ref)) {
                let id = item["id"].as_str().unwrap_or_default();
                if ids.contains(id) && !found.contains_key(id) {
                    found.insert(id.to_owned(), item.clone());
                }
            }
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stored {
    /// What a request that goes on from here begins with.
    pub(super) fn conversation(&self) -> Vec<Arc<Value>> {
        let output = self.response["output"].as_array().into_iter().flatten();
        let output = output.map(|item| Arc::new(item.clone()));
        self.input.iter().cloned().chain(output).collect()
    }
}

impl Kept {
    fn forget(&mut self, id: &str) {
        if let Some((_, bytes)) = self.by_id.remove(id) {
            self.bytes -= bytes;
        }
    }
}

/// About the memory that a value takes.
fn size(value: &Value) -> usize {
    const NODE: usize = 32;
    NODE + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(entries) => entries
            .iter()
            .map(|(key, value)| key.len() + size(value))
            .sum(),
        _ => 0,
    }
}
