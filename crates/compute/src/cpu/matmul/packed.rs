//! Quantised weights laid out so that one vector lane is one output row.
//!
//! [`STRIP`] = 16 output rows form a group. Inside a group the 32-column blocks follow each other, and each block is a
//! whole number of 64-byte [`Line`]s: byte `4r + i` of a line belongs to row `r` and to column `4j + i` of the block,
//! where `j`, the *quad*, is 0..8. So one load brings four columns of all sixteen rows, a dot product of four bytes
//! per lane advances all rows at once, and no sum ever crosses lanes.
//!
//! | bits | lines per block | content |
//! |---|---|---|
//! | 2 | 2 | bits `2(j mod 4)` and up of line `j / 4` are quad `j` |
//! | 3 | 3 | the same, then one line whose bit `j` is the third bit of quad `j` |
//! | 4 | 4 | line `v`: quad `v` in the low nibbles, quad `v + 4` in the high ones |
//! | 5 | 5 | the same, then one line whose bit `j` is the fifth bit of quad `j` |
//! | 6 | 6 | the same as 4, then two lines with the upper two bits, as for 2 |
//! | 8 | 8 | line `j`: quad `j` |
//!
//! What is stored are codes; [`Codes`] says which unsigned values they stand for, and [`Kind::offset`] is subtracted from
//! those. A file may store groups of codes as indices of a grid: such are looked up when they are laid out, which takes half
//! as much memory again as the indices but leaves the kernels no tables to search. Scales stay as compact as in the file
//! ([`Scales`]), in lanes of sixteen rows as well.

use super::decode::Lane;
use crate::ComputeError;
use crate::cpu::memory::{Arena, Pages};
use crate::cpu::pool::{Pool, STRIP};
use andante_gguf::quant::iq_grids;
use andante_gguf::{Format, Tensor, quant};
use half::{bf16, f16};
use std::sync::Mutex;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Columns in a block: what one activation scale covers.
pub(crate) const BLOCK: usize = 32;
/// Groups of four columns in a block.
pub(crate) const QUADS: usize = BLOCK / 4;
/// Blocks in a super-block of the K formats.
pub(crate) const SUPER: usize = 8;

/// How much of a file is laid out before its pages are given back: so much more memory than the matrices take is in use.
pub(super) const LOAD_BYTES: usize = 8 << 20;

/// One cache line: four columns of sixteen rows.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u8; 64]);

impl Default for Line {
    fn default() -> Self {
        Self([0; 64])
    }
}

/// One 16-bit number for each of sixteen rows.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(32))]
pub(crate) struct Lanes(pub(crate) [u16; STRIP]);

/// How the scales of a group are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scales {
    /// One f16 a block.
    Plain,
    /// One bf16 a block: wide enough for the powers of two of MXFP4.
    Bf16,
    /// f16 scale and f16 minimum a block.
    Min,
    /// A super-block: f16 `d`, then for each pair of blocks their i8 scales (low and high byte).
    Super,
    /// A super-block: f16 `d`, f16 `dmin`, then for each block a 6-bit scale (low byte) and a 6-bit minimum (high byte).
    /// The block's scale is `d * scale`, its minimum `-dmin * minimum`.
    SuperMin,
    /// A super-block: f16 `d`, then for each block the i8 scales of its first (low byte) and last 16 columns (high).
    SuperHalf,
    /// A super-block: f16 `d`, f16 `dmin`, then for each block a byte for its first 16 columns (low) and one for its last
    /// (high): scale in the low nibble, minimum in the high one, as in [`Self::SuperMin`].
    SuperHalfMin,
}

impl Scales {
    /// Entries of [`Lanes`] that `blocks` blocks take.
    pub(crate) fn lanes(self, blocks: usize) -> usize {
        match self {
            Self::Plain | Self::Bf16 => blocks,
            Self::Min => 2 * blocks,
            Self::Super => blocks / SUPER * (1 + SUPER / 2),
            Self::SuperMin | Self::SuperHalfMin => blocks / SUPER * (2 + SUPER),
            Self::SuperHalf => blocks / SUPER * (1 + SUPER),
        }
    }

