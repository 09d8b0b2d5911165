//! The decoder family: the one layer loop, driven by a [`DecoderSpec`].

use andante_compute::{AttentionSpec, BLOCK_TOKENS, Backend, Batch, ExpertWeights};

use crate::identity::{self, Fingerprint};
use crate::spec::{DecoderSpec, FeedForward, LayerSpec};
use crate::wanted::Wanted;
use crate::{KvLayout, Limits, Logits, Model, ModelError, ModelInfo, States};

/// A decoder-only transformer on backend `B`.
pub(crate) struct Decoder<B: Backend> {
    spec: DecoderSpec,
    weights: Weights<B>,
    backend: B,
    info: ModelInfo,
    fingerprint: Fingerprint,
    memory: Option<Memory<B>>,
    wanted: Wanted,
}

/// All weights of the model.
pub(crate) struct Weights<B: Backend> {
    pub(crate) embedding: B::Weight,
    pub(crate) layers: Vec<Layer<B>>,
    pub(crate) output_norm: B::Weight,
    /// `None`: the embedding is used in both places.
    pub(crate) output: Option<B::Weight>,
}

/// The weights of one layer, named as in [`crate::spec::LayerTensors`].
pub(crate) struct Layer<B: Backend> {
    pub(crate) attn_norm: B::Weight,
    pub(crate) q: B::Weight,
    pub(crate) k: B::Weight,
    pub(crate) v: B::Weight,
    pub(crate) q_bias: Option<B::Weight>,
    pub(crate) k_bias: Option<B::Weight>,
    pub(crate) v_bias: Option<B::Weight>,
    pub(crate) q_norm: Option<B::Weight>,
    pub(crate) k_norm: Option<B::Weight>,
    pub(crate) attn_output: B::Weight,
    pub(crate) attn_output_bias: Option<B::Weight>,
    pub(crate) sinks: Option<B::Weight>,
    pub(crate) attn_post_norm: Option<B::Weight>,
    pub(crate) ffn_norm: B::Weight,
    pub(crate) feed_forward: FeedForwardWeights<B>,
    pub(crate) ffn_post_norm: Option<B::Weight>,
}

/// The weights of a feed-forward layer, named as in [`crate::spec::LayerTensors`].
pub(crate) enum FeedForwardWeights<B: Backend> {
    Dense {
        gate: B::Weight,
        up: B::Weight,
        down: B::Weight,
    },
    Experts {
        router: B::Weight,
        router_bias: Option<B::Weight>,
        gate: B::Weight,
        up: B::Weight,
        down: B::Weight,
        gate_bias: Option<B::Weight>,
        up_bias: Option<B::Weight>,
        down_bias: Option<B::Weight>,
    },
}

/// What [`Model::reserve`] takes.
struct Memory<B: Backend> {
    limits: Limits,
    kv: B::Kv,
    q: B::Buffer, // [batch_tokens, heads * head_dim]
    k: B::Buffer, // [batch_tokens, kv_heads * head_dim]
    v: B::Buffer, // [batch_tokens, kv_heads * head_dim]
    /// All rows of the batch.
    all: Stream<B>,
    /// The rows that need logits or whose states are wanted: after the last layer's attention nobody reads the others.
    wanted: Stream<B>,
    logits: B::Buffer, // [logit_rows, vocab]
}

/// The residual stream of some rows, with room for what is computed from it.
struct Stream<B: Backend> {
    x: B::Buffer,      // [rows, hidden]
    normed: B::Buffer, // [rows, hidden]
    delta: B::Buffer,  // [rows, hidden]: what a half layer adds to x
    attn: B::Buffer,   // [rows, heads * head_dim]
    inner: Inner<B>,
}

/// What a feed-forward layer computes on its way.
enum Inner<B: Backend> {
    Dense {
        gate: B::Buffer, // [rows, width]
        up: B::Buffer,   // [rows, width]
    },
    Experts {
        router: B::Buffer, // [rows, experts]
    },
}

const NO_BLOCKS: &str = "reserve comes before blocks are copied";

impl<B: Backend> Model for Decoder<B> {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn kv_layout(&self) -> KvLayout {
        KvLayout {
            block_tokens: BLOCK_TOKENS as u32,
            block_bytes: self.backend.kv_block_bytes(&self.spec.kv_shape()),
            state_bytes: 0,
        }
    }

    fn reserve(&mut self, limits: Limits) -> Result<(), ModelError> {
        let spec = &self.spec;
        let kv_shape = self.spec.kv_shape();
        let rows = limits.batch_tokens as usize;
        let (logit_rows, state_rows) = (limits.logit_rows as usize, limits.state_rows as usize);
        let backend = &mut self.backend;
        self.memory = Some(Memory {
            limits,
            kv: backend.kv(&kv_shape, limits.blocks as usize)?,
            q: backend.buffer(rows, spec.heads * spec.head_dim)?,
            k: backend.buffer(rows, spec.kv_heads * spec.head_dim)?,
            v: backend.buffer(rows, spec.kv_heads * spec.head_dim)?,
            all: Stream::new(backend, spec, rows)?,
            wanted: Stream::new(backend, spec, logit_rows + state_rows)?,
            logits: backend.buffer(logit_rows, spec.vocab)?,
        });
        Ok(())
    }

