//! The grids of the IQ formats with their codes where lines have them.
//!
//! Eight columns of a row in lines of three bits are bits of four bytes: byte `i` has those of the columns `i` and `4 + i`. So
//! 32 columns are laid out by a few look-ups and shifts, near the speed at which they are read.

use andante_gguf::quant::iq_grids::{self, Grid, even_signs};

/// Byte `i` of an entry has the codes of the elements `i` and `4 + i`, two bits each.
type Eights<const N: usize> = [u32; N];

/// Byte `i` of an entry has the code of element `i`.
type Fours<const N: usize> = [u32; N];

pub(super) static IQ2_XXS: Eights<256> = eights(iq_grids::IQ2_XXS);
pub(super) static IQ2_XS: Eights<512> = eights(iq_grids::IQ2_XS);
pub(super) static IQ2_S: Eights<1024> = eights(iq_grids::IQ2_S);
pub(super) static IQ3_XXS: Fours<256> = fours(iq_grids::IQ3_XXS);
pub(super) static IQ3_S: Fours<512> = fours(iq_grids::IQ3_S);

/// Byte `i` of an entry has bit `i` of its number, and bit `4 + i` above that.
pub(super) static SIGNS: [u32; 256] = signs();

/// The same for the lower seven bits of signs whose eighth makes their number even.
pub(super) static EVEN_SIGNS: [u32; 128] = {
    let (all, mut even, mut seven) = (signs(), [0; 128], 0);
    while seven < 128 {
        even[seven] = all[even_signs(seven as u8) as usize];
        seven += 1;
    }
    even
};

const fn eights<const N: usize>(grid: Grid) -> Eights<N> {
    let (mut entries, mut index) = ([0; N], 0);
    while index < N {
        let [a, b, c, d, e, f, g, h] = grid.eight(index);
        entries[index] = u32::from_le_bytes([a | e << 2, b | f << 2, c | g << 2, d | h << 2]);
        index += 1;
    }
    entries
}

const fn fours<const N: usize>(grid: Grid) -> Fours<N> {
    let (mut entries, mut index) = ([0; N], 0);
    while index < N {
        entries[index] = u32::from_le_bytes(grid.four(index));
        index += 1;
    }
    entries
}

const fn signs() -> [u32; 256] {
    let (mut entries, mut signs) = ([0; 256], 0);
    while signs < 256 {
        let (mut entry, mut bit) = (0, 0);
        while bit < 8 {
            entry |= (signs as u32 >> bit & 1) << (8 * (bit % 4) + bit / 4);
            bit += 1;
        }
        entries[signs] = entry;
        signs += 1;
    }
    entries
}
