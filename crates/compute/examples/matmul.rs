//! Speed of the matrix products in the shapes of SmolLM2-135M and Gemma 3 270M, for each instruction set of this machine.
//!
//! ```text
//! cargo run --release -p andante-compute --example matmul -- [threads] [part of an instruction set's name] [format]
//! ```
//! Each line: for every number of rows the speed in 10^9 multiply-adds a second, and for one row also the weights read in
//! 10^9 bytes a second. As many copies of a weight take turns as a model has layers, so that one row finds them where a
//! model would. Of several runs the fastest counts, which other programs disturb least.
#![expect(
    clippy::print_stdout,
    reason = "a program that prints its measurements"
)]

use andante_compute::{Backend, CpuBackend, CpuConfig, CpuWeight, Isa};
use andante_gguf::{Format, Tensor, quant};
use std::time::{Duration, Instant};

/// Format, outputs, inputs and number of the matrices.
const SHAPES: [(Format, usize, usize, usize); 35] = [
    // SmolLM2-135M.
    (Format::Q4_1, 1536, 576, 60),
    (Format::Q4_1, 576, 1536, 30),
    (Format::Q4_1, 576, 576, 60),
    (Format::Q4_1, 192, 576, 60),
    (Format::Q8_0, 49152, 576, 1),
    // Gemma 3 270M.
    (Format::Q5_0, 2048, 640, 36),
    (Format::Q4_K, 640, 2048, 18),
    (Format::Q6_K, 640, 2048, 18),
    // All formats in one shape.
    (Format::Q4_0, 512, 512, 60),
    (Format::Q4_1, 512, 512, 60),
    (Format::Q5_0, 512, 512, 60),
    (Format::Q5_1, 512, 512, 60),
    (Format::Q8_0, 512, 512, 60),
    (Format::Q2_K, 512, 512, 60),
    (Format::Q3_K, 512, 512, 60),
    (Format::Q4_K, 512, 512, 60),
    (Format::Q5_K, 512, 512, 60),
    (Format::Q6_K, 512, 512, 60),
    (Format::IQ4_NL, 512, 512, 60),
    (Format::IQ4_XS, 512, 512, 60),
    (Format::MXFP4, 512, 512, 60),
    (Format::IQ2_XXS, 512, 512, 60),
    (Format::IQ2_XS, 512, 512, 60),
    (Format::IQ3_XXS, 512, 512, 60),
    (Format::IQ3_S, 512, 512, 60),
    (Format::F16, 512, 512, 60),
    (Format::BF16, 512, 512, 60),
    // As large as the memory of a model: what one row reads comes from no cache.
    (Format::Q4_0, 2048, 2048, 240),
    (Format::Q4_K, 2048, 2048, 240),
    (Format::Q8_0, 2048, 2048, 120),
    (Format::BF16, 2048, 2048, 60),
    (Format::F32, 512, 512, 60),
    // As large as the experts of a model.
    (Format::IQ2_XXS, 2048, 2048, 240),
    (Format::Q2_K, 2048, 2048, 240),
    // A format without a packed kernel.
    (Format::IQ1_S, 512, 512, 60),
];

const ROWS: [usize; 6] = [1, 4, 8, 16, 96, 512];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let threads = arguments
        .next()
        .map(|threads| threads.parse().expect("a number of threads"));
    let name = arguments.next().unwrap_or_default();
    let format = arguments.next().unwrap_or_default();
    for isa in Isa::available() {
        if !isa.to_string().contains(&name) {
            continue;
        }
        let config = CpuConfig {
            threads,
            isa: Some(isa),
            ..CpuConfig::default()
        };
        let mut backend = CpuBackend::new(config).expect("threads");
        println!("{}", backend.describe());
        println!(
            "{:<6}{:>7}{:>7}{:>9}{:>9}  GMAC/s for {ROWS:?} rows",
            "", "out", "in", "us", "GB/s"
        );
        for shape in SHAPES
            .iter()
            .filter(|shape| shape.0.name().contains(&format))
        {
            measure(&mut backend, shape);
        }
    }
}

fn measure(
    backend: &mut CpuBackend,
    &(format, outputs, inputs, copies): &(Format, usize, usize, usize),
) {
    let data = weights(format, outputs * inputs);
    let shape = [inputs as u64, outputs as u64];
    let tensor = Tensor::new("weight", &shape, format, &data);
    let weights: Vec<_> = (0..copies)
        .map(|_| backend.weight(&tensor).expect("a weight"))
        .collect();
    let seconds = ROWS.map(|rows| time(backend, &weights, (outputs, inputs), rows));
    print!("{:<6}{outputs:>7}{inputs:>7}", format.name());
    print!(
        "{:>9.1}{:>9.1} ",
        seconds[0] * 1e6,
        data.len() as f64 / seconds[0] / 1e9
    );
    for (rows, seconds) in ROWS.iter().zip(seconds) {
        print!("{:>8.1}", (rows * outputs * inputs) as f64 / seconds / 1e9);
    }
    println!();
}

/// Blocks of ordinary numbers; formats that can only be read get one byte throughout, as an f16 about 1/16.
fn weights(format: Format, count: usize) -> Vec<u8> {
    if !format.can_quantize() {
        return vec![0x2c; format.row_bytes(count)];
    }
    let values: Vec<f32> = (0..count)
        .map(|i| ((i * 7919 % 2003) as f32 - 1001.0) / 1001.0)
        .collect();
    let mut data = Vec::new();
    quant::quantize(format, &values, &mut data);
    data
}

/// Seconds of one product, the least of several runs.
fn time(
    backend: &mut CpuBackend,
    weights: &[CpuWeight],
    (outputs, inputs): (usize, usize),
    rows: usize,
) -> f64 {
    let x = backend.buffer(rows, inputs).expect("memory");
    let mut out = backend.buffer(rows, outputs).expect("memory");
    // With many rows the weights' place matters little, and all copies would take long.
    let weights = &weights[..weights.len().min(1024 / rows).max(1)];
    let mut least = f64::MAX;
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(150) {
        let run = Instant::now();
        for weight in weights {
            backend.matmul(&mut [(weight, &mut out)], &x, rows);
        }
        least = least.min(run.elapsed().as_secs_f64() / weights.len() as f64);
    }
    least
}