    fn forward(&mut self, batch: &Batch) -> Result<(), ModelError> {
        let memory = self.memory.as_mut().expect("reserve comes before forward");
        check(batch, &memory.limits, self.spec.vocab);
        self.wanted.set(batch);
        if !batch.is_empty() {
            let (backend, spec, weights) = (&mut self.backend, &self.spec, &self.weights);
            Pass {
                backend,
                spec,
                weights,
                batch,
                wanted_rows: &self.wanted.rows,
            }
            .run(memory);
        }
        Ok(())
    }

    fn logits(&mut self) -> Result<Logits<'_>, ModelError> {
        let memory = self.memory.as_ref().expect("reserve comes before logits");
        self.wanted
            .logits(&mut self.backend, &memory.logits, self.spec.vocab)
    }

    fn states(&mut self) -> Result<States<'_>, ModelError> {
        let memory = self.memory.as_ref().expect("reserve comes before states");
        self.wanted
            .states(&mut self.backend, &memory.wanted.normed, self.spec.hidden)
    }

    fn read_block(&self, block: u32, out: &mut [u8]) {
        let memory = self.memory.as_ref().expect(NO_BLOCKS);
        self.backend.kv_read(&memory.kv, block, out);
    }

    fn write_block(&mut self, block: u32, bytes: &[u8]) {
        let memory = self.memory.as_mut().expect(NO_BLOCKS);
        self.backend.kv_write_block(&mut memory.kv, block, bytes);
    }

    fn kv_identity(&self) -> [u8; 32] {
        let shape = self.spec.kv_shape();
        let sizes = [
            shape.layers,
            shape.kv_heads,
            shape.head_dim,
            shape.block_tokens,
        ];
        identity::of_blocks(&self.fingerprint, &sizes, &self.backend.kv_format(&shape))
    }
}

impl<B: Backend> Decoder<B> {
    pub(crate) fn new(
        spec: DecoderSpec,
        weights: Weights<B>,
        backend: B,
        (info, fingerprint): (ModelInfo, Fingerprint),
    ) -> Self {
        Self {
            spec,
            weights,
            backend,
            info,
            fingerprint,
            memory: None,
            wanted: Wanted::default(),
        }
    }
}

/// One forward pass.
struct Pass<'a, B: Backend> {
    backend: &'a mut B,
    spec: &'a DecoderSpec,
    weights: &'a Weights<B>,
    batch: &'a Batch,
    wanted_rows: &'a [u32],
}

impl<B: Backend> Pass<'_, B> {
    fn run(mut self, memory: &mut Memory<B>) {
        let Self {
            spec,
            weights,
            batch,
            wanted_rows,
            ..
        } = self;
        let (n, logit_rows) = (batch.len(), batch.logit_rows.len());
        let x = &mut memory.all.x;
        self.backend
            .embed(x, &weights.embedding, &batch.tokens, spec.embedding_scale);
        let first_norm = &weights.layers[0].attn_norm;
        self.backend
            .rms_norm(&mut memory.all.normed, x, first_norm, spec.eps, n);
        for (i, layer) in weights.layers.iter().enumerate() {
            self.attention(memory, i, layer);
            if let Some(next) = weights.layers.get(i + 1) {
                self.finish_layer(&mut memory.all, layer, &next.attn_norm, n);
            } else if !wanted_rows.is_empty() {
                let Memory {
                    all,
                    wanted,
                    logits,
                    ..
                } = &mut *memory;
                self.backend
                    .select_rows(&mut wanted.attn, &all.attn, wanted_rows);
                self.backend.select_rows(&mut wanted.x, &all.x, wanted_rows);
                self.finish_layer(wanted, layer, &weights.output_norm, wanted_rows.len());
                if logit_rows > 0 {
                    let output = weights.output.as_ref().unwrap_or(&weights.embedding);
                    self.backend
                        .matmul(&mut [(output, logits)], &wanted.normed, logit_rows);
                }
            }
        }
    }

    /// `all.attn` = attention of layer `index` over `all.normed`; the rows' keys and values go to their slots.
    fn attention(&mut self, memory: &mut Memory<B>, index: usize, layer: &Layer<B>) {
        let Self {
            backend,
            spec,
            batch,
            ..
        } = self;
        let Memory {
            kv, q, k, v, all, ..
        } = memory;
        let n = batch.len();
        backend.matmul(
            &mut [(&layer.q, q), (&layer.k, k), (&layer.v, v)],
            &all.normed,
            n,
        );
        for (x, bias) in [
            (&mut *q, &layer.q_bias),
            (&mut *k, &layer.k_bias),
            (&mut *v, &layer.v_bias),
        ] {
            if let Some(bias) = bias {
                backend.add_bias(x, bias, n);
            }
        }
        let LayerSpec { window, rope } = spec.layers[index];
        for (x, norm) in [(&mut *q, &layer.q_norm), (&mut *k, &layer.k_norm)] {
            if let Some(norm) = norm {
                backend.rms_norm_heads(x, norm, spec.eps, n);
            }
            backend.rope(x, &batch.positions, &spec.ropes[rope]);
        }
        backend.kv_write(kv, index, k, v, &batch.slots);
        let attention = AttentionSpec {
            heads: spec.heads,
            kv_heads: spec.kv_heads,
            head_dim: spec.head_dim,
            scale: spec.attention_scale,
            window,
        };
        let sinks = layer.sinks.as_ref();
        backend.attention(&mut all.attn, q, kv, index, &attention, sinks, batch);
    }

    /// Adds attention's output and then the feed-forward layer to `x`; `normed` = `x` as what follows wants it.
    fn finish_layer(
        &mut self,
        stream: &mut Stream<B>,
        layer: &Layer<B>,
        next_norm: &B::Weight,
        n: usize,
    ) {
        let Self { backend, spec, .. } = self;
        let Stream {
            x,
            normed,
            delta,
            attn,
            inner,
        } = stream;
        backend.matmul(&mut [(&layer.attn_output, delta)], attn, n);
        if let Some(bias) = &layer.attn_output_bias {
            backend.add_bias(delta, bias, n);
        }
        // The norm of a whole row is the norm of one head as wide as the row.
        if let Some(norm) = &layer.attn_post_norm {
            backend.rms_norm_heads(delta, norm, spec.eps, n);
        }
        backend.add_rms_norm(normed, x, delta, &layer.ffn_norm, spec.eps, n);
        feed_forward(
            *backend,
            spec,
            &layer.feed_forward,
            (delta, normed, inner),
            n,
        );
        if let Some(norm) = &layer.ffn_post_norm {
            backend.rms_norm_heads(delta, norm, spec.eps, n);
        }
        backend.add_rms_norm(normed, x, delta, next_norm, spec.eps, n);
    }
}

