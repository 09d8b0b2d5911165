//! AMX: tiles multiply sixteen activation rows with a block of sixteen weight rows in one instruction.
//!
//! The quads of a [`Panel`] are just the layout that the second operand of `tdpbssd` wants: four columns of sixteen weight
//! rows in each tile row. The integer sums of a span come back through memory and enter the same floating-point steps
//! as everywhere, so the results have the same bits.
//!
//! Instructions and the tile configuration: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter
//! 18; the permission call: `Documentation/arch/x86/xstate.rst` of the Linux kernel.

use super::avx512::{floats, store, unpack};
use super::input::Input;
use super::layout::{Layout, for_layout};
use crate::cpu::matmul::{Activations, BLOCK, Group, Line, Panel, QUADS, TILE_ROWS};
use crate::cpu::pool::Strip;
use std::arch::asm;
use std::arch::x86_64::*;

/// Whether the processor has int8 tiles and the system lets this process use them; asks for the permission.
pub(super) fn enable() -> bool {
    const TILE: u32 = 1 << 24;
    const INT8: u32 = 1 << 25;
    if __cpuid(0).eax < 7 || __cpuid_count(7, 0).edx & (TILE | INT8) != TILE | INT8 {
        return false;
    }
    request_permission()
}

#[cfg(target_os = "linux")]
fn request_permission() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call changes nothing but which register state the kernel keeps for this process.
    unsafe {
        libc::syscall(
            libc::SYS_arch_prctl,
            ARCH_REQ_XCOMP_PERM,
            XFEATURE_XTILEDATA,
        ) == 0
    }
}

#[cfg(not(target_os = "linux"))]
fn request_permission() -> bool {
    false
}

/// Multiplies a packed group with all activation rows into `out`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn packed(group: &Group<'_>, x: &Activations, panel: &mut Panel, out: &mut Strip<'_>) {
    for_layout!(group.kind, L => {
        unpack::<L, true>(group, panel);
        let _tiles = Tiles::configure(L::SPANS);
        for first in (0..x.rows()).step_by(TILE_ROWS) {
            let count = TILE_ROWS.min(x.rows() - first);
            // The rows after the last exist, and what comes of them is not stored.
            let input = Input::new(group.kind, x, first, TILE_ROWS);
            match count {
                1..=4 => tile::<L, 4>(panel, &input, count, out),
                5..=8 => tile::<L, 8>(panel, &input, count, out),
                9..=12 => tile::<L, 12>(panel, &input, count, out),
                _ => tile::<L, TILE_ROWS>(panel, &input, count, out),
            }
        }
    });
}

/// This thread's tiles, while they are configured.
struct Tiles;

