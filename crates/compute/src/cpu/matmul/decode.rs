//! Rows of a model file's block formats, taken apart into codes and the bits of their scales.
//!
//! The formats themselves are defined in `andante_gguf::quant`; nothing is converted or rounded here.

use andante_gguf::Format;
use andante_gguf::quant::{iq4_xs, mxfp4, q3_k};

/// One row: `values[column]` is a code, see [`super::packed::Codes`].
pub(crate) struct Row {
    pub(crate) values: Vec<u8>,
    pub(crate) scales: RowScales,
}

/// Scale numbers of one row in the order that [`super::packed::Scales`] gives.
pub(crate) struct RowScales(pub(crate) Vec<u16>);

impl Row {
    /// Takes one row's bytes apart.
    pub(crate) fn decode(format: Format, bytes: &[u8], row: &mut Self) {
        row.values.clear();
        row.scales.0.clear();
        for block in bytes.chunks_exact(format.block_bytes()) {
            match format {
                Format::Q4_0 | Format::IQ4_NL => row.nibbles(block, 1, false),
                Format::Q4_1 => row.nibbles(block, 2, false),
                Format::Q5_0 => row.nibbles(block, 1, true),
                Format::Q5_1 => row.nibbles(block, 2, true),
                Format::Q8_0 => row.bytes(block),
                Format::Q4_K => row.super_min(block, false),
                Format::Q5_K => row.super_min(block, true),
                Format::Q6_K => row.super_half(block),
                Format::Q2_K => row.super_half_min(block),
                Format::Q3_K => row.super_half_3(block),
                Format::IQ4_XS => row.super_4(block),
                Format::MXFP4 => row.exponent(block),
                _ => unreachable!("{format} has no packed form"),
            }
        }
    }

    pub(crate) fn empty() -> Self {
        Self {
            values: Vec::new(),
            scales: RowScales(Vec::new()),
        }
    }

    /// Q4_0, Q4_1, Q5_0, Q5_1: `floats` f16, four bytes of fifth bits when `high`, 16 bytes of nibbles: column `i` in
    /// the low one of byte `i`, column `i + 16` in the high one.
    fn nibbles(&mut self, block: &[u8], floats: usize, high: bool) {
        let (scales, rest) = block.split_at(2 * floats);
        self.scales.0.extend(words(scales));
        let (fifth, nibbles) = rest.split_at(if high { 4 } else { 0 });
        let fifth = if let &[a, b, c, d] = fifth {
            u32::from_le_bytes([a, b, c, d])
        } else {
            0
        };
        let start = self.values.len();
        self.values.extend(nibbles.iter().map(|byte| byte & 15));
        self.values.extend(nibbles.iter().map(|byte| byte >> 4));
        if high {
            for (column, value) in self.values[start..].iter_mut().enumerate() {
                *value |= ((fifth >> column & 1) << 4) as u8;
            }
        }
    }

    /// Q8_0: f16, then 32 signed bytes.
    fn bytes(&mut self, block: &[u8]) {
        self.scales.0.push(u16::from_le_bytes([block[0], block[1]]));
        self.values.extend(block[2..].iter().map(|byte| byte ^ 128));
    }

    /// Q4_K and Q5_K: f16 `d` and `dmin`, 12 bytes of 6-bit scales and minima, 32 bytes of fifth bits when `high`, 128
    /// bytes of nibbles: 64 columns in 32 bytes, first those in the low nibbles.
    fn super_min(&mut self, block: &[u8], high: bool) {
        let word = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
        self.scales.0.extend([word(0), word(2)]);
        let packed = &block[4..16];
        self.scales.0.extend((0..8).map(|j| {
            let (scale, min) = if j < 4 {
                (packed[j] & 63, packed[j + 4] & 63)
            } else {
                let upper = |byte: u8| byte >> 6 << 4;
                (
                    packed[j + 4] & 15 | upper(packed[j - 4]),
                    packed[j + 4] >> 4 | upper(packed[j]),
                )
            };
            u16::from_le_bytes([scale, min])
        }));
        let (fifth, nibbles) = block[16..].split_at(if high { 32 } else { 0 });
        for (chunk, bytes) in nibbles.chunks_exact(32).enumerate() {
            for half in 0..2 {
                self.values
                    .extend(bytes.iter().enumerate().map(|(i, byte)| {
                        let bit = fifth
                            .get(i)
                            .map_or(0, |bits| bits >> (2 * chunk + half) & 1);
                        byte >> (4 * half) & 15 | bit << 4
                    }));
            }
        }
    }

