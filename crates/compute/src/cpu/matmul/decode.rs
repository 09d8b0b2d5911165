//! Rows of a model file's block formats, moved into the lanes of a packed matrix.
//!
//! The formats themselves are defined in `andante_gguf::quant`; nothing is converted or rounded here. Codes are taken apart
//! four at a time, one to a byte of a word, which is also how lines hold them; where a format's bytes are those of the lines,
//! nothing is left to do but to move them.

use super::grids;
use super::packed::{BLOCK, Lanes, Line, Piece, QUADS};
use andante_gguf::Format;
use andante_gguf::quant::iq_grids::even_signs;
use andante_gguf::quant::{iq4_xs, mxfp4, q3_k};

/// One row of a group of [`super::packed::Packed`], written from its first column on.
pub(crate) struct Lane<'a> {
    pub(crate) lane: usize,
    pub(crate) lines: &'a mut [Line],
    pub(crate) scales: &'a mut [Lanes],
}

impl Lane<'_> {
    /// Takes one row's bytes apart.
    pub(crate) fn fill(&mut self, format: Format, bytes: &[u8]) {
        match format {
            Format::Q4_0 | Format::IQ4_NL => {
                self.each::<4, 18>(bytes, |row, block| row.nibbles(block, 1, false));
            }
            Format::Q4_1 => self.each::<4, 20>(bytes, |row, block| row.nibbles(block, 2, false)),
            Format::Q5_0 => self.each::<5, 22>(bytes, |row, block| row.nibbles(block, 1, true)),
            Format::Q5_1 => self.each::<5, 24>(bytes, |row, block| row.nibbles(block, 2, true)),
            Format::Q8_0 => self.each::<8, 34>(bytes, |row, block| row.bytes(block)),
            Format::Q4_K => self.each::<4, 144>(bytes, |row, block| row.super_min(block, false)),
            Format::Q5_K => self.each::<5, 176>(bytes, |row, block| row.super_min(block, true)),
            Format::Q6_K => self.each::<6, 210>(bytes, |row, block| row.super_half(block)),
            Format::Q2_K => self.each::<2, 84>(bytes, |row, block| row.super_half_min(block)),
            Format::Q3_K => self.each::<3, 110>(bytes, |row, block| row.super_half_3(block)),
            Format::IQ4_XS => self.each::<4, 136>(bytes, |row, block| row.super_4(block)),
            Format::MXFP4 => self.each::<4, 17>(bytes, |row, block| row.exponent(block)),
            Format::IQ2_XXS => self.each::<3, 66>(bytes, |row, block| row.grid_2_xxs(block)),
            Format::IQ2_XS => self.each::<3, 74>(bytes, |row, block| row.grid_2_xs(block)),
            Format::IQ2_S => self.each::<3, 82>(bytes, |row, block| row.grid_2_s(block)),
            Format::IQ3_XXS => self.each::<4, 98>(bytes, |row, block| row.grid_3_xxs(block)),
            Format::IQ3_S => self.each::<4, 110>(bytes, |row, block| row.grid_3_s(block)),
            _ => unreachable!("{format} has no packed form"),
        }
    }

    /// Every block of the file, of `BYTES` bytes, into lines of `BITS`. Both are constants so that the places of all codes
    /// are.
    fn each<const BITS: usize, const BYTES: usize>(
        &mut self,
        bytes: &[u8],
        decode: impl Fn(&mut Cursor<'_, BITS>, &[u8; BYTES]),
    ) {
        let mut row = Cursor {
            lane: self.lane,
            blocks: self.lines.as_chunks_mut().0.iter_mut(),
            scales: self.scales.iter_mut(),
        };
        for block in bytes.as_chunks::<BYTES>().0 {
            decode(&mut row, block);
        }
    }
}

/// Where the next codes and scales of a row go.
struct Cursor<'a, const BITS: usize> {
    lane: usize,
    blocks: std::slice::IterMut<'a, [Line; BITS]>,
    scales: std::slice::IterMut<'a, Lanes>,
}

