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
    let mut rows = floats(include_bytes!("tests/fp8_in.f32"));
    rows.chunks_exact_mut(448)
        .for_each(|row| keep(Kept::E4m3 { plain: 448 }, row));
    let expected = floats(include_bytes!("tests/fp8_out.f32"));
    assert_eq!(bits(&rows), bits(&expected));
}

#[test]
fn hadamard_e2m1_rows_are_the_references() {
    let mut rows = floats(include_bytes!("tests/fp4_in.f32"));
    rows.chunks_exact_mut(128)
        .for_each(|row| keep(Kept::HadamardE2m1, row));
    let expected = floats(include_bytes!("tests/fp4_hadamard_out.f32"));
    assert_eq!(bits(&rows), bits(&expected));
}

#[test]
fn ties_go_to_the_even_code() {
    let mut row = floats(include_bytes!("tests/fp4_tie_in.f32"));
    let mut bytes = vec![0; Kept::HadamardE2m1.row_bytes(row.len())];
    write_e2m1(&row, &mut bytes);
    read_e2m1(&bytes, &mut row);
    let expected = floats(include_bytes!("tests/fp4_tie_out.f32"));
    assert_eq!(bits(&row), bits(&expected));
    // Halfway between neighbours: of eighths above 1, of 2^-9 near 0.
    let near = |x: f32| E4M3[usize::from(e4m3(x))];
    assert_eq!((near(1.0625), near(1.1875)), (1.0, 1.25));
    assert_eq!((near(0.5 / 512.0), near(1.5 / 512.0)), (0.0, 2.0 / 512.0));
    assert_eq!((near(-500.0), near(447.0)), (-448.0, 448.0));
}

#[test]
fn every_code_stands_for_what_it_is_the_code_of() {
    // The largest two are not numbers.
    for code in (0..=u8::MAX).filter(|code| code & 0x7f != 0x7f) {
        assert_eq!(e4m3(E4M3[usize::from(code)]), code);
    }
    for code in 0..16 {
        assert_eq!(e2m1(E2M1[usize::from(code)]), code);
    }
    // 1.125, of exponent 7 and fraction 1; the smallest step; 448, of exponent 15 and fraction 6.
    let known = [0x39, 0x01, 0x7e].map(|code: u8| E4M3[usize::from(code)]);
    assert_eq!(known, [1.125, 1.0 / 512.0, 448.0]);
}

#[test]
fn rows_lie_as_written_down() {
    let mut row = vec![0.0_f32; 512];
    (row[0], row[1], row[447], row[448], row[511]) = (448.0, -1.0, 7.0 / 512.0, 1.0, -2.0);
    let kept = Kept::E4m3 { plain: 448 };
    let mut bytes = vec![0xff; kept.row_bytes(512)];
    write(kept, &row, &mut bytes);
    assert_eq!(bytes.len(), 584);
    // A scale of 1, that of the least magnitude, and one by which 7/512 is the largest code's.
    assert_eq!(bytes[..3], [0x7e, 0xb8, 0]);
    assert_eq!((bytes[447], bytes[576], bytes[577]), (0x7e, 127, 105));
    assert_eq!(bytes[582], 112);
    assert_eq!(
        (&bytes[448..450], &bytes[574..576]),
        (&[0x80, 0x3f][..], &[0x00, 0xc0][..])
    );
    assert_eq!(bytes[583], 0);
    let mut read_back = vec![f32::NAN; 512];
    read(kept, &bytes, &mut read_back);
    assert_eq!(bits(&read_back), bits(&row));

    let kept = Kept::HadamardE2m1;
    let mut row = vec![0.0_f32; 128];
    // Its transform is all ones.
    row[0] = (128.0_f32).sqrt();
    let mut bytes = vec![0xff; kept.row_bytes(128)];
    write(kept, &row, &mut bytes);
    assert_eq!(bytes.len(), 68);
    // One as four quarters.
    assert_eq!(bytes[..64], [0x66; 64]);
    assert_eq!(bytes[64..], [125; 4]);
}

#[test]
fn what_is_kept_is_kept_again() {
    let rows = floats(include_bytes!("tests/fp8_in.f32"));
    for kept in [Kept::F32, Kept::F16, Kept::E4m3 { plain: 400 }] {
        let mut once = rows.clone();
        once.chunks_exact_mut(448).for_each(|row| keep(kept, row));
        let mut twice = once.clone();
        twice.chunks_exact_mut(448).for_each(|row| keep(kept, row));
        assert_eq!(bits(&once), bits(&twice), "{kept:?}");
        assert_eq!(once == rows, kept == Kept::F32);
    }
}

#[test]
fn odd_values_are_no_reason_to_panic() {
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
        let mut row = vec![1.0; 128];
        row[5] = odd;
        for kept in [Kept::F16, Kept::E4m3 { plain: 64 }, Kept::HadamardE2m1] {
            keep(kept, &mut row.clone());
        }
    }
}
