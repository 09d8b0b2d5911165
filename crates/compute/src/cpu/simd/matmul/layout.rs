//! Packed formats as types, so that each gets its own kernel without a branch inside.

use crate::cpu::matmul::{Codes, QUADS, Scales};

/// What a kernel knows of a packed format at compile time.
pub(super) trait Layout {
    /// Bits of a code; also the lines of a block.
    const BITS: usize;
    const CODES: Codes;
    const SCALES: Scales;
    /// Spans of a block: parts with one scale.
    const SPANS: usize = Self::SCALES.spans();
    /// Whether spans have a minimum.
    const MIN: bool = Self::SCALES.has_min();
    /// What the scale of a block of a super-block is multiplied by.
    const FACTOR: f32 = Self::CODES.factor();
    /// What codes stand for, where they do not stand for themselves.
    const TABLE: Option<[u8; 16]> = Self::CODES.table();
    /// The largest unsigned value.
    const LARGEST: usize = match Self::TABLE {
        Some(table) => largest(&table),
        None => (1 << Self::BITS) - 1,
    };
    /// Quads of a span whose products of two, unsigned values by 127, can be added up in 16 bits; a power of two, or 0
    /// when not even one fits.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "other kernels take values otherwise")
    )]
    const RUN: usize = {
        let mut run = QUADS / Self::SPANS;
        while run * Self::LARGEST * 254 > i16::MAX as usize {
            run /= 2;
        }
        run
    };
}

const fn largest(table: &[u8; 16]) -> usize {
    let (mut largest, mut code) = (0, 0);
    while code < 16 {
        if table[code] as usize > largest {
            largest = table[code] as usize;
        }
        code += 1;
    }
    largest
}

macro_rules! layouts {
    ($($name:ident: $bits:literal, $codes:ident, $scales:ident;)*) => {
        $(
            pub(super) struct $name;
            impl Layout for $name {
                const BITS: usize = $bits;
                const CODES: Codes = Codes::$codes;
                const SCALES: Scales = Scales::$scales;
            }
        )*
    };
}

layouts! {
    Bits2SuperMin: 2, Linear, SuperHalfMin;
    Bits3Super: 3, Linear, SuperHalf;
    Bits4: 4, Linear, Plain;
    Bits4Min: 4, Linear, Min;
    Bits4Super: 4, Linear, SuperMin;
    Bits5: 5, Linear, Plain;
    Bits5Min: 5, Linear, Min;
    Bits5Super: 5, Linear, SuperMin;
    Bits6Super: 6, Linear, SuperHalf;
    Bits8: 8, Linear, Plain;
    Iq4: 4, Iq4, Plain;
    Iq4Super: 4, Iq4, Super;
    Mxfp4: 4, Mxfp4, Bf16;
    Iq2Super: 3, Iq2, Super;
    Iq2Half: 3, Iq2, SuperHalf;
    Iq3XxsSuper: 4, Iq3Xxs, Super;
    Iq3SSuper: 4, Iq3S, Super;
}

/// Evaluates the expression with the type of the kind's layout.
macro_rules! for_layout {
    ($kind:expr, $layout:ident => $call:expr) => {{
        use $crate::cpu::matmul::{Codes, Scales};
        use $crate::cpu::simd::matmul::layout;
        macro_rules! with {
            ($type:ident) => {{
                type $layout = layout::$type;
                $call
            }};
        }
        match ($kind.codes, $kind.bits, $kind.scales) {
            (Codes::Linear, 2, Scales::SuperHalfMin) => with!(Bits2SuperMin),
            (Codes::Linear, 3, Scales::SuperHalf) => with!(Bits3Super),
            (Codes::Linear, 4, Scales::Plain) => with!(Bits4),
            (Codes::Linear, 4, Scales::Min) => with!(Bits4Min),
            (Codes::Linear, 4, Scales::SuperMin) => with!(Bits4Super),
            (Codes::Linear, 5, Scales::Plain) => with!(Bits5),
            (Codes::Linear, 5, Scales::Min) => with!(Bits5Min),
            (Codes::Linear, 5, Scales::SuperMin) => with!(Bits5Super),
            (Codes::Linear, 6, Scales::SuperHalf) => with!(Bits6Super),
            (Codes::Linear, 8, Scales::Plain) => with!(Bits8),
            (Codes::Iq4, 4, Scales::Plain) => with!(Iq4),
            (Codes::Iq4, 4, Scales::Super) => with!(Iq4Super),
            (Codes::Mxfp4, 4, Scales::Bf16) => with!(Mxfp4),
            (Codes::Iq2, 3, Scales::Super) => with!(Iq2Super),
            (Codes::Iq2, 3, Scales::SuperHalf) => with!(Iq2Half),
            (Codes::Iq3Xxs, 4, Scales::Super) => with!(Iq3XxsSuper),
            (Codes::Iq3S, 4, Scales::Super) => with!(Iq3SSuper),
            (codes, bits, scales) => {
                unreachable!("no format has {bits} bits of {codes:?} with {scales:?}")
            }
        }
    }};
}
pub(super) use for_layout;
