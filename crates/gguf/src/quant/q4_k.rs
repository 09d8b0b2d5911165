//! Q4_K: 256 elements of 4 bits in eight sub-blocks of 32; `x = (d · scale) · q − dmin · min`,
//! scale and min of the sub-block.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..4 | `dmin`, f16 |
//! | 4..16 | scales and minima, 6 bits each: see `k_scales` |
//! | 16..144 | `q`, nibbles: 32 bytes for each pair of sub-blocks, low nibbles the even one, high nibbles the odd one |

use super::k_scales::{self, SUB_LEN, scale_and_min};

/// Elements of a block.
pub const BLOCK_LEN: usize = 256;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 144;

/// The elements of a block.
pub fn dequantize(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let (code_pairs, _) = block[16..].as_chunks::<SUB_LEN>();
    for (index, out) in out.as_chunks_mut::<SUB_LEN>().0.iter_mut().enumerate() {
        let (scale, min) = scale_and_min(block, index);
        for (x, byte) in out.iter_mut().zip(code_pairs[index / 2]) {
            let q = byte >> (index % 2 * 4) & 0x0f;
            *x = scale * f32::from(q) - min;
        }
    }
}

/// A block of 256 elements, scales of least squared error (not ggml's codes).
pub fn quantize(values: &[f32; BLOCK_LEN], block: &mut [u8; BLOCK_BYTES]) {
    let codes = k_scales::quantize(values, 15, block);
    pack_low_nibbles(&codes, &mut block[16..]);
}

/// Stores the low four bits of 256 codes, two sub-blocks in 32 bytes.
pub(super) fn pack_low_nibbles(codes: &[u8; 256], out: &mut [u8]) {
    let (subs, _) = codes.as_chunks::<SUB_LEN>();
    for (pair, out) in out.as_chunks_mut::<SUB_LEN>().0.iter_mut().enumerate() {
        *out = std::array::from_fn(|at| subs[2 * pair][at] & 0x0f | subs[2 * pair + 1][at] << 4);
    }
}
