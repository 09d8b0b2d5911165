//! The grids of the IQ formats: tables of groups of eight (IQ1, IQ2) or four (IQ3) magnitudes, of
//! which a block stores indices; and the signs that go with them.
//!
//! The tables are facts of the formats, defined in `ggml-common.h` of
//! <https://github.com/ggml-org/ggml>; `iq_grids.bin` is written by `scripts/make_quant_fixtures.py`
//! out of the PyPI package `gguf`. An entry is 16 bits, little-endian, the first element lowest:
//! eight codes of 2 bits, or four of 4 bits. What a code stands for differs by format.

const TABLES: &[u8; 9216] = include_bytes!("iq_grids.bin");

/// One of the tables: where it begins, in entries.
#[derive(Clone, Copy)]
pub(super) struct Grid(usize);

/// 256 entries.
pub(super) const IQ2_XXS: Grid = Grid(0);
/// 512 entries.
pub(super) const IQ2_XS: Grid = Grid(256);
/// 1024 entries.
pub(super) const IQ2_S: Grid = Grid(768);
/// 256 entries.
pub(super) const IQ3_XXS: Grid = Grid(1792);
/// 512 entries.
pub(super) const IQ3_S: Grid = Grid(2048);
/// 2048 entries.
pub(super) const IQ1: Grid = Grid(2560);

impl Grid {
    /// The eight 2-bit codes of entry `index`.
    pub(super) fn eight(self, index: usize) -> [u8; 8] {
        let entry = self.entry(index);
        std::array::from_fn(|element| (entry >> (2 * element) & 3) as u8)
    }

    /// The four 4-bit codes of entry `index`.
    pub(super) fn four(self, index: usize) -> [u8; 4] {
        let entry = self.entry(index);
        std::array::from_fn(|element| (entry >> (4 * element) & 15) as u8)
    }

    fn entry(self, index: usize) -> u16 {
        let at = 2 * (self.0 + index);
        u16::from_le_bytes([TABLES[at], TABLES[at + 1]])
    }
}

/// The magnitudes of the IQ2 formats' codes; code 3 does not occur.
pub(super) const IQ2_VALUES: [f32; 4] = [8.0, 25.0, 43.0, 0.0];

/// Eight signs of which seven bits are stored: the eighth makes their number even.
pub(super) fn even_signs(seven: u8) -> u8 {
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// −1 where bit `index` of `signs` is set, else 1.
pub(super) fn sign(signs: u8, index: usize) -> f32 {
    if signs >> index & 1 == 0 { 1.0 } else { -1.0 }
}
