//! Every format on every instruction set of this machine: equal bits whatever the batch and the threads, and right.

use super::*;
use crate::conformance::set_scales;
use andante_gguf::{Format, quant};

/// Deterministic numbers in -1..1, denser around zero as weights are.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn value(&mut self) -> f32 {
        let uniform = (self.bits() % (1 << 20)) as f32 / (1 << 19) as f32 - 1.0;
        uniform * uniform * uniform
    }

    fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.value()).collect()
    }

    /// Bytes of rows of any quantised format with every bit of values and block scales in use.
    fn blocks(&mut self, format: Format, values: usize) -> Vec<u8> {
        let bytes = (0..format.row_bytes(values))
            .map(|_| self.bits() as u8)
            .collect();
        self.scale_blocks(format, bytes)
    }

    /// Puts sensible scales into blocks.
    fn scale_blocks(&mut self, format: Format, mut bytes: Vec<u8>) -> Vec<u8> {
        set_scales(format, &mut bytes, || self.value() / 16.0);
        bytes
    }
}

fn pool(threads: usize) -> Pool {
    Pool::new(threads, false).expect("threads start")
}

/// Weights of `rows` rows in a format: those of a model for dense formats, random blocks for the others.
pub(super) fn weights(format: Format, rows: usize, cols: usize) -> Vec<u8> {
    let mut random = Random(rows as u64);
    if format.block_len() > 1 {
        return random.blocks(format, rows * cols);
    }
    let mut bytes = Vec::new();
    quant::quantize(format, &random.values(rows * cols), &mut bytes);
    bytes
}

pub(super) fn load(format: Format, bytes: &[u8], shape: [usize; 2], form: WeightForm) -> Matrix {
    let shape = shape.map(|side| side as u64);
    let tensor = Tensor::new("w", &shape, format, bytes);
    Matrix::load((&pool(2), &mut Arena::default()), &tensor, form).expect("a matrix")
}

const FORMS: [WeightForm; 3] = [
    WeightForm::LaidOut,
    WeightForm::InFile,
    WeightForm::Reference,
];

