//! The ops of [`Deepseek4`] against double precision, and row by row.

use super::blocks;
use super::ops::{EXPERTS, Layer};
use super::reference::{self, widen};
use super::rig::{Rig, assert_close, assert_same};
use crate::{
    Batch, CompressSpec, CompressWeights, CompressedRows, Deepseek4, HyperSpec, HyperWeights,
    IndexSpec, Kept, Logits, Region, RopeScaling, RopeSpec, RopeStyle, RopeTable, RouteBy,
    RouteSpec, Row, WindowSpec,
};
use andante_gguf::{Format, quant};

pub(super) fn records<B: Deepseek4>(rig: &mut Rig<B>) {
    let mut records = rig.backend.records(3, 12).expect("small");
    let bytes: Vec<u8> = (1..=12).collect();
    let read = |backend: &B, records: &B::Records, index| {
        let mut out = vec![0xff; 12];
        backend.records_read(records, index, &mut out);
        out
    };
    let nothing = vec![0; 12];
    assert_eq!(read(&rig.backend, &records, 2), nothing);
    rig.backend.records_write(&mut records, 1, &bytes);
    rig.backend.records_copy(&mut records, 1, 2);
    rig.backend.records_clear(&mut records, 1);
    let found = [0, 1, 2].map(|index| read(&rig.backend, &records, index));
    assert_eq!(found, [nothing.clone(), nothing, bytes]);
    assert_eq!(rig.backend.kept(Row::State, 5), Kept::F32);
}

pub(super) fn copies<B: Deepseek4>(rig: &mut Rig<B>) {
    let x = rig.random.values(3 * 20);
    let buffer = rig.upload(&x, 20);
    let mut out = rig.buffer(4, 60);
    rig.backend.repeat(&mut out, &buffer, 3);
    let expected: Vec<f32> = x.chunks(20).flat_map(|row| row.repeat(3)).collect();
    assert_same("repeat", &rig.download(&out, 3), &expected);
}

pub(super) fn hyper_connections<B: Deepseek4>(rig: &mut Rig<B>) {
    for (streams, hidden, n) in [(4, 100, 9), (2, 64, 1), (3, 8, 40)] {
        let spec = HyperSpec {
            streams,
            iterations: 5,
            eps: 1e-3,
            norm_eps: 1e-2,
        };
        for coefficients in [streams * (2 + streams), streams] {
            let x = rig.random.values(n * streams * hidden);
            let mix = rig.random.values(n * coefficients);
            let base = rig.random.values(coefficients);
            let scale = rig
                .random
                .values(if coefficients == streams { 1 } else { 3 });
            let y = rig.random.values(n * hidden);
            let (base_weight, scale_weight) = (rig.vector(&base), rig.vector(&scale));
            let weights = HyperWeights {
                base: &base_weight,
                scale: &scale_weight,
            };
            // What rows `first..first + rows` become: the block's input, then the streams.
            let mut run = |first: usize, rows: usize| {
                let part = |values: &[f32], width: usize| {
                    values[first * width..(first + rows) * width].to_vec()
                };
                let mut mix = rig.upload(&part(&mix, coefficients), coefficients);
                let mut x = rig.upload(&part(&x, streams * hidden), streams * hidden);
                let y = rig.upload(&part(&y, hidden), hidden);
                let mut out = rig.buffer(rows, hidden);
                rig.backend
                    .hyper_in(&mut out, &mut mix, &x, &weights, &spec, rows);
                if coefficients > streams {
                    rig.backend.hyper_out(&mut x, &y, &mix, &spec, rows);
                }
                (rig.download(&out, rows), rig.download(&x, rows))
            };
            let (inputs, after) = run(0, n);
            let (mut input_rows, mut after_rows) = (Vec::new(), Vec::new());
            for row in 0..n {
                let (input, after) = run(row, 1);
                input_rows.extend(input);
                after_rows.extend(after);
            }
            assert_same("hyper_in row by row", &input_rows, &inputs);
            assert_same("hyper_out row by row", &after_rows, &after);
            let (mut expected, mut expected_after) = (Vec::new(), Vec::new());
            for row in 0..n {
                let part = |values: &[f32], width: usize| widen(&values[row * width..][..width]);
                let (x, y) = (part(&x, streams * hidden), part(&y, hidden));
                let mix = hyper_coefficients(&part(&mix, coefficients), &x, (&base, &scale), &spec);
                expected.extend((0..hidden).map(|i| {
                    let terms = (0..streams).map(|s| mix[s] * x[s * hidden + i]);
                    terms.sum::<f64>()
                }));
                expected_after.extend((0..streams * hidden).map(|at| {
                    if coefficients == streams {
                        return x[at];
                    }
                    let (j, i) = (at / hidden, at % hidden);
                    let comb = |s: usize| mix[2 * streams + s * streams + j];
                    let kept: f64 = (0..streams).map(|s| comb(s) * x[s * hidden + i]).sum();
                    mix[streams + j] * y[i] + kept
                }));
            }
            assert_close("hyper_in", &inputs, &expected, 1e-5);
            assert_close("hyper_out", &after, &expected_after, 1e-5);
        }
    }
}

