//! AMX tiles: asking for them, their shapes, and numbers split for bfloat16 tiles.
//!
//! Instructions and the tile configuration: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter
//! 18; the permission call: `Documentation/arch/x86/xstate.rst` of the Linux kernel.

use std::arch::asm;
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// Whether the processor has int8 and bfloat16 tiles and the system lets this process use them; asks for the permission.
pub(crate) fn enable() -> bool {
    const BF16: u32 = 1 << 22;
    const TILE: u32 = 1 << 24;
    const INT8: u32 = 1 << 25;
    const ALL: u32 = BF16 | TILE | INT8;
    if __cpuid(0).eax < 7 || __cpuid_count(7, 0).edx & ALL != ALL {
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

/// This thread's tiles, while they are configured.
pub(super) struct Tiles(PhantomData<*const ()>);

impl Tiles {
    /// Gives the first tiles these shapes: `(rows, bytes of a row)`, at most 16 and 64.
    ///
    /// # Safety
    /// [`enable`] was true.
    pub(super) unsafe fn configure(shapes: &[(usize, usize)]) -> Self {
        let mut config = Config {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        for (tile, &(rows, bytes)) in shapes.iter().enumerate() {
            assert!((1..=16).contains(&rows) && (4..=64).contains(&bytes) && tile < 8);
            config.rows[tile] = rows as u8;
            config.row_bytes[tile] = bytes as u16;
        }
        // SAFETY: the configuration is valid (palette 1, at most 16 rows of 64 bytes) and 64 bytes long; by the caller's
        // promise the instruction exists.
        unsafe { asm!("ldtilecfg [{0}]", in(reg) &raw const config, options(nostack, readonly)) };
        Self(PhantomData)
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: `configure` ran on this thread, and nothing uses the tiles any more. Without this the kernel would
        // save them at every switch.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// 32 numbers in two bfloat16 parts each, the leading bits and the rest, both rounded to nearest, halves away from zero.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn split(parts: [__m512; 2]) -> [__m512i; 2] {
    let mask = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
    let half = _mm512_set1_epi32(0x8000);
    let round = |x: __m512| {
        let bits = _mm512_add_epi32(_mm512_castps_si512(x), half);
        _mm512_castsi512_ps(_mm512_and_si512(bits, mask))
    };
    let upper_halves = _mm512_set_epi16(
        63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25, 23, 21, 19,
        17, 15, 13, 11, 9, 7, 5, 3, 1,
    );
    let together = |parts: [__m512; 2]| {
        let [first, last] = parts.map(|part| _mm512_castps_si512(part));
        _mm512_permutex2var_epi16(first, upper_halves, last)
    };
    let highs = parts.map(&round);
    let lows = [
        round(_mm512_sub_ps(parts[0], highs[0])),
        round(_mm512_sub_ps(parts[1], highs[1])),
    ];
    [together(highs), together(lows)]
}

/// What `ldtilecfg` reads.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}
