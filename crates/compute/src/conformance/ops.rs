//! Each op against the reference.

use super::blocks;
use super::reference::{self, Context, Projection, widen};
use super::rig::{Rig, assert_close, assert_same};
use crate::{
    Activation, AttentionSpec, BLOCK_TOKENS, Backend, Batch, ExpertWeights, ExpertsSpec, KvShape,
    Logits, RopeScaling, RopeSpec, RopeStyle, RopeTable,
};
use andante_gguf::{Format, quant};

pub(super) fn embed<B: Backend>(rig: &mut Rig<B>) {
    let (rows, width) = (40, 64);
    for &format in Format::ALL {
        let width = if format.block_len() > width {
            format.block_len()
        } else {
            width
        };
        let values = rig.random.values(rows * width);
        let data = blocks::weights(format, &values);
        let mut exact = vec![0.0; values.len()];
        quant::dequantize(format, &data, &mut exact);
        let table = rig.weight(format, &data, &[width as u64, rows as u64]);
        let tokens = [7, 0, 39, 7];
        let mut out = rig.buffer(5, width);
        rig.backend.embed(&mut out, &table, &tokens, 1.5);
        let expected: Vec<f64> = tokens
            .iter()
            .flat_map(|&token| {
                exact[token as usize * width..][..width]
                    .iter()
                    .map(|&x| f64::from(x) * 1.5)
            })
            .collect();
        assert_close(
            &format!("embed {}", format.name()),
            &rig.download(&out, 4),
            &expected,
            1e-6,
        );
    }
}

pub(super) fn norms<B: Backend>(rig: &mut Rig<B>) {
    let eps = 1e-5;
    for (rows, width) in [(1, 576), (5, 640), (3, 100), (130, 576)] {
        let (x, delta) = (
            rig.random.values(rows * width),
            rig.random.values(rows * width),
        );
        let scale = rig.random.values(width);
        let weight = rig.vector(&scale);
        let (x_buffer, delta_buffer) = (rig.upload(&x, width), rig.upload(&delta, width));
        let mut out = rig.buffer(rows, width);
        rig.backend
            .rms_norm(&mut out, &x_buffer, &weight, eps, rows);
        let expected = reference::rms_norm(&widen(&x), &scale, f64::from(eps));
        assert_close("rms_norm", &rig.download(&out, rows), &expected, 4e-6);

        let mut residual = x_buffer;
        rig.backend
            .add_rms_norm(&mut out, &mut residual, &delta_buffer, &weight, eps, rows);
        let sum: Vec<f64> = x
            .iter()
            .zip(&delta)
            .map(|(&x, &y)| f64::from(x) + f64::from(y))
            .collect();
        assert_close(
            "add_rms_norm: residual",
            &rig.download(&residual, rows),
            &sum,
            1e-6,
        );
        let expected = reference::rms_norm(&sum, &scale, f64::from(eps));
        assert_close("add_rms_norm", &rig.download(&out, rows), &expected, 4e-6);
    }
    for (heads, head_dim) in [(3, 64), (1, 256), (5, 24)] {
        let x = rig.random.values(7 * heads * head_dim);
        let scale = rig.random.values(head_dim);
        let weight = rig.vector(&scale);
        let mut buffer = rig.upload(&x, heads * head_dim);
        rig.backend.rms_norm_heads(&mut buffer, &weight, eps, 7);
        let expected = reference::rms_norm(&widen(&x), &scale, f64::from(eps));
        assert_close("rms_norm_heads", &rig.download(&buffer, 7), &expected, 4e-6);
    }
}

