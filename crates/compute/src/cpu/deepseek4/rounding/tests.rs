//! Against rows that another implementation rounded.

use super::*;

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (values, _) = bytes.as_chunks::<4>();
    values
        .iter()
        .map(|value| f32::from_le_bytes(*value))
        .collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    // Zeros are alike: which sign one has is seen nowhere.
    values.iter().map(|x| (x + 0.0).to_bits()).collect()
}

#[test]
fn e4m3_rows_are_the_references() {
    let rounding = Rounding::E4m3 {
        width: 448,
        plain: 448,
    };
    let mut rows = floats(include_bytes!("tests/fp8_in.f32"));
    rows.chunks_exact_mut(448)
        .for_each(|row| round(row, rounding));
    let expected = floats(include_bytes!("tests/fp8_out.f32"));
    assert_eq!(bits(&rows), bits(&expected));
}

#[test]
fn hadamard_e2m1_rows_are_the_references() {
    let rounding = Rounding::HadamardE2m1 { width: 128 };
    let mut rows = floats(include_bytes!("tests/fp4_in.f32"));
    rows.chunks_exact_mut(128)
        .for_each(|row| round(row, rounding));
    let expected = floats(include_bytes!("tests/fp4_hadamard_out.f32"));
    assert_eq!(bits(&rows), bits(&expected));
}

#[test]
fn ties_go_to_the_even_code() {
    let mut row = floats(include_bytes!("tests/fp4_tie_in.f32"));
    for values in row.chunks_mut(32) {
        let scale = scale(values, E2M1_MOST * f32::MIN_POSITIVE, E2M1_MOST);
        values
            .iter_mut()
            .for_each(|x| *x = e2m1(*x / scale) * scale);
    }
    let expected = floats(include_bytes!("tests/fp4_tie_out.f32"));
    assert_eq!(bits(&row), bits(&expected));
    // Halfway between neighbours: of eighths above 1, of 2^-9 near 0.
    assert_eq!((e4m3(1.0625), e4m3(1.1875)), (1.0, 1.25));
    assert_eq!((e4m3(0.5 / 512.0), e4m3(1.5 / 512.0)), (0.0, 2.0 / 512.0));
    assert_eq!((e4m3(-500.0), e4m3(447.0)), (-448.0, 448.0));
}

#[test]
fn only_plain_values_are_rounded() {
    let mut head: Vec<f32> = (0..96).map(|i| 0.1 + i as f32 / 97.0).collect();
    let before = head.clone();
    let rounding = Rounding::E4m3 {
        width: 96,
        plain: 80,
    };
    round(&mut head, rounding);
    assert_eq!(head[80..], before[80..]);
    assert!(head[..80] != before[..80]);
}