impl<const BITS: usize> Cursor<'_, BITS> {
    /// The codes of 32 columns.
    #[inline(always)]
    fn codes(&mut self, quads: [u32; QUADS]) {
        let mut words = [0_u32; BITS];
        for (quad, codes) in quads.into_iter().enumerate() {
            for piece in const { all_pieces::<BITS>() }[quad] {
                words[piece.line] |= piece.write(codes);
            }
        }
        self.words(words);
    }

    /// The same, one word of every line being known.
    #[inline(always)]
    fn words(&mut self, words: [u32; BITS]) {
        let block = self.blocks.next().expect("a row fits its lane");
        for (line, word) in block.iter_mut().zip(words) {
            line.0.as_chunks_mut::<4>().0[self.lane] = word.to_le_bytes();
        }
    }

    /// The next scale number, in the order that [`super::packed::Scales`] gives.
    #[inline(always)]
    fn scale(&mut self, bits: u16) {
        self.scales.next().expect("a row fits its lane").0[self.lane] = bits;
    }

    fn scales(&mut self, bytes: &[u8]) {
        for &pair in bytes.as_chunks::<2>().0 {
            self.scale(u16::from_le_bytes(pair));
        }
    }

    /// Q4_0, Q4_1, Q5_0, Q5_1: `floats` f16, four bytes of fifth bits when `high`, 16 bytes of nibbles: column `i` in
    /// the low one of byte `i`, column `i + 16` in the high one.
    #[inline(always)]
    fn nibbles(&mut self, block: &[u8], floats: usize, high: bool) {
        let (scales, rest) = block.split_at(2 * floats);
        self.scales(scales);
        let (fifth, nibbles) = rest.split_at(if high { 4 } else { 0 });
        let mut quads = split_nibbles(nibbles);
        if high {
            let fifth = words::<1>(fifth)[0];
            for (index, quad) in quads.iter_mut().enumerate() {
                *quad |= spread(fifth >> (4 * index)) << 4;
            }
        }
        self.codes(quads);
    }

    /// Q8_0: f16, then 32 signed bytes.
    #[inline(always)]
    fn bytes(&mut self, block: &[u8]) {
        self.scales(&block[..2]);
        self.codes(words(&block[2..]).map(|word| word ^ 0x8080_8080));
    }

    /// Q4_K and Q5_K: f16 `d` and `dmin`, 12 bytes of 6-bit scales and minima, 32 bytes of fifth bits when `high`, 128
    /// bytes of nibbles: 64 columns in 32 bytes, first those in the low nibbles.
    #[inline(always)]
    fn super_min(&mut self, block: &[u8], high: bool) {
        self.scales(&block[..4]);
        let packed = &block[4..16];
        for j in 0..8 {
            let upper = |byte: u8| byte >> 6 << 4;
            self.scale(u16::from_le_bytes(if j < 4 {
                [packed[j] & 63, packed[j + 4] & 63]
            } else {
                [
                    packed[j + 4] & 15 | upper(packed[j - 4]),
                    packed[j + 4] >> 4 | upper(packed[j]),
                ]
            }));
        }
        let (fifth, nibbles) = block[16..].split_at(if high { 32 } else { 0 });
        let fifth = if high { words(fifth) } else { [0; QUADS] };
        for (sub, bytes) in nibbles.as_chunks::<32>().0.iter().enumerate() {
            let bytes = words::<QUADS>(bytes);
            for half in 0..2 {
                let bit = |quad: usize| fifth[quad] >> (2 * sub + half) & BIT;
                let nibble = |quad: usize| bytes[quad] >> (4 * half) & NIBBLE;
                self.codes(std::array::from_fn(|quad| nibble(quad) | bit(quad) << 4));
            }
        }
    }

    /// Q6_K: 128 bytes of low nibbles, 64 of upper bit pairs, 16 signed scales, f16 `d`. Half the block's columns take
    /// 64 and 32 of the bytes: 32 columns each in the low nibbles of the first and second 32, then in their high ones.
    #[inline(always)]
    fn super_half(&mut self, block: &[u8]) {
        let (low, rest) = block.split_at(128);
        let (upper, rest) = rest.split_at(64);
        let (scales, d) = rest.split_at(16);
        self.scales(d);
        self.scales(scales);
        for (low, upper) in low
            .as_chunks::<64>()
            .0
            .iter()
            .zip(upper.as_chunks::<32>().0)
        {
            let upper = words::<QUADS>(upper);
            for quarter in 0..4 {
                let low = words::<QUADS>(&low[32 * (quarter % 2)..][..32]);
                self.codes(std::array::from_fn(|quad| {
                    low[quad] >> (4 * (quarter / 2)) & NIBBLE
                        | (upper[quad] >> (2 * quarter) & PAIR) << 4
                }));
            }
        }
    }

    /// Q2_K: a byte of scale and minimum for every 16 columns, 64 bytes of pairs of bits, f16 `d` and `dmin`.
    #[inline(always)]
    fn super_half_min(&mut self, block: &[u8]) {
        let (scales, rest) = block.split_at(16);
        let (pairs, floats) = rest.split_at(64);
        self.scales(floats);
        self.scales(scales);
        for sub in 0..8 {
            self.codes(bit_pairs(pairs, sub));
        }
    }

    /// Q3_K: 32 bytes of third bits, bit `i` for the `i`-th 32 columns; 64 bytes of pairs of bits; 12 of scales; f16 `d`.
    #[inline(always)]
    fn super_half_3(&mut self, block: &[u8]) {
        let whole = block.as_array().expect("a block of Q3_K");
        self.scales(&block[108..]);
        for index in 0..8 {
            let pair = [2 * index, 2 * index + 1].map(|sub| q3_k::scale(whole, sub));
            self.scale(u16::from_le_bytes(pair.map(i8::cast_unsigned)));
        }
        let (third, rest) = block.split_at(32);
        let third = words::<QUADS>(third);
        for sub in 0..8 {
            let low = bit_pairs(&rest[..64], sub);
            self.codes(std::array::from_fn(|quad| {
                low[quad] | (third[quad] >> sub & BIT) << 2
            }));
        }
    }

    /// IQ4_XS: f16 `d`, 6 bytes of scales, 16 bytes of nibbles for every 32 columns.
    #[inline(always)]
    fn super_4(&mut self, block: &[u8]) {
        let whole = block.as_array().expect("a block of IQ4_XS");
        self.scales(&block[..2]);
        for index in 0..4 {
            let pair = [2 * index, 2 * index + 1].map(|sub| iq4_xs::scale(whole, sub));
            self.scale(u16::from_le_bytes(pair.map(i8::cast_unsigned)));
        }
        for nibbles in block[8..].as_chunks::<16>().0 {
            self.codes(split_nibbles(nibbles));
        }
    }

    /// Two scales of which the file has `s` for `2 s + 1`.
    #[inline(always)]
    fn odd_scales(&mut self, [first, second]: [u8; 2]) {
        let odd = |nibble: u8| 2 * (nibble & 15) + 1;
        self.scale(u16::from_le_bytes([odd(first), odd(second)]));
    }

    /// MXFP4: an exponent, 16 bytes of nibbles. Its scales have one bit of mantissa at most, so a bf16 holds them.
    #[inline(always)]
    fn exponent(&mut self, block: &[u8]) {
        self.scale((mxfp4::scale(block[0]).to_bits() >> 16) as u16);
        self.codes(split_nibbles(&block[1..]));
    }
}