    /// Q6_K: 128 bytes of low nibbles, 64 of upper bit pairs, 16 signed scales, f16 `d`. Half the block's columns take
    /// 64 and 32 of the bytes: 32 columns each in the low nibbles of the first and second 32, then in their high ones.
    fn super_half(&mut self, block: &[u8]) {
        let (low, rest) = block.split_at(128);
        let (upper, rest) = rest.split_at(64);
        let (scales, d) = rest.split_at(16);
        self.scales.0.push(u16::from_le_bytes([d[0], d[1]]));
        self.scales.0.extend(words(scales));
        for (low, upper) in low.chunks_exact(64).zip(upper.chunks_exact(32)) {
            for quarter in 0..4 {
                let nibbles = &low[32 * (quarter % 2)..][..32];
                self.values
                    .extend(nibbles.iter().zip(upper).map(|(nibble, pairs)| {
                        nibble >> (4 * (quarter / 2)) & 15 | (pairs >> (2 * quarter) & 3) << 4
                    }));
            }
        }
    }

    /// Q2_K: a byte of scale and minimum for every 16 columns, 64 bytes of pairs of bits, f16 `d` and `dmin`.
    fn super_half_min(&mut self, block: &[u8]) {
        let (scales, rest) = block.split_at(16);
        let (pairs, floats) = rest.split_at(64);
        self.scales.0.extend(words(floats));
        self.scales.0.extend(words(scales));
        self.values.extend(bit_pairs(pairs));
    }

    /// Q3_K: 32 bytes of third bits, bit `i` for the `i`-th 32 columns; 64 bytes of pairs of bits; 12 of scales; f16 `d`.
    fn super_half_3(&mut self, block: &[u8]) {
        let whole = block.as_array().expect("a block of Q3_K");
        self.scales.0.extend(words(&block[108..]));
        self.scales.0.extend((0..8).map(|index| {
            let pair = [2 * index, 2 * index + 1].map(|sub| q3_k::scale(whole, sub));
            u16::from_le_bytes(pair.map(i8::cast_unsigned))
        }));
        let (third, rest) = block.split_at(32);
        let third = (0..8).flat_map(|index| third.iter().map(move |byte| byte >> index & 1));
        let codes = bit_pairs(&rest[..64]).zip(third);
        self.values.extend(codes.map(|(low, high)| low | high << 2));
    }

    /// IQ4_XS: f16 `d`, 6 bytes of scales, 16 bytes of nibbles for every 32 columns.
    fn super_4(&mut self, block: &[u8]) {
        let whole = block.as_array().expect("a block of IQ4_XS");
        self.scales.0.extend(words(&block[..2]));
        self.scales.0.extend((0..4).map(|index| {
            let pair = [2 * index, 2 * index + 1].map(|sub| iq4_xs::scale(whole, sub));
            u16::from_le_bytes(pair.map(i8::cast_unsigned))
        }));
        for nibbles in block[8..].chunks_exact(16) {
            self.values.extend(nibbles.iter().map(|byte| byte & 15));
            self.values.extend(nibbles.iter().map(|byte| byte >> 4));
        }
    }

    /// MXFP4: an exponent, 16 bytes of nibbles. Its scales have one bit of mantissa at most, so a bf16 holds them.
    fn exponent(&mut self, block: &[u8]) {
        let scale = mxfp4::scale(block[0]).to_bits();
        self.scales.0.push((scale >> 16) as u16);
        self.values.extend(block[1..].iter().map(|byte| byte & 15));
        self.values.extend(block[1..].iter().map(|byte| byte >> 4));
    }
}

/// Pairs of bytes as numbers.
fn words(bytes: &[u8]) -> impl Iterator<Item = u16> {
    let pairs = bytes.as_chunks::<2>().0;
    pairs.iter().map(|&pair| u16::from_le_bytes(pair))
}

/// The codes of Q2_K: 128 columns in 32 bytes, first those in the lowest bits.
fn bit_pairs(bytes: &[u8]) -> impl Iterator<Item = u8> {
    let halves = bytes.chunks_exact(32);
    halves.flat_map(|half| {
        (0..4).flat_map(move |group| half.iter().map(move |byte| byte >> (2 * group) & 3))
    })
}