pub(super) fn products<B: Backend>(rig: &mut Rig<B>) {
    let (cols, rows, n) = (512, [64, 37], 9);
    let x = rig.random.values(n * cols);
    let x_buffer = rig.upload(&x, cols);
    for &format in Format::ALL {
        let mut weights = Vec::new();
        let mut expected = Vec::new();
        for rows in rows {
            let data = blocks::weights(format, &rig.random.values(rows * cols));
            let mut exact = vec![0.0; rows * cols];
            quant::dequantize(format, &data, &mut exact);
            expected.push(reference::matmul(&exact, &x, cols));
            weights.push(rig.weight(format, &data, &[cols as u64, rows as u64]));
        }
        let mut outs = [rig.buffer(n, rows[0]), rig.buffer(n, rows[1])];
        let [first, second] = &mut outs;
        rig.backend.matmul(
            &mut [(&weights[0], first), (&weights[1], second)],
            &x_buffer,
            n,
        );
        for (out, expected) in outs.iter().zip(expected) {
            // Int8 activations are off by up to 1/254 of their block's largest, 0.0023 on average; times a weight of
            // 0.58, over 512 products: 0.03. Seven times that never happens by chance.
            let tolerance = if format.block_len() == 1 { 0.02 } else { 0.2 };
            assert_close(
                &format!("matmul {}", format.name()),
                &rig.download(out, n),
                &expected,
                tolerance,
            );
        }
    }
}

pub(super) fn sums<B: Backend>(rig: &mut Rig<B>) {
    let (rows, width) = (6, 100);
    let (x, y, bias) = (
        rig.random.values(rows * width),
        rig.random.values(rows * width),
        rig.random.values(width),
    );
    let (mut x_buffer, y_buffer) = (rig.upload(&x, width), rig.upload(&y, width));
    let weight = rig.vector(&bias);
    rig.backend.add(&mut x_buffer, &y_buffer, rows);
    let mut expected: Vec<f64> = x
        .iter()
        .zip(&y)
        .map(|(&x, &y)| f64::from(x) + f64::from(y))
        .collect();
    assert_close("add", &rig.download(&x_buffer, rows), &expected, 1e-6);

    rig.backend.add_bias(&mut x_buffer, &weight, rows);
    expected
        .iter_mut()
        .zip(bias.iter().cycle())
        .for_each(|(x, &b)| *x += f64::from(b));
    assert_close("add_bias", &rig.download(&x_buffer, rows), &expected, 1e-6);

    rig.backend.scale(&mut x_buffer, -3.5, rows);
    expected.iter_mut().for_each(|x| *x *= -3.5);
    assert_close("scale", &rig.download(&x_buffer, rows), &expected, 3e-6);

    let mut out = rig.buffer(3, width);
    rig.backend.select_rows(&mut out, &x_buffer, &[5, 1, 1]);
    let all = rig.download(&x_buffer, rows);
    let chosen: Vec<f64> = [5, 1, 1]
        .iter()
        .flat_map(|&row: &usize| widen(&all[row * width..][..width]))
        .collect();
    assert_close("select_rows", &rig.download(&out, 3), &chosen, 0.0);
}

pub(super) fn activations<B: Backend>(rig: &mut Rig<B>) {
    let (rows, width) = (4, 1540);
    for act in [
        Activation::Silu,
        Activation::GeluTanh,
        Activation::ClampedSwiglu,
        Activation::SiluBelow(0.4),
    ] {
        let gate: Vec<f32> = rig
            .random
            .values(rows * width)
            .iter()
            .map(|x| x * 12.0)
            .collect();
        let up: Vec<f32> = rig
            .random
            .values(rows * width)
            .iter()
            .map(|x| x * 9.0)
            .collect();
        let (mut gate_buffer, up_buffer) = (rig.upload(&gate, width), rig.upload(&up, width));
        rig.backend.act_mul(&mut gate_buffer, &up_buffer, act, rows);
        let expected: Vec<f64> = gate
            .iter()
            .zip(&up)
            .map(|(&g, &u)| reference::activate(f64::from(g), f64::from(u), act))
            .collect();
        assert_close(
            &format!("act_mul {act:?}"),
            &rig.download(&gate_buffer, rows),
            &expected,
            9e-5,
        );
    }
    // Far outside the range of the exponential function.
    let gate = [-1000.0, -90.0, 90.0, 1000.0];
    for act in [Activation::Silu, Activation::GeluTanh] {
        let (mut gate_buffer, up_buffer) = (rig.upload(&gate, 4), rig.upload(&[1.0; 4], 4));
        rig.backend.act_mul(&mut gate_buffer, &up_buffer, act, 1);
        assert_close(
            "act_mul of large values",
            &rig.download(&gate_buffer, 1),
            &[0.0, 0.0, 90.0, 1000.0],
            1e-4,
        );
    }
}

