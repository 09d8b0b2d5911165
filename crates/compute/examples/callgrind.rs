//! Runs every main kernel once, small, for counting its instructions under `valgrind --tool=callgrind`, which noise cannot
//! fool; `cargo xtask callgrind` does that and compares with the counts it keeps.
//!
//! One thread, and only instruction sets that valgrind knows. A line is printed for each kernel, in the order in which
//! `measured` runs them.
#![expect(clippy::print_stdout, reason = "a program that names what it ran")]

use andante_compute::{
    Activation, AttentionSpec, BLOCK_TOKENS, Backend, Batch, CpuBackend, CpuBuffer, CpuConfig,
    CpuKv, CpuWeight, Isa, KvShape, KvType, Logits,
};
use andante_gguf::{Format, Tensor, quant};

/// Formats whose products are counted, each with a path of its own through the kernels.
const FORMATS: [Format; 11] = [
    Format::Q4_0,
    Format::Q4_1,
    Format::Q5_0,
    Format::Q8_0,
    Format::Q4_K,
    Format::Q5_K,
    Format::Q6_K,
    Format::Q2_K,
    Format::IQ2_XXS,
    Format::F16,
    Format::BF16,
];

const SPEC: AttentionSpec = AttentionSpec {
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    scale: 0.125,
    window: None,
};

fn main() {
    let levels = [Some(Isa::portable()), Isa::avx2()];
    for isa in levels.into_iter().flatten() {
        let mut kernels = Kernels::new(isa, KvType::F16);
        for format in FORMATS {
            for rows in [1, 16] {
                kernels.product(format, rows);
            }
        }
        for rows in [1, 16] {
            kernels.attention(rows, 256);
        }
        for kv_type in [KvType::BF16, KvType::Q8_0] {
            for rows in [1, 16] {
                Kernels::new(isa, kv_type).attention(rows, 256);
            }
        }
        kernels.elementwise();
    }
}

/// What callgrind counts: nothing outside of calls of this function.
#[inline(never)]
fn measured(kernel: &mut dyn FnMut()) {
    kernel();
}

struct Kernels {
    backend: CpuBackend,
    isa: Isa,
    kv_type: KvType,
}

impl Kernels {
    fn new(isa: Isa, kv_type: KvType) -> Self {
        let backend = CpuBackend::new(CpuConfig {
            threads: Some(1),
            isa: Some(isa),
            kv_type,
            ..CpuConfig::default()
        });
        Self {
            backend: backend.expect("one thread is always there"),
            isa,
            kv_type,
        }
    }

    /// Runs a kernel twice: the first time it may take memory.
    fn run(&mut self, name: &str, mut kernel: impl FnMut(&mut CpuBackend)) {
        kernel(&mut self.backend);
        measured(&mut || kernel(&mut self.backend));
        println!("{}, {name}", self.isa);
    }

    fn product(&mut self, format: Format, rows: usize) {
        const SIZE: usize = 256;
        let weight = self.weight(format, &[SIZE as u64, SIZE as u64]);
        let x = self.buffer(rows, SIZE);
        let mut out = self.buffer(rows, SIZE);
        self.run(
            &format!("{} matmul, rows {rows}", format.name()),
            |backend| {
                backend.matmul(&mut [(&weight, &mut out)], &x, rows);
            },
        );
    }

    /// `rows` rows, the last at position `depth - 1`.
    fn attention(&mut self, rows: usize, depth: usize) {
        let (kv, batch) = self.cache(rows, depth);
        let [mut out, q] = [(); 2].map(|()| self.buffer(rows, SPEC.heads * SPEC.head_dim));
        let kv_type = match self.kv_type {
            KvType::F16 => String::new(),
            other => format!(" of {}", other.name()),
        };
        let name = format!("attention{kv_type} to {depth}, rows {rows}");
        self.run(&name, |backend| {
            backend.attention(&mut out, &q, &kv, 0, &SPEC, None, &batch);
        });
    }

    fn elementwise(&mut self) {
        const WIDTH: usize = 512;
        let [x, mut y, mut gate] = [(); 3].map(|()| self.buffer(4, WIDTH));
        let norm = self.weight(Format::F32, &[WIDTH as u64]);
        self.run("rms_norm", |backend| {
            backend.rms_norm(&mut y, &x, &norm, 1e-5, 4);
        });
        self.run("act_mul, silu", |backend| {
            backend.act_mul(&mut gate, &x, Activation::Silu, 4);
        });
        self.run("act_mul, gelu", |backend| {
            backend.act_mul(&mut gate, &x, Activation::GeluTanh, 4);
        });
    }

    /// A cache of `depth` tokens and a batch of the last `rows` of them.
    fn cache(&mut self, rows: usize, depth: usize) -> (CpuKv, Batch) {
        let shape = KvShape {
            layers: 1,
            kv_heads: SPEC.kv_heads,
            head_dim: SPEC.head_dim,
            block_tokens: BLOCK_TOKENS,
        };
        let blocks = depth.div_ceil(BLOCK_TOKENS);
        let mut kv = self.backend.kv(&shape, blocks).expect("memory");
        let table: Vec<u32> = (0..blocks as u32).collect();
        let mut batch = Batch::default();
        let push = |batch: &mut Batch, count: usize| {
            let start = (depth - count) as u32;
            let block_tokens = BLOCK_TOKENS as u32;
            batch.clear();
            batch.push_sequence(&vec![0; count], start, &table, block_tokens, Logits::None);
        };
        push(&mut batch, depth);
        let [k, v] = [(); 2].map(|()| self.buffer(depth, SPEC.kv_heads * SPEC.head_dim));
        self.backend.kv_write(&mut kv, 0, &k, &v, &batch.slots);
        push(&mut batch, rows);
        (kv, batch)
    }

    /// A buffer of numbers of usual size.
    fn buffer(&mut self, rows: usize, width: usize) -> CpuBuffer {
        let table = self.weight(Format::F32, &[width as u64, 16]);
        let mut buffer = self.backend.buffer(rows, width).expect("memory");
        let tokens: Vec<u32> = (0..rows as u32).map(|row| row % 16).collect();
        self.backend.embed(&mut buffer, &table, &tokens, 1.0);
        buffer
    }

    /// Ordinary numbers; formats that can only be read get one byte throughout, as an f16 about 1/16.
    fn weight(&mut self, format: Format, shape: &[u64]) -> CpuWeight {
        let count = shape.iter().product::<u64>();
        let mut data = Vec::new();
        if format.can_quantize() {
            let values: Vec<f32> = (0..count)
                .map(|i| ((i * 2_654_435_761) % 1021) as f32 / 510.0 - 1.0)
                .collect();
            quant::quantize(format, &values, &mut data);
        } else {
            data.resize(format.row_bytes(count as usize), 0x2c);
        }
        let tensor = Tensor::new("weight", shape, format, &data);
        self.backend.weight(&tensor).expect("memory")
    }
}
