//! Time of each op of the CPU backend in the shapes of SmolLM2-135M and of Gemma 3 270M, for one row and for a chunk
//! of 512, to look for regressions with; and of those of DeepSeek V4 whose time grows with the depth, in the shape of
//! `scripts/make_random_deepseek4.py`.
//!
//! ```text
//! cargo run --release -p andante-compute --example ops -- [threads] [portable|avx2|avx512|best] [part of an op's name]
//! ```
#![expect(
    clippy::print_stdout,
    reason = "a program that prints its measurements"
)]

use andante_compute::{
    Activation, AttentionSpec, BLOCK_TOKENS, Backend, Batch, CompressedRows, CpuBackend, CpuBuffer,
    CpuConfig, CpuKv, CpuRecords, CpuWeight, Deepseek4, IndexSpec, Isa, Kept, KvShape, Logits,
    Region, RopeScaling, RopeSpec, RopeStyle, RopeTable, WindowSpec,
};
use andante_gguf::{Format, Tensor, quant};
use std::time::{Duration, Instant};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let threads = arguments
        .next()
        .map(|threads| threads.parse().expect("a number of threads"));
    let isa = match arguments.next().as_deref() {
        None | Some("best") => None,
        Some("portable") => Some(Isa::portable()),
        Some("avx2") => Some(Isa::avx2().expect("a machine with AVX2")),
        Some("avx512") => Some(Isa::avx512().expect("a machine with AVX-512")),
        Some(other) => panic!("{other} is no instruction set"),
    };
    let filter = arguments.next().unwrap_or_default();
    for (name, shape) in [("SmolLM2-135M", SMOLLM2), ("Gemma 3 270M", GEMMA3)] {
        let backend = CpuBackend::new(CpuConfig {
            threads,
            isa,
            ..CpuConfig::default()
        })
        .expect("threads");
        println!("{name}, {}", backend.describe());
        println!("{:<44}{:>12}{:>12}", "op", "us", "G/s");
        let mut bench = Bench {
            backend,
            shape,
            filter: filter.clone(),
        };
        for rows in [1, 512] {
            bench.elementwise(rows);
            bench.products(rows);
            for depth in [128, 512, 2048, 5000, 8000] {
                if depth >= rows {
                    bench.attention(rows, depth);
                }
            }
        }
        println!();
    }
    let backend = CpuBackend::new(CpuConfig {
        threads,
        isa,
        ..CpuConfig::default()
    })
    .expect("threads");
    println!("DeepSeek V4, {}", backend.describe());
    let mut bench = Bench {
        backend,
        shape: SMOLLM2,
        filter,
    };
    for rows in [1, 512] {
        for depth in [1024, 2048, 4096, 8192, 16384, 32768] {
            bench.deepseek4(rows, depth);
        }
    }
}

/// Heads and their width, then those of the indexer.
const DEEPSEEK4: [usize; 4] = [32, 512, 64, 128];
/// Tokens of a block of its model.
const BLOCK: usize = 128;
const WINDOW: usize = 128;
const TOP_K: usize = 512;

#[derive(Clone, Copy)]
struct Shape {
    hidden: usize,
    ffn: usize,
    spec: AttentionSpec,
    act: Activation,
    style: RopeStyle,
}

const SMOLLM2: Shape = Shape {
    hidden: 576,
    ffn: 1536,
    spec: AttentionSpec {
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        scale: 0.125,
        window: None,
    },
    act: Activation::Silu,
    style: RopeStyle::Interleaved,
};

/// A layer with global attention; the others have a window of 512.
const GEMMA3: Shape = Shape {
    hidden: 640,
    ffn: 2048,
    spec: AttentionSpec {
        heads: 4,
        kv_heads: 1,
        head_dim: 256,
        scale: 0.0625,
        window: None,
    },
    act: Activation::GeluTanh,
    style: RopeStyle::Neox,
};

/// In a block: rows of ratio 4, the indexer's, rows of ratio 128; in a running state: the window.
fn regions() -> [Region; 4] {
    let [_, head_dim, _, index_dim] = DEEPSEEK4;
    let region = |start, rows, width| Region {
        start,
        rows,
        width,
        kept: Kept::F16,
    };
    let own = region(0, BLOCK / 4, head_dim);
    let index = region(own.end(), BLOCK / 4, index_dim);
    let single = region(index.end(), BLOCK / 128, head_dim);
    [own, index, single, region(0, WINDOW, head_dim)]
}

struct Bench {
    backend: CpuBackend,
    shape: Shape,
    filter: String,
}