/// Layers of all kinds: `(format, spec, whether there are biases)`.
pub(super) const EXPERTS: [(Format, ExpertsSpec, bool); 5] = {
    const SPEC: ExpertsSpec = ExpertsSpec {
        experts: 7,
        chosen: 3,
        activation: Activation::Silu,
    };
    const BIASED: ExpertsSpec = ExpertsSpec {
        experts: 5,
        chosen: 4,
        activation: Activation::ClampedSwiglu,
    };
    const ONE: ExpertsSpec = ExpertsSpec { chosen: 1, ..SPEC };
    [
        (Format::F32, SPEC, false),
        (Format::F32, BIASED, true),
        (Format::F16, ONE, false),
        (Format::Q4_K, SPEC, false),
        (Format::Q8_0, BIASED, true),
    ]
};

/// A mixture-of-experts layer on the backend and for the reference.
pub(super) struct Layer<B: Backend> {
    pub(super) weights: [B::Weight; 3],
    pub(super) biases: Option<[B::Weight; 3]>,
    projections: [Projection; 3],
}

impl<B: Backend> Layer<B> {
    pub(super) const HIDDEN: usize = 256;
    const FEED_FORWARD: usize = 256;

    pub(super) fn new(rig: &mut Rig<B>, format: Format, spec: &ExpertsSpec, biased: bool) -> Self {
        let (hidden, width) = (Self::HIDDEN, Self::FEED_FORWARD);
        let parts = [(hidden, width), (hidden, width), (width, hidden)].map(|(cols, rows)| {
            let len = spec.experts * rows * cols;
            let mut values: Vec<f32> = rig.random.values(len).iter().map(|x| x / 4.0).collect();
            let mut data = Vec::new();
            quant::quantize(format, &values, &mut data);
            quant::dequantize(format, &data, &mut values);
            let shape = [cols, rows, spec.experts].map(|side| side as u64);
            let bias = biased.then(|| rig.random.values(spec.experts * rows));
            let weight = rig.weight(format, &data, &shape);
            let bias_weight = bias.as_ref().map(|bias| rig.vector(bias));
            (weight, bias_weight, Projection { values, bias })
        });
        let [gate, up, down] = parts;
        Self {
            weights: [gate.0, up.0, down.0],
            biases: gate
                .1
                .zip(up.1)
                .zip(down.1)
                .map(|((gate, up), down)| [gate, up, down]),
            projections: [gate.2, up.2, down.2],
        }
    }

    pub(super) fn weights(&self) -> ExpertWeights<'_, B::Weight> {
        let [gate, up, down] = &self.weights;
        let bias = |index: usize| self.biases.as_ref().map(|biases| &biases[index]);
        ExpertWeights {
            gate,
            up,
            down,
            gate_bias: bias(0),
            up_bias: bias(1),
            down_bias: bias(2),
        }
    }
}

pub(super) fn experts<B: Backend>(rig: &mut Rig<B>) {
    let hidden = Layer::<B>::HIDDEN;
    for (format, spec, biased) in EXPERTS {
        let layer = Layer::new(rig, format, &spec, biased);
        for n in [1, 2, 21] {
            let x = rig.random.values(n * hidden);
            let mut logits: Vec<f32> = rig.random.values(n * spec.experts);
            logits.iter_mut().for_each(|logit| *logit *= 6.0);
            logits[..spec.experts].fill(100.0); // all alike: the first ones are taken
            let (x_buffer, router) = (rig.upload(&x, hidden), rig.upload(&logits, spec.experts));
            let mut out = rig.buffer(n, hidden);
            rig.backend
                .experts(&mut out, &x_buffer, &router, &layer.weights(), &spec, n);
            let rows = x.chunks(hidden).zip(logits.chunks(spec.experts));
            let expected: Vec<f64> = rows
                .flat_map(|(x, logits)| {
                    reference::experts(x, logits, layer.projections.each_ref(), &spec)
                })
                .collect();
            // Dense weights meet exact activations; int8 ones are off by up to 1/254 of a block's largest.
            let largest = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            let tolerance = largest * if format.block_len() == 1 { 1e-5 } else { 0.03 };
            assert_close(
                &format!("{n} rows, {} experts, {spec:?}", format.name()),
                &rig.download(&out, n),
                &expected,
                tolerance,
            );
        }
    }
}

