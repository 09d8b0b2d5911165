//! `gemma3`: the text part of Gemma 3.
//!
//! Five layers with a window and a RoPE of their own follow each other, then one layer that sees everything with the scaled,
//! slow RoPE. Queries and keys are normed per head, and what attention and feed-forward add is normed once more. The converter has
//! already added 1 to the norm weights.

use andante_compute::{Activation, RopeScaling, RopeSpec, RopeStyle, RopeTable};

use super::base;
use crate::ModelError;
use crate::metadata::Keys;
use crate::spec::{DecoderSpec, FeedForward, LayerTensors};

/// Every sixth layer sees all positions, unless the file says otherwise.
const GLOBAL_PERIOD: u32 = 6;
/// Base of the windowed layers' RoPE, unless the file says otherwise.
const LOCAL_BASE: f32 = 10_000.0;

pub(super) fn spec(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    keys.refuse_nonzero("final_logit_softcapping")?;
    keys.refuse_nonzero("attn_logit_softcapping")?;
    let mut spec = base::spec(keys, RopeStyle::Neox)?;
    super::set_windows(keys, &mut spec, GLOBAL_PERIOD)?;
    spec.ropes.push(RopeTable::new(&RopeSpec {
        head_dim: spec.head_dim,
        rotary_dim: spec.ropes[0].rotary_dim(),
        style: RopeStyle::Neox,
        base: base::rope_base(keys, "rope.freq_base_swa", LOCAL_BASE)?,
        scaling: RopeScaling::None,
        factors: None,
    }));
    for layer in &mut spec.layers {
        layer.rope = usize::from(layer.window.is_some());
    }
    spec.embedding_scale = (spec.hidden as f32).sqrt();
    spec.attention_scale = keys.positive_or("attention.scale", attention_scale(&spec))?;
    spec.feed_forward = FeedForward::Dense(Activation::GeluTanh);
    spec.tensors = LayerTensors {
        q_norm: Some("attn_q_norm.weight"),
        k_norm: Some("attn_k_norm.weight"),
        attn_post_norm: Some("post_attention_norm.weight"),
        ffn_post_norm: Some("post_ffw_norm.weight"),
        ..LayerTensors::GGUF
    };
    Ok(spec)
}

/// The converter drops `query_pre_attn_scalar`. It is the head width in every size but the 27B, the one with 62 layers, where
/// it is `hidden / heads`.
fn attention_scale(spec: &DecoderSpec) -> f32 {
    let scalar = if spec.layers.len() == 62 {
        spec.hidden / spec.heads
    } else {
        spec.head_dim
    };
    1.0 / (scalar as f32).sqrt()
}
