//! Packed formats as types, so that each gets its own kernel without a branch inside.

use crate::cpu::matmul::Scales;

/// What a kernel knows of a packed format at compile time.
pub(super) trait Layout {
    /// Bits of a value; also the lines of a block.
    const BITS: usize;
    const SCALES: Scales;
    /// Spans of a block: parts with one scale.
    const SPANS: usize = if matches!(Self::SCALES, Scales::SuperHalf) {
        2
    } else {
        1
    };
    /// Whether blocks have a minimum.
    const MIN: bool = matches!(Self::SCALES, Scales::Min | Scales::SuperMin);
}

macro_rules! layouts {
    ($($name:ident: $bits:literal, $scales:ident;)*) => {
        $(
            pub(super) struct $name;
            impl Layout for $name {
                const BITS: usize = $bits;
                const SCALES: Scales = Scales::$scales;
            }
        )*
    };
}

layouts! {
    Bits4: 4, Plain;
    Bits4Min: 4, Min;
    Bits4Super: 4, SuperMin;
    Bits5: 5, Plain;
    Bits5Min: 5, Min;
    Bits5Super: 5, SuperMin;
    Bits6Super: 6, SuperHalf;
    Bits8: 8, Plain;
}

/// Evaluates the expression with the type of the kind's layout.
macro_rules! for_layout {
    ($kind:expr, $layout:ident => $call:expr) => {{
        use $crate::cpu::matmul::Scales;
        use $crate::cpu::simd::matmul::layout;
        macro_rules! with {
            ($type:ident) => {{
                type $layout = layout::$type;
                $call
            }};
        }
        match ($kind.bits, $kind.scales) {
            (4, Scales::Plain) => with!(Bits4),
            (4, Scales::Min) => with!(Bits4Min),
            (4, Scales::SuperMin) => with!(Bits4Super),
            (5, Scales::Plain) => with!(Bits5),
            (5, Scales::Min) => with!(Bits5Min),
            (5, Scales::SuperMin) => with!(Bits5Super),
            (6, Scales::SuperHalf) => with!(Bits6Super),
            (8, Scales::Plain) => with!(Bits8),
            (bits, scales) => unreachable!("no format has {bits} bits with {scales:?}"),
        }
    }};
}
pub(super) use for_layout;