pub(super) fn rope<B: Backend>(rig: &mut Rig<B>) {
    let yarn = RopeScaling::Yarn {
        factor: 8.0,
        original_context: 2048.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        whole_pairs: true,
        attention_factor: 1.0,
    };
    for (heads, head_dim, rotary_dim) in [(9, 64, 64), (1, 256, 256), (2, 96, 40), (3, 8, 8)] {
        for style in [RopeStyle::Interleaved, RopeStyle::Neox] {
            for scaling in [RopeScaling::None, yarn] {
                let spec = RopeSpec {
                    head_dim,
                    rotary_dim,
                    style,
                    base: 10_000.0,
                    scaling,
                    factors: None,
                };
                let table = RopeTable::new(&spec);
                let positions = [0, 1, 17, 100_000, 3];
                let width = heads * head_dim;
                let x = rig.random.values(positions.len() * width);
                let mut buffer = rig.upload(&x, width);
                rig.backend.rope(&mut buffer, &positions, &table);
                let expected = reference::rope(&x, width, &positions, &table);
                assert_close(
                    &format!("rope {style:?}"),
                    &rig.download(&buffer, positions.len()),
                    &expected,
                    2e-6,
                );
            }
        }
    }
}

/// Shapes of attention: usual ones, and sizes that fit no vector.
pub(super) const SHAPES: [AttentionSpec; 6] = [
    AttentionSpec {
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        scale: 0.125,
        window: None,
    },
    AttentionSpec {
        heads: 4,
        kv_heads: 1,
        head_dim: 256,
        scale: 0.0625,
        window: Some(50),
    },
    AttentionSpec {
        heads: 2,
        kv_heads: 2,
        head_dim: 128,
        scale: 0.088,
        window: None,
    },
    AttentionSpec {
        heads: 4,
        kv_heads: 2,
        head_dim: 24,
        scale: 0.2,
        window: Some(200),
    },
    AttentionSpec {
        heads: 1,
        kv_heads: 1,
        head_dim: 80,
        scale: 0.11,
        window: Some(1),
    },
    AttentionSpec {
        heads: 7,
        kv_heads: 1,
        head_dim: 8,
        scale: 0.35,
        window: None,
    },
];

/// Keys and values that make some scores stand out.
pub(super) fn context<B: Backend>(
    rig: &mut Rig<B>,
    spec: &AttentionSpec,
    tokens: usize,
) -> Context {
    let len = tokens * spec.kv_heads * spec.head_dim;
    let mut keys: Vec<f32> = rig.random.values(len).iter().map(|x| x * 4.0).collect();
    let mut values = rig.random.values(len);
    for all in [&mut keys, &mut values] {
        all.chunks_exact_mut(spec.head_dim).for_each(rig.stored);
    }
    Context { keys, values }
}

fn shape(spec: &AttentionSpec, layers: usize) -> KvShape {
    KvShape {
        layers,
        kv_heads: spec.kv_heads,
        head_dim: spec.head_dim,
        block_tokens: BLOCK_TOKENS,
    }
}

/// A cache whose layer 1 of 2 holds the contexts, through these block tables.
pub(super) fn cache<B: Backend>(
    rig: &mut Rig<B>,
    spec: &AttentionSpec,
    blocks: usize,
    sequences: &[(&Context, &[u32])],
) -> B::Kv {
    let mut kv = rig
        .backend
        .kv(&shape(spec, 2), blocks)
        .expect("a small cache");
    let width = spec.kv_heads * spec.head_dim;
    for (context, table) in sequences {
        let tokens = context.keys.len() / width;
        let batch = rows_of(0, tokens, table);
        let (k, v) = (
            rig.upload(&context.keys, width),
            rig.upload(&context.values, width),
        );
        rig.backend.kv_write(&mut kv, 1, &k, &v, &batch.slots);
    }
    kv
}

/// Rows of one sequence, `count` from position `first` on.
pub(super) fn rows_of(first: usize, count: usize, table: &[u32]) -> Batch {
    let mut batch = Batch::default();
    batch.push_sequence(
        &vec![0; count],
        first as u32,
        table,
        BLOCK_TOKENS as u32,
        Logits::None,
    );
    batch
}

