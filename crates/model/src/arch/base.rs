//! What every member of the decoder family stores under the same names.

use andante_compute::{Activation, ExpertsSpec, RopeScaling, RopeSpec, RopeStyle, RopeTable};
use andante_gguf::Value;

use crate::ModelError;
use crate::metadata::Keys;
use crate::spec::{DecoderSpec, FeedForward, LayerSpec, LayerTensors};

/// Sanity limit of widths and counts, far above any model: products of three of them still fit in 64 bits.
pub(crate) const MOST: u32 = 1 << 20;

/// The plain decoder: one RoPE, no window, SiLU, no experts, no optional tensor.
pub(super) fn spec(keys: &Keys<'_>, style: RopeStyle) -> Result<DecoderSpec, ModelError> {
    keys.refuse_nonzero("expert_count")?;
    let width = keys.count("feed_forward_length", MOST)?;
    let dense = FeedForward::Dense(Activation::Silu);
    spec_of(keys, style, dense, width)
}

/// The same with experts as feed-forward layers, their weights a softmax over the chosen ones.
pub(super) fn spec_with_experts(
    keys: &Keys<'_>,
    style: RopeStyle,
    activation: Activation,
) -> Result<DecoderSpec, ModelError> {
    let experts = keys.count("expert_count", MOST)?;
    let chosen = keys.count("expert_used_count", experts as u32)?;
    let width = match keys.u32("expert_feed_forward_length")? {
        Some(_) => keys.count("expert_feed_forward_length", MOST)?,
        None => keys.count("feed_forward_length", MOST)?,
    };
    let experts = FeedForward::Experts(ExpertsSpec {
        experts,
        chosen,
        activation,
    });
    let mut spec = spec_of(keys, style, experts, width)?;
    spec.tensors = LayerTensors::GGUF_EXPERTS;
    Ok(spec)
}

fn spec_of(
    keys: &Keys<'_>,
    style: RopeStyle,
    feed_forward: FeedForward,
    feed_forward_width: usize,
) -> Result<DecoderSpec, ModelError> {
    let layers = keys.count("block_count", 4096)?;
    let hidden = keys.count("embedding_length", MOST)?;
    let heads = keys.count("attention.head_count", MOST)?;
    let kv_heads = keys.count_or("attention.head_count_kv", MOST, heads)?;
    if !heads.is_multiple_of(kv_heads) {
        return Err(keys.refuse(
            "attention.head_count_kv",
            kv_heads,
            format!("a divisor of {heads}"),
        ));
    }
    let head_dim = head_dim(keys, hidden, heads)?;
    let context = keys.count("context_length", u32::MAX)?;
    let vocab = vocab(keys)?;
    Ok(DecoderSpec {
        context: context as u32,
        vocab,
        hidden,
        feed_forward,
        feed_forward_width,
        heads,
        kv_heads,
        head_dim,
        layers: vec![
            LayerSpec {
                window: None,
                rope: 0
            };
            layers
        ],
        ropes: vec![rope(keys, style, head_dim, true)?],
        eps: keys.positive("attention.layer_norm_rms_epsilon")?,
        embedding_scale: 1.0,
        attention_scale: keys.positive_or("attention.scale", 1.0 / (head_dim as f32).sqrt())?,
        tensors: LayerTensors::GGUF,
    })
}

/// The number of embedding rows: the one count that no key must repeat. A vocabulary that lists more tokens than there are rows
/// would index past the table.
pub(crate) fn vocab(keys: &Keys<'_>) -> Result<usize, ModelError> {
    let name = super::EMBEDDING;
    let missing = || ModelError::MissingTensor {
        name: name.to_owned(),
    };
    let rows = keys.file.tensor(name).ok_or_else(missing)?.rows();
    let tokens = match keys.metadata().get("tokenizer.ggml.tokens") {
        Some(Value::Array(tokens)) => tokens.len(),
        _ => 0,
    };
    if tokens > rows || rows > u32::MAX as usize {
        return Err(ModelError::Metadata {
            key: "tokenizer.ggml.tokens".to_owned(),
            found: format!("an array of {tokens}"),
            expected: format!("at most the {rows} rows of `{name}`"),
        });
    }
    Ok(rows)
}

