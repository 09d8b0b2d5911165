//! `gpt-oss`: OpenAI's open-weight models.
//!
//! Every product has a bias. Layers with a window and layers that see everything alternate, the first has the window; each head
//! has a sink. YaRN's ramp is not widened to whole pairs: the reference code does not, and files do not say.
//! Source: OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card" (2025), and the reference code published with the weights.

use andante_compute::{Activation, RopeStyle};

use super::base;
use crate::ModelError;
use crate::metadata::Keys;
use crate::spec::{DecoderSpec, ExpertTensors, LayerTensors};

/// Every second layer sees all positions, unless the file says otherwise.
const GLOBAL_PERIOD: u32 = 2;

pub(super) fn spec(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let style = RopeStyle::Neox;
    let mut spec = base::spec_with_experts(keys, style, Activation::ClampedSwiglu)?;
    super::set_windows(keys, &mut spec, GLOBAL_PERIOD)?;
    spec.ropes = vec![base::rope(keys, style, spec.head_dim, false)?];
    spec.tensors = LayerTensors {
        q_bias: Some("attn_q.bias"),
        k_bias: Some("attn_k.bias"),
        v_bias: Some("attn_v.bias"),
        attn_output_bias: Some("attn_output.bias"),
        sinks: Some("attn_sinks.weight"),
        ffn_norm: "post_attention_norm.weight",
        experts: ExpertTensors {
            router_bias: Some("ffn_gate_inp.bias"),
            gate_bias: Some("ffn_gate_exps.bias"),
            up_bias: Some("ffn_up_exps.bias"),
            down_bias: Some("ffn_down_exps.bias"),
            ..LayerTensors::GGUF_EXPERTS.experts
        },
        ..LayerTensors::GGUF_EXPERTS
    };
    Ok(spec)
}
