//! Rows are independent: the same bits for a row in any company.

use super::blocks;
use super::ops::{EXPERTS, Layer, SHAPES, cache, context, rows_of};
use super::rig::{Rig, assert_same};
use crate::{
    Activation, AttentionSpec, BLOCK_TOKENS, Backend, Batch, KvShape, Logits, RopeScaling,
    RopeSpec, RopeStyle, RopeTable,
};
use andante_gguf::Format;

/// An op under test: turns the first `n` rows of one buffer, whose first row is row `first` of all, into another's.
type RowOp<'a, B> =
    &'a dyn Fn(&mut B, (&mut <B as Backend>::Buffer, &mut <B as Backend>::Buffer), (usize, usize));

pub(super) fn each_op_row_by_row<B: Backend>(rig: &mut Rig<B>) {
    let (rows, width, eps) = (67, 192, 1e-6);
    let x = rig.random.values(rows * width);
    let positions: Vec<u32> = rig.random.shuffled(rows);
    let table = RopeTable::new(&rope_spec(64));
    let norm = rig.random.values(width);
    let norm = rig.vector(&norm);
    let head_norm = rig.random.values(64);
    let head_norm = rig.vector(&head_norm);

    check(
        rig,
        "rms_norm",
        (&x, width, width),
        &|backend, (x, out), (_, n)| backend.rms_norm(out, x, &norm, eps, n),
    );
    check(
        rig,
        "add_rms_norm",
        (&x, width, width),
        &|backend, (x, out), (_, n)| {
            let mut residual = backend.buffer(n, width).expect("a small buffer");
            backend.add(&mut residual, x, n);
            backend.scale(&mut residual, 0.3, n);
            backend.add_rms_norm(out, &mut residual, x, &norm, eps, n);
        },
    );
    check(
        rig,
        "rms_norm_heads",
        (&x, width, width),
        &|backend, (x, out), (_, n)| {
            backend.add(out, x, n);
            backend.rms_norm_heads(out, &head_norm, eps, n);
        },
    );
    check(
        rig,
        "add_bias",
        (&x, width, width),
        &|backend, (x, out), (_, n)| {
            backend.add(out, x, n);
            backend.add_bias(out, &norm, n);
        },
    );
    check(
        rig,
        "rope",
        (&x, width, width),
        &|backend, (x, out), (first, n)| {
            backend.add(out, x, n);
            backend.rope(out, &positions[first..first + n], &table);
        },
    );
    for act in [
        Activation::Silu,
        Activation::GeluTanh,
        Activation::ClampedSwiglu,
        Activation::SiluBelow(0.4),
    ] {
        check(
            rig,
            "act_mul",
            (&x, width, width),
            &|backend, (x, out), (_, n)| {
                backend.add(out, x, n);
                backend.act_mul(out, x, act, n);
            },
        );
    }
}

pub(super) fn products_row_by_row<B: Backend>(rig: &mut Rig<B>) {
    let rows = 67;
    for &format in Format::ALL {
        let (cols, out_width) = (512, 83);
        let x = rig.random.values(rows * cols);
        let weight = random_weight(rig, format, cols, out_width);
        check(
            rig,
            &format!("matmul {}", format.name()),
            (&x, cols, out_width),
            &|backend, (x, out), (_, n)| {
                backend.matmul(&mut [(&weight, out)], x, n);
            },
        );
    }
}

pub(super) fn experts_row_by_row<B: Backend>(rig: &mut Rig<B>) {
    let (rows, hidden) = (23, Layer::<B>::HIDDEN);
    for (format, spec, biased) in EXPERTS {
        let layer = Layer::new(rig, format, &spec, biased);
        let x = rig.random.values(rows * hidden);
        let logits = rig.random.values(rows * spec.experts);
        let logits = rig.matrix(&logits, spec.experts);
        check(
            rig,
            &format!("experts {}", format.name()),
            (&x, hidden, hidden),
            &|backend, (x, out), (first, n)| {
                let mut router = backend.buffer(n, spec.experts).expect("a small buffer");
                let tokens: Vec<u32> = (first..first + n).map(|row| row as u32).collect();
                backend.embed(&mut router, &logits, &tokens, 1.0);
                backend.experts(out, x, &router, &layer.weights(), &spec, n);
            },
        );
    }
}