fn hyper_coefficients(
    mix: &[f64],
    x: &[f64],
    (base, scale): (&[f32], &[f32]),
    spec: &HyperSpec,
) -> Vec<f64> {
    let (s, eps) = (spec.streams, f64::from(spec.eps));
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    let norm = (mean + f64::from(spec.norm_eps)).sqrt();
    let mut m: Vec<f64> = (0..mix.len())
        .map(|i| mix[i] / norm * f64::from(scale[(i / s).min(2)]) + f64::from(base[i]))
        .collect();
    m[..s].iter_mut().for_each(|m| *m = sigmoid(*m) + eps);
    if m.len() == s {
        return m;
    }
    m[s..2 * s].iter_mut().for_each(|m| *m = 2.0 * sigmoid(*m));
    let comb = &mut m[2 * s..];
    for row in comb.chunks_mut(s) {
        let sum: f64 = row.iter().map(|c| c.exp()).sum();
        row.iter_mut().for_each(|c| *c = c.exp() / sum + eps);
    }
    for round in 0..spec.iterations {
        for i in (0..s).filter(|_| round > 0) {
            let sum: f64 = (0..s).map(|j| comb[i * s + j]).sum();
            (0..s).for_each(|j| comb[i * s + j] /= sum + eps);
        }
        for j in 0..s {
            let sum: f64 = (0..s).map(|i| comb[i * s + j]).sum();
            (0..s).for_each(|i| comb[i * s + j] /= sum + eps);
        }
    }
    m
}

pub(super) fn grouped_products<B: Deepseek4>(rig: &mut Rig<B>) {
    let (groups, cols, rows, n) = (3, 256, 32, 19);
    let x = rig.random.values(n * groups * cols);
    for &format in Format::ALL {
        let data = blocks::weights(format, &rig.random.values(groups * rows * cols));
        let mut exact = vec![0.0; groups * rows * cols];
        quant::dequantize(format, &data, &mut exact);
        let shape = [cols, rows, groups].map(|side| side as u64);
        let weight = rig.weight(format, &data, &shape);
        let width = groups * rows;
        let mut run = |x: &[f32]| {
            let n = x.len() / (groups * cols);
            let x = rig.upload(x, groups * cols);
            let mut out = rig.buffer(n, width);
            rig.backend.grouped_matmul(&mut out, &weight, &x, n);
            rig.download(&out, n)
        };
        let found = run(&x);
        let alone: Vec<f32> = x.chunks(groups * cols).flat_map(&mut run).collect();
        let what = format!("grouped_matmul {}", format.name());
        assert_same(&what, &alone, &found);
        let parts = x.chunks(cols).enumerate();
        let expected: Vec<f64> = parts
            .flat_map(|(i, x)| {
                let weight = &exact[i % groups * rows * cols..][..rows * cols];
                reference::matmul(weight, x, cols)
            })
            .collect();
        // As for products.
        let tolerance = if format.block_len() == 1 { 0.02 } else { 0.2 };
        assert_close(&what, &found, &expected, tolerance);
    }
}

