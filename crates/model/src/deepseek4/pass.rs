//! One forward pass.

use andante_compute::{
    Batch, CompressSpec, CompressWeights, CompressedRows, Deepseek4 as Ops, ExpertWeights,
    HyperWeights, IndexSpec, Kept, RopeTable, RouteBy, WindowSpec,
};

use super::layout::{CompressorLayout, Layout};
use super::load::{Compressor, Hyper, Indexer, Layer, Route, Weights};
use super::spec::{LayerSpec, Spec};
use crate::{Limits, ModelError};

/// What [`crate::Model::reserve`] takes.
pub(super) struct Memory<B: Ops> {
    pub(super) limits: Limits,
    pub(super) blocks: B::Records,
    pub(super) states: B::Records,
    pub(super) x: B::Buffer, // [rows, streams * hidden]
    mix: B::Buffer,          // [rows, coefficients]
    normed: B::Buffer,       // [rows, hidden]
    delta: B::Buffer,        // [rows, hidden]: a block's output
    q_low: B::Buffer,        // [rows, q_rank]
    q: B::Buffer,            // [rows, heads * head_dim]
    k: B::Buffer,            // [rows, head_dim]
    attn: B::Buffer,         // [rows, heads * head_dim]
    low: B::Buffer,          // [rows, groups * group_rank]
    /// One pair for each number of series: a buffer is as wide as what it takes.
    token: [Token<B>; 2], // [rows, head_dim], [rows, 2 * head_dim]
    index: IndexMemory<B>,
    router: B::Buffer,                   // [rows, experts]
    experts: B::Choices,                 // [rows, chosen]
    shares: B::Buffer,                   // [rows, chosen]
    gate: B::Buffer,                     // [rows, shared_width]
    up: B::Buffer,                       // [rows, shared_width]
    shared: B::Buffer,                   // [rows, hidden]
    wanted: B::Buffer,                   // [wanted rows, streams * hidden]
    wanted_mix: B::Buffer,               // [wanted rows, streams]
    pub(super) wanted_normed: B::Buffer, // [wanted rows, hidden]
    pub(super) logits: B::Buffer,        // [logit_rows, vocab]
}

/// What a compressor takes of each token.
struct Token<B: Ops> {
    kv: B::Buffer,
    gate: B::Buffer,
}

struct IndexMemory<B: Ops> {
    q: B::Buffer,       // [rows, index heads * index width]
    weights: B::Buffer, // [rows, index heads]
    token: Token<B>,    // [rows, 2 * index width]
    chosen: B::Choices, // [rows, top_k]
}

impl<B: Ops> Memory<B> {
    pub(super) fn new(
        backend: &mut B,
        spec: &Spec,
        layout: &Layout,
        limits: Limits,
    ) -> Result<Self, ModelError> {
        let rows = limits.batch_tokens as usize;
        let wanted = (limits.logit_rows + limits.state_rows) as usize;
        let (hidden, streams) = (spec.hidden, spec.hyper.streams);
        let (wide, heads) = (streams * hidden, spec.heads * spec.head_dim);
        let token = |backend: &mut B, width| -> Result<Token<B>, ModelError> {
            Ok(Token {
                kv: backend.buffer(rows, width)?,
                gate: backend.buffer(rows, width)?,
            })
        };
        let index = spec.index;
        Ok(Self {
            limits,
            blocks: backend.records(limits.blocks as usize, layout.block_bytes)?,
            states: backend.records(limits.running_states as usize, layout.state_bytes)?,
            x: backend.buffer(rows, wide)?,
            mix: backend.buffer(rows, streams * (2 + streams))?,
            normed: backend.buffer(rows, hidden)?,
            delta: backend.buffer(rows, hidden)?,
            q_low: backend.buffer(rows, spec.q_rank)?,
            q: backend.buffer(rows, heads)?,
            k: backend.buffer(rows, spec.head_dim)?,
            attn: backend.buffer(rows, heads)?,
            low: backend.buffer(rows, spec.groups * spec.group_rank)?,
            token: [
                token(backend, spec.head_dim)?,
                token(backend, 2 * spec.head_dim)?,
            ],
            index: IndexMemory {
                q: backend.buffer(rows, index.heads * index.width)?,
                weights: backend.buffer(rows, index.heads)?,
                token: token(backend, 2 * index.width)?,
                chosen: backend.choices(rows, index.top_k)?,
            },
            router: backend.buffer(rows, spec.experts)?,
            experts: backend.choices(rows, spec.chosen)?,
            shares: backend.buffer(rows, spec.chosen)?,
            gate: backend.buffer(rows, spec.shared_width)?,
            up: backend.buffer(rows, spec.shared_width)?,
            shared: backend.buffer(rows, hidden)?,
            wanted: backend.buffer(wanted, wide)?,
            wanted_mix: backend.buffer(wanted, streams)?,
            wanted_normed: backend.buffer(wanted, hidden)?,
            logits: backend.buffer(limits.logit_rows as usize, spec.vocab)?,
        })
    }
}