pub(super) fn attention_of_one_sequence<B: Backend>(rig: &mut Rig<B>) {
    for spec in &SHAPES {
        for (tokens, first) in [(1, 0), (33, 0), (300, 299), (300, 250), (700, 90)] {
            let context = context(rig, spec, tokens);
            let table = rig.random.shuffled(tokens.div_ceil(BLOCK_TOKENS));
            let kv = cache(rig, spec, table.len(), &[(&context, &table)]);
            let rows = tokens - first;
            let batch = rows_of(first, rows, &table);
            let width = spec.heads * spec.head_dim;
            let queries = rig.random.values(rows * width);
            let q = rig.upload(&queries, width);
            let mut out = rig.buffer(rows, width);
            rig.backend
                .attention(&mut out, &q, &kv, 1, spec, None, &batch);
            let found = rig.download(&out, rows);
            let some = (0..rows).step_by(1 + rows / 20).chain([rows - 1]);
            for row in some {
                let expected = reference::attention(
                    &queries[row * width..][..width],
                    &context,
                    first + row,
                    spec,
                    None,
                );
                let what = format!("attention {spec:?}, row {row} of {rows} from {first}");
                assert_close(&what, &found[row * width..][..width], &expected, 1e-5);
            }
        }
    }
}

pub(super) fn attention_of_many_sequences<B: Backend>(rig: &mut Rig<B>) {
    let spec = &SHAPES[0];
    let sizes = [(70, 3), (1, 1), (290, 1), (33, 33), (129, 2)]; // (tokens, rows)
    let contexts: Vec<_> = sizes
        .iter()
        .map(|&(tokens, _)| context(rig, spec, tokens))
        .collect();
    let blocks = sizes
        .iter()
        .map(|(tokens, _)| tokens.div_ceil(BLOCK_TOKENS))
        .sum();
    let order = rig.random.shuffled(blocks);
    let mut rest = order.as_slice();
    let tables: Vec<&[u32]> = sizes
        .iter()
        .map(|(tokens, _)| {
            rest.split_off(..tokens.div_ceil(BLOCK_TOKENS))
                .expect("enough blocks")
        })
        .collect();
    let pairs: Vec<_> = contexts.iter().zip(tables.iter().copied()).collect();
    let kv = cache(rig, spec, blocks, &pairs);
    let mut batch = Batch::default();
    for (&(tokens, rows), table) in sizes.iter().zip(&tables) {
        batch.push_sequence(
            &vec![0; rows],
            (tokens - rows) as u32,
            table,
            BLOCK_TOKENS as u32,
            Logits::None,
        );
    }
    let width = spec.heads * spec.head_dim;
    let queries = rig.random.values(batch.len() * width);
    let q = rig.upload(&queries, width);
    let mut out = rig.buffer(batch.len(), width);
    rig.backend
        .attention(&mut out, &q, &kv, 1, spec, None, &batch);
    let found = rig.download(&out, batch.len());
    for (sequence, context) in batch.sequences.iter().zip(&contexts) {
        for row in sequence.rows.start as usize..sequence.rows.end as usize {
            let position = batch.positions[row] as usize;
            let expected = reference::attention(
                &queries[row * width..][..width],
                context,
                position,
                spec,
                None,
            );
            assert_close(
                "attention of many",
                &found[row * width..][..width],
                &expected,
                1e-5,
            );
        }
    }
}

/// Sinks below, among and far above the scores, which then leave nothing to the values.
pub(super) fn attention_with_sinks<B: Backend>(rig: &mut Rig<B>) {
    for spec in &SHAPES {
        let (tokens, rows) = (300, 40);
        let context = context(rig, spec, tokens);
        let table = rig.random.shuffled(tokens.div_ceil(BLOCK_TOKENS));
        let kv = cache(rig, spec, table.len(), &[(&context, &table)]);
        let first = tokens - rows;
        let batch = rows_of(first, rows, &table);
        let width = spec.heads * spec.head_dim;
        let queries = rig.random.values(rows * width);
        let q = rig.upload(&queries, width);
        let mut sinks = rig.random.values(spec.heads);
        for (sink, factor) in sinks.iter_mut().zip([3.0, 10.0, 1e3].iter().cycle()) {
            *sink *= factor;
        }
        let weight = rig.vector(&sinks);
        let mut out = rig.buffer(rows, width);
        rig.backend
            .attention(&mut out, &q, &kv, 1, spec, Some(&weight), &batch);
        let found = rig.download(&out, rows);
        for row in 0..rows {
            let queries = &queries[row * width..][..width];
            let expected = reference::attention(queries, &context, first + row, spec, Some(&sinks));
            let what = format!("attention {spec:?} with sinks {sinks:?}, row {row}");
            assert_close(&what, &found[row * width..][..width], &expected, 1e-5);
        }
    }
}

