//! `llama`: Llama 2 and 3, SmolLM2, Mistral (also under the name `mistral3`), Mixtral (with experts).
//!
//! llama.cpp's converter permutes the rows of q and k so that a pair of rotated dimensions is adjacent, hence interleaved RoPE.
//! Mistral's window, where a file states it, covers every layer. Biases exist where the checkpoint had them.

use andante_compute::{Activation, RopeStyle};

use super::{base, has_layer_tensor};
use crate::ModelError;
use crate::metadata::Keys;
use crate::spec::{DecoderSpec, LayerTensors};

pub(super) fn spec(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    keys.refuse_nonzero("attention.temperature_scale")?;
    let style = RopeStyle::Interleaved;
    let mut spec = match keys.u32("expert_count")? {
        None | Some(0) => base::spec(keys, style)?,
        Some(_) => base::spec_with_experts(keys, style, Activation::Silu)?,
    };
    super::set_windows(keys, &mut spec, 0)?;
    let present = |name| has_layer_tensor(keys, name).then_some(name);
    spec.tensors = LayerTensors {
        q_bias: present("attn_q.bias"),
        k_bias: present("attn_k.bias"),
        v_bias: present("attn_v.bias"),
        attn_output_bias: present("attn_output.bias"),
        ..spec.tensors
    };
    Ok(spec)
}
