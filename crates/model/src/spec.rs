//! The facts that tell one member of the decoder family from another.

use andante_compute::{Activation, BLOCK_TOKENS, ExpertsSpec, KvShape, RopeTable};

/// Everything the layer loop needs to know about a model. Each field is a fact of the model file; nothing here names an
/// architecture.
#[derive(Debug, Clone)]
pub(crate) struct DecoderSpec {
    /// Trained context length in tokens.
    pub(crate) context: u32,
    /// Number of token ids.
    pub(crate) vocab: usize,
    /// Width of the residual stream.
    pub(crate) hidden: usize,
    /// What a feed-forward layer is.
    pub(crate) feed_forward: FeedForward,
    /// Width of the feed-forward layer; of each expert's, where there are experts.
    pub(crate) feed_forward_width: usize,
    /// Query heads.
    pub(crate) heads: usize,
    /// Key and value heads; divides `heads`.
    pub(crate) kv_heads: usize,
    /// Width of one head, which need not be `hidden / heads`.
    pub(crate) head_dim: usize,
    /// What differs from layer to layer.
    pub(crate) layers: Vec<LayerSpec>,
    /// The rotary embeddings that layers choose from.
    pub(crate) ropes: Vec<RopeTable>,
    /// Epsilon of every RMS norm.
    pub(crate) eps: f32,
    /// Factor on the token embeddings.
    pub(crate) embedding_scale: f32,
    /// Factor on the dot products of queries and keys.
    pub(crate) attention_scale: f32,
    /// Names of a layer's tensors; an optional name that is there is a part of the graph.
    pub(crate) tensors: LayerTensors,
}

impl DecoderSpec {
    /// The shape of the model's KV cache.
    pub(crate) fn kv_shape(&self) -> KvShape {
        KvShape {
            layers: self.layers.len(),
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            block_tokens: BLOCK_TOKENS,
        }
    }
}

/// What a feed-forward layer is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum FeedForward {
    /// One gated layer for all rows.
    Dense(Activation),
    /// Experts, some of which work on each row.
    Experts(ExpertsSpec),
}

/// What differs from layer to layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LayerSpec {
    /// A row sees this many positions, its own included; `None` sees all.
    pub(crate) window: Option<u32>,
    /// Index into [`DecoderSpec::ropes`].
    pub(crate) rope: usize,
}

/// Names of a layer's tensors, without the `blk.N.` before them. Parts that not every model has are optional.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LayerTensors {
    /// Norm before attention: `[hidden]`.
    pub(crate) attn_norm: &'static str,
    /// Query projection: `[hidden, heads * head_dim]`.
    pub(crate) q: &'static str,
    /// Key projection: `[hidden, kv_heads * head_dim]`.
    pub(crate) k: &'static str,
    /// Value projection: `[hidden, kv_heads * head_dim]`.
    pub(crate) v: &'static str,
    /// Query bias.
    pub(crate) q_bias: Option<&'static str>,
    /// Key bias.
    pub(crate) k_bias: Option<&'static str>,
    /// Value bias.
    pub(crate) v_bias: Option<&'static str>,
    /// Norm of each query head, before RoPE: `[head_dim]`.
    pub(crate) q_norm: Option<&'static str>,
    /// Norm of each key head, before RoPE: `[head_dim]`.
    pub(crate) k_norm: Option<&'static str>,
    /// Attention output projection: `[heads * head_dim, hidden]`.
    pub(crate) attn_output: &'static str,
    /// Bias of the attention output projection.
    pub(crate) attn_output_bias: Option<&'static str>,
    /// A logit of each query head that takes part in the softmax and has no value: `[heads]`.
    pub(crate) sinks: Option<&'static str>,
    /// Norm of what attention adds to the residual stream: `[hidden]`.
    pub(crate) attn_post_norm: Option<&'static str>,
    /// Norm before the feed-forward layer: `[hidden]`.
    pub(crate) ffn_norm: &'static str,
    /// Gate projection: `[hidden, width]`, with experts `[hidden, width, experts]`.
    pub(crate) gate: &'static str,
    /// Up projection: `[hidden, width]`, with experts `[hidden, width, experts]`.
    pub(crate) up: &'static str,
    /// Down projection: `[width, hidden]`, with experts `[width, hidden, experts]`.
    pub(crate) down: &'static str,
    /// What belongs to experts; read only where there are any.
    pub(crate) experts: ExpertTensors,
    /// Norm of what the feed-forward layer adds to the residual stream: `[hidden]`.
    pub(crate) ffn_post_norm: Option<&'static str>,
}

/// Names of a layer's tensors that only experts have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExpertTensors {
    /// Gives the experts' logits: `[hidden, experts]`.
    pub(crate) router: &'static str,
    /// Bias of the router: `[experts]`.
    pub(crate) router_bias: Option<&'static str>,
    /// Bias of the gate projections: `[width, experts]`.
    pub(crate) gate_bias: Option<&'static str>,
    /// Bias of the up projections: `[width, experts]`.
    pub(crate) up_bias: Option<&'static str>,
    /// Bias of the down projections: `[hidden, experts]`.
    pub(crate) down_bias: Option<&'static str>,
}

impl LayerTensors {
    /// The names that llama.cpp's converter gives, with no optional part.
    pub(crate) const GGUF: Self = Self {
        attn_norm: "attn_norm.weight",
        q: "attn_q.weight",
        k: "attn_k.weight",
        v: "attn_v.weight",
        q_bias: None,
        k_bias: None,
        v_bias: None,
        q_norm: None,
        k_norm: None,
        attn_output: "attn_output.weight",
        attn_output_bias: None,
        sinks: None,
        attn_post_norm: None,
        ffn_norm: "ffn_norm.weight",
        gate: "ffn_gate.weight",
        up: "ffn_up.weight",
        down: "ffn_down.weight",
        experts: ExpertTensors {
            router: "ffn_gate_inp.weight",
            router_bias: None,
            gate_bias: None,
            up_bias: None,
            down_bias: None,
        },
        ffn_post_norm: None,
    };

    /// The same for layers of experts.
    pub(crate) const GGUF_EXPERTS: Self = Self {
        gate: "ffn_gate_exps.weight",
        up: "ffn_up_exps.weight",
        down: "ffn_down_exps.weight",
        ..Self::GGUF
    };
}