/// `delta` = the feed-forward layer of `normed`.
fn feed_forward<B: Backend>(
    backend: &mut B,
    spec: &DecoderSpec,
    weights: &FeedForwardWeights<B>,
    (delta, normed, inner): (&mut B::Buffer, &B::Buffer, &mut Inner<B>),
    n: usize,
) {
    match (spec.feed_forward, weights, inner) {
        (
            FeedForward::Dense(activation),
            FeedForwardWeights::Dense {
                gate: gate_weight,
                up: up_weight,
                down,
            },
            Inner::Dense { gate, up },
        ) => {
            backend.matmul(&mut [(gate_weight, gate), (up_weight, up)], normed, n);
            backend.act_mul(gate, up, activation, n);
            backend.matmul(&mut [(down, delta)], gate, n);
        }
        (
            FeedForward::Experts(experts),
            FeedForwardWeights::Experts {
                router: router_weight,
                router_bias,
                gate,
                up,
                down,
                gate_bias,
                up_bias,
                down_bias,
            },
            Inner::Experts { router },
        ) => {
            backend.matmul(&mut [(router_weight, router)], normed, n);
            if let Some(bias) = router_bias {
                backend.add_bias(router, bias, n);
            }
            let weights = ExpertWeights {
                gate,
                up,
                down,
                gate_bias: gate_bias.as_ref(),
                up_bias: up_bias.as_ref(),
                down_bias: down_bias.as_ref(),
            };
            backend.experts(delta, normed, router, &weights, &experts, n);
        }
        _ => unreachable!("weights and memory are made for the spec's feed-forward layer"),
    }
}

impl<B: Backend> Stream<B> {
    fn new(backend: &mut B, spec: &DecoderSpec, rows: usize) -> Result<Self, ModelError> {
        Ok(Self {
            x: backend.buffer(rows, spec.hidden)?,
            normed: backend.buffer(rows, spec.hidden)?,
            delta: backend.buffer(rows, spec.hidden)?,
            attn: backend.buffer(rows, spec.heads * spec.head_dim)?,
            inner: match spec.feed_forward {
                FeedForward::Dense(_) => Inner::Dense {
                    gate: backend.buffer(rows, spec.feed_forward_width)?,
                    up: backend.buffer(rows, spec.feed_forward_width)?,
                },
                FeedForward::Experts(experts) => Inner::Experts {
                    router: backend.buffer(rows, experts.experts)?,
                },
            },
        })
    }
}

/// A batch that breaks the contract is a bug of the caller.
pub(crate) fn check(batch: &Batch, limits: &Limits, vocab: usize) {
    assert!(
        batch.len() <= limits.batch_tokens as usize
            && batch.logit_rows.len() <= limits.logit_rows as usize
            && batch.state_rows.len() <= limits.state_rows as usize,
        "a batch of {} rows with {} rows of logits and {} of states exceeds the reserved {limits:?}",
        batch.len(),
        batch.logit_rows.len(),
        batch.state_rows.len(),
    );
    assert!(
        batch.tokens.iter().all(|&token| (token as usize) < vocab),
        "a token outside the vocabulary of {vocab}"
    );
}