    /// Spans of a block: parts with one scale.
    pub(crate) const fn spans(self) -> usize {
        if matches!(self, Self::SuperHalf | Self::SuperHalfMin) {
            2
        } else {
            1
        }
    }

    /// Whether a value is `scale * q + minimum`.
    pub(crate) const fn has_min(self) -> bool {
        matches!(self, Self::Min | Self::SuperMin | Self::SuperHalfMin)
    }
}

/// What the codes of a format stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codes {
    /// Themselves.
    Linear,
    /// The values of IQ4_NL and IQ4_XS.
    Iq4,
    /// The values of MXFP4.
    Mxfp4,
    /// A magnitude of the IQ2 formats in two bits, and its sign.
    Iq2,
    /// A magnitude of IQ3_XXS in three bits, and its sign.
    Iq3Xxs,
    /// Of IQ3_S, likewise.
    Iq3S,
}

impl Codes {
    /// The offset of the formats with these codes and a table.
    pub(crate) const fn offset(self) -> u8 {
        match self {
            Self::Linear => 0,
            Self::Iq4 => 128,
            Self::Mxfp4 => 12,
            Self::Iq2 => 43,
            Self::Iq3Xxs => 62,
            Self::Iq3S => 15,
        }
    }

    /// What each code of up to four bits stands for, the offset added.
    pub(crate) const fn table(self) -> Option<[u8; 16]> {
        let mut table = [0; 16];
        let mut code = 0;
        while code < 16 {
            let value = match self {
                Self::Linear => return None,
                Self::Iq4 => quant::iq4_nl::VALUES[code],
                Self::Mxfp4 => quant::mxfp4::VALUES[code],
                Self::Iq2 => signed(iq_grids::IQ2_VALUES[code % 4], code / 4 % 2),
                Self::Iq3Xxs => signed(iq_grids::IQ3_XXS_VALUES[code % 8], code / 8),
                Self::Iq3S => signed((2 * (code % 8) + 1) as u8, code / 8),
            };
            table[code] = value.cast_unsigned().wrapping_add(self.offset());
            code += 1;
        }
        Some(table)
    }

    /// What the scale of a block of [`Scales::Super`] and [`Scales::SuperHalf`] is multiplied by: a power of two.
    pub(crate) const fn factor(self) -> f32 {
        match self {
            Self::Linear | Self::Iq4 | Self::Mxfp4 | Self::Iq3S => 1.0,
            Self::Iq2 => 0.125,
            Self::Iq3Xxs => 0.25,
        }
    }
}

const fn signed(magnitude: u8, negative: usize) -> i8 {
    let magnitude = magnitude.cast_signed();
    if negative == 0 { magnitude } else { -magnitude }
}

/// What a kernel must know of a packed format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Bits of a code: 2, 3, 4, 5, 6 or 8; also the lines of a block.
    pub(crate) bits: usize,
    pub(crate) codes: Codes,
    /// Subtracted from every unsigned value.
    pub(crate) offset: u8,
    pub(crate) scales: Scales,
}

impl Kind {
    /// The packed form of a file format; `None` for dense ones and those without a kernel of their own.
    pub(crate) fn of(format: Format) -> Option<Self> {
        let linear = |bits, offset, scales| Self {
            bits,
            codes: Codes::Linear,
            offset,
            scales,
        };
        let table = |bits, codes: Codes, scales| Self {
            bits,
            codes,
            offset: codes.offset(),
            scales,
        };
        Some(match format {
            Format::Q4_0 => linear(4, 8, Scales::Plain),
            Format::Q4_1 => linear(4, 0, Scales::Min),
            Format::Q5_0 => linear(5, 16, Scales::Plain),
            Format::Q5_1 => linear(5, 0, Scales::Min),
            Format::Q8_0 => linear(8, 128, Scales::Plain),
            Format::Q2_K => linear(2, 0, Scales::SuperHalfMin),
            Format::Q3_K => linear(3, 4, Scales::SuperHalf),
            Format::Q4_K => linear(4, 0, Scales::SuperMin),
            Format::Q5_K => linear(5, 0, Scales::SuperMin),
            Format::Q6_K => linear(6, 32, Scales::SuperHalf),
            Format::IQ4_NL => table(4, Codes::Iq4, Scales::Plain),
            Format::IQ4_XS => table(4, Codes::Iq4, Scales::Super),
            Format::MXFP4 => table(4, Codes::Mxfp4, Scales::Bf16),
            Format::IQ2_XXS => table(3, Codes::Iq2, Scales::Super),
            Format::IQ2_XS | Format::IQ2_S => table(3, Codes::Iq2, Scales::SuperHalf),
            Format::IQ3_XXS => table(4, Codes::Iq3Xxs, Scales::Super),
            Format::IQ3_S => table(4, Codes::Iq3S, Scales::Super),
            _ => return None,
        })
    }

