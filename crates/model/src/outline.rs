//! What a model would be, told from its file without loading it.

use andante_compute::BLOCK_TOKENS;
use andante_gguf::{GgufFile, Tensor};

use crate::arch::{self, EMBEDDING, OUTPUT};
use crate::metadata::Keys;
use crate::spec::FeedForward;
use crate::{ModelError, deepseek4};

/// What a model would be.
#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    /// Trained context length in tokens.
    pub context: u32,
    /// Kinds of layers in words, in the order of their first layers, and how many there are of each.
    pub layers: Vec<(String, usize)>,
    /// Bytes of weights that a token reads which is generated alone.
    pub token_bytes: u64,
    /// Tokens of a KV block.
    pub block_tokens: u32,
    /// Values that a KV block holds; their bytes depend on the type of keys and values.
    pub block_values: u64,
    /// Bytes of a sequence's running state.
    pub state_bytes: u64,
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
    Ok(Outline {
        context: spec.context,
        layers: counted(kinds),
        token_bytes: token_bytes(keys.file, (chosen, experts)),
        block_tokens: BLOCK_TOKENS as u32,
        block_values: (of_token * BLOCK_TOKENS) as u64,
        state_bytes: 0,
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

/// Bytes that one token reads, of whose experts `chosen` of `all` work on it.
pub(crate) fn token_bytes(file: &GgufFile, (chosen, all): (usize, usize)) -> u64 {
    let has_output = file.tensor(OUTPUT).is_some();
    let of_tensor = |tensor: Tensor<'_>| {
        let bytes = tensor.data.len() as u64;
        // Tables are read row by row.
        let is_table = (tensor.name == EMBEDDING && has_output) || tensor.name.contains("tid2eid");
        match tensor.shape.len() {
            _ if is_table => bytes / tensor.rows().max(1) as u64,
            3 => bytes / all as u64 * chosen as u64,
            _ => bytes,
        }
    };
    file.tensors().map(of_tensor).sum()
}
