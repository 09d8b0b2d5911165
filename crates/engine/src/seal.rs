//! Reasoning in the client's keeping: an opaque string that only this server can have made, and that it can read again.
//!
//! APIs hand reasoning out under a handle (`signature` of an Anthropic thinking block, `encrypted_content` of a Responses
//! reasoning item) and get it back with the next request, often without the text itself. The handle holds the text, so
//! nothing is kept here and nothing is forgotten; it is encrypted, because clients that ask for no thinking are to see none,
//! and authenticated, so that nobody can put words into the model's mouth.
//!
//! Form: `ar1_`, then the unpadded URL-safe base64 of nonce, authentication code and text. The key stream is BLAKE3's extendable
//! output keyed by the first derived key over the nonce; the code is BLAKE3 keyed by the second over nonce and encrypted text,
//! cut to 16 bytes (encrypt, then authenticate).

use blake3::{Hasher, derive_key, keyed_hash};

const PREFIX: &str = "ar1_";
const NONCE: usize = 16;
const CODE: usize = 16;
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Seals and opens with one key.
pub(crate) struct Seal {
    stream_key: [u8; 32],
    code_key: [u8; 32],
}

impl Seal {
    /// Derives both keys from a secret.
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        Self {
            stream_key: derive_key("andante 2026 sealed reasoning: key stream", secret),
            code_key: derive_key("andante 2026 sealed reasoning: authentication", secret),
        }
    }

    /// A handle that holds `text`; each call gives another one.
    pub(crate) fn seal(&self, text: &str) -> String {
        let mut sealed = random::<NONCE>().to_vec();
        sealed.resize(NONCE + CODE, 0);
        sealed.extend_from_slice(text.as_bytes());
        self.stream(&mut sealed);
        let code = self.code(&sealed);
        sealed[NONCE..NONCE + CODE].copy_from_slice(&code);
        format!("{PREFIX}{}", base64(&sealed))
    }

    /// The text of a handle; `None` when this key did not make it, or anything of it was changed.
    pub(crate) fn open(&self, handle: &str) -> Option<String> {
        let mut sealed = unbase64(handle.strip_prefix(PREFIX)?)?;
        let given: [u8; CODE] = sealed.get(NONCE..NONCE + CODE)?.try_into().ok()?;
        // No early end: how long the comparison takes must not tell how much of a guess was right.
        let differs = given
            .iter()
            .zip(self.code(&sealed))
            .fold(0, |all, (a, b)| all | (a ^ b));
        if differs != 0 {
            return None;
        }
        self.stream(&mut sealed);
        String::from_utf8(sealed.split_off(NONCE + CODE)).ok()
    }

    /// Encrypts or decrypts what follows nonce and code.
    fn stream(&self, sealed: &mut [u8]) {
        let mut hasher = Hasher::new_keyed(&self.stream_key);
        hasher.update(&sealed[..NONCE]);
        let mut key = vec![0; sealed.len() - NONCE - CODE];
        hasher.finalize_xof().fill(&mut key);
        for (byte, key) in sealed[NONCE + CODE..].iter_mut().zip(key) {
            *byte ^= key;
        }
    }

    fn code(&self, sealed: &[u8]) -> [u8; CODE] {
        let message = [&sealed[..NONCE], &sealed[NONCE + CODE..]].concat();
        let hash = keyed_hash(&self.code_key, &message);
        *hash.as_bytes().first_chunk().expect("a hash has 32 bytes")
    }
}

/// Bytes that nobody can guess, from the operating system.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..=group.len() {
            text.push(char::from(LETTERS[(bits >> (18 - 6 * i) & 63) as usize]));
        }
    }
    text
}

fn unbase64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.as_bytes().chunks(4) {
        let mut bits = 0;
        for &letter in group {
            let value = LETTERS.iter().position(|&known| known == letter)?;
            bits = bits << 6 | u32::try_from(value).expect("below 64");
        }
        bits <<= 6 * (4 - group.len());
        // Three bytes in the low 24 bits, the highest first; a letter that stands alone holds no byte.
        let count = group.len().checked_sub(1).filter(|&count| count > 0)?;
        bytes.extend((0..count).map(|i| (bits >> (16 - 8 * i) & 0xff) as u8));
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
