//! Every format against the reference arithmetic of the PyPI package `gguf`
//! (`scripts/make_quant_fixtures.py`), bit for bit.

use super::{dequantize, quantize};
use crate::Format;

/// Blocks, their elements, and the blocks of `values.f32` where the package can quantise.
struct Fixture {
    format: Format,
    blocks: &'static [u8],
    elements: &'static [u8],
    quantized: Option<&'static [u8]>,
}

macro_rules! fixture {
    ($format:ident, $name:literal) => {
        Fixture {
            format: Format::$format,
            blocks: include_bytes!(concat!("../../tests/fixtures/quant/", $name, ".blocks")),
            elements: include_bytes!(concat!("../../tests/fixtures/quant/", $name, ".f32")),
            quantized: None,
        }
    };
    ($format:ident, $name:literal, quantized) => {
        Fixture {
            quantized: Some(include_bytes!(concat!(
                "../../tests/fixtures/quant/",
                $name,
                ".quantized"
            ))),
            ..fixture!($format, $name)
        }
    };
}

const FIXTURES: &[Fixture] = &[
    fixture!(F32, "f32", quantized),
    fixture!(F16, "f16", quantized),
    fixture!(BF16, "bf16", quantized),
    fixture!(Q4_0, "q4_0", quantized),
    fixture!(Q4_1, "q4_1", quantized),
    fixture!(Q5_0, "q5_0", quantized),
    fixture!(Q5_1, "q5_1", quantized),
    fixture!(Q8_0, "q8_0", quantized),
    fixture!(Q2_K, "q2_k"),
    fixture!(Q3_K, "q3_k"),
    fixture!(Q4_K, "q4_k"),
    fixture!(Q5_K, "q5_k"),
    fixture!(Q6_K, "q6_k"),
    fixture!(IQ1_S, "iq1_s"),
    fixture!(IQ1_M, "iq1_m"),
    fixture!(IQ2_XXS, "iq2_xxs"),
    fixture!(IQ2_XS, "iq2_xs"),
    fixture!(IQ2_S, "iq2_s"),
    fixture!(IQ3_XXS, "iq3_xxs"),
    fixture!(IQ3_S, "iq3_s"),
    fixture!(IQ4_NL, "iq4_nl"),
    fixture!(IQ4_XS, "iq4_xs"),
    fixture!(MXFP4, "mxfp4", quantized),
];

const VALUES: &[u8] = include_bytes!("../../tests/fixtures/quant/values.f32");

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|&chunk| f32::from_le_bytes(chunk))
        .collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

fn dequantized(format: Format, blocks: &[u8]) -> Vec<f32> {
    let mut out = vec![f32::NAN; blocks.len() / format.block_bytes() * format.block_len()];
    dequantize(format, blocks, &mut out);
    out
}

#[test]
fn every_format_has_a_fixture() {
    assert_eq!(
        FIXTURES
            .iter()
            .map(|fixture| fixture.format)
            .collect::<Vec<_>>(),
        Format::ALL
    );
}

#[test]
fn dequantising_equals_the_reference_bit_for_bit() {
    for fixture in FIXTURES {
        let expected = floats(fixture.elements);
        assert!(expected.len() >= 1024);
        assert_eq!(
            bits(&dequantized(fixture.format, fixture.blocks)),
            bits(&expected),
            "{}",
            fixture.format
        );
    }
}

#[test]
fn quantising_equals_the_reference_bit_for_bit() {
    for fixture in FIXTURES {
        let Some(expected) = fixture.quantized else {
            continue;
        };
        let mut blocks = Vec::new();
        quantize(fixture.format, &floats(VALUES), &mut blocks);
        assert_eq!(blocks, expected, "{}", fixture.format);
    }
}

