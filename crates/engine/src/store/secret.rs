//! Encrypted objects: unreadable without the key, and every change to them is noticed. `docs/kv-format.md` has the table.
//!
//! XChaCha20-Poly1305 with nonces drawn at random, which its 24 bytes allow for any number of objects.

use std::fmt;

use chacha20poly1305::aead::{AeadCore, AeadInPlace, KeyInit, OsRng};
use chacha20poly1305::{Tag, XChaCha20Poly1305, XNonce};

use super::block::Reject;

const MAGIC: [u8; 8] = *b"ANDANTEX";
const VERSION: u32 = 1;
/// Bytes that are not encrypted: magic, version, zero, the key's id; and with the nonce.
const OPEN: usize = 32;
const HEAD: usize = OPEN + 24;
const TAG: usize = 16;

/// What encrypts the objects of a store, and hides which tokens their names stand for.
#[derive(Clone)]
pub struct Secret {
    cipher: XChaCha20Poly1305,
    names: [u8; 32],
    /// Tells keys apart without saying anything about them.
    id: [u8; 16],
}

impl Secret {
    /// Three independent keys of one.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        let derived = |domain| blake3::derive_key(domain, key);
        let mut id = [0; 16];
        id.copy_from_slice(&derived("andante kv 1 key id")[..16]);
        Self {
            cipher: XChaCha20Poly1305::new(&derived("andante kv 1 cipher").into()),
            names: derived("andante kv 1 names"),
            id,
        }
    }

    /// What is hashed into every name.
    pub(crate) fn names(&self) -> [u8; 32] {
        self.names
    }

    /// Encrypts an object.
    pub(crate) fn seal(&self, plain: &[u8]) -> Vec<u8> {
        let mut sealed = Vec::with_capacity(HEAD + plain.len() + TAG);
        sealed.extend(MAGIC);
        sealed.extend(VERSION.to_le_bytes());
        sealed.extend([0; 4]);
        sealed.extend(self.id);
        let nonce = XChaCha20Poly1305::generate_nonce(&mut OsRng);
        sealed.extend(nonce);
        sealed.extend(plain);
        let (head, text) = sealed.split_at_mut(HEAD);
        let tag = self
            .cipher
            .encrypt_in_place_detached(&nonce, &head[..OPEN], text)
            .expect("the cipher takes far more bytes than an object has");
        sealed.extend(tag);
        sealed
    }

    fn open<'a>(&self, sealed: &'a mut [u8]) -> Result<&'a [u8], Reject> {
        let (head, rest) = sealed.split_at_mut_checked(HEAD).ok_or(Reject::Damaged)?;
        let (text, tag) = rest.split_last_chunk_mut::<TAG>().ok_or(Reject::Damaged)?;
        if head[8..16] != [VERSION.to_le_bytes(), [0; 4]].concat() {
            return Err(Reject::Damaged);
        }
        if head[16..OPEN] != self.id {
            return Err(Reject::Sealed);
        }
        let nonce = XNonce::from_slice(&head[OPEN..]);
        self.cipher
            .decrypt_in_place_detached(nonce, &head[..OPEN], text, Tag::from_slice(tag))
            .map_err(|_| Reject::Damaged)?;
        Ok(text)
    }
}

/// What is in an object that is encrypted with `secret`, or not at all when there is none.
pub(crate) fn open<'a>(secret: Option<&Secret>, object: &'a mut [u8]) -> Result<&'a [u8], Reject> {
    match (secret, is_sealed(object)) {
        (Some(secret), true) => secret.open(object),
        (Some(_), false) => Err(Reject::Foreign),
        (None, true) => Err(Reject::Sealed),
        (None, false) => Ok(object),
    }
}

/// What opens an object: those without a key may stand beside those with one.
pub(crate) fn of<'s>(object: &[u8], secret: Option<&'s Secret>) -> Option<&'s Secret> {
    secret.filter(|_| is_sealed(object))
}

/// Whether an object is encrypted.
fn is_sealed(object: &[u8]) -> bool {
    object.starts_with(&MAGIC)
}

/// An object as it is kept.
pub(crate) fn seal(secret: Option<&Secret>, plain: Vec<u8>) -> Vec<u8> {
    match secret {
        Some(secret) => secret.seal(&plain),
        None => plain,
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_is_opened_with_its_key_only() {
        let (one, other) = (Secret::new(&[1; 32]), Secret::new(&[2; 32]));
        let sealed = one.seal(b"keys and values");
        assert_eq!(sealed.len(), 56 + 15 + 16);
        assert_ne!(sealed, one.seal(b"keys and values"), "another nonce");
        assert!(!sealed.windows(4).any(|bytes| bytes == b"keys"));
        assert_eq!(&sealed[..16], b"ANDANTEX\x01\0\0\0\0\0\0\0");
        let open = |secret, sealed: &[u8]| {
            let mut sealed = sealed.to_vec();
            super::open(secret, &mut sealed).map(<[u8]>::to_vec)
        };
        assert_eq!(open(Some(&one), &sealed), Ok(b"keys and values".to_vec()));
        assert_eq!(open(Some(&other), &sealed), Err(Reject::Sealed));
        assert_eq!(open(None, &sealed), Err(Reject::Sealed));
        assert_eq!(open(Some(&one), b"plain"), Err(Reject::Foreign));
        assert_eq!(open(None, b"plain"), Ok(b"plain".to_vec()));
        for index in 0..sealed.len() {
            let mut wrong = sealed.clone();
            wrong[index] ^= 1;
            assert!(open(Some(&one), &wrong).is_err(), "byte {index}");
            assert!(open(Some(&one), &sealed[..index]).is_err(), "{index} bytes");
        }
    }

    #[test]
    fn the_cipher_is_that_of_the_document() {
        // Opened with the crate alone, as the table says.
        let sealed = Secret::new(&[7; 32]).seal(b"text");
        let key = blake3::derive_key("andante kv 1 cipher", &[7; 32]);
        let mut text = sealed[56..60].to_vec();
        XChaCha20Poly1305::new(&key.into())
            .decrypt_in_place_detached(
                XNonce::from_slice(&sealed[32..56]),
                &sealed[..32],
                &mut text,
                Tag::from_slice(&sealed[60..]),
            )
            .expect("authentic");
        assert_eq!(text, b"text");
        let id = blake3::derive_key("andante kv 1 key id", &[7; 32]);
        assert_eq!(sealed[16..32], id[..16]);
    }
}