impl Tiles {
    fn configure(spans_per_block: usize) -> Self {
        let config = Config::new(spans_per_block);
        // SAFETY: the configuration is valid (palette 1, at most 16 rows of 64 bytes) and 64 bytes long; an `Isa` with
        // tiles exists only where they can be used.
        unsafe { asm!("ldtilecfg [{0}]", in(reg) &raw const config, options(nostack, readonly)) };
        Self
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: `configure` ran on this thread, and nothing uses the tiles any more. Without this the kernel would
        // save them at every switch.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// The tiles' shapes: 0 and 1 are sums, 2 and 3 activations, 4 and 5 weights.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Config {
    fn new(spans_per_block: usize) -> Self {
        let columns = BLOCK / spans_per_block;
        let (sums, rows) = (64, TILE_ROWS as u8);
        let (values, quads) = (columns as u16, (columns / 4) as u8);
        let mut config = Self {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        config.row_bytes[..6].copy_from_slice(&[sums, sums, values, values, 64, 64]);
        config.rows[..6].copy_from_slice(&[rows, rows, rows, rows, quads, quads]);
        config
    }
}

/// The integer sums of one span: sixteen activation rows by sixteen weight rows.
#[repr(C, align(64))]
struct Sums([[i32; 16]; TILE_ROWS]);

/// Spans whose sums the vectors take up together, while the tiles work on the next ones: a sum that a tile has just
/// stored cannot be read at once.
const DEPTH: usize = 4;

/// `T` activation rows, of which `count` are stored, against an unpacked signed group.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn tile<L: Layout, const T: usize>(
    panel: &Panel,
    input: &Input<'_>,
    count: usize,
    out: &mut Strip<'_>,
) {
    let mut acc = [_mm512_setzero_ps(); T];
    let mut sums = [const { Sums([[0; 16]; TILE_ROWS]) }; 2 * DEPTH];
    let spans = input.spans;
    let mut multiplied = 0;
    for first in (0..spans).step_by(DEPTH) {
        let end = spans.min(first + 2 * DEPTH);
        while multiplied < end {
            multiply::<L>(
                multiplied,
                panel,
                input,
                &mut sums[multiplied % (2 * DEPTH)],
            );
            multiplied += 1;
        }
        let mut span = first;
        while span < spans.min(first + DEPTH) {
            add_span::<L, T>(span, panel, input, &sums[span % (2 * DEPTH)], &mut acc);
            span += 1;
        }
    }
    for (row, acc) in acc.into_iter().enumerate().take(count) {
        store(acc, out.row(input.first + row));
    }
}

/// The integer sums of a span.
#[inline]
#[target_feature(enable = "avx512f")]
fn multiply<L: Layout>(span: usize, panel: &Panel, input: &Input<'_>, sums: &mut Sums) {
    let quads = QUADS / L::SPANS;
    let weights: &[Line] = &panel.quants[span * quads..][..quads];
    let block = span / L::SPANS;
    let values = &input.quants[block..=(TILE_ROWS - 1) * input.pitch + block];
    // SAFETY: the tiles are configured for these shapes (`packed`): sixteen rows of values, a row `pitch` blocks after the
    // one before, all inside the slice; `quads` lines of weights; sixteen lines of sums.
    unsafe {
        let values = values
            .as_ptr()
            .cast::<u8>()
            .add(span % L::SPANS * BLOCK / L::SPANS);
        let pitch = input.pitch * BLOCK;
        // Neighbouring spans use different tiles.
        if span.is_multiple_of(2) {
            asm!(
                "tilezero tmm0",
                "tileloadd tmm2, [{values} + {pitch}]",
                "tileloadd tmm4, [{weights} + {line}]",
                "tdpbssd tmm0, tmm2, tmm4",
                "tilestored [{sums} + {line}], tmm0",
                values = in(reg) values, pitch = in(reg) pitch, line = in(reg) 64_usize,
                weights = in(reg) weights.as_ptr(), sums = in(reg) sums,
                out("tmm0") _, out("tmm2") _, out("tmm4") _,
                options(nostack, preserves_flags),
            );
        } else {
            asm!(
                "tilezero tmm1",
                "tileloadd tmm3, [{values} + {pitch}]",
                "tileloadd tmm5, [{weights} + {line}]",
                "tdpbssd tmm1, tmm3, tmm5",
                "tilestored [{sums} + {line}], tmm1",
                values = in(reg) values, pitch = in(reg) pitch, line = in(reg) 64_usize,
                weights = in(reg) weights.as_ptr(), sums = in(reg) sums,
                out("tmm1") _, out("tmm3") _, out("tmm5") _,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// The floating-point steps of a span.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn add_span<L: Layout, const T: usize>(
    span: usize,
    panel: &Panel,
    input: &Input<'_>,
    sums: &Sums,
    acc: &mut [__m512; T],
) {
    let (block, blocks, spans) = (span / L::SPANS, input.blocks, input.spans);
    let scales = floats(&panel.scales[span]);
    let activation_scales = &input.scales[block..=(T - 1) * blocks + block];
    for (row, acc) in acc.iter_mut().enumerate() {
        // SAFETY: `row` is below `T`, so `row * blocks` lies in the slice; a row of sums is 64 bytes, aligned by its type.
        let (sum, scale) = unsafe {
            (
                _mm512_load_si512((&raw const sums.0[row]).cast()),
                *activation_scales.get_unchecked(row * blocks),
            )
        };
        let scale = _mm512_mul_ps(scales, _mm512_set1_ps(scale));
        *acc = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(sum), *acc);
    }
    if L::MIN {
        let min = floats(&panel.mins[span]);
        let activation_sums = &input.sums[span..=(T - 1) * spans + span];
        for (row, acc) in acc.iter_mut().enumerate() {
            // SAFETY: `row` is below `T`, so `row * spans` lies in the slice.
            let total = unsafe { *activation_sums.get_unchecked(row * spans) };
            *acc = _mm512_fmadd_ps(min, _mm512_set1_ps(total), *acc);
        }
    }
}
