//! Responses that were asked to be kept, within bounds: the oldest go first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::config::{MAX_STORED_BYTES, MAX_STORED_RESPONSES};

/// The responses kept. Each belongs to the API key that asked for it: others do not find it.
#[derive(Default)]
pub(crate) struct ResponseStore(Mutex<Kept>);

/// One of them.
pub(crate) struct Stored {
    /// As it was answered.
    pub(super) response: Value,
    /// All items before the answer, those of earlier responses included.
    pub(super) input: Vec<Arc<Value>>,
    pub(super) owner: Option<String>,
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

    pub(super) fn get(&self, id: &str, owner: Option<&str>) -> Option<Arc<Stored>> {
        let kept = self.lock();
        let (stored, _) = kept.by_id.get(id)?;
        (stored.owner.as_deref() == owner).then(|| Arc::clone(stored))
    }

    pub(super) fn remove(&self, id: &str, owner: Option<&str>) -> Option<Arc<Stored>> {
        let stored = self.get(id, owner)?;
        let mut kept = self.lock();
        kept.forget(id);
        kept.oldest_first.retain(|other| other != id);
        Some(stored)
    }

    /// An item that a response was made from, or that it consists of.
    pub(super) fn item(&self, id: &str, owner: Option<&str>) -> Option<Value> {
        let kept = self.lock();
        let is_it = |item: &&Value| item["id"] == id;
        let ids = kept.oldest_first.iter().rev();
        let mut all = ids.filter_map(|id| kept.by_id.get(id));
        all.find_map(|(stored, _)| {
            if stored.owner.as_deref() != owner {
                return None;
            }
            let output = stored.response["output"].as_array().into_iter().flatten();
            let input = stored.input.iter().map(Arc::as_ref);
            output.chain(input).find(is_it).cloned()
        })
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