pub(crate) fn head_dim(keys: &Keys<'_>, hidden: usize, heads: usize) -> Result<usize, ModelError> {
    let head_dim = match keys.u32("attention.key_length")? {
        Some(_) => keys.count("attention.key_length", MOST)?,
        None if hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            let expected = format!("a divisor of {hidden}, as there is no key_length");
            return Err(keys.refuse("attention.head_count", heads, expected));
        }
    };
    let value_length = keys.count_or("attention.value_length", MOST, head_dim)?;
    if value_length != head_dim {
        let expected = format!("{head_dim}, the key length");
        return Err(keys.refuse("attention.value_length", value_length, expected));
    }
    Ok(head_dim)
}

/// The rotary embedding with the file's scaling; `whole_pairs` tells what no file does, where YaRN's ramp lies.
pub(super) fn rope(
    keys: &Keys<'_>,
    style: RopeStyle,
    head_dim: usize,
    whole_pairs: bool,
) -> Result<RopeTable, ModelError> {
    let rotary_dim = keys.count_or("rope.dimension_count", head_dim as u32, head_dim)?;
    if !rotary_dim.is_multiple_of(2) {
        return Err(keys.refuse("rope.dimension_count", rotary_dim, "an even number"));
    }
    let base = rope_base(keys, "rope.freq_base", 10_000.0)?;
    let factors = factors(keys, rotary_dim)?;
    let scaling = scaling(keys, whole_pairs)?;
    let factors = factors.as_deref();
    Ok(RopeTable::new(&RopeSpec {
        head_dim,
        rotary_dim,
        style,
        base,
        scaling,
        factors,
    }))
}

/// The base of RoPE frequencies; YaRN divides by its logarithm.
pub(crate) fn rope_base(keys: &Keys<'_>, suffix: &str, default: f32) -> Result<f64, ModelError> {
    match keys.positive_or(suffix, default)? {
        base if base > 1.0 => Ok(base.into()),
        base => Err(keys.refuse(suffix, base, "a number above 1")),
    }
}

pub(crate) fn scaling(keys: &Keys<'_>, whole_pairs: bool) -> Result<RopeScaling, ModelError> {
    // `scale_linear` is what files from before `rope.scaling.*` hold; 0 stands for no scaling in either.
    let factor = match keys.f32("rope.scaling.factor")? {
        Some(factor) => factor,
        None => keys.f32("rope.scale_linear")?.unwrap_or(0.0),
    };
    if factor != 0.0 && factor < 1.0 {
        return Err(keys.refuse("rope.scaling.factor", factor, "0 or at least 1"));
    }
    let factor = f64::from(factor.max(1.0));
    match keys.metadata().str(&keys.key("rope.scaling.type"))? {
        Some("none") => Ok(RopeScaling::None),
        Some("linear") | None if factor == 1.0 => Ok(RopeScaling::None),
        Some("linear") | None => Ok(RopeScaling::Linear { factor }),
        Some("yarn") => yarn(keys, factor, whole_pairs),
        Some(other) => Err(keys.refuse("rope.scaling.type", other, "none, linear or yarn")),
    }
}

/// YaRN's parameters with llama.cpp's names and defaults. `yarn_log_multiplier` is the `mscale_all_dim` of models that divide
/// YaRN's growth of the magnitude by a growth of their own.
fn yarn(keys: &Keys<'_>, factor: f64, whole_pairs: bool) -> Result<RopeScaling, ModelError> {
    let context = keys.count("context_length", u32::MAX)?;
    let original = keys.count_or("rope.scaling.original_context_length", u32::MAX, context)?;
    let log_multiplier = keys.f32("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0);
    let own_growth = 1.0 + 0.1 * f64::from(log_multiplier) * factor.ln();
    let attention_factor = f64::from(keys.positive_or("rope.scaling.attn_factor", 1.0)?);
    Ok(RopeScaling::Yarn {
        factor,
        original_context: original as f64,
        beta_fast: keys
            .positive_or("rope.scaling.yarn_beta_fast", 32.0)?
            .into(),
        beta_slow: keys.positive_or("rope.scaling.yarn_beta_slow", 1.0)?.into(),
        whole_pairs,
        attention_factor: attention_factor / own_growth,
    })
}

/// Llama 3 stores its scaling as one divisor per pair.
fn factors(keys: &Keys<'_>, rotary_dim: usize) -> Result<Option<Vec<f32>>, ModelError> {
    let name = super::ROPE_FACTORS;
    let Some(tensor) = keys.file.tensor(name) else {
        return Ok(None);
    };
    let expected = vec![rotary_dim as u64 / 2];
    if tensor.shape != expected {
        let found = tensor.shape.to_vec();
        return Err(ModelError::TensorShape {
            name: name.to_owned(),
            expected,
            found,
        });
    }
    Ok(Some(tensor.dequantize()))
}