    /// Lines and lanes of a group with so many blocks in a row.
    fn group(self, blocks: usize) -> (usize, usize) {
        (blocks * self.bits, self.scales.lanes(blocks))
    }

    /// Columns that share one weight scale.
    pub(crate) fn span(self) -> usize {
        BLOCK / self.scales.spans()
    }
}

/// Bits of a quad's codes in one of the lines of its block: `code |= (byte >> shift & mask) << place`.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) line: usize,
    pub(crate) shift: usize,
    pub(crate) mask: u8,
    pub(crate) place: usize,
}

impl Piece {
    /// Where the codes of quad `quad` are; the second piece is empty for formats that need only one.
    #[inline]
    pub(crate) const fn of(bits: usize, quad: usize) -> [Self; 2] {
        let nibble = Self::new(quad % 4, 4 * (quad / 4), 15, 0);
        let (pair, pair_shift) = (quad / 4, 2 * (quad % 4));
        let none = Self::new(0, 0, 0, 0);
        match bits {
            2 => [Self::new(pair, pair_shift, 3, 0), none],
            3 => [Self::new(pair, pair_shift, 3, 0), Self::new(2, quad, 1, 2)],
            4 => [nibble, none],
            5 => [nibble, Self::new(4, quad, 1, 4)],
            6 => [nibble, Self::new(4 + pair, pair_shift, 3, 4)],
            8 => [Self::new(quad, 0, 255, 0), none],
            _ => panic!("no format has this many bits"),
        }
    }

    const fn new(line: usize, shift: usize, mask: u8, place: usize) -> Self {
        Self {
            line,
            shift,
            mask,
            place,
        }
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.mask == 0
    }

    /// These bits of a code, out of a byte of the line.
    pub(crate) fn read(self, byte: u8) -> u8 {
        (byte >> self.shift & self.mask) << self.place
    }

    /// These bits of four codes, where they are in four bytes of the line.
    pub(crate) fn write(self, codes: u32) -> u32 {
        let masks = u32::from(self.mask) * 0x0101_0101;
        (codes >> self.place & masks) << self.shift
    }
}

/// A quantised matrix; rows are padded with zeros to whole groups.
pub(crate) struct Packed {
    kind: Kind,
    blocks: usize,
    quants: Pages<Line>,
    scales: Pages<Lanes>,
}

impl Packed {
    /// Bytes that a tensor of `kind` takes.
    pub(super) fn bytes(tensor: &Tensor<'_>, kind: Kind) -> usize {
        let (lines, lanes) = kind.group(tensor.cols() / BLOCK);
        let group = lines * size_of::<Line>() + lanes * size_of::<Lanes>();
        tensor.rows().div_ceil(STRIP) * group
    }

    /// Lays out a tensor of `kind`, all threads together.
    ///
    /// # Errors
    /// [`ComputeError::OutOfMemory`].
    pub(crate) fn load(
        (pool, arena): (&Pool, &mut Arena),
        tensor: &Tensor<'_>,
        kind: Kind,
    ) -> Result<Self, ComputeError> {
        let (rows, blocks) = (tensor.rows(), tensor.cols() / BLOCK);
        let groups = rows.div_ceil(STRIP);
        let (lines, lanes) = kind.group(blocks);
        let mut packed = Self {
            kind,
            blocks,
            quants: arena.pages(groups * lines)?,
            scales: arena.pages(groups * lanes)?,
        };
        let row_bytes = tensor.row(0).len();
        let part = (LOAD_BYTES / (STRIP * row_bytes)).max(1);
        let quants = packed.quants.chunks_mut(part * lines);
        let parts = quants.zip(packed.scales.chunks_mut(part * lanes));
        for (first, (quants, scales)) in (0..).step_by(part).zip(parts) {
            let quants = quants.chunks_exact_mut(lines);
            let part: Vec<_> = quants
                .zip(scales.chunks_exact_mut(lanes))
                .map(Mutex::new)
                .collect();
            let start = first * STRIP;
            pool.for_each(part.len(), 1, &|index| {
                let mut group = part[index].lock().expect("a group is laid out once");
                let (lines, scales) = &mut *group;
                let start = (start + index * STRIP) * row_bytes;
                let bytes = &tensor.data[start..];
                let bytes = &bytes[..bytes.len().min(STRIP * row_bytes)];
                lay_group(tensor.format, (bytes, row_bytes), lines, scales);
            });
            tensor.release(start..rows.min(start + part.len() * STRIP));
        }
        Ok(packed)
    }

