//! What a model would be, told from its file without loading it.

use andante_compute::BLOCK_TOKENS;
use andante_gguf::{GgufFile, Tensor};

use crate::arch::{self, EMBEDDING, OUTPUT};
use crate::metadata::Keys;
use crate::spec::FeedForward;
use crate::{KvLayout, ModelError, deepseek4};

/// What a model would be.
#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    /// Trained context length in tokens.
    pub context: u32,
    /// Kinds of layers in words, in the order of their first layers, and how many there are of each.
    pub layers: Vec<(String, usize)>,
    /// Bytes of weights that a token reads which is generated alone.
    pub token_bytes: u64,
    /// The memory of sequences for some types of keys and values, the usual one first.
    pub kv: Vec<(&'static str, KvLayout)>,
}

/// Reads what a model would be.
///
/// # Errors
/// An unknown architecture; metadata that is missing or contradicts itself.
pub fn outline(file: &GgufFile) -> Result<Outline, ModelError> {
    let keys = Keys::new(file)?;
    match keys.architecture {
        arch::DEEPSEEK4 => deepseek4::outline(&keys),
        _ => decoder(&keys),
    }
}

fn decoder(keys: &Keys<'_>) -> Result<Outline, ModelError> {
    let spec = arch::decoder_spec(keys)?;
    let shape = spec.kv_shape();
    let of_token = 2 * shape.layers * shape.kv_heads * shape.head_dim;
    let (chosen, experts) = match spec.feed_forward {
        FeedForward::Dense(_) => (1, 1),
        FeedForward::Experts(experts) => (experts.chosen, experts.experts),
    };
    let kinds = spec.layers.iter().map(|layer| match layer.window {
        None => "attention to all positions".to_owned(),
        Some(window) => format!("attention to a window of {window}"),
    });
    let kv = KvLayout {
        block_tokens: BLOCK_TOKENS as u32,
        block_bytes: (of_token * BLOCK_TOKENS * size_of::<u16>()) as u64,
        state_bytes: 0,
    };
    Ok(Outline {
        context: spec.context,
        layers: counted(kinds),
        token_bytes: token_bytes(keys, keys.file.tensors(), (chosen, experts)),
        kv: vec![("f16", kv)],
    })
}

/// How many there are of each kind.
pub(crate) fn counted(kinds: impl Iterator<Item = String>) -> Vec<(String, usize)> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for kind in kinds {
        match counts.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => counts.push((kind, 1)),
        }
    }
    counts
}

/// Bytes of these tensors that one token reads, of whose experts `chosen` of `all` work on it.
pub(crate) fn token_bytes<'a>(
    keys: &Keys<'_>,
    tensors: impl Iterator<Item = Tensor<'a>>,
    (chosen, all): (usize, usize),
) -> u64 {
    let has_output = keys.file.tensor(OUTPUT).is_some();
    let of_tensor = |tensor: Tensor<'_>| {
        let bytes = tensor.data.len() as u64;
        // Tables are read row by row.
        let of_token = ["tid2eid", "_ape"]
            .iter()
            .any(|part| tensor.name.contains(part));
        let is_table = of_token || (tensor.name == EMBEDDING && has_output);
        match tensor.shape.len() {
            _ if is_table => bytes / tensor.rows().max(1) as u64,
            3 => bytes / all as u64 * chosen as u64,
            _ => bytes,
        }
    };
    tensors.map(of_tensor).sum()
}
