//! Reasoning in the client's keeping: an opaque string that only this server can have made, and that it can read again.
//!
//! APIs hand reasoning out under a handle (`signature` of an Anthropic thinking block, `encrypted_content` of a Responses
//! reasoning item) and get it back with the next request, often without the text itself. The handle holds the text, so
//! nothing is kept here and nothing is forgotten; it is encrypted, because clients that ask for no thinking are to see none,
//! and authenticated, so that nobody can put words into the model's mouth.
//!
//! Form: `ar1_`, then the unpadded URL-safe base64 of nonce, encrypted text and tag: XChaCha20-Poly1305, nonces drawn at random.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use blake3::derive_key;
use chacha20poly1305::aead::{Aead, AeadCore, KeyInit, OsRng};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

const PREFIX: &str = "ar1_";
const NONCE: usize = 24;

/// Seals and opens with one key.
pub(crate) struct Seal(XChaCha20Poly1305);

impl Seal {
    /// Derives the key from a secret.
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        let key = derive_key("andante 2026 sealed reasoning", secret);
        Self(XChaCha20Poly1305::new(&key.into()))
    }

    /// A handle that holds `text`; each call gives another one.
    pub(crate) fn seal(&self, text: &str) -> String {
        let nonce = XChaCha20Poly1305::generate_nonce(&mut OsRng);
        let encrypted = self.0.encrypt(&nonce, text.as_bytes());
        let encrypted = encrypted.expect("the cipher takes far more bytes than an answer has");
        let sealed = [&nonce[..], &encrypted].concat();
        format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(sealed))
    }

    /// The text of a handle; `None` when this key did not make it, or anything of it was changed.
    pub(crate) fn open(&self, handle: &str) -> Option<String> {
        let sealed = handle.strip_prefix(PREFIX)?;
        let sealed = BASE64_URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, encrypted) = sealed.split_at_checked(NONCE)?;
        let text = self.0.decrypt(XNonce::from_slice(nonce), encrypted).ok()?;
        String::from_utf8(text).ok()
    }
}

/// Bytes that nobody can guess, from the operating system.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

#[cfg(test)]
mod tests;