impl Cursor<'_, 3> {
    /// 32 columns as entries of [`grids::Eights`] and signs of [`grids::SIGNS`], one of each for eight columns.
    #[inline(always)]
    fn groups(&mut self, magnitudes: [u32; 4], signs: [u32; 4]) {
        let [a, b, c, d] = magnitudes;
        let [e, f, g, h] = signs;
        self.words([a | b << 4, c | d << 4, e | f << 2 | g << 4 | h << 6]);
    }

    /// IQ2_XXS: f16 `d`; for every 32 columns four indices and a u32: seven bits of signs for each, four of scale on top.
    #[inline(always)]
    fn grid_2_xxs(&mut self, block: &[u8]) {
        self.scales(&block[..2]);
        let fields = block[2..].as_chunks::<8>().0;
        for [first, second] in fields.as_chunks::<2>().0 {
            self.odd_scales([first[7] >> 4, second[7] >> 4]);
        }
        for &[i, j, k, l, ref rest @ ..] in fields {
            let rest = u32::from_le_bytes(*rest);
            let signs = [0, 7, 14, 21].map(|at| grids::EVEN_SIGNS[(rest >> at & 127) as usize]);
            self.groups([i, j, k, l].map(|i| grids::IQ2_XXS[usize::from(i)]), signs);
        }
    }

    /// IQ2_XS: f16 `d`; 32 u16 of nine bits of index and seven of signs; 16 nibbles of scales.
    #[inline(always)]
    fn grid_2_xs(&mut self, block: &[u8]) {
        self.scales(&block[..2]);
        block[66..]
            .iter()
            .for_each(|&b| self.odd_scales([b, b >> 4]));
        for fields in block[2..66].as_chunks::<8>().0 {
            let fields = words::<2>(fields);
            let field = |i: usize| (fields[i / 2] >> (16 * (i % 2)) & 0xffff) as usize;
            self.groups(
                std::array::from_fn(|i| grids::IQ2_XS[field(i) & 511]),
                std::array::from_fn(|i| grids::EVEN_SIGNS[field(i) >> 9]),
            );
        }
    }

    /// IQ2_S: f16 `d`; 32 bytes of indices, 32 of signs, 8 of the indices' upper pairs of bits, 16 nibbles of scales.
    #[inline(always)]
    fn grid_2_s(&mut self, block: &[u8]) {
        self.scales(&block[..2]);
        block[74..]
            .iter()
            .for_each(|&b| self.odd_scales([b, b >> 4]));
        let (indices, signs) = block[2..66].split_at(32);
        let fields = indices
            .as_chunks::<4>()
            .0
            .iter()
            .zip(signs.as_chunks::<4>().0);
        for ((indices, signs), upper) in fields.zip(&block[66..74]) {
            let index = |i: usize| usize::from(indices[i]) | usize::from(upper >> (2 * i) & 3) << 8;
            self.groups(
                std::array::from_fn(|i| grids::IQ2_S[index(i)]),
                signs.map(|signs| grids::SIGNS[usize::from(signs)]),
            );
        }
    }
}

