//! `qwen3`: the dense Qwen 3 models. Queries and keys are normed per head; half-split (NeoX) RoPE; heads wider than
//! `hidden / heads`.

use andante_compute::RopeStyle;

use super::base;
use crate::ModelError;
use crate::metadata::Keys;
use crate::spec::{DecoderSpec, LayerTensors};

pub(super) fn spec(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let mut spec = base::spec(keys, RopeStyle::Neox)?;
    spec.tensors = LayerTensors {
        q_norm: Some("attn_q_norm.weight"),
        k_norm: Some("attn_k_norm.weight"),
        ..LayerTensors::GGUF
    };
    Ok(spec)
}