fn product(pool: &Pool, isa: Isa, matrix: &Matrix, x: &[f32]) -> Vec<f32> {
    let mut out = vec![f32::NAN; x.len() / matrix.cols() * matrix.rows()];
    matmul(
        pool,
        isa,
        &mut Scratch::default(),
        &mut [(matrix, &mut out)],
        x,
    );
    out
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn a_row_has_the_same_bits_in_any_batch_on_any_thread_and_instruction_set() {
    const MOST: usize = 33;
    let cols = 512;
    let pools = [1, 2, 3].map(pool);
    for &format in Format::ALL {
        // A whole number of groups, and not.
        for rows in [64, 37] {
            let bytes = weights(format, rows, cols);
            let x = Random(7).values(MOST * cols);
            for form in FORMS {
                let matrix = load(format, &bytes, [cols, rows], form);
                // It must not show where the bytes lie.
                let in_memory = match form {
                    WeightForm::InFile => WeightForm::LaidOut,
                    form => form,
                };
                let expected = load(format, &bytes, [cols, rows], in_memory);
                let alone = |isa| -> Vec<_> {
                    x.chunks(cols)
                        .map(|x| bits(&product(&pools[0], isa, &expected, x)))
                        .collect()
                };
                let portable = alone(Isa::portable());
                for isa in Isa::available() {
                    let alone = if matrix.form(isa) == Form::Split {
                        alone(isa)
                    } else {
                        portable.clone()
                    };
                    for pool in &pools {
                        for n in [1, 2, 3, 4, 7, 12, 16, MOST] {
                            // The first rows of the batch, and the last.
                            for first in [0, MOST - n] {
                                let out =
                                    product(pool, isa, &matrix, &x[first * cols..][..n * cols]);
                                for (row, out) in out.chunks(rows).enumerate() {
                                    assert_eq!(
                                        bits(out),
                                        alone[first + row],
                                        "{format:?} {form:?} {isa} {} threads, row {row} of {n}",
                                        pool.threads()
                                    );
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn groups_that_are_multiplied_together_have_the_same_bits() {
    let (cols, rows, most) = (64, 300, 50);
    let matrix = load(
        Format::BF16,
        &weights(Format::BF16, rows, cols),
        [cols, rows],
        WeightForm::LaidOut,
    );
    let x = Random(8).values(most * cols);
    for isa in Isa::available() {
        let alone: Vec<_> = x
            .chunks(cols)
            .map(|x| bits(&product(&pool(1), isa, &matrix, x)))
            .collect();
        for threads in [1, 2] {
            for n in [15, 17, 32, most] {
                let out = product(&pool(threads), isa, &matrix, &x[..n * cols]);
                for (row, out) in out.chunks(rows).enumerate() {
                    assert_eq!(bits(out), alone[row], "{isa}, row {row} of {n}");
                }
            }
        }
    }
}

#[test]
fn the_largest_values_overflow_nowhere() {
    let (rows, cols, n) = (16, 256, 5);
    let pool = pool(1);
    for &format in Format::ALL
        .iter()
        .filter(|&&format| Kind::of(format).is_some())
    {
        for fill in [0, 0x7f, 0x80, 0xff] {
            let bytes = vec![fill; format.row_bytes(cols) * rows];
            let bytes = Random(1).scale_blocks(format, bytes);
            let matrix = load(format, &bytes, [cols, rows], WeightForm::LaidOut);
            for value in [1.0, -1.0] {
                let x = vec![value; n * cols];
                for n in [1, n] {
                    let x = &x[..n * cols];
                    let expected = bits(&product(&pool, Isa::portable(), &matrix, x));
                    for isa in Isa::available() {
                        let out = product(&pool, isa, &matrix, x);
                        assert_eq!(
                            bits(&out),
                            expected,
                            "{format:?} {isa}: {fill:#x} by {value}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn matrices_of_one_call_share_the_activations() {
    let (cols, n, pool) = (256, 5, pool(2));
    let x = Random(3).values(n * cols);
    let matrices: Vec<_> = Format::ALL
        .iter()
        .zip([17, 48, 16, 5, 33, 64, 80, 1, 31, 32, 100].iter().cycle())
        .map(|(&format, &rows)| {
            load(
                format,
                &weights(format, rows, cols),
                [cols, rows],
                WeightForm::LaidOut,
            )
        })
        .collect();
    for isa in Isa::available() {
        let mut scratch = Scratch::default();
        let mut together: Vec<_> = matrices
            .iter()
            .map(|matrix| vec![0.0; n * matrix.rows()])
            .collect();
        // Twice with one scratch: what the first call left does not show.
        for part in [&x[..3 * cols], &x] {
            let mut outs: Vec<_> = matrices
                .iter()
                .zip(&mut together)
                .map(|(matrix, out)| (matrix, out.as_mut_slice()))
                .collect();
            matmul(&pool, isa, &mut scratch, &mut outs, part);
        }
        for (matrix, out) in matrices.iter().zip(&together) {
            assert_eq!(bits(out), bits(&product(&pool, isa, matrix, &x)));
        }
    }
}

/// The largest difference to the f64 product, in units of the sum of the products' magnitudes.
fn error(out: &[f32], weights: &[f32], x: &[f32], cols: usize) -> f64 {
    let rows = weights.len() / cols;
    let mut worst = 0.0_f64;
    for (out, x) in out.chunks(rows).zip(x.chunks(cols)) {
        for (&out, weights) in out.iter().zip(weights.chunks(cols)) {
            let products = || {
                weights
                    .iter()
                    .zip(x)
                    .map(|(&w, &x)| f64::from(w) * f64::from(x))
            };
            let size: f64 = products().map(f64::abs).sum();
            worst = worst.max((f64::from(out) - products().sum::<f64>()).abs() / size);
        }
    }
    worst
}

#[test]
fn products_are_right() {
    let (rows, cols, n) = (40, 1536, 5);
    let x = Random(11).values(n * cols);
    for &format in Format::ALL {
        let bytes = weights(format, rows, cols);
        let mut weights = vec![0.0; rows * cols];
        quant::dequantize(format, &bytes, &mut weights);
        for isa in Isa::available() {
            let reference = product(
                &pool(2),
                isa,
                &load(format, &bytes, [cols, rows], WeightForm::Reference),
                &x,
            );
            assert!(
                error(&reference, &weights, &x, cols) < 3e-7,
                "{format:?} {isa}: F32 reference"
            );

            let out = product(
                &pool(2),
                isa,
                &load(format, &bytes, [cols, rows], WeightForm::LaidOut),
                &x,
            );
            if Kind::of(format).is_some() {
                // Against the activations as they were rounded, only the f32 steps differ; against the true ones, the
                // rounding to 127 steps of each block's largest value.
                let rounded = rounded(&x);
                assert!(
                    error(&out, &weights, &rounded, cols) < 1e-6,
                    "{format:?} {isa}: quantised"
                );
                assert!(
                    error(&out, &weights, &x, cols) < 4e-3,
                    "{format:?} {isa}: quantised, true activations"
                );
            } else {
                // Activations in two bfloat16 parts are right to 2^-17, errors of both signs.
                let split = load(format, &bytes, [cols, rows], WeightForm::LaidOut).form(isa)
                    == Form::Split;
                let most = if split { 1e-6 } else { 3e-7 };
                assert!(
                    error(&out, &weights, &x, cols) < most,
                    "{format:?} {isa}: dense"
                );
            }
        }
    }
}

/// Activations after quantising, by the definition.
fn rounded(x: &[f32]) -> Vec<f32> {
    x.chunks(BLOCK)
        .flat_map(|block| {
            let amax = block.iter().fold(0.0_f32, |amax, x| amax.max(x.abs()));
            block
                .iter()
                .map(move |x| (x * (127.0 / amax)).round_ties_even() * (amax / 127.0))
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn every_bit_of_a_block_reaches_its_lane() {
    let cols = 512;
    for &format in Format::ALL {
        for rows in [1, 16, 21] {
            let bytes = weights(format, rows, cols);
            let matrix = load(format, &bytes, [cols, rows], WeightForm::LaidOut);
            let mut expected = vec![0.0; cols];
            let mut row = vec![0.0; cols];
            for index in 0..rows {
                let bytes = &bytes[index * format.row_bytes(cols)..][..format.row_bytes(cols)];
                quant::dequantize(format, bytes, &mut expected);
                matrix.dequantize_row(index, &mut row);
                assert_eq!(row, expected, "{format:?} row {index} of {rows}");
            }
        }
    }
}

#[test]
fn dense_rows_may_end_inside_a_block() {
    let (cols, rows, n) = (77, 19, 6);
    for format in [Format::F32, Format::F16, Format::BF16] {
        let bytes = weights(format, rows, cols);
        let mut values = vec![0.0; rows * cols];
        quant::dequantize(format, &bytes, &mut values);
        let x = Random(2).values(n * cols);
        let matrix = load(format, &bytes, [cols, rows], WeightForm::LaidOut);
        let expected = product(&pool(1), Isa::portable(), &matrix, &x);
        assert!(error(&expected, &values, &x, cols) < 3e-7);
        for isa in Isa::available() {
            assert_eq!(
                bits(&product(&pool(2), isa, &matrix, &x)),
                bits(&expected),
                "{format:?} {isa}"
            );
        }
    }
}

#[test]
fn the_parts_of_activations_give_them_to_two_to_the_minus_17() {
    let x = Random(5).values(3 * 64);
    for isa in Isa::available().into_iter().filter(|isa| isa.has_tiles()) {
        let mut buffer = SplitBuffer::default();
        buffer.split((&pool(2), isa), &x, 3);
        for (row, x) in x.chunks(64).enumerate() {
            let values = buffer.part(row..3).values.iter();
            let parts = values.flat_map(|block| block.high.into_iter().zip(block.low));
            for (&x, (high, low)) in x.iter().zip(parts) {
                let [high, low] = [high, low].map(|bits| f32::from_bits(u32::from(bits) << 16));
                assert!(
                    (high + low - x).abs() <= x.abs() / 131_072.0,
                    "{x}: {high}, {low}"
                );
            }
        }
    }
}

#[test]
fn quantised_activations_have_the_same_bits_on_every_instruction_set() {
    let mut x = Random(9).values(64 * BLOCK);
    x[..BLOCK].fill(0.0);
    x[BLOCK..2 * BLOCK].fill(1e-38);
    x[3 * BLOCK] = 1e30;
    // Ties: multiples of a half step.
    for (index, x) in x[4 * BLOCK..5 * BLOCK].iter_mut().enumerate() {
        *x = index as f32 * 4.5 - 12.5;
    }
    x[4 * BLOCK] = -127.0;
    let quantized = |isa| {
        let mut activations = ActivationBuffer::default();
        activations.quantize(
            (&pool(2), isa),
            &x,
            2,
            std::iter::once(Kind::of(Format::Q6_K).expect("packed")),
        );
        activations.contents()
    };
    let expected = quantized(Isa::portable());
    for isa in Isa::available() {
        assert_eq!(quantized(isa), expected, "{isa}");
    }
}

#[test]
fn a_value_that_is_no_number_spoils_its_own_row_only() {
    let (cols, rows) = (64, 16);
    let matrix = load(
        Format::Q4_0,
        &weights(Format::Q4_0, rows, cols),
        [cols, rows],
        WeightForm::LaidOut,
    );
    let mut x = Random(4).values(3 * cols);
    let clean = x.clone();
    x[cols + 5] = f32::NAN;
    for isa in Isa::available() {
        let (out, clean) = (
            product(&pool(1), isa, &matrix, &x),
            product(&pool(1), isa, &matrix, &clean),
        );
        assert!(
            out[rows..2 * rows].iter().all(|value| value.is_nan()),
            "{isa}"
        );
        assert_eq!(out[..rows], clean[..rows]);
        assert_eq!(out[2 * rows..], clean[2 * rows..]);
    }
}

/// A matrix of 32 rows and 512 columns.
#[test]
fn what_a_tensor_takes_in_memory_is_known_before() {
    for (format, bits) in [
        (Format::F16, 16.0),
        (Format::Q8_0, 8.5),
        (Format::Q4_0, 4.5),
        (Format::IQ1_S, 1.5625),
        // 2.0625 and 3.4375 in the file.
        (Format::IQ2_XXS, 3.3125),
        (Format::IQ3_S, 4.3125),
    ] {
        let data = weights(format, 32, 512);
        let tensor = Tensor::new("w", &[512, 32], format, &data);
        let bytes = 32.0 * 512.0 * bits / 8.0;
        assert_eq!(laid_out_bytes(&tensor) as f64, bytes, "{format:?}");
    }
}

#[test]
fn an_empty_tensor_is_refused_by_name() {
    let tensor = Tensor::new("blk.0.empty", &[32, 0], Format::F32, &[]);
    let error = Matrix::load(
        (&pool(2), &mut Arena::default()),
        &tensor,
        WeightForm::LaidOut,
    )
    .err()
    .expect("refused")
    .to_string();
    assert!(error.contains("blk.0.empty"), "{error}");
}
