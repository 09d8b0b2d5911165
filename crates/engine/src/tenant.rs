//! Who a request is served for: a name that people know and the number that the scheduler counts by.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use andante_sched::TenantId;
use sha2::{Digest, Sha256};

/// Characters of a name that are kept for showing it.
const SHOWN_CHARS: usize = 64;

/// A tenant. The id is the first 8 bytes of SHA-256 of the whole name, and 0 for the default tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    id: TenantId,
    name: Arc<str>,
}

impl Tenant {
    /// The one that everybody shares who does not say who they are.
    pub const DEFAULT: &str = "default";

    /// The tenant of this name. Control characters and what is longer than 64 characters are not shown, but tell names
    /// apart all the same.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let id = if name == Self::DEFAULT {
            0
        } else {
            first_eight(name)
        };
        let shown = name.chars().take(SHOWN_CHARS);
        let shown: String = shown
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect();
        Self {
            id,
            name: shown.into(),
        }
    }

    /// The tenant of an API key, named `key-` and 8 hexadecimal digits of the key's SHA-256: enough to tell keys apart, and
    /// no help in guessing one.
    #[must_use]
    pub fn of_key(key: &str) -> Self {
        Self::named(&format!("key-{:08x}", first_eight(key) >> 32))
    }

    /// A salt for [`EngineHandle::with_salt`](crate::EngineHandle::with_salt) that no other tenant has.
    #[must_use]
    pub fn salt(&self) -> u64 {
        salt(self.id, "")
    }

    /// The number that the scheduler counts by.
    #[must_use]
    pub fn id(&self) -> TenantId {
        self.id
    }

    /// The name to show.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Default for Tenant {
    fn default() -> Self {
        Self::named(Self::DEFAULT)
    }
}

/// A salt of its own for every pair of a salt and a word: 8 bytes of SHA-256. Never 0.
pub(crate) fn salt(of: u64, word: &str) -> u64 {
    first_eight(&format!("salt {of:016x} {word}")).max(1)
}

fn first_eight(text: &str) -> u64 {
    let digest = Sha256::digest(text.as_bytes());
    digest[..8]
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The names of the tenants that the scheduler keeps accounts of.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<TenantId, Arc<str>>);

impl Names {
    /// Names kept. The scheduler forgets idle tenants earlier than this.
    const MOST: usize = 4096;

    /// Remembers a tenant's name. `known` are the tenants that the scheduler still counts; the others are forgotten when
    /// there are too many.
    pub(crate) fn remember(&mut self, tenant: &Tenant, known: impl Iterator<Item = TenantId>) {
        if self.0.len() >= Self::MOST && !self.0.contains_key(&tenant.id) {
            let mut kept = BTreeMap::new();
            for id in known {
                kept.extend(self.0.remove_entry(&id));
            }
            self.0 = kept;
        }
        if let Entry::Vacant(entry) = self.0.entry(tenant.id) {
            entry.insert(Arc::clone(&tenant.name));
        }
    }

    /// The name of a tenant that has asked for something.
    pub(crate) fn get(&self, id: TenantId) -> Arc<str> {
        match self.0.get(&id) {
            Some(name) => Arc::clone(name),
            None => Tenant::default().name,
        }
    }
}

#[cfg(test)]
mod tests;
