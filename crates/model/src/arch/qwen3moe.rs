//! `qwen3moe`: the Qwen 3 models with experts; otherwise as `qwen3`.
//!
//! The router's softmax over all experts is divided by its sum over the chosen ones, which is the softmax over those.

use andante_compute::{Activation, RopeStyle};

use super::base;
use crate::ModelError;
use crate::metadata::Keys;
use crate::spec::{DecoderSpec, LayerTensors};

pub(super) fn spec(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let mut spec = base::spec_with_experts(keys, RopeStyle::Neox, Activation::Silu)?;
    spec.tensors = LayerTensors {
        q_norm: Some("attn_q_norm.weight"),
        k_norm: Some("attn_k_norm.weight"),
        ..LayerTensors::GGUF_EXPERTS
    };
    Ok(spec)
}