pub(super) fn routes<B: Deepseek4>(rig: &mut Rig<B>) {
    let (experts, chosen, vocab, n) = (12, 3, 5, 17);
    let mut logits = rig.random.values(n * experts);
    logits.iter_mut().for_each(|logit| *logit *= 8.0);
    logits[..experts].fill(1.5); // all alike: the first ones are taken
    logits[experts..experts + 2].copy_from_slice(&[-90.0, 90.0]);
    let bias = rig.random.values(experts);
    let mut alike = bias.clone();
    alike.fill(0.25);
    let table: Vec<f32> = (0..vocab * chosen)
        .map(|i| (i * 5 % experts) as f32)
        .collect();
    let tokens: Vec<u32> = (0..n).map(|i| (i * 3 % vocab) as u32).collect();
    let table_weight = rig.matrix(&table, chosen);
    for (bias, hashed, normalised) in [
        (&bias, false, true),
        (&alike, false, false),
        (&bias, true, true),
    ] {
        let bias_weight = rig.vector(bias);
        let by = match hashed {
            true => RouteBy::Table(&table_weight),
            false => RouteBy::Score(&bias_weight),
        };
        let spec = RouteSpec {
            normalised,
            scale: 1.5,
        };
        let mut run = |first: usize, rows: usize| {
            let logits = rig.upload(&logits[first * experts..][..rows * experts], experts);
            let mut ids = rig.backend.choices(rows, chosen).expect("a small one");
            let mut shares = rig.buffer(rows, chosen);
            let tokens = &tokens[first..][..rows];
            rig.backend
                .route(&mut ids, &mut shares, &logits, &by, &spec, tokens);
            let shares = rig.download(&shares, rows);
            let ids = rig.backend.read_choices(&ids, rows);
            (ids.expect("a working device").to_vec(), shares)
        };
        let (ids, shares) = run(0, n);
        let mut expected = Vec::new();
        for row in 0..n {
            let alone = run(row, 1);
            assert_eq!(alone.0, ids[row * chosen..][..chosen]);
            assert_same(
                "route row by row",
                &alone.1,
                &shares[row * chosen..][..chosen],
            );
            let score = |i: usize| f64::from(logits[row * experts + i]).exp().ln_1p().sqrt();
            let mut order: Vec<usize> = (0..experts).collect();
            let key = |i: usize| score(i) + f64::from(bias[i]);
            order.sort_by(|&a, &b| key(b).total_cmp(&key(a))); // stable
            if hashed {
                let ids = table[tokens[row] as usize * chosen..][..chosen].iter();
                order = ids.map(|&id| id as usize).collect();
            }
            let found: Vec<usize> = alone.0.iter().map(|&id| id as usize).collect();
            assert_eq!(found, order[..chosen], "row {row}");
            let sum: f64 = order[..chosen].iter().map(|&i| score(i)).sum();
            let factor = if normalised { 1.5 / sum } else { 1.5 };
            expected.extend(order[..chosen].iter().map(|&i| score(i) * factor));
        }
        assert_close("route", &shares, &expected, 2e-5);
    }
}