impl Bench {
    fn elementwise(&mut self, n: usize) {
        let Shape {
            hidden,
            ffn,
            spec,
            act,
            style,
        } = self.shape;
        let [mut x, mut y, mut z] = [(); 3].map(|()| self.buffer(n, hidden));
        let [mut gate, up] = [(); 2].map(|()| self.buffer(n, ffn));
        let mut q = self.buffer(n, spec.heads * spec.head_dim);
        let norm = self.weight(Format::F32, &[hidden as u64]);
        let rope = RopeTable::new(&RopeSpec {
            head_dim: spec.head_dim,
            rotary_dim: spec.head_dim,
            style,
            base: 10_000.0,
            scaling: RopeScaling::None,
            factors: None,
        });
        let positions: Vec<u32> = (0..n as u32).collect();
        let elements = n * hidden;
        self.time(&format!("rms_norm, {n} rows"), elements, |b| {
            b.rms_norm(&mut y, &x, &norm, 1e-5, n);
        });
        self.time(&format!("add_rms_norm, {n} rows"), elements, |b| {
            b.add_rms_norm(&mut z, &mut x, &y, &norm, 1e-5, n);
        });
        self.time(&format!("add, {n} rows"), elements, |b| {
            b.add(&mut x, &y, n);
        });
        self.time(&format!("act_mul, {n} rows"), n * ffn, |b| {
            b.act_mul(&mut gate, &up, act, n);
        });
        self.time(&format!("rope of q, {n} rows"), elements, |b| {
            b.rope(&mut q, &positions, &rope);
        });
        let (mut kv, batch) = self.cache(n, n);
        let [k, v] = [(); 2].map(|()| self.buffer(n, spec.kv_heads * spec.head_dim));
        self.time(
            &format!("kv_write, {n} rows"),
            2 * n * spec.kv_heads * spec.head_dim,
            |b| {
                b.kv_write(&mut kv, 0, &k, &v, &batch.slots);
            },
        );
    }

    fn products(&mut self, n: usize) {
        let Shape {
            hidden, ffn, spec, ..
        } = self.shape;
        let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        for (name, cols, rows) in [
            ("qkv", hidden, vec![q, kv, kv]),
            ("attention output", q, vec![hidden]),
            ("gate and up", hidden, vec![ffn, ffn]),
            ("down", ffn, vec![hidden]),
        ] {
            let x = self.buffer(n, cols);
            let weights: Vec<_> = rows
                .iter()
                .map(|&rows| self.weight(Format::Q4_1, &[cols as u64, rows as u64]))
                .collect();
            let mut outs: Vec<_> = rows.iter().map(|&rows| self.buffer(n, rows)).collect();
            let products = n * cols * rows.iter().sum::<usize>();
            self.time(&format!("matmul {name}, {n} rows"), products, |b| {
                let mut pairs: Vec<_> = weights.iter().zip(&mut outs).collect();
                b.matmul(&mut pairs, &x, n);
            });
        }
    }

    /// `n` rows, the last at position `depth - 1`.
    fn attention(&mut self, n: usize, depth: usize) {
        let spec = self.shape.spec;
        let (kv, batch) = self.cache(n, depth);
        let [mut out, q] = [(); 2].map(|()| self.buffer(n, spec.heads * spec.head_dim));
        let pairs: usize = batch
            .positions
            .iter()
            .map(|&position| position as usize + 1)
            .sum();
        let products = 2 * pairs * spec.heads * spec.head_dim;
        self.time(&format!("attention, {n} rows to {depth}"), products, |b| {
            b.attention(&mut out, &q, &kv, 0, &spec, None, &batch);
        });
        if n == 1 {
            return;
        }
        let spec = AttentionSpec {
            window: Some(512),
            ..spec
        };
        self.time(
            &format!("attention, {n} rows to {depth}, window 512"),
            n * 2 * 512 * spec.heads * spec.head_dim,
            |b| {
                b.attention(&mut out, &q, &kv, 0, &spec, None, &batch);
            },
        );
    }

    /// The ops of DeepSeek V4 that visit what was before, for `n` rows, the last at position `depth - 1`.
    fn deepseek4(&mut self, n: usize, depth: usize) {
        let [heads, head_dim, index_heads, index_dim] = DEEPSEEK4;
        let rows_name = if n == 1 {
            "1 row".to_owned()
        } else {
            format!("{n} rows")
        };
        let [own, index_rows, single, ring] = regions();
        let table: Vec<u32> = (0..(depth / BLOCK) as u32).rev().collect();
        let blocks = self.records(table.len(), single.end());
        let mut states = self.records(1, ring.end());
        let mut batch = Batch::default();
        let (tokens, start) = (vec![0; n], (depth - n) as u32);
        batch.push_sequence(&tokens, start, &table, BLOCK as u32, Logits::None);
        batch.states.push(0);
        let mut chosen = self.backend.choices(n, TOP_K).expect("memory");
        let index_q = self.buffer(n, index_heads * index_dim);
        let weights = self.buffer(n, index_heads);
        let spec = IndexSpec {
            ratio: 4,
            heads: index_heads,
            top_k: TOP_K,
            scale: 1.0,
            rows: index_rows,
        };
        let visible = |ratio| (start as usize + 1..=depth).map(move |end| end / ratio);
        let scored: usize = visible(4).filter(|&rows| rows > TOP_K).sum();
        let products = scored * index_heads * index_dim;
        self.time(&format!("index, {rows_name} to {depth}"), products, |b| {
            b.index(&mut chosen, &index_q, &weights, &blocks, &spec, &batch);
        });
        // It may not have been timed.
        let backend = &mut self.backend;
        backend.index(&mut chosen, &index_q, &weights, &blocks, &spec, &batch);
        let [mut out, q] = [(); 2].map(|()| self.buffer(n, heads * head_dim));
        let k = self.buffer(n, head_dim);
        let sinks = self.weight(Format::F32, &[heads as u64]);
        let window = WindowSpec {
            heads,
            scale: 0.04,
            ring,
        };
        for (name, rows, ratio, most) in [
            ("attention to chosen rows", own, 4, TOP_K),
            ("attention to all rows of 128", single, 128, usize::MAX),
        ] {
            let compressed = CompressedRows {
                blocks: &blocks,
                rows,
                ratio,
                chosen: (ratio == 4).then_some(&chosen),
            };
            let keys: usize = visible(ratio).map(|rows| WINDOW + rows.min(most)).sum();
            let products = 2 * keys * heads * head_dim;
            self.time(&format!("{name}, {rows_name} to {depth}"), products, |b| {
                let compressed = Some(&compressed);
                b.window_attention(
                    &mut out,
                    &q,
                    &k,
                    &mut states,
                    compressed,
                    &sinks,
                    &window,
                    &batch,
                );
            });
        }
    }