/// A block that another sequence used before holds its remains behind the last token.
pub(super) fn masked_slots_are_never_read<B: Backend>(rig: &mut Rig<B>) {
    let spec = &SHAPES[0];
    let width = spec.kv_heads * spec.head_dim;
    let (old, new) = (context(rig, spec, BLOCK_TOKENS), context(rig, spec, 5));
    let poison = |values: &[f32], bad: f32| Context {
        keys: vec![bad; values.len()],
        values: vec![bad; values.len()],
    };
    for bad in [f32::NAN, f32::INFINITY, 1e30] {
        let kv = cache(
            rig,
            spec,
            1,
            &[(&poison(&old.keys, bad), &[0]), (&new, &[0])],
        );
        let mut batch = Batch::default();
        batch.push_sequence(&[0; 5], 0, &[0], BLOCK_TOKENS as u32, Logits::None);
        let row_width = spec.heads * spec.head_dim;
        let queries = rig.random.values(5 * row_width);
        let q = rig.upload(&queries, row_width);
        let mut out = rig.buffer(5, row_width);
        rig.backend
            .attention(&mut out, &q, &kv, 1, spec, None, &batch);
        let found = rig.download(&out, 5);
        for (row, (found, queries)) in found
            .chunks(row_width)
            .zip(queries.chunks(row_width))
            .enumerate()
        {
            let expected = reference::attention(queries, &new, row, spec, None);
            assert_close("attention beside old values", found, &expected, 1e-5);
        }
    }
    assert_eq!(new.keys.len(), 5 * width);
}

/// Blocks that were read out and written to other places, of the same cache and of another, give the same bits.
pub(super) fn blocks_can_be_moved<B: Backend>(rig: &mut Rig<B>) {
    for spec in &SHAPES {
        let (tokens, rows, blocks) = (200, 3, 7);
        let context = context(rig, spec, tokens);
        let batch = |table: &[u32]| rows_of(tokens - rows, rows, table);
        let before: Vec<u32> = (0..blocks).collect();
        let mut kv = cache(rig, spec, 2 * blocks as usize, &[(&context, &before)]);
        let mut other = cache(rig, spec, blocks as usize, &[]);
        let width = spec.heads * spec.head_dim;
        let queries = rig.random.values(rows * width);
        let q = rig.upload(&queries, width);
        let mut out = rig.buffer(rows, width);
        let mut attend = |rig: &mut Rig<B>, kv: &B::Kv, table: &[u32]| {
            let batch = batch(table);
            rig.backend
                .attention(&mut out, &q, kv, 1, spec, None, &batch);
            rig.download(&out, rows)
        };
        let expected = attend(rig, &kv, &before);

        let shape = shape(spec, 2);
        assert!(!rig.backend.kv_format(&shape).is_empty());
        let mut bytes = vec![0; rig.backend.kv_block_bytes(&shape) as usize];
        let moved: Vec<u32> = before.iter().map(|block| 2 * blocks - 1 - block).collect();
        let elsewhere: Vec<u32> = before.iter().map(|block| (block + 3) % blocks).collect();
        for block in before.iter().map(|&block| block as usize) {
            rig.backend.kv_read(&kv, before[block], &mut bytes);
            rig.backend.kv_write_block(&mut kv, moved[block], &bytes);
            rig.backend
                .kv_write_block(&mut other, elsewhere[block], &bytes);
        }
        // What the old places hold no longer matters.
        for &block in &before {
            rig.backend.kv_write_block(&mut kv, block, &bytes);
        }
        assert_same("moved blocks", &attend(rig, &kv, &moved), &expected);
        assert_same("another cache", &attend(rig, &other, &elsewhere), &expected);
    }
}
