//! Quantised weights laid out so that one vector lane is one output row.
//!
//! [`STRIP`] = 16 output rows form a group. Inside a group the 32-column blocks follow each other, and each block is a
//! whole number of 64-byte [`Line`]s: byte `4r + i` of a line belongs to row `r` and to column `4j + i` of the block,
//! where `j`, the *quad*, is 0..8. So one load brings four columns of all sixteen rows, a dot product of four bytes
//! per lane advances all rows at once, and no sum ever crosses lanes.
//!
//! | bits | lines per block | content |
//! |---|---|---|
//! | 4 | 4 | line `v`: quad `v` in the low nibbles, quad `v + 4` in the high ones |
//! | 5 | 5 | the same, then one line whose bit `j` is the fifth bit of quad `j` |
//! | 6 | 6 | the same as 4, then two lines: bits `2(j mod 4)` and up of line `j / 4` are the upper two bits of quad `j` |
//! | 8 | 8 | line `j`: quad `j` |
//!
//! Values are unsigned; what is subtracted from them is [`Kind::offset`]. Scales stay as compact as in the file
//! ([`Scales`]), in lanes of sixteen rows as well.

use super::decode::{Row, RowScales};
use crate::cpu::pool::STRIP;
use andante_gguf::Format;
use half::f16;

/// Columns in a block: what one activation scale covers.
pub(crate) const BLOCK: usize = 32;
/// Groups of four columns in a block.
pub(crate) const QUADS: usize = BLOCK / 4;
/// Blocks in a super-block of the K formats.
pub(crate) const SUPER: usize = 8;

/// One cache line: four columns of sixteen rows.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u8; 64]);

/// One 16-bit number for each of sixteen rows.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(crate) struct Lanes(pub(crate) [u16; STRIP]);

/// How the scales of a group are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scales {
    /// One f16 a block.
    Plain,
    /// f16 scale and f16 minimum a block.
    Min,
    /// A super-block: f16 `d`, f16 `dmin`, then for each block a 6-bit scale (low byte) and a 6-bit minimum (high byte).
    /// The block's scale is `d * scale`, its minimum `-dmin * minimum`.
    SuperMin,
    /// A super-block: f16 `d`, then for each block the i8 scales of its first (low byte) and last 16 columns (high).
    SuperHalf,
}

impl Scales {
    /// Entries of [`Lanes`] that `blocks` blocks take.
    pub(crate) fn lanes(self, blocks: usize) -> usize {
        match self {
            Self::Plain => blocks,
            Self::Min => 2 * blocks,
            Self::SuperMin => blocks / SUPER * (2 + SUPER),
            Self::SuperHalf => blocks / SUPER * (1 + SUPER),
        }
    }
}

/// What a kernel must know of a packed format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Bits of a value: 4, 5, 6 or 8; also the lines of a block.
    pub(crate) bits: usize,
    /// Subtracted from every unsigned value.
    pub(crate) offset: u8,
    pub(crate) scales: Scales,
}

impl Kind {
    /// The packed form of a file format; `None` for dense ones and those without a kernel of their own.
    pub(crate) fn of(format: Format) -> Option<Self> {
        let (bits, offset, scales) = match format {
            Format::Q4_0 => (4, 8, Scales::Plain),
            Format::Q4_1 => (4, 0, Scales::Min),
            Format::Q5_0 => (5, 16, Scales::Plain),
            Format::Q5_1 => (5, 0, Scales::Min),
            Format::Q8_0 => (8, 128, Scales::Plain),
            Format::Q4_K => (4, 0, Scales::SuperMin),
            Format::Q5_K => (5, 0, Scales::SuperMin),
            Format::Q6_K => (6, 32, Scales::SuperHalf),
            _ => return None,
        };
        Some(Self {
            bits,
            offset,
            scales,
        })
    }

    /// Columns that share one weight scale.
    pub(crate) fn span(self) -> usize {
        if self.scales == Scales::SuperHalf {
            BLOCK / 2
        } else {
            BLOCK
        }
    }

    /// Whether a value is `scale * q + minimum`.
    pub(crate) fn has_min(self) -> bool {
        matches!(self.scales, Scales::Min | Scales::SuperMin)
    }
}

/// A quantised matrix; rows are padded with zeros to whole groups.
pub(crate) struct Packed {
    kind: Kind,
    blocks: usize,
    quants: Vec<Line>,
    scales: Vec<Lanes>,
}

impl Packed {
    /// An empty matrix of rows of `blocks` blocks, with room for `rows` of them.
    pub(crate) fn new(kind: Kind, rows: usize, blocks: usize) -> Self {
        let groups = rows.div_ceil(STRIP);
        Self {
            kind,
            blocks,
            quants: vec![Line([0; 64]); groups * blocks * kind.bits],
            scales: vec![Lanes([0; STRIP]); groups * kind.scales.lanes(blocks)],
        }
    }