    /// Records of numbers of usual size in half precision, of `len` bytes.
    fn records(&mut self, count: usize, len: usize) -> CpuRecords {
        let mut records = self.backend.records(count, len).expect("memory");
        for index in 0..count as u32 {
            let value = |at: u32| ((index * 31 + at * 7919) % 1021) as f32 / 510.0 - 1.0;
            let bytes: Vec<u8> = (0..len as u32 / 2)
                .flat_map(|at| half::f16::from_f32(value(at)).to_le_bytes())
                .collect();
            self.backend.records_write(&mut records, index, &bytes);
        }
        records
    }

    /// A cache of `depth` tokens and a batch of the last `n` of them.
    fn cache(&mut self, n: usize, depth: usize) -> (CpuKv, Batch) {
        let AttentionSpec {
            kv_heads, head_dim, ..
        } = self.shape.spec;
        let blocks = depth.div_ceil(BLOCK_TOKENS);
        let shape = KvShape {
            layers: 1,
            kv_heads,
            head_dim,
            block_tokens: BLOCK_TOKENS,
        };
        let mut kv = self.backend.kv(&shape, blocks).expect("memory");
        let table: Vec<u32> = (0..blocks as u32).rev().collect();
        let mut batch = Batch::default();
        batch.push_sequence(
            &vec![0; depth],
            0,
            &table,
            BLOCK_TOKENS as u32,
            Logits::None,
        );
        let [k, v] = [(); 2].map(|()| self.buffer(depth, kv_heads * head_dim));
        self.backend.kv_write(&mut kv, 0, &k, &v, &batch.slots);
        batch.clear();
        batch.push_sequence(
            &vec![0; n],
            (depth - n) as u32,
            &table,
            BLOCK_TOKENS as u32,
            Logits::None,
        );
        (kv, batch)
    }

    /// A buffer of numbers of usual size.
    fn buffer(&mut self, rows: usize, width: usize) -> CpuBuffer {
        let table = self.weight(Format::F32, &[width as u64, 64]);
        let mut buffer = self.backend.buffer(rows, width).expect("memory");
        let tokens: Vec<u32> = (0..rows as u32).map(|row| row % 64).collect();
        self.backend.embed(&mut buffer, &table, &tokens, 1.0);
        buffer
    }

    fn weight(&mut self, format: Format, shape: &[u64]) -> CpuWeight {
        let count = shape.iter().product::<u64>();
        let values: Vec<f32> = (0..count)
            .map(|i| ((i * 2_654_435_761) % 1021) as f32 / 510.0 - 1.0)
            .collect();
        let mut data = Vec::new();
        quant::quantize(format, &values, &mut data);
        self.backend
            .weight(&Tensor::new("bench", shape, format, &data))
            .expect("memory")
    }

    /// Prints the least time of an op (other programs only add to it), and the rate for `work` elements or
    /// multiplications.
    fn time(&mut self, name: &str, work: usize, mut op: impl FnMut(&mut CpuBackend)) {
        if !name.contains(&self.filter) {
            return;
        }
        let (mut samples, mut least) = (0, f64::MAX);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(150) || samples < 5 {
            // Calls of some 20 µs in all, so that the clock does not show.
            let calls = (20e-6 / least).ceil().max(1.0) as u32;
            let start = Instant::now();
            for _ in 0..calls {
                op(&mut self.backend);
            }
            least = least.min(start.elapsed().as_secs_f64() / f64::from(calls));
            samples += 1;
        }
        println!(
            "{name:<44}{:>12.2}{:>12.2}",
            least * 1e6,
            work as f64 / least / 1e9
        );
    }
}
