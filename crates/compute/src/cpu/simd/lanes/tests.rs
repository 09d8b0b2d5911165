//! The vectors of every level against scalar arithmetic.

use super::*;

struct Exp2<'a>(&'a mut [f32]);

impl Kernel for Exp2<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        for part in self.0.chunks_mut(S::N) {
            let power = s.exp2(s.load_part(part));
            s.store_part(part, power);
        }
    }
}

#[test]
fn powers_of_two() {
    let inputs: Vec<f32> = (-130_000..=128_000).map(|i| i as f32 / 1000.0).collect();
    for isa in Isa::available() {
        let mut found = inputs.clone();
        dispatch(isa, Exp2(&mut found));
        for (&x, &found) in inputs.iter().zip(&found) {
            let expected = f64::from(x.clamp(-126.0, 127.0)).exp2();
            let error = (f64::from(found) / expected - 1.0).abs();
            assert!(error < 2e-7, "{isa}: 2^{x} is {found}, off by {error}");
            assert!(
                x.fract() != 0.0 || error == 0.0,
                "{isa}: 2^{x} is not exact"
            );
        }
        let mut special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        dispatch(isa, Exp2(&mut special));
        assert!(special[0].is_nan(), "{isa}");
        assert_eq!(
            special[1..],
            [127.0_f32.exp2(), (-126.0_f32).exp2()],
            "{isa}"
        );
    }
}

/// Input, what is stored of it, what is read again; whether as bfloat16.
struct Halves<'a>(&'a [f32], &'a mut [u16], &'a mut [f32], bool);

impl Kernel for Halves<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        for part in (0..self.0.len()).step_by(S::N) {
            let v = s.load(&self.0[part..]);
            let (half, back) = (
                &mut self.1[part..part + S::N],
                &mut self.2[part..part + S::N],
            );
            // SAFETY: both parts are N long.
            unsafe {
                if self.3 {
                    s.store_bf16_at(half.as_mut_ptr(), v);
                    s.store(back, s.load_bf16_at(half.as_ptr()));
                } else {
                    s.store_half_at(half.as_mut_ptr(), v);
                    s.store(back, s.load_half_at(half.as_ptr()));
                }
            }
        }
    }
}

#[test]
fn half_precision_rounds_to_nearest_even() {
    let mut inputs: Vec<f32> = (0..4096)
        .map(|i| (i as f32 - 2048.0) * 0.731 + 0.000_37)
        .collect();
    inputs[..8].copy_from_slice(&[
        0.0,
        -0.0,
        1.0 + 1.0 / 2048.0,
        1.0 + 3.0 / 2048.0,
        65504.0,
        6e-8,
        1e-7,
        70000.0,
    ]);
    for isa in Isa::available() {
        let (mut halves, mut back) = (vec![0; inputs.len()], vec![0.0; inputs.len()]);
        dispatch(isa, Halves(&inputs, &mut halves, &mut back, false));
        for ((&x, &half), &back) in inputs.iter().zip(&halves).zip(&back) {
            let expected = half::f16::from_f32_const(x);
            assert_eq!(half, expected.to_bits(), "{isa}: {x}");
            assert_eq!(
                back.to_bits(),
                expected.to_f32_const().to_bits(),
                "{isa}: {x}"
            );
        }
    }
}

#[test]
fn bfloat16_rounds_to_nearest_even() {
    let ties = [
        0x3f80_8000,
        0x3f81_8000,
        0xbf81_8000,
        0x3f80_8001,
        0x7f7f_ffff,
    ];
    let mut inputs: Vec<f32> = ties.map(f32::from_bits).to_vec();
    inputs.extend([0.0, -0.0, 1e-40, f32::INFINITY, f32::NEG_INFINITY]);
    inputs.extend([0x7fc0_0000, 0x7fff_ffff, 0xffff_ffff, 0x7f80_0001].map(f32::from_bits));
    inputs.extend((0..4082).map(|i| (i as f32 - 2048.0) * 0.731 + 0.000_37));
    for isa in Isa::available() {
        let (mut bits, mut back) = (vec![0; inputs.len()], vec![0.0; inputs.len()]);
        dispatch(isa, Halves(&inputs, &mut bits, &mut back, true));
        for ((&x, &bits), &back) in inputs.iter().zip(&bits).zip(&back) {
            assert_eq!(bits, half::bf16::from_f32(x).to_bits(), "{isa}: {x}");
            assert_eq!(back.to_bits(), u32::from(bits) << 16, "{isa}: {x}");
        }
    }
}

/// Input, the integers stored of it, what is read again.
struct Bytes<'a>(&'a [f32], &'a mut [i8], &'a mut [f32]);

impl Kernel for Bytes<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        for part in (0..self.0.len()).step_by(S::N) {
            let (bytes, back) = (&mut self.1[part..][..S::N], &mut self.2[part..][..S::N]);
            // SAFETY: both parts are N long.
            unsafe {
                s.store_i8_at(bytes.as_mut_ptr(), s.load(&self.0[part..]));
                s.store(back, s.load_i8_at(bytes.as_ptr()));
            }
        }
    }
}

#[test]
fn bytes_are_cut_off_and_saturate() {
    let inputs: Vec<f32> = (-2048..2048).map(|i| i as f32 * 0.13).collect();
    for isa in Isa::available() {
        let (mut bytes, mut back) = (vec![0; inputs.len()], vec![0.0; inputs.len()]);
        dispatch(isa, Bytes(&inputs, &mut bytes, &mut back));
        for ((&x, &byte), &back) in inputs.iter().zip(&bytes).zip(&back) {
            assert_eq!(
                f32::from(byte),
                x.trunc().clamp(-128.0, 127.0),
                "{isa}: {x}"
            );
            assert_eq!(back, f32::from(byte), "{isa}: {x}");
        }
    }
}

/// Sum, maximum, and neighbours exchanged, of the first vector.
struct Across<'a>(&'a [f32]);

impl Kernel for Across<'_> {
    type Output = (usize, f32, f32, [f32; MAX_LANES]);
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) -> Self::Output {
        let v = s.load(self.0);
        let mut swapped = [0.0; MAX_LANES];
        s.store(&mut swapped, s.swap_pairs(v));
        (S::N, s.sum(v), s.largest(v), swapped)
    }
}

#[test]
fn across_lanes() {
    let values: Vec<f32> = (0..MAX_LANES)
        .map(|i| ((i * 7) % 16) as f32 - 20.0)
        .collect();
    for isa in Isa::available() {
        let (lanes, sum, largest, swapped) = dispatch(isa, Across(&values));
        assert_eq!(sum, values[..lanes].iter().sum::<f32>(), "{isa}");
        assert_eq!(
            largest,
            values[..lanes].iter().copied().fold(f32::MIN, f32::max),
            "{isa}"
        );
        for i in 0..lanes {
            assert_eq!(swapped[i], values[i ^ 1], "{isa}");
        }
    }
}
