//! Content addresses: the name of a block's KV is a hash of everything that decides its bits.
//!
//! The first block of a sequence continues a root, which stands for the model; every other block continues the one before
//! it. So equal prefixes have equal keys whatever request they came from, and a key names a whole prefix.

use std::fmt;

/// Domains of the two hashes, so that neither can be taken for the other (BLAKE3's `derive_key` mode).
const ROOT: &str = "andante kv 1 root";
const BLOCK: &str = "andante kv 1 block";

/// The key of a block: BLAKE3 over its parent's key and its tokens, 32-bit little-endian each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; 32]);

impl Key {
    /// The parent of first blocks: what the KV of a model of this identity begins with.
    #[must_use]
    pub fn root(identity: &[u8; 32]) -> Self {
        Self(blake3::derive_key(ROOT, identity))
    }

    /// The block with these tokens after the prefix that this key names.
    #[must_use]
    pub fn child(&self, tokens: &[u32]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(BLOCK);
        hasher.update(&self.0);
        for token in tokens {
            hasher.update(&token.to_le_bytes());
        }
        Self(hasher.finalize().into())
    }

    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads what `Display` writes: 64 lower-case hexadecimal digits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
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
mod tests {
    use super::*;

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