/// A compressor's layer, memory and rotation.
type Place<'a> = (&'a LayerSpec, CompressorLayout, &'a RopeTable);

/// One forward pass.
pub(super) struct Pass<'a, B: Ops> {
    pub(super) backend: &'a mut B,
    pub(super) spec: &'a Spec,
    pub(super) layout: &'a Layout,
    pub(super) weights: &'a Weights<B>,
    pub(super) batch: &'a Batch,
    pub(super) wanted_rows: &'a [u32],
    #[cfg(test)]
    pub(super) trace: Option<&'a mut super::tests::Trace>,
}

impl<B: Ops> Pass<'_, B> {
    pub(super) fn run(mut self, memory: &mut Memory<B>) {
        let (weights, batch, n) = (self.weights, self.batch, self.batch.len());
        for (sequence, &state) in batch.sequences.iter().zip(&batch.states) {
            // Nothing of it would be read, but what is kept of it is to be its own.
            if batch.positions[sequence.rows.start as usize] == 0 {
                self.backend.records_clear(&mut memory.states, state);
            }
        }
        self.backend
            .embed(&mut memory.delta, &weights.embedding, &batch.tokens, 1.0);
        self.backend.repeat(&mut memory.x, &memory.delta, n);
        self.layers(memory);
    }

    /// From the streams before the first layer to the wanted rows.
    pub(super) fn layers(&mut self, memory: &mut Memory<B>) {
        for (i, layer) in self.weights.layers.iter().enumerate() {
            self.block_input(memory, (&layer.hyper_attn, &layer.attn_norm));
            self.attention(memory, i, layer);
            self.block_output(memory);
            #[cfg(test)]
            self.note(memory, i, super::tests::Half::Attention);
            self.block_input(memory, (&layer.hyper_ffn, &layer.ffn_norm));
            self.feed_forward(memory, i, layer);
            self.block_output(memory);
            #[cfg(test)]
            self.note(memory, i, super::tests::Half::FeedForward);
        }
        if !self.wanted_rows.is_empty() {
            self.head(memory);
        }
    }

    /// `normed` = what a block takes from the streams, normed.
    fn block_input(&mut self, memory: &mut Memory<B>, (hyper, norm): (&Hyper<B>, &B::Weight)) {
        let (spec, n) = (self.spec, self.batch.len());
        let Memory { x, mix, normed, .. } = memory;
        self.backend.matmul(&mut [(&hyper.mix, mix)], x, n);
        let weights = HyperWeights {
            base: &hyper.base,
            scale: &hyper.scale,
        };
        self.backend
            .hyper_in(normed, mix, x, &weights, &spec.hyper, n);
        self.backend.rms_norm_heads(normed, norm, spec.eps, n);
    }

    /// Gives `delta` to the streams.
    fn block_output(&mut self, memory: &mut Memory<B>) {
        let Memory { x, delta, mix, .. } = memory;
        self.backend
            .hyper_out(x, delta, mix, &self.spec.hyper, self.batch.len());
    }

    /// `delta` = attention of `normed`.
    fn attention(&mut self, memory: &mut Memory<B>, index: usize, layer: &Layer<B>) {
        let (spec, batch, n) = (self.spec, self.batch, self.batch.len());
        let (facts, layout) = (&spec.layers[index], &self.layout.layers[index]);
        let ropes = spec.ropes(facts);
        let Memory {
            normed,
            q_low,
            q,
            k,
            ..
        } = memory;
        let backend = &mut *self.backend;
        backend.matmul(&mut [(&layer.q_a, q_low), (&layer.kv, k)], normed, n);
        backend.rms_norm_heads(q_low, &layer.q_a_norm, spec.eps, n);
        backend.matmul(&mut [(&layer.q_b, q)], q_low, n);
        backend.rms_norm_heads(q, &self.weights.ones, spec.eps, n);
        backend.rms_norm_heads(k, &layer.kv_norm, spec.eps, n);
        for x in [&mut *q, &mut *k] {
            backend.rope(x, &batch.positions, &ropes.forward);
        }
        backend.keep_heads(k, spec.head_dim, self.layout.keys, n);
        if let Some((compressor, layout)) = layer.compressor.as_ref().zip(layout.compressor) {
            let token = &mut memory.token[facts.series() - 1];
            let records = (&mut memory.blocks, &mut memory.states);
            self.compress(
                (&memory.normed, token),
                records,
                compressor,
                (facts, layout, &ropes.forward),
            );
        }
        if let Some((indexer, layout)) = layer.indexer.as_ref().zip(layout.indexer) {
            self.index(memory, indexer, (facts, layout, &ropes.index));
        }
        let compressed = facts.ratio.zip(layout.compressor);
        let compressed = compressed.map(|(ratio, layout)| CompressedRows {
            blocks: &memory.blocks,
            rows: layout.rows,
            ratio,
            chosen: facts.indexed().then_some(&memory.index.chosen),
        });
        let window = WindowSpec {
            heads: spec.heads,
            scale: 1.0 / (spec.head_dim as f32).sqrt(),
            ring: layout.ring,
        };
        let Memory {
            q, k, attn, states, ..
        } = memory;
        let backend = &mut *self.backend;
        let compressed = compressed.as_ref();
        backend.window_attention(attn, q, k, states, compressed, &layer.sinks, &window, batch);
        backend.rope(attn, &batch.positions, &ropes.back);
        backend.grouped_matmul(&mut memory.low, &layer.output_a, attn, n);
        let out = (&layer.output_b, &mut memory.delta);
        backend.matmul(&mut [out], &memory.low, n);
    }

    /// Writes the compressed rows that are complete.
    fn compress(
        &mut self,
        (normed, token): (&B::Buffer, &mut Token<B>),
        (blocks, states): (&mut B::Records, &mut B::Records),
        compressor: &Compressor<B>,
        (facts, layout, rope): Place<'_>,
    ) {
        let Token { kv, gate } = token;
        let products = &mut [(&compressor.kv, &mut *kv), (&compressor.gate, &mut *gate)];
        self.backend.matmul(products, normed, self.batch.len());
        let weights = CompressWeights {
            ape: &compressor.ape,
            norm: &compressor.norm,
        };
        let spec = CompressSpec {
            ratio: facts.ratio.expect("a layer with a compressor"),
            overlap: facts.indexed(),
            eps: self.spec.eps,
            rope,
            rows: layout.rows,
            tokens: layout.tokens,
        };
        self.backend
            .compress(blocks, states, kv, gate, &weights, &spec, self.batch);
    }

    /// `index.chosen` = the compressed rows that each row sees.
    fn index(&mut self, memory: &mut Memory<B>, indexer: &Indexer<B>, place: Place<'_>) {
        let (facts, layout, rope) = place;
        let (dims, batch, n) = (self.spec.index, self.batch, self.batch.len());
        let Memory {
            normed,
            q_low,
            blocks,
            states,
            index,
            ..
        } = memory;
        let records = (&mut *blocks, states);
        self.compress(
            (normed, &mut index.token),
            records,
            &indexer.compressor,
            place,
        );
        let backend = &mut *self.backend;
        backend.matmul(&mut [(&indexer.proj, &mut index.weights)], normed, n);
        backend.matmul(&mut [(&indexer.q_b, &mut index.q)], q_low, n);
        backend.rope(&mut index.q, &batch.positions, rope);
        if self.layout.index == Kept::HadamardE2m1 {
            backend.keep_heads(&mut index.q, dims.width, Kept::HadamardE2m1, n);
        }
        let spec = IndexSpec {
            ratio: facts.ratio.expect("a layer with an indexer"),
            heads: dims.heads,
            top_k: dims.top_k,
            scale: 1.0 / ((dims.heads * dims.width) as f32).sqrt(),
            rows: layout.rows,
        };
        let IndexMemory {
            q, weights, chosen, ..
        } = index;
        backend.index(chosen, q, weights, blocks, &spec, batch);
    }

    /// `delta` = experts and shared expert of `normed`.
    fn feed_forward(&mut self, memory: &mut Memory<B>, index: usize, layer: &Layer<B>) {
        let (spec, batch, n) = (self.spec, self.batch, self.batch.len());
        let facts = &spec.layers[index];
        let Memory {
            normed,
            delta,
            router,
            experts,
            shares,
            gate,
            up,
            shared,
            ..
        } = memory;
        let backend = &mut *self.backend;
        let products = &mut [
            (&layer.router, &mut *router),
            (&layer.shared.gate, &mut *gate),
            (&layer.shared.up, &mut *up),
        ];
        backend.matmul(products, normed, n);
        let by = match &layer.route {
            Route::Table(table) => RouteBy::Table(table),
            Route::Bias(bias) => RouteBy::Score(bias),
        };
        backend.route(experts, shares, router, &by, &spec.route, &batch.tokens);
        let weights = ExpertWeights {
            gate: &layer.experts.gate,
            up: &layer.experts.up,
            down: &layer.experts.down,
            gate_bias: None,
            up_bias: None,
            down_bias: None,
        };
        let experts_spec = spec.experts(facts);
        backend.chosen_experts(delta, normed, experts, shares, &weights, &experts_spec, n);
        backend.act_mul(gate, up, facts.shared_activation, n);
        backend.matmul(&mut [(&layer.shared.down, shared)], gate, n);
        backend.add(delta, shared, n);
    }

    /// The logits of the wanted rows, and what their output matrix is multiplied with.
    fn head(&mut self, memory: &mut Memory<B>) {
        let (spec, weights, n) = (self.spec, self.weights, self.wanted_rows.len());
        let logit_rows = self.batch.logit_rows.len();
        let Memory {
            x,
            wanted,
            wanted_mix: mix,
            wanted_normed: normed,
            logits,
            ..
        } = memory;
        let backend = &mut *self.backend;
        backend.select_rows(wanted, x, self.wanted_rows);
        backend.matmul(&mut [(&weights.head.mix, mix)], wanted, n);
        let hyper = HyperWeights {
            base: &weights.head.base,
            scale: &weights.head.scale,
        };
        backend.hyper_in(normed, mix, wanted, &hyper, &spec.hyper, n);
        backend.rms_norm_heads(normed, &weights.output_norm, spec.eps, n);
        if logit_rows > 0 {
            backend.matmul(&mut [(&weights.output, logits)], normed, logit_rows);
        }
    }

    /// For tests: what a half layer computed.
    #[cfg(test)]
    fn note(&mut self, memory: &Memory<B>, layer: usize, half: super::tests::Half) {
        let n = self.batch.len();
        let Some(trace) = &mut self.trace else {
            return;
        };
        let read = |x| self.backend.read(x, n).expect("a working device").to_vec();
        let mut read = read;
        trace.delta(layer, half, read(&memory.delta));
        match half {
            super::tests::Half::Attention if self.spec.layers[layer].indexed() => {
                let chosen = self.backend.read_choices(&memory.index.chosen, n);
                trace.rows(layer, chosen.expect("a working device"));
            }
            super::tests::Half::Attention => {}
            super::tests::Half::FeedForward => {
                trace.streams(layer, read(&memory.x));
                let experts = self.backend.read_choices(&memory.experts, n);
                trace.experts(layer, experts.expect("a working device"));
            }
        }
    }
}
