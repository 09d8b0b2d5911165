//! The grids of the IQ formats: tables of groups of eight (IQ1, IQ2) or four (IQ3) magnitudes, of
//! which a block stores indices; and the signs that go with them.
//!
//! The tables are facts of the formats, defined in `ggml-common.h` of
//! <https://github.com/ggml-org/ggml>; `iq_grids.bin` is written by `scripts/make_quant_fixtures.py`
//! out of the PyPI package `gguf`. An entry is 16 bits, little-endian, the first element lowest:
//! eight codes of 2 bits, or four of 4 bits. What a code stands for differs by format.

const TABLES: &[u8; 9216] = include_bytes!("iq_grids.bin");

/// One of the tables: where it begins, in entries.
#[derive(Debug, Clone, Copy)]
pub struct Grid(usize);

/// 256 entries.
pub const IQ2_XXS: Grid = Grid(0);
/// 512 entries.
pub const IQ2_XS: Grid = Grid(256);
/// 1024 entries.
pub const IQ2_S: Grid = Grid(768);
/// 256 entries.
pub const IQ3_XXS: Grid = Grid(1792);
/// 512 entries.
pub const IQ3_S: Grid = Grid(2048);
/// 2048 entries.
pub(super) const IQ1: Grid = Grid(2560);

impl Grid {
    /// The eight 2-bit codes of entry `index`.
    #[must_use]
    pub const fn eight(self, index: usize) -> [u8; 8] {
        self.codes::<8>(index)
    }

    /// The four 4-bit codes of entry `index`.
    #[must_use]
    pub const fn four(self, index: usize) -> [u8; 4] {
        self.codes::<4>(index)
    }

    const fn codes<const N: usize>(self, index: usize) -> [u8; N] {
        let at = 2 * (self.0 + index);
        let entry = u16::from_le_bytes([TABLES[at], TABLES[at + 1]]);
        let (bits, mut codes, mut element) = (16 / N, [0; N], 0);
        while element < N {
            codes[element] = (entry >> (bits * element)) as u8 & ((1 << bits) - 1);
            element += 1;
        }
        codes
    }
}

/// The magnitudes of the IQ2 formats' codes; code 3 does not occur.
pub const IQ2_VALUES: [u8; 4] = [8, 25, 43, 0];

/// The magnitudes of IQ3_XXS's codes.
pub const IQ3_XXS_VALUES: [u8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];

/// Eight signs of which seven bits are stored: the eighth makes their number even.
#[must_use]
pub const fn even_signs(seven: u8) -> u8 {
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// −1 where bit `index` of `signs` is set, else 1.
pub(super) fn sign(signs: u8, index: usize) -> f32 {
    if signs >> index & 1 == 0 { 1.0 } else { -1.0 }
}