/// Experts that are given what [`crate::Backend::experts`] would choose give the same.
pub(super) fn chosen_experts<B: Deepseek4>(rig: &mut Rig<B>) {
    let (hidden, n) = (Layer::<B>::HIDDEN, 11);
    for (format, spec, biased) in EXPERTS {
        let layer = Layer::new(rig, format, &spec, biased);
        let x = rig.random.values(n * hidden);
        let x = rig.upload(&x, hidden);
        // The scores of route and the logits of experts agree in order; of one expert the share is 1 in both.
        let logits = rig.random.values(n * spec.experts);
        let logits = rig.upload(&logits, spec.experts);
        let bias = rig.vector(&vec![0.0; spec.experts]);
        let mut ids = rig.backend.choices(n, spec.chosen).expect("a small one");
        let mut shares = rig.buffer(n, spec.chosen);
        let route = RouteSpec {
            normalised: true,
            scale: 1.0,
        };
        let tokens = vec![0; n];
        let by = RouteBy::Score(&bias);
        rig.backend
            .route(&mut ids, &mut shares, &logits, &by, &route, &tokens);
        let mut out = rig.buffer(n, hidden);
        rig.backend
            .chosen_experts(&mut out, &x, &ids, &shares, &layer.weights(), &spec, n);
        let found = rig.download(&out, n);
        // A softmax over logarithms of the shares is the shares.
        let ids = rig
            .backend
            .read_choices(&ids, n)
            .expect("a working device")
            .to_vec();
        let shares = rig.download(&shares, n);
        let mut same = vec![-1e4; n * spec.experts];
        for (i, (&id, share)) in ids.iter().zip(shares).enumerate() {
            same[i / spec.chosen * spec.experts + id as usize] = share.ln();
        }
        let same = rig.upload(&same, spec.experts);
        rig.backend
            .experts(&mut out, &x, &same, &layer.weights(), &spec, n);
        let expected = widen(&rig.download(&out, n));
        let largest = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        assert_close("chosen_experts", &found, &expected, largest * 1e-5);
    }
}

/// What one layer's attention of one sequence is made of, `[tokens, ..]` each.
struct Net {
    overlap: bool,
    ratio: usize,
    top_k: Option<usize>,
    window: usize,
    kv: Vec<f32>,
    gate: Vec<f32>,
    index_kv: Vec<f32>,
    index_gate: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    index_q: Vec<f32>,
    index_weights: Vec<f32>,
}

/// Where it lies, with something before and between.
struct Regions {
    ring: Region,
    keys: Compressed,
    index: Compressed,
}

#[derive(Clone, Copy)]
struct Compressed {
    rows: Region,
    tokens: Region,
}

struct Records<B: Deepseek4> {
    blocks: B::Records,
    states: B::Records,
}

const HEADS: usize = 3;
const WIDTH: usize = 40;
/// Not a multiple of what a kernel may take together.
const INDEX_HEADS: usize = 6;
const INDEX_WIDTH: usize = 32;
/// Values of a key that do not turn, and those that do.
const PLAIN: usize = WIDTH - TURNING;
const TURNING: usize = 16;
/// Tokens of a block: whole rows of every ratio.
const BLOCK: usize = 64;
const EPS: f32 = 1e-2;

fn rope(width: usize) -> RopeTable {
    RopeTable::new(&RopeSpec {
        head_dim: width,
        rotary_dim: TURNING,
        style: RopeStyle::Interleaved,
        base: 100.0,
        scaling: RopeScaling::None,
        factors: None,
    })
    .at_end()
}

