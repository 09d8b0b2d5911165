//! Loops of nothing but the kernels' multiply-adds, on values in registers: the peak that kernels are measured against.
//!
//! AVX2 multiplies with `vpmaddubsw` and widens once for eight of them, as the kernel of 4-bit weights does, which needs
//! the fewest instructions; wider weights widen more often and cannot reach this peak.

use crate::cpu::isa::Isa;
#[cfg(target_arch = "x86_64")]
use crate::cpu::isa::Level;
use std::hint::black_box;

/// Rounds of a loop between two looks at the clock.
const ROUNDS: u64 = 1 << 12;

/// Runs a loop of 8-bit multiply-adds; how many there were.
pub(crate) fn int8_multiply_adds(isa: Isa) -> u64 {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` of this level, and with tiles, exists only where the processor has the instructions.
        Level::Avx512 if isa.has_tiles() => unsafe { x86::tiles() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx512 => unsafe { x86::int8_avx512() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { x86::int8_avx2() },
        _ => int8_portable(),
    }
}

/// Runs a loop of 32-bit floating-point multiply-adds; how many there were.
pub(crate) fn float_multiply_adds(isa: Isa) -> u64 {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` of this level exists only where the processor has the instructions.
        Level::Avx512 => unsafe { x86::float_avx512() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { x86::float_avx2() },
        _ => float_portable(),
    }
}

/// Runs a loop of multiply-adds of bf16 weights and 32-bit floats; how many there were. In tiles two products are one.
pub(crate) fn bf16_multiply_adds(isa: Isa) -> u64 {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` of this level, and with tiles, exists only where the processor has the instructions.
        Level::Avx512 if isa.has_tiles() => unsafe { x86::bf16_tiles() },
        _ => float_multiply_adds(isa),
    }
}

fn int8_portable() -> u64 {
    let (weights, values) = (black_box([3_i8; 64]), black_box([5_i8; 64]));
    let mut sums = [0_i32; 16];
    for _ in 0..ROUNDS {
        let (weights, values) = (black_box(&weights), black_box(&values));
        for (index, (&weight, &value)) in weights.iter().zip(values).enumerate() {
            sums[index % 16] = sums[index % 16].wrapping_add(i32::from(weight) * i32::from(value));
        }
    }
    black_box(sums);
    ROUNDS * 64
}

fn float_portable() -> u64 {
    let (weights, values) = (black_box([0.5_f32; 16]), black_box([0.5_f32; 16]));
    let mut sums = [[0_f32; 16]; 2];
    for _ in 0..ROUNDS {
        for sums in &mut sums {
            for ((sum, &weight), &value) in sums.iter_mut().zip(&weights).zip(&values) {
                *sum += weight * value;
            }
        }
    }
    black_box(sums);
    ROUNDS * 32
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{ROUNDS, black_box};
    use crate::cpu::simd::tiles::Tiles;
    use std::arch::asm;
    use std::arch::x86_64::*;

    /// Sums that are added to by turns: enough to hide the time that an instruction takes.
    const CHAINS: usize = 10;

    #[target_feature(enable = "avx2")]
    pub(super) fn int8_avx2() -> u64 {
        const WIDEN: u64 = 8;
        const NARROW: usize = 6;
        // Values of their own: sums of the same products would be added up once.
        let (weights, values) = black_box((_mm256_set1_epi8(3), [_mm256_set1_epi8(5); NARROW]));
        let mut sums = [_mm256_setzero_si256(); NARROW];
        for _ in 0..ROUNDS {
            let mut narrow = [_mm256_setzero_si256(); NARROW];
            for _ in 0..WIDEN {
                let weights = black_box(weights);
                for (narrow, values) in narrow.iter_mut().zip(values) {
                    *narrow = _mm256_add_epi16(*narrow, _mm256_maddubs_epi16(weights, values));
                }
            }
            for (sum, narrow) in sums.iter_mut().zip(narrow) {
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(narrow, _mm256_set1_epi16(1)));
            }
        }
        black_box(sums);
        ROUNDS * WIDEN * NARROW as u64 * 32
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn int8_avx512() -> u64 {
        let (weights, values) = black_box((_mm512_set1_epi8(3), _mm512_set1_epi8(5)));
        let mut sums = [_mm512_setzero_si512(); CHAINS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, weights, values);
            }
        }
        black_box(sums);
        ROUNDS * CHAINS as u64 * 64
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn float_avx512() -> u64 {
        let (weights, values) = black_box((_mm512_set1_ps(0.5), _mm512_set1_ps(0.5)));
        let mut sums = [_mm512_setzero_ps(); CHAINS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(weights, values, *sum);
            }
        }
        black_box(sums);
        ROUNDS * CHAINS as u64 * 16
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn float_avx2() -> u64 {
        let (weights, values) = black_box((_mm256_set1_ps(0.5), _mm256_set1_ps(0.5)));
        let mut sums = [_mm256_setzero_ps(); CHAINS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(weights, values, *sum);
            }
        }
        black_box(sums);
        ROUNDS * CHAINS as u64 * 8
    }

    /// As [`tiles`], of pairs of bfloat16.
    #[target_feature(enable = "avx512f")]
    pub(super) fn bf16_tiles() -> u64 {
        // SAFETY: an `Isa` with tiles exists only where they can be used.
        let _tiles = unsafe { Tiles::configure(&[(16, 64); 8]) };
        for _ in 0..ROUNDS {
            // SAFETY: the tiles are configured, all with sixteen rows of 64 bytes, and hold nothing that is needed.
            unsafe {
                asm!(
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    options(nostack, preserves_flags, nomem),
                );
            }
        }
        ROUNDS * 4 * 16 * 16 * 32 / 2
    }

    /// Four tiles of sums; what the operands hold does not matter, and zeros are what a new configuration gives.
    #[target_feature(enable = "avx512f")]
    pub(super) fn tiles() -> u64 {
        // SAFETY: an `Isa` with tiles exists only where they can be used.
        let _tiles = unsafe { Tiles::configure(&[(16, 64); 8]) };
        for _ in 0..ROUNDS {
            // SAFETY: the tiles are configured, all with sixteen rows of 64 bytes, and hold nothing that is needed.
            unsafe {
                asm!(
                    "tdpbssd tmm0, tmm4, tmm6",
                    "tdpbssd tmm1, tmm4, tmm7",
                    "tdpbssd tmm2, tmm5, tmm6",
                    "tdpbssd tmm3, tmm5, tmm7",
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    options(nostack, preserves_flags, nomem),
                );
            }
        }
        ROUNDS * 4 * 16 * 16 * 64
    }
}
