//! `llama`: Llama 2 and 3, SmolLM2, Mistral (also under the name `mistral3`).
//!
//! llama.cpp's converter permutes the rows of q and k so that a pair of rotated dimensions is adjacent, hence interleaved RoPE.
//! Mistral's window, where a file states it, covers every layer. Biases exist where the checkpoint had them.

use andante_compute::RopeStyle;

use super::{base, has_layer_tensor};
use crate::ModelError;
use crate::metadata::Keys;
use crate::spec::{DecoderSpec, LayerTensors};

pub(super) fn spec(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    keys.refuse_nonzero("attention.temperature_scale")?;
    let mut spec = base::spec(keys, RopeStyle::Interleaved)?;
    super::set_windows(keys, &mut spec, 0)?;
    let present = |name| has_layer_tensor(keys, name).then_some(name);
    spec.tensors = LayerTensors {
        q_bias: present("attn_q.bias"),
        k_bias: present("attn_k.bias"),
        v_bias: present("attn_v.bias"),
        attn_output_bias: present("attn_output.bias"),
        ..LayerTensors::GGUF
    };
    Ok(spec)
}