    /// The rows `16 index..16 index + 16`.
    pub(crate) fn group(&self, index: usize) -> Group<'_> {
        let (lines, lanes) = self.kind.group(self.blocks);
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

/// Lays out up to sixteen rows of a format, `bytes`, of `row_bytes` each.
pub(super) fn lay_group(
    format: Format,
    (bytes, row_bytes): (&[u8], usize),
    lines: &mut [Line],
    scales: &mut [Lanes],
) {
    for (lane, row) in bytes.chunks_exact(row_bytes).enumerate() {
        let mut to = Lane {
            lane,
            lines,
            scales,
        };
        to.fill(format, row);
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
        let Kind { bits, codes, .. } = self.kind;
        let lines = &self.quants[block * bits..][..bits];
        let byte = 4 * lane + column % 4;
        let code = Piece::of(bits, column / 4).iter().fold(0, |code, piece| {
            code | piece.read(lines[piece.line].0[byte])
        });
        codes.table().map_or(code, |table| table[usize::from(code)])
    }

    /// Scale of `lane` in the span of `block` that `column` lies in.
    pub(crate) fn scale(&self, block: usize, lane: usize, column: usize) -> f32 {
        let entry = |index: usize| self.scales[index].0[lane];
        let float = |index: usize| f16::from_bits(entry(index)).to_f32();
        let half = |bytes: u16| bytes.to_le_bytes()[column / (BLOCK / 2)];
        let factor = self.kind.codes.factor();
        match self.kind.scales {
            Scales::Plain => float(block),
            Scales::Bf16 => bf16::from_bits(entry(block)).to_f32(),
            Scales::Min => float(2 * block),
            Scales::Super => {
                let base = block / SUPER * (1 + SUPER / 2);
                let pair = entry(base + 1 + block % SUPER / 2).to_le_bytes();
                factor * (float(base) * f32::from(pair[block % 2].cast_signed()))
            }
            Scales::SuperMin => {
                let base = block / SUPER * (2 + SUPER);
                float(base) * f32::from(entry(base + 2 + block % SUPER) as u8)
            }
            Scales::SuperHalf => {
                let base = block / SUPER * (1 + SUPER);
                let scale = half(entry(base + 1 + block % SUPER)).cast_signed();
                factor * (float(base) * f32::from(scale))
            }
            Scales::SuperHalfMin => {
                let base = block / SUPER * (2 + SUPER);
                float(base) * f32::from(half(entry(base + 2 + block % SUPER)) & 15)
            }
        }
    }

    /// Minimum of `lane` in the span of `block` that `column` lies in; 0 for formats without.
    pub(crate) fn min(&self, block: usize, lane: usize, column: usize) -> f32 {
        let entry = |index: usize| self.scales[index].0[lane];
        let float = |index: usize| f16::from_bits(entry(index)).to_f32();
        let base = block / SUPER * (2 + SUPER);
        let bytes = || entry(base + 2 + block % SUPER).to_le_bytes();
        match self.kind.scales {
            Scales::Min => float(2 * block + 1),
            Scales::SuperMin => -float(base + 1) * f32::from(bytes()[1]),
            Scales::SuperHalfMin => {
                -float(base + 1) * f32::from(bytes()[column / (BLOCK / 2)] >> 4)
            }
            Scales::Plain | Scales::Bf16 | Scales::Super | Scales::SuperHalf => 0.0,
        }
    }
}
