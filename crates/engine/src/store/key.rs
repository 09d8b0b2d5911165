//! Content addresses: the name of a block's KV is a hash of everything that decides its bits.
//!
//! The first block of a sequence continues a root, which stands for the model; every other block continues the one before
//! it. So equal prefixes have equal keys whatever request they came from, and a key names a whole prefix.

use std::fmt;

/// Domains of the hashes, so that none can be taken for another (BLAKE3's `derive_key` mode).
const ROOT: &str = "andante kv 1 root";
const SALTED: &str = "andante kv 1 salted root";
const BLOCK: &str = "andante kv 1 block";

/// Gives blocks their keys: whoever has not the same secret can neither make these keys nor tell tokens from them.
#[derive(Clone, Copy)]
pub(crate) struct Naming {
    root: Key,
    secret: Option<[u8; 32]>,
}

impl Naming {
    /// The keys of a model's blocks; `secret` is hashed into all of them.
    pub(crate) fn new(identity: &[u8; 32], secret: Option<[u8; 32]>) -> Self {
        Self {
            root: Key(digest(ROOT, secret.as_ref(), &[identity])),
            secret,
        }
    }

    /// The parent of first blocks, for sequences of this salt.
    pub(crate) fn root(&self, salt: u64) -> Key {
        if salt == 0 {
            return self.root;
        }
        let parts = [&self.root.0[..], &salt.to_le_bytes()];
        Key(digest(SALTED, self.secret.as_ref(), &parts))
    }

    /// The block with these tokens after the prefix that `parent` names.
    pub(crate) fn child(&self, parent: &Key, tokens: &[u32]) -> Key {
        child(self.secret.as_ref(), parent, tokens)
    }
}

/// As [`Naming::child`], for all models.
pub(crate) fn child(secret: Option<&[u8; 32]>, parent: &Key, tokens: &[u32]) -> Key {
    let mut hasher = begin(BLOCK, secret);
    hasher.update(&parent.0);
    for token in tokens {
        hasher.update(&token.to_le_bytes());
    }
    Key(hasher.finalize().into())
}

fn digest(domain: &str, secret: Option<&[u8; 32]>, parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = begin(domain, secret);
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().into()
}

fn begin(domain: &str, secret: Option<&[u8; 32]>) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new_derive_key(domain);
    if let Some(secret) = secret {
        hasher.update(secret);
    }
    hasher
}

/// The key of a block: BLAKE3 over its parent's key and its tokens, 32-bit little-endian each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; 32]);

impl Key {
    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads what `Display` writes: 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digit = |c: u8| match c {
            b'0'..=b'9' => Some(c - b'0'),
            b'a'..=b'f' => Some(c - b'a' + 10),
            _ => None,
        };
        let text: &[u8; 64] = text.as_bytes().try_into().ok()?;
        let mut key = [0; 32];
        for (byte, digits) in key.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(digits[0])? << 4 | digit(digits[1])?;
        }
        Some(Self(key))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        f.write_str(&digits.map(digit).collect::<String>())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..6]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What names an object: its block, what that continues, and how many blocks stand before it. All that an index needs is in
/// the names, so that a start reads no object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectName {
    /// The block.
    pub key: Key,
    /// The block before it, or the root.
    pub parent: Key,
    /// Blocks before it.
    pub depth: u32,
}

impl ObjectName {
    /// Reads what `Display` writes; everything else is not ours.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_suffix(".kv")?.split('-');
        let (key, parent, depth) = (parts.next()?, parts.next()?, parts.next()?);
        // One name for one object: no leading zeros, no plus sign.
        let plain = depth == "0" || depth.starts_with(|c: char| ('1'..='9').contains(&c));
        if !plain || parts.next().is_some() {
            return None;
        }
        Some(Self {
            key: Key::parse(key)?,
            parent: Key::parse(parent)?,
            depth: depth.parse().ok()?,
        })
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}.kv", self.key, self.parent, self.depth)
    }
}

#[cfg(test)]
impl Key {
    /// The parent of first blocks of a model of this identity, without secret and salt.
    pub(crate) fn root(identity: &[u8; 32]) -> Self {
        Naming::new(identity, None).root(0)
    }

    /// The block with these tokens after this prefix, without a secret.
    pub(crate) fn child(&self, tokens: &[u32]) -> Self {
        child(None, self, tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_another_secret_or_salt_are_others() {
        let (plain, secret) = (
            Naming::new(&[7; 32], None),
            Naming::new(&[7; 32], Some([1; 32])),
        );
        let other = Naming::new(&[7; 32], Some([2; 32]));
        assert_eq!(plain.root(0), Key::root(&[7; 32]));
        let mut keys = Vec::new();
        for naming in [plain, secret, other] {
            for root in [naming.root(0), naming.root(1), naming.root(2)] {
                keys.extend([root, naming.child(&root, &[1]), naming.child(&root, &[2])]);
            }
            keys.push(naming.child(&Key([0; 32]), &[1]));
        }
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[index + 1..].contains(key), "{index}");
        }
    }

    #[test]
    fn a_key_depends_on_the_model_the_prefix_and_the_tokens() {
        let root = Key::root(&[7; 32]);
        let keys = [
            root,
            Key::root(&[8; 32]),
            root.child(&[1, 2]),
            root.child(&[2, 1]),
            root.child(&[1]).child(&[2]),
            root.child(&[1, 2]).child(&[1, 2]),
            Key::root(&[8; 32]).child(&[1, 2]),
        ];
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[index + 1..].contains(key), "{index}");
        }
        assert_eq!(root.child(&[1, 2]), Key::root(&[7; 32]).child(&[1, 2]));
    }

    #[test]
    fn names_are_read_back_and_foreign_ones_are_not() {
        let parent = Key::root(&[1; 32]);
        let name = ObjectName {
            key: parent.child(&[5]),
            parent,
            depth: 12,
        };
        let text = name.to_string();
        assert_eq!(ObjectName::parse(&text), Some(name));
        for foreign in [
            "",
            "lock",
            "incoming.tmp",
            "notes.kv",
            &text.to_uppercase(),
            &text.replace("-12.kv", "-012.kv"),
            &text.replace("-12.kv", "-+12.kv"),
            &text.replace("-12.kv", "-12-1.kv"),
            &text.replace(".kv", ""),
            &text[1..],
        ] {
            assert_eq!(ObjectName::parse(foreign), None, "{foreign}");
        }
    }
}
