//! What a step costs: a linear model in fixed-point microseconds.

/// Fraction bits of fixed-point microseconds: one unit is 2⁻²⁰ µs, about a picosecond.
pub const FRACTION_BITS: u32 = 20;

/// Fixed-point microseconds per something, in units of 2⁻²⁰ µs.
pub type Fixed = i64;

/// `T̂ = a + b·P + e·Σq(p+(q+1)/2) + c·Σctx + d·R`, all coefficients in [`Fixed`] and not negative.
///
/// `P` prefill tokens, `q` a range's tokens and `p` its start, `ctx` a decode row's context, `R` decode rows; the
/// intercept `a` depends on what the step holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostModel {
    /// Intercept of a step of decode rows only.
    pub decode: Fixed,
    /// Intercept of a step of prompt ranges only.
    pub prefill: Fixed,
    /// Intercept of a step with both.
    pub mixed: Fixed,
    /// b: per prefill token.
    pub token: Fixed,
    /// e: per prefill token and token it attends to.
    pub attend: Fixed,
    /// c: per token of a decode row's context.
    pub context: Fixed,
    /// d: per decode row.
    pub row: Fixed,
}

/// Whole microseconds as [`Fixed`].
pub const fn micros(us: u32) -> Fixed {
    (us as i64) << FRACTION_BITS
}

/// Nanoseconds as [`Fixed`], rounded down.
pub const fn nanos(ns: u32) -> Fixed {
    ((ns as i64) << FRACTION_BITS) / 1000
}

impl Default for CostModel {
    /// A guess between a laptop CPU and a GPU with a small model; the fit corrects it within a few steps.
    fn default() -> Self {
        Self {
            decode: micros(8_000),
            prefill: micros(8_000),
            mixed: micros(9_000),
            token: micros(300),
            attend: nanos(5),
            context: nanos(50),
            row: micros(500),
        }
    }
}