/// Relative root mean square errors of ggml's quantisers (`ggml_quantize_chunk` without importance matrix, llama-cpp-python
/// 0.3.36) on the same bell-shaped values: ours are to be no worse.
#[test]
fn k_quants_err_no_more_than_those_of_ggml() {
    let values: Vec<f32> = (0..65536_u64)
        .map(|i| {
            let uniform = [
                (7919, 2003),
                (104_729, 1999),
                (15_485_863, 1997),
                (32_452_843, 1993),
            ];
            let sum: u64 = uniform
                .map(|(factor, prime)| i * factor % prime)
                .iter()
                .sum();
            (sum as f32 - 3994.0) / 1024.0
        })
        .collect();
    let squares =
        |values: &mut dyn Iterator<Item = f32>| values.map(|x| f64::from(x).powi(2)).sum::<f64>();
    for (format, ggml) in [
        (Format::Q4_K, 0.072_276),
        (Format::Q5_K, 0.036_724),
        (Format::Q6_K, 0.017_117),
    ] {
        let mut blocks = Vec::new();
        quantize(format, &values, &mut blocks);
        assert_eq!(blocks.len(), 256 * format.block_bytes());
        let out = dequantized(format, &blocks);
        let errors = squares(&mut values.iter().zip(out).map(|(x, y)| x - y));
        let error = (errors / squares(&mut values.iter().copied())).sqrt();
        assert!(error < ggml, "{format}: {error}, ggml {ggml}");
    }
}

/// Sub-blocks of one value, of one sign, with an outlier.
#[test]
fn k_quants_of_peculiar_blocks_stay_within_a_step() {
    let blocks: [fn(usize) -> f32; 5] = [
        |_| 0.0,
        |_| -3.0,
        |i| 1.0 + (i % 7) as f32,
        |i| -1.0 - (i % 7) as f32,
        |i| if i == 100 { 50.0 } else { (i % 7) as f32 - 3.0 },
    ];
    for value in blocks {
        let values: Vec<f32> = (0..256).map(value).collect();
        let width = values.iter().fold(0.0_f32, |width, x| width.max(x.abs()));
        for (format, steps) in [
            (Format::Q4_K, 15.0),
            (Format::Q5_K, 31.0),
            (Format::Q6_K, 63.0),
        ] {
            let mut blocks = Vec::new();
            quantize(format, &values, &mut blocks);
            for (x, y) in values.iter().zip(dequantized(format, &blocks)) {
                assert!((x - y).abs() <= width / steps, "{format}: {x} became {y}");
            }
        }
    }
}

#[test]
fn values_that_are_not_finite_do_not_panic() {
    for &format in Format::ALL.iter().filter(|format| format.can_quantize()) {
        for value in [
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::MAX,
            f32::MIN_POSITIVE,
            1e-45,
        ] {
            let mut values = vec![0.25; 256];
            values[3] = value;
            values[200] = -value;
            let mut blocks = Vec::new();
            quantize(format, &values, &mut blocks);
            dequantized(format, &blocks);
        }
    }
}

#[test]
fn any_bytes_are_a_block() {
    for &format in Format::ALL {
        for fill in 0..=255 {
            dequantized(format, &vec![fill; 2 * format.block_bytes()]);
        }
    }
}

#[test]
fn sub_block_scales_survive_packing() {
    let pairs: [(u8, u8); 8] = [
        (0, 63),
        (63, 0),
        (21, 42),
        (42, 21),
        (1, 62),
        (62, 1),
        (16, 15),
        (15, 48),
    ];
    let packed = super::k_scales::pack(&pairs);
    let unpacked: [(u8, u8); 8] =
        std::array::from_fn(|index| super::k_scales::unpack(&packed, index));
    assert_eq!(unpacked, pairs);
}

#[test]
#[should_panic(expected = "IQ2_S is a format to read only")]
fn quantising_a_format_without_a_quantiser_is_a_bug() {
    assert!(!Format::IQ2_S.can_quantize());
    quantize(Format::IQ2_S, &[0.0; 256], &mut Vec::new());
}

#[test]
#[should_panic(expected = "not whole blocks")]
fn part_of_a_block_is_a_bug() {
    dequantize(Format::Q4_0, &[0; 17], &mut [0.0; 32]);
}

#[test]
#[should_panic(expected = "do not fill the output")]
fn an_output_of_another_length_is_a_bug() {
    dequantize(Format::Q4_0, &[0; 18], &mut [0.0; 64]);
}
