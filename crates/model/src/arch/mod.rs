//! The architecture table: from `general.architecture` to a [`DecoderSpec`], or to a model of another shape.
//!
//! One module per member says what it adds to [`base`], the facts that all members store under the same names.

pub(crate) mod base;
mod gemma3;
mod gpt_oss;
mod llama;
mod qwen2;
mod qwen3;
mod qwen3moe;

use andante_gguf::Value;

use crate::ModelError;
use crate::metadata::Keys;
use crate::spec::DecoderSpec;

/// Token embeddings, and the output matrix where there is no [`OUTPUT`].
pub(crate) const EMBEDDING: &str = "token_embd.weight";
/// The norm before the output matrix.
pub(crate) const OUTPUT_NORM: &str = "output_norm.weight";
/// The output matrix of models that do not tie it to the embeddings.
pub(crate) const OUTPUT: &str = "output.weight";
/// One RoPE divisor per pair of dimensions.
pub(crate) const ROPE_FACTORS: &str = "rope_freqs.weight";

type ReadSpec = fn(&Keys<'_>) -> Result<DecoderSpec, ModelError>;

/// Every architecture of the decoder family, by its name in GGUF files.
const DECODERS: &[(&str, ReadSpec)] = &[
    ("gemma3", gemma3::spec),
    ("gpt-oss", gpt_oss::spec),
    ("llama", llama::spec),
    ("mistral3", llama::spec),
    ("qwen2", qwen2::spec),
    ("qwen3", qwen3::spec),
    ("qwen3moe", qwen3moe::spec),
];

/// DeepSeek V4, a graph of its own.
pub(crate) const DEEPSEEK4: &str = "deepseek4";

/// The architectures that can be loaded.
pub fn known_architectures() -> impl Iterator<Item = &'static str> {
    let decoders = DECODERS.iter().map(|(name, _)| *name);
    std::iter::once(DEEPSEEK4).chain(decoders)
}

/// Reads the spec of a file of the decoder family.
///
/// # Errors
/// An architecture that is not in the table; metadata that is missing, of the wrong type or out of range.
pub(crate) fn decoder_spec(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let Some((_, read)) = DECODERS.iter().find(|(name, _)| *name == keys.architecture) else {
        return Err(ModelError::UnknownArchitecture {
            name: keys.architecture.to_owned(),
            known: known_architectures().collect(),
        });
    };
    read(keys)
}

/// Whether the first layer has the tensor `name`.
fn has_layer_tensor(keys: &Keys<'_>, name: &str) -> bool {
    keys.file.tensor(&format!("blk.0.{name}")).is_some()
}

/// Gives layers the file's sliding window, if it has one. The pattern key holds either a period `p` (every `p`-th layer sees
/// all positions, 0: none does) or one flag per layer (true: windowed).
fn set_windows(
    keys: &Keys<'_>,
    spec: &mut DecoderSpec,
    default_period: u32,
) -> Result<(), ModelError> {
    const PATTERN: &str = "attention.sliding_window_pattern";
    let Some(window) = keys.u32("attention.sliding_window")?.filter(|&w| w > 0) else {
        return Ok(());
    };
    let layers = spec.layers.len();
    let windowed: Vec<bool> = match keys.metadata().get(&keys.key(PATTERN)) {
        Some(Value::Array(_)) => keys.metadata().require_bools(&keys.key(PATTERN))?.to_vec(),
        _ => {
            let period = keys.u32(PATTERN)?.unwrap_or(default_period) as usize;
            (1..=layers)
                .map(|i| period == 0 || !i.is_multiple_of(period))
                .collect()
        }
    };
    if windowed.len() != layers {
        let found = format!("an array of {}", windowed.len());
        return Err(keys.refuse(
            PATTERN,
            found,
            format!("one flag for each of the {layers} layers"),
        ));
    }
    for (layer, windowed) in spec.layers.iter_mut().zip(windowed) {
        layer.window = windowed.then_some(window);
    }
    Ok(())
}
