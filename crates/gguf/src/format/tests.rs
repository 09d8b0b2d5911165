//! The table against ggml's numbers.

use super::{Format, UNSUPPORTED};
use crate::Fault;

/// Id, name, elements and bytes of a block, as in `gguf.constants` of the PyPI package `gguf`.
const GGML: &[(u32, &str, usize, usize)] = &[
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (30, "BF16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (19, "IQ1_S", 256, 50),
    (29, "IQ1_M", 256, 56),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (22, "IQ2_S", 256, 82),
    (18, "IQ3_XXS", 256, 98),
    (21, "IQ3_S", 256, 110),
    (20, "IQ4_NL", 32, 18),
    (23, "IQ4_XS", 256, 136),
    (39, "MXFP4", 32, 17),
];

#[test]
fn facts_are_those_of_ggml() {
    let facts = |format: &Format| {
        (
            format.id(),
            format.name(),
            format.block_len(),
            format.block_bytes(),
        )
    };
    assert_eq!(Format::ALL.iter().map(facts).collect::<Vec<_>>(), GGML);
}

#[test]
fn an_id_is_supported_or_named_or_unknown() {
    for id in 0..64 {
        let all = Format::ALL.iter().chain(&[Format::I32]);
        let supported = all.copied().find(|format| format.id() == id);
        assert_eq!(Format::from_id(id), supported);
        let named = UNSUPPORTED.iter().find(|known| known.0 == id);
        let expected = match (supported, named) {
            (Some(format), None) => Ok(format),
            (None, Some(&(id, name))) => Err(Fault::UnsupportedFormat { id, name }),
            (None, None) => Err(Fault::UnknownFormat { id }),
            (Some(_), Some(_)) => panic!("{id} is in both tables"),
        };
        assert_eq!(Format::read(id), expected);
    }
}

#[test]
fn rows_are_whole_blocks() {
    assert_eq!(Format::Q4_K.row_bytes(512), 288);
    assert_eq!(Format::BF16.row_bytes(3), 6);
    assert!(std::panic::catch_unwind(|| Format::Q8_0.row_bytes(48)).is_err());
}

#[test]
fn ids_are_whole_numbers() {
    let bytes: Vec<u8> = [0, 7, -3, 1 << 24]
        .iter()
        .flat_map(|id: &i32| id.to_le_bytes())
        .collect();
    let mut values = [0.0; 4];
    crate::quant::dequantize(Format::I32, &bytes, &mut values);
    assert_eq!(values, [0.0, 7.0, -3.0, 16_777_216.0]);
    assert_eq!((Format::I32.name(), Format::I32.row_bytes(6)), ("I32", 24));
}
