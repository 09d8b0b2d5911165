//! `qwen2`: Qwen 2 and 2.5. Biases on q, k and v; half-split (NeoX) RoPE.

use andante_compute::RopeStyle;

use super::base;
use crate::ModelError;
use crate::metadata::Keys;
use crate::spec::{DecoderSpec, LayerTensors};

pub(super) fn spec(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let mut spec = base::spec(keys, RopeStyle::Neox)?;
    spec.tensors = LayerTensors {
        q_bias: Some("attn_q.bias"),
        k_bias: Some("attn_k.bias"),
        v_bias: Some("attn_v.bias"),
        ..LayerTensors::GGUF
    };
    Ok(spec)
}