/// Runs an op on all rows at once, then on parts of them down to one row.
fn check<B: Backend>(
    rig: &mut Rig<B>,
    what: &str,
    (x, width, out_width): (&[f32], usize, usize),
    op: RowOp<'_, B>,
) {
    let rows = x.len() / width;
    let mut run = |first: usize, n: usize| {
        let mut x = rig.upload(&x[first * width..][..n * width], width);
        let mut out = rig.buffer(n, out_width);
        op(&mut rig.backend, (&mut x, &mut out), (first, n));
        rig.download(&out, n)
    };
    let together = run(0, rows);
    for part in [1, 2, 5, 16, 50] {
        for first in (0..rows).step_by(part) {
            let n = part.min(rows - first);
            let expected = &together[first * out_width..][..n * out_width];
            assert_same(
                &format!("{what}, rows {first}.. of {n}"),
                &run(first, n),
                expected,
            );
        }
    }
}

pub(super) fn attention_in_any_chunks_and_blocks<B: Backend>(rig: &mut Rig<B>) {
    for spec in &SHAPES {
        let tokens = 420;
        let context = context(rig, spec, tokens);
        let width = spec.heads * spec.head_dim;
        let queries = rig.random.values(tokens * width);
        let sinks = rig.random.values(spec.heads);
        let sinks = rig.vector(&sinks);
        let mut alone: Option<Vec<f32>> = None;
        for chunk in [1, 7, 32, 100, tokens] {
            let table = rig.random.shuffled(20);
            let kv = cache(rig, spec, table.len(), &[(&context, &table)]);
            let mut found = Vec::new();
            for first in (0..tokens).step_by(chunk) {
                let rows = chunk.min(tokens - first);
                let batch = rows_of(first, rows, &table);
                let q = rig.upload(&queries[first * width..][..rows * width], width);
                let mut out = rig.buffer(rows, width);
                rig.backend
                    .attention(&mut out, &q, &kv, 1, spec, Some(&sinks), &batch);
                found.extend(rig.download(&out, rows));
            }
            let alone = alone.get_or_insert_with(|| found.clone());
            assert_same(
                &format!("attention {spec:?} in chunks of {chunk}"),
                &found,
                alone,
            );
        }
    }
}

/// A small transformer whose sequences advance together in random batches, and one after the other.
pub(super) fn layers_in_any_batch<B: Backend>(rig: &mut Rig<B>) {
    let net = Net::new(rig);
    let lens = [150, 40, 1, 97];
    let tokens: Vec<Vec<u32>> = lens
        .iter()
        .map(|&len| {
            (0..len)
                .map(|_| rig.random.below(VOCABULARY) as u32)
                .collect()
        })
        .collect();
    let blocks = 8 * lens.len();

    let mut kv = net.cache(rig, blocks);
    let alone: Vec<Vec<f32>> = tokens
        .iter()
        .map(|tokens| {
            let mut batch = Batch::default();
            batch.push_sequence(
                tokens,
                0,
                &[0, 1, 2, 3, 4, 5, 6, 7],
                BLOCK_TOKENS as u32,
                Logits::None,
            );
            net.forward(rig, &mut kv, &batch)
        })
        .collect();

    for limit in [3, 20, 90] {
        let order = rig.random.shuffled(blocks);
        let mut kv = net.cache(rig, blocks);
        let mut done = vec![0; lens.len()];
        while done.iter().zip(lens).any(|(&done, len)| done < len) {
            let mut batch = Batch::default();
            let mut members = Vec::new();
            for sequence in rig.random.shuffled(lens.len()) {
                let sequence = sequence as usize;
                let rows = (1 + rig.random.below(limit)).min(lens[sequence] - done[sequence]);
                if rows > 0 {
                    let table = &order[sequence * 8..][..8];
                    let part = &tokens[sequence][done[sequence]..][..rows];
                    batch.push_sequence(
                        part,
                        done[sequence] as u32,
                        table,
                        BLOCK_TOKENS as u32,
                        Logits::None,
                    );
                    members.push((sequence, rows));
                }
            }
            let found = net.forward(rig, &mut kv, &batch);
            let mut found = found.as_slice();
            for (sequence, rows) in members {
                let part = found
                    .split_off(..rows * WIDTH)
                    .expect("a result for every row");
                let expected = &alone[sequence][done[sequence] * WIDTH..][..rows * WIDTH];
                assert_same(
                    &format!("sequence {sequence} from {}", done[sequence]),
                    part,
                    expected,
                );
                done[sequence] += rows;
            }
        }
    }
}