    /// Puts a decoded row into its lane.
    pub(crate) fn set_row(&mut self, index: usize, row: &Row) {
        let (group, lane) = (index / STRIP, index % STRIP);
        let Kind { bits, scales, .. } = self.kind;
        let lines = &mut self.quants[group * self.blocks * bits..][..self.blocks * bits];
        for (block, values) in lines
            .chunks_exact_mut(bits)
            .zip(row.values.chunks_exact(BLOCK))
        {
            for (column, &value) in values.iter().enumerate() {
                set_value(block, lane, column, value);
            }
        }
        let lanes = scales.lanes(self.blocks);
        let lanes = &mut self.scales[group * lanes..][..lanes];
        for (entry, bits) in lanes.iter_mut().zip(row.scales.entries()) {
            entry.0[lane] = bits;
        }
    }

    /// The rows `16 index..16 index + 16`.
    pub(crate) fn group(&self, index: usize) -> Group<'_> {
        let lines = self.blocks * self.kind.bits;
        let lanes = self.kind.scales.lanes(self.blocks);
        Group {
            kind: self.kind,
            blocks: self.blocks,
            quants: &self.quants[index * lines..][..lines],
            scales: &self.scales[index * lanes..][..lanes],
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }
}

/// Sixteen rows of a packed matrix.
#[derive(Clone, Copy)]
pub(crate) struct Group<'a> {
    pub(crate) kind: Kind,
    pub(crate) blocks: usize,
    pub(crate) quants: &'a [Line],
    pub(crate) scales: &'a [Lanes],
}

impl Group<'_> {
    /// The unsigned value of `lane` at `column` of `block`.
    pub(crate) fn value(&self, block: usize, lane: usize, column: usize) -> u8 {
        let bits = self.kind.bits;
        let lines = &self.quants[block * bits..][..bits];
        let (quad, byte) = (column / 4, 4 * lane + column % 4);
        if bits == 8 {
            return lines[quad].0[byte];
        }
        let low = lines[quad % 4].0[byte] >> (4 * (quad / 4)) & 15;
        match bits {
            5 => low | (lines[4].0[byte] >> quad & 1) << 4,
            6 => low | (lines[4 + quad / 4].0[byte] >> (2 * (quad % 4)) & 3) << 4,
            _ => low,
        }
    }

    /// Scale of `lane` in the span of `block` that `column` lies in.
    pub(crate) fn scale(&self, block: usize, lane: usize, column: usize) -> f32 {
        let entry = |index: usize| self.scales[index].0[lane];
        let float = |index: usize| f16::from_bits(entry(index)).to_f32();
        match self.kind.scales {
            Scales::Plain => float(block),
            Scales::Min => float(2 * block),
            Scales::SuperMin => {
                let base = block / SUPER * (2 + SUPER);
                float(base) * f32::from(entry(base + 2 + block % SUPER) as u8)
            }
            Scales::SuperHalf => {
                let base = block / SUPER * (1 + SUPER);
                let [first, last] = entry(base + 1 + block % SUPER).to_le_bytes();
                float(base) * f32::from(if column < BLOCK / 2 { first } else { last }.cast_signed())
            }
        }
    }

    /// Minimum of `lane` in `block`; 0 for formats without.
    pub(crate) fn min(&self, block: usize, lane: usize) -> f32 {
        let entry = |index: usize| self.scales[index].0[lane];
        let float = |index: usize| f16::from_bits(entry(index)).to_f32();
        match self.kind.scales {
            Scales::Min => float(2 * block + 1),
            Scales::SuperMin => {
                let base = block / SUPER * (2 + SUPER);
                -float(base + 1) * f32::from(entry(base + 2 + block % SUPER).to_le_bytes()[1])
            }
            Scales::Plain | Scales::SuperHalf => 0.0,
        }
    }
}

impl RowScales {
    /// This row's numbers in the order of [`Scales`].
    fn entries(&self) -> impl Iterator<Item = u16> {
        self.0.iter().copied()
    }
}

fn set_value(lines: &mut [Line], lane: usize, column: usize, value: u8) {
    let (quad, byte) = (column / 4, 4 * lane + column % 4);
    if lines.len() == 8 {
        lines[quad].0[byte] = value;
        return;
    }
    lines[quad % 4].0[byte] |= (value & 15) << (4 * (quad / 4));
    match lines.len() {
        5 => lines[4].0[byte] |= (value >> 4) << quad,
        6 => lines[4 + quad / 4].0[byte] |= (value >> 4) << (2 * (quad % 4)),
        _ => {}
    }
}