/// Compressed rows, choices among them and attention: in one batch, in chunks over blocks anywhere, and by plain formulas.
pub(super) fn compressed_attention<B: Deepseek4>(rig: &mut Rig<B>) {
    let tokens = 150;
    let keys = rig.backend.kept(Row::Key { plain: PLAIN }, WIDTH);
    // A row whose rounding falls otherwise is off by one of 2^11, or of 2^4.
    let tolerance = match keys {
        Kept::F32 => 1e-4,
        Kept::F16 => 2e-3,
        _ => 0.1,
    };
    // Of rows in four bits some have the same score but for rounding: then all are chosen.
    let index = rig.backend.kept(Row::Index, INDEX_WIDTH);
    let few = if index == Kept::HadamardE2m1 { 50 } else { 5 };
    for (ratio, overlap, top_k) in [
        (4, true, Some(few)),
        (8, false, Some(100)),
        (64, false, None),
        (32, true, None),
    ] {
        let token = WIDTH * (1 + usize::from(overlap));
        let index_token = INDEX_WIDTH * (1 + usize::from(overlap));
        let mut values = |width: usize| rig.random.values(tokens * width);
        let net = Net {
            overlap,
            ratio,
            top_k,
            window: 21,
            kv: values(token),
            gate: values(token),
            index_kv: values(index_token),
            index_gate: values(index_token),
            q: values(HEADS * WIDTH),
            k: values(WIDTH),
            index_q: values(INDEX_HEADS * INDEX_WIDTH),
            index_weights: values(INDEX_HEADS),
        };
        let vectors = [
            ratio * token,
            WIDTH,
            ratio * index_token,
            INDEX_WIDTH,
            HEADS,
        ];
        let vectors = vectors.map(|len| rig.random.values(len));
        let expected = net.reference(rig, &vectors);
        let mut whole: Option<Vec<f32>> = None;
        for chunk in [tokens, 1, 7, 33] {
            let found = net.run(rig, &vectors, chunk);
            let whole = whole.get_or_insert_with(|| found.clone());
            assert_same(
                &format!("ratio {ratio} in chunks of {chunk}"),
                &found,
                whole,
            );
        }
        let found = whole.expect("some");
        assert_close(
            &format!("attention, ratio {ratio}"),
            &found,
            &expected,
            tolerance,
        );
    }
}

impl Net {
    fn tokens(&self) -> usize {
        self.k.len() / WIDTH
    }

    /// Attention of all tokens, `chunk` at a time.
    fn run<B: Deepseek4>(
        &self,
        rig: &mut Rig<B>,
        vectors: &[Vec<f32>; 5],
        chunk: usize,
    ) -> Vec<f32> {
        let (blocks, state) = (8, 2);
        let regions = self.regions(&rig.backend);
        let mut records = |count, len: usize| {
            let len = len.next_multiple_of(4);
            rig.backend.records(count, len).expect("small")
        };
        let mut memory = Records::<B> {
            blocks: records(blocks, regions.index.rows.end()),
            states: records(3, regions.index.tokens.end()),
        };
        let table = rig.random.shuffled(blocks);
        let weights: Vec<B::Weight> = vectors.iter().map(|values| rig.vector(values)).collect();
        let mut found = Vec::new();
        for first in (0..self.tokens()).step_by(chunk) {
            let n = chunk.min(self.tokens() - first);
            let mut batch = Batch::default();
            let zeros = vec![0; n];
            batch.push_sequence(&zeros, first as u32, &table, BLOCK as u32, Logits::None);
            batch.states.push(state);
            self.compress(rig, (&mut memory, &weights), (first, n), &batch);
            found.extend(self.attend(rig, (&mut memory, &weights), (first, n), &batch));
        }
        found
    }

    fn regions<B: Deepseek4>(&self, backend: &B) -> Regions {
        let series = 1 + usize::from(self.overlap);
        let region = |start: usize, rows, row, width| Region {
            start: start.next_multiple_of(4),
            rows,
            width,
            kept: backend.kept(row, width),
        };
        let key = Row::Key { plain: PLAIN };
        let rows = region(12, BLOCK / self.ratio, key, WIDTH);
        let ring = region(4, self.window, key, WIDTH);
        let state = |start, width| {
            let width = 2 * series * width;
            region(start, series * self.ratio, Row::State, width)
        };
        let tokens = state(ring.end(), WIDTH);
        Regions {
            ring,
            keys: Compressed { rows, tokens },
            index: Compressed {
                rows: region(rows.end(), rows.rows, Row::Index, INDEX_WIDTH),
                tokens: state(tokens.end(), INDEX_WIDTH),
            },
        }
    }

