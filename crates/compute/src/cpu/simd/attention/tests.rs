//! Rows as they are stored, against the reference arithmetic of the formats.

use super::*;
use andante_gguf::{Format, quant};

#[test]
fn eight_bits_are_those_of_the_block_format() {
    let tie = |i: usize| (i as f32 - 12.5) / 127.0; // halves of a step, both signs
    let mut rows: Vec<Vec<f32>> = vec![
        vec![0.0; 32],
        vec![-3.0e-9; 64],
        (0..32).map(|i| if i == 7 { 1.0 } else { tie(i) }).collect(),
        (0..32)
            .map(|i| if i == 7 { -127.0 } else { i as f32 * 0.5 - 8.0 })
            .collect(),
    ];
    rows.extend((1..40).map(|len| {
        let value = |i: usize| ((i * 7919 + len * 104_729) % 1009) as f32 / 252.0 - 2.0;
        (0..4 * len).map(value).collect()
    }));
    for isa in Isa::available() {
        for from in &rows {
            let (mut to, mut scales) = (
                vec![Q8::default(); pitch(from.len())],
                vec![0; Q8::row_scales(from.len())],
            );
            dispatch(
                isa,
                Store {
                    to: &mut to,
                    scales: &mut scales,
                    from,
                },
            );
            let mut padded = from.clone();
            padded.resize(pitch(from.len()), 0.0);
            let mut blocks = Vec::new();
            quant::quantize(Format::Q8_0, &padded, &mut blocks);
            let stored = to.chunks_exact(32).zip(&scales);
            let found: Vec<u8> = stored
                .flat_map(|(bytes, scale)| {
                    let scale = scale.to_le_bytes();
                    scale.into_iter().chain(bytes.as_bytes().iter().copied())
                })
                .collect();
            assert_eq!(found, blocks, "{isa}: {from:?}");
        }
    }
}

#[test]
fn what_is_no_number_stays_none_and_what_is_large_stays_finite() {
    for isa in Isa::available() {
        let store = |from: &[f32]| {
            let (mut to, mut scales) = ([Q8::default(); 32], [0]);
            let (to, scales) = (&mut to, &mut scales);
            dispatch(
                isa,
                Store {
                    to: to.as_mut_slice(),
                    scales,
                    from,
                },
            );
            half::f16::from_bits(scales[0])
        };
        assert_eq!(store(&[1e30; 32]), half::f16::MAX, "{isa}");
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 13, 31] {
                let mut row = [1.0; 32];
                row[at] = bad;
                assert!(store(&row).is_nan(), "{isa}: {bad} at {at}");
            }
        }
    }
}
