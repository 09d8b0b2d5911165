//! What decides the bytes of a KV block beside its tokens, as a hash.

use andante_gguf::GgufFile;

/// Bytes at either end of a tensor that are looked at.
const SAMPLE: usize = 4096;

/// A hash of a model file: its metadata and tensor directory whole, of each tensor's data the length and both ends.
pub(crate) struct Fingerprint(blake3::Hash);

pub(crate) fn fingerprint(file: &GgufFile) -> Fingerprint {
    let mut hasher = blake3::Hasher::new_derive_key("andante model file v1");
    for head in file.heads() {
        field(&mut hasher, head);
    }
    for tensor in file.tensors() {
        let data = tensor.data;
        let sample = SAMPLE.min(data.len());
        field(&mut hasher, &(data.len() as u64).to_le_bytes());
        field(&mut hasher, &data[..sample]);
        field(&mut hasher, &data[data.len() - sample..]);
    }
    Fingerprint(hasher.finalize())
}

/// See [`crate::Model::kv_identity`]; `shape` is the model's KV memory in numbers, `format` the backend's.
pub(crate) fn of_blocks(file: &Fingerprint, shape: &[usize], format: &str) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("andante KV blocks v1");
    field(&mut hasher, env!("CARGO_PKG_VERSION").as_bytes());
    // Of the sources: a kernel that rounds otherwise makes other blocks, whatever the version says.
    field(&mut hasher, env!("ANDANTE_ARITHMETIC").as_bytes());
    field(&mut hasher, file.0.as_bytes());
    for &size in shape {
        field(&mut hasher, &(size as u64).to_le_bytes());
    }
    field(&mut hasher, format.as_bytes());
    *hasher.finalize().as_bytes()
}

/// Adds bytes so that where they end decides the hash too.
fn field(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}