impl Cursor<'_, 4> {
    /// IQ3_XXS: f16 `d`; 64 bytes of indices; a u32 for every 32 columns: four times seven bits of signs, four of scale on top.
    #[inline(always)]
    fn grid_3_xxs(&mut self, block: &[u8]) {
        self.scales(&block[..2]);
        let (indices, rest) = block[2..].split_at(64);
        let rest = words::<8>(rest);
        for pair in rest.as_chunks::<2>().0 {
            self.odd_scales(pair.map(|rest| (rest >> 28) as u8));
        }
        for (indices, rest) in indices.as_chunks::<8>().0.iter().zip(rest) {
            self.codes(std::array::from_fn(|quad| {
                let signs = even_signs((rest >> (7 * (quad / 2)) & 127) as u8);
                let signs = spread(u32::from(signs) >> (4 * (quad % 2)));
                grids::IQ3_XXS[usize::from(indices[quad])] | signs << 3
            }));
        }
    }

    /// IQ3_S: f16 `d`; 64 bytes of indices, 8 of their upper bits, 32 of signs, 8 nibbles of scales.
    #[inline(always)]
    fn grid_3_s(&mut self, block: &[u8]) {
        self.scales(&block[..2]);
        block[106..]
            .iter()
            .for_each(|&b| self.odd_scales([b, b >> 4]));
        let (indices, rest) = block[2..106].split_at(64);
        let (upper, signs) = rest.split_at(8);
        let fields = indices.as_chunks::<8>().0.iter().zip(words::<8>(signs));
        for ((indices, signs), upper) in fields.zip(upper) {
            self.codes(std::array::from_fn(|quad| {
                let index = usize::from(indices[quad]) | usize::from(upper >> quad & 1) << 8;
                grids::IQ3_S[index] | spread(signs >> (4 * quad)) << 3
            }));
        }
    }
}

/// The low four, two and one bits of every byte of a word.
const NIBBLE: u32 = 0x0f0f_0f0f;
const PAIR: u32 = 0x0303_0303;
const BIT: u32 = 0x0101_0101;

const fn all_pieces<const BITS: usize>() -> [[Piece; 2]; QUADS] {
    let mut all = [Piece::of(BITS, 0); QUADS];
    let mut quad = 1;
    while quad < QUADS {
        all[quad] = Piece::of(BITS, quad);
        quad += 1;
    }
    all
}

/// The first `4 N` bytes as words.
#[inline(always)]
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let words = bytes.as_chunks::<4>().0;
    std::array::from_fn(|index| u32::from_le_bytes(words[index]))
}

/// Sixteen bytes of nibbles: the low ones are columns 0 to 15, the high ones 16 to 31.
#[inline(always)]
fn split_nibbles(bytes: &[u8]) -> [u32; QUADS] {
    const HALF: usize = BLOCK / 8;
    let bytes = words::<HALF>(bytes);
    std::array::from_fn(|quad| bytes[quad % HALF] >> (4 * (quad / HALF)) & NIBBLE)
}

/// The `sub`-th 32 of the codes of Q2_K: 128 columns in 32 bytes, first those in the lowest bits.
#[inline(always)]
fn bit_pairs(bytes: &[u8], sub: usize) -> [u32; QUADS] {
    words::<QUADS>(&bytes[32 * (sub / 4)..]).map(|word| word >> (2 * (sub % 4)) & PAIR)
}

/// The lowest four bits, one to a byte.
#[inline(always)]
fn spread(bits: u32) -> u32 {
    // The products put bit `i` at `i + 7 k` for every `k` of 0..4, so bit `i` of the sum of the masked ones is at `8 i`.
    (bits & 15).wrapping_mul(0x0020_4081) & BIT
}
