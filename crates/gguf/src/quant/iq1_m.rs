//! IQ1_M: 256 elements in 32 groups of eight out of a grid of 2048; a shift for each group, a scale
//! for two; `x = d · (2 · scale + 1) · (value ± 1/8)`, values −1, 0 and 1.
//!
//! | bytes | field |
//! |---|---|
//! | 0..32 | bits 0..8 of each group's index |
//! | 32..48 | a nibble for each group, low ones first: bits 8..11 of the index, then the shift's sign |
//! | 48..56 | four u16: four scales of 3 bits each, and on top 4 bits of `d`, f16, lowest ones first |

use half::f16;

use super::iq_grids::IQ1;
use super::iq1_s::DELTA;

/// Elements of a block.
pub const BLOCK_LEN: usize = 256;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 56;

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let fields = block[48..].as_chunks::<2>().0;
    let field = |index: usize| u16::from_le_bytes(fields[index]);
    let d = (0..4).fold(0, |bits, index| bits | field(index) >> 12 << (4 * index));
    let d = f16::from_bits(d).to_f32();
    for (group, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let nibble = block[32 + group / 2] >> (group % 2 * 4);
        let sub = group / 2;
        let scale = d * f32::from(2 * (field(sub / 4) >> (3 * (sub % 4)) & 7) + 1);
        let delta = if nibble & 8 == 0 { DELTA } else { -DELTA };
        let codes = IQ1.eight(usize::from(block[group]) | usize::from(nibble & 7) << 8);
        *out = codes.map(|code| scale * (f32::from(code) - 1.0 + delta));
    }
}