const VOCABULARY: usize = 50;
const LAYERS: usize = 2;
const WIDTH: usize = 256;
const SPEC: AttentionSpec = AttentionSpec {
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    scale: 0.125,
    window: Some(100),
};

struct Net<B: Backend> {
    table: B::Weight,
    norm: B::Weight,
    q: B::Weight,
    k: B::Weight,
    v: B::Weight,
    o: B::Weight,
    rope: RopeTable,
}

impl<B: Backend> Net<B> {
    fn new(rig: &mut Rig<B>) -> Self {
        let ones = vec![1.0; WIDTH];
        Self {
            table: random_weight(rig, Format::F16, WIDTH, VOCABULARY),
            norm: rig.vector(&ones),
            q: random_weight(rig, Format::Q4_1, WIDTH, WIDTH),
            k: random_weight(rig, Format::Q8_0, WIDTH, WIDTH / 2),
            v: random_weight(rig, Format::Q6_K, WIDTH, WIDTH / 2),
            o: random_weight(rig, Format::Q4_K, WIDTH, WIDTH),
            rope: RopeTable::new(&rope_spec(64)),
        }
    }

    fn cache(&self, rig: &mut Rig<B>, blocks: usize) -> B::Kv {
        let shape = KvShape {
            layers: LAYERS,
            kv_heads: SPEC.kv_heads,
            head_dim: SPEC.head_dim,
            block_tokens: BLOCK_TOKENS,
        };
        rig.backend.kv(&shape, blocks).expect("a small cache")
    }

    fn forward(&self, rig: &mut Rig<B>, kv: &mut B::Kv, batch: &Batch) -> Vec<f32> {
        let n = batch.len();
        let [mut x, mut h, mut q, mut attended, mut delta] =
            std::array::from_fn(|_| rig.buffer(n, WIDTH));
        let [mut k, mut v] = std::array::from_fn(|_| rig.buffer(n, WIDTH / 2));
        let backend = &mut rig.backend;
        backend.embed(&mut x, &self.table, &batch.tokens, 1.0);
        backend.rms_norm(&mut h, &x, &self.norm, 1e-5, n);
        for layer in 0..LAYERS {
            backend.matmul(
                &mut [(&self.q, &mut q), (&self.k, &mut k), (&self.v, &mut v)],
                &h,
                n,
            );
            backend.rope(&mut q, &batch.positions, &self.rope);
            backend.rope(&mut k, &batch.positions, &self.rope);
            backend.kv_write(kv, layer, &k, &v, &batch.slots);
            backend.attention(&mut attended, &q, kv, layer, &SPEC, None, batch);
            backend.matmul(&mut [(&self.o, &mut delta)], &attended, n);
            backend.add_rms_norm(&mut h, &mut x, &delta, &self.norm, 1e-5, n);
        }
        rig.download(&h, n)
    }
}

fn rope_spec(head_dim: usize) -> RopeSpec<'static> {
    RopeSpec {
        head_dim,
        rotary_dim: head_dim,
        style: RopeStyle::Interleaved,
        base: 10_000.0,
        scaling: RopeScaling::None,
        factors: None,
    }
}

fn random_weight<B: Backend>(
    rig: &mut Rig<B>,
    format: Format,
    cols: usize,
    rows: usize,
) -> B::Weight {
    let values: Vec<f32> = rig
        .random
        .values(rows * cols)
        .iter()
        .map(|x| x / 8.0)
        .collect();
    rig.weight(
        format,
        &blocks::weights(format, &values),
        &[cols as u64, rows as u64],
    )
}