    fn compress<B: Deepseek4>(
        &self,
        rig: &mut Rig<B>,
        (memory, weights): (&mut Records<B>, &[B::Weight]),
        (first, n): (usize, usize),
        batch: &Batch,
    ) {
        let regions = self.regions(&rig.backend);
        let series = 1 + usize::from(self.overlap);
        for (kv, gate, weights, width, regions) in [
            (&self.kv, &self.gate, &weights[..2], WIDTH, regions.keys),
            (
                &self.index_kv,
                &self.index_gate,
                &weights[2..4],
                INDEX_WIDTH,
                regions.index,
            ),
        ] {
            let token = series * width;
            let mut upload =
                |values: &[f32]| rig.upload(&values[first * token..(first + n) * token], token);
            let (kv, gate) = (upload(kv), upload(gate));
            let weights = CompressWeights {
                ape: &weights[0],
                norm: &weights[1],
            };
            let spec = CompressSpec {
                ratio: self.ratio,
                overlap: self.overlap,
                eps: EPS,
                rope: &rope(width),
                rows: regions.rows,
                tokens: regions.tokens,
            };
            let Records { blocks, states } = &mut *memory;
            rig.backend
                .compress(blocks, states, &kv, &gate, &weights, &spec, batch);
        }
    }

    fn attend<B: Deepseek4>(
        &self,
        rig: &mut Rig<B>,
        (memory, weights): (&mut Records<B>, &[B::Weight]),
        (first, n): (usize, usize),
        batch: &Batch,
    ) -> Vec<f32> {
        let regions = self.regions(&rig.backend);
        let mut upload = |values: &[f32], width: usize| {
            rig.upload(&values[first * width..(first + n) * width], width)
        };
        let (q, mut k) = (upload(&self.q, HEADS * WIDTH), upload(&self.k, WIDTH));
        let mut index_q = upload(&self.index_q, INDEX_HEADS * INDEX_WIDTH);
        let index_weights = upload(&self.index_weights, INDEX_HEADS);
        let mut out = rig.buffer(n, HEADS * WIDTH);
        let backend = &mut rig.backend;
        backend.keep_heads(&mut k, WIDTH, regions.ring.kept, n);
        if regions.index.rows.kept == Kept::HadamardE2m1 {
            backend.keep_heads(&mut index_q, INDEX_WIDTH, Kept::HadamardE2m1, n);
        }
        let mut chosen = backend.choices(n, self.top_k.unwrap_or(1)).expect("small");
        let Records { blocks, states } = memory;
        if let Some(top_k) = self.top_k {
            let spec = IndexSpec {
                ratio: self.ratio,
                heads: INDEX_HEADS,
                top_k,
                scale: 0.5,
                rows: regions.index.rows,
            };
            backend.index(&mut chosen, &index_q, &index_weights, blocks, &spec, batch);
        }
        let compressed = CompressedRows {
            blocks: &*blocks,
            rows: regions.keys.rows,
            ratio: self.ratio,
            chosen: self.top_k.map(|_| &chosen),
        };
        let spec = WindowSpec {
            heads: HEADS,
            scale: 0.4,
            ring: regions.ring,
        };
        let (compressed, sinks) = (Some(&compressed), &weights[4]);
        backend.window_attention(&mut out, &q, &k, states, compressed, sinks, &spec, batch);
        rig.download(&out, n)
    }

