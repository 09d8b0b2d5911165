//! IQ1_S: 256 elements in 32 groups of eight out of a grid of 2048; scale and shift for four groups;
//! `x = d · (2 · scale + 1) · (value ± 1/8)`, values −1, 0 and 1.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..34 | bits 0..8 of each group's index |
//! | 34..50 | a u16 for four groups: bits 8..11 of their indices, 3 bits each, then 3 bits of scale, then the shift's sign |

use super::blocks::read_f16;
use super::iq_grids::IQ1;

/// Elements of a block.
pub const BLOCK_LEN: usize = 256;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 50;

/// The shift's size.
pub(super) const DELTA: f32 = 0.125;

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = read_f16(block, 0);
    let fields = block[34..].as_chunks::<2>().0;
    for (group, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let field = u16::from_le_bytes(fields[group / 4]);
        let high = usize::from(field >> (3 * (group % 4)) & 7);
        let scale = d * f32::from(2 * (field >> 12 & 7) + 1);
        let delta = if field & 0x8000 == 0 { DELTA } else { -DELTA };
        let codes = IQ1.eight(usize::from(block[2 + group]) | high << 8);
        *out = codes.map(|code| scale * (f32::from(code) - 1.0 + delta));
    }
}
