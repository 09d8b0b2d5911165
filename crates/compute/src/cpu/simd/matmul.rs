//! The matrix kernels of each instruction set behind safe functions.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod bf16_tiles;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod input;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod layout;
#[cfg(target_arch = "aarch64")]
mod neon;
pub(crate) mod peak;

use crate::cpu::isa::{Isa, Level};
use crate::cpu::matmul::{
    Activations, DenseGroup, Group, Pairs, Panel, RowsMut, SplitBlock, SplitRows, multiply_dense,
    multiply_packed, quantize_row,
};
use crate::cpu::pool::Strip;

/// Quantises one row of activations.
pub(crate) fn quantize(isa: Isa, x: &[f32], out: &mut RowsMut<'_>) {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` of this level exists only where the processor has the instructions.
        Level::Avx512 => unsafe { avx512::quantize(x, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { avx2::quantize(x, out) },
        _ => quantize_row(x, out),
    }
}

/// Multiplies a packed group with all activation rows into `out`.
pub(crate) fn packed(
    isa: Isa,
    group: &Group<'_>,
    x: &Activations,
    panel: &mut Panel,
    out: &mut Strip<'_>,
) {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` of this level exists only where the processor has the instructions.
        Level::Avx512 if isa.has_tiles() && x.rows() > avx512::FUSED_ROWS => unsafe {
            amx::packed(group, x, panel, out);
        },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx512 => unsafe { avx512::packed(group, x, panel, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { avx2::packed(group, x, panel, out) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: an `Isa` of this level exists only where the processor has the instructions.
        Level::Neon => unsafe { neon::packed(isa, group, x, panel, out) },
        _ => multiply_packed(group, x, panel, out),
    }
}

/// Multiplies a dense group with all rows of `x` into `out`.
pub(crate) fn dense(isa: Isa, group: DenseGroup<'_>, x: &[f32], out: &mut Strip<'_>) {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` of this level exists only where the processor has the instructions.
        Level::Avx512 => unsafe { avx512::dense(group, x, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { avx2::dense(group, x, out) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: an `Isa` of this level exists only where the processor has the instructions.
        Level::Neon => unsafe { neon::dense(group, x, out) },
        _ => multiply_dense(group, x, out),
    }
}

/// Splits one row of activations for [`split_dense`].
pub(crate) fn split(isa: Isa, x: &[f32], out: &mut [SplitBlock]) {
    assert!(isa.has_tiles());
    #[cfg(target_arch = "x86_64")]
    // SAFETY: an `Isa` with tiles exists only where the processor has AVX-512.
    unsafe {
        bf16_tiles::split_row(x, out);
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("{} values of {} blocks", x.len(), out.len());
}

/// Multiplies the groups of `out`, whose weights come first in `weights`, with split activations, in bfloat16 tiles.
pub(crate) fn split_dense(isa: Isa, weights: &[Pairs], x: &SplitRows<'_>, out: &mut Strip<'_>) {
    assert!(isa.has_tiles());
    #[cfg(target_arch = "x86_64")]
    // SAFETY: an `Isa` with tiles exists only where the processor has AVX-512 and tiles may be used.
    unsafe {
        bf16_tiles::multiply(weights, x, out);
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!(
        "{} pairs for {} rows of {}",
        weights.len(),
        x.rows,
        out.width()
    );
}