    fn reference<B: Deepseek4>(
        &self,
        rig: &mut Rig<B>,
        [ape, norm, index_ape, index_norm, sinks]: &[Vec<f32>; 5],
    ) -> Vec<f64> {
        let regions = self.regions(&rig.backend);
        let rows = self.compressed((&self.kv, &self.gate), ape, norm);
        let rows = keep(rig, regions.keys.rows.kept, &rows);
        let index_rows = self.compressed((&self.index_kv, &self.index_gate), index_ape, index_norm);
        let index_rows = keep(rig, regions.index.rows.kept, &index_rows);
        let own: Vec<Vec<f64>> = self.k.chunks(WIDTH).map(widen).collect();
        let own = keep(rig, regions.ring.kept, &own);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let mut out = Vec::new();
        for position in 0..self.tokens() {
            let visible = (position + 1) / self.ratio;
            let mut chosen: Vec<usize> = (0..visible).collect();
            if let Some(top_k) = self.top_k {
                let width = INDEX_HEADS * INDEX_WIDTH;
                let heads = widen(&self.index_q[position * width..][..width]);
                let score = |row: usize| {
                    let weights = &self.index_weights[position * INDEX_HEADS..][..INDEX_HEADS];
                    let heads = heads.chunks(INDEX_WIDTH).zip(weights);
                    let terms = heads.map(|(head, &weight)| {
                        0.5 * f64::from(weight) * dot(head, &index_rows[row]).max(0.0)
                    });
                    terms.sum::<f64>()
                };
                chosen.sort_by(|&a, &b| score(b).total_cmp(&score(a))); // stable
                chosen.truncate(top_k);
            }
            let first = (position + 1).saturating_sub(self.window);
            let of_window = own[first..=position].iter();
            let keys: Vec<&Vec<f64>> = of_window
                .chain(chosen.iter().map(|&row| &rows[row]))
                .collect();
            for (head, &sink) in sinks.iter().enumerate() {
                let q = widen(&self.q[(position * HEADS + head) * WIDTH..][..WIDTH]);
                let shares: Vec<f64> = keys.iter().map(|key| (0.4 * dot(&q, key)).exp()).collect();
                let sum = shares.iter().sum::<f64>() + f64::from(sink).exp();
                out.extend((0..WIDTH).map(|i| {
                    let terms = keys
                        .iter()
                        .zip(&shares)
                        .map(|(key, share)| share / sum * key[i]);
                    terms.sum::<f64>()
                }));
            }
        }
        out
    }

    /// The compressed rows of the whole sequence.
    fn compressed(&self, (kv, gate): (&[f32], &[f32]), ape: &[f32], norm: &[f32]) -> Vec<Vec<f64>> {
        let (ratio, width) = (self.ratio, norm.len());
        let token = kv.len() / self.tokens();
        let row = |window: usize| {
            let first = window * ratio;
            let mut slots: Vec<(usize, usize)> = Vec::new(); // token, first value of its series
            if self.overlap && window > 0 {
                slots.extend((first - ratio..first).map(|t| (t, 0)));
            }
            slots.extend((first..first + ratio).map(|t| (t, token - width)));
            let pooled: Vec<f64> = (0..width)
                .map(|i| {
                    let share = |&(t, series): &(usize, usize)| {
                        let ape = ape[t % ratio * token + series + i];
                        (f64::from(gate[t * token + series + i]) + f64::from(ape)).exp()
                    };
                    let sum: f64 = slots.iter().map(share).sum();
                    let values = slots
                        .iter()
                        .map(|slot| share(slot) / sum * f64::from(kv[slot.0 * token + slot.1 + i]));
                    values.sum()
                })
                .collect();
            let normed = reference::rms_norm(&pooled, norm, f64::from(EPS));
            let normed: Vec<f32> = normed.iter().map(|&x| x as f32).collect();
            reference::rope(&normed, width, &[first as u32], &rope(width))
        };
        (0..self.tokens() / ratio).map(row).collect()
    }
}

/// What a record holds of rows.
fn keep<B: Deepseek4>(rig: &mut Rig<B>, kept: Kept, rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let width = rows[0].len();
    let values: Vec<f32> = rows.iter().flatten().map(|&x| x as f32).collect();
    let mut buffer = rig.upload(&values, width);
    rig.backend.keep_heads(&mut buffer, width, kept, rows.len());
    let values = rig.download(&buffer, rows.len());
    values.chunks(width).map(widen).collect()
}
