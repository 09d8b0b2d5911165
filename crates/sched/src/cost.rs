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

/// What moving KV blocks to or from a store costs: `f + g·blocks`, in [`Fixed`] and not negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoCost {
    /// f: per unit.
    pub unit: Fixed,
    /// g: per block.
    pub block: Fixed,
}

impl IoCost {
    /// What one unit of `blocks` blocks takes.
    pub(crate) fn units(&self, blocks: u32) -> Fixed {
        saturate(i128::from(self.unit) + i128::from(self.block) * i128::from(blocks))
    }
}

impl Default for IoCost {
    /// A guess: a solid-state disk and blocks of a megabyte.
    fn default() -> Self {
        Self {
            unit: micros(200),
            block: micros(1_000),
        }
    }
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

/// What a step holds, as far as its duration depends on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shape {
    /// R: decode rows.
    pub rows: u32,
    /// Σctx: their contexts.
    pub context: u64,
    /// P: prefill tokens.
    pub tokens: u64,
    /// Σq(p+(q+1)/2): tokens attended to by them.
    pub attended: u64,
}

/// The kinds of steps that have an intercept of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Regime {
    Decode,
    Prefill,
    Mixed,
}

impl Shape {
    /// Adds `tokens` tokens of a prompt from position `start`.
    pub fn add_range(&mut self, start: u32, tokens: u32) {
        self.tokens += u64::from(tokens);
        self.attended += attended(start, tokens);
    }

    pub(crate) fn regime(self) -> Regime {
        match (self.rows, self.tokens) {
            (_, 0) => Regime::Decode,
            (0, _) => Regime::Prefill,
            _ => Regime::Mixed,
        }
    }
}

/// Row `i` of a range attends to `start + i + 1` tokens.
fn attended(start: u32, tokens: u32) -> u64 {
    let (start, tokens) = (u64::from(start), u64::from(tokens));
    tokens * start + tokens * (tokens + 1) / 2
}

impl CostModel {
    /// The coefficients, in the order in which they are declared.
    pub(crate) fn coefficients(&self) -> [Fixed; 7] {
        let Self {
            decode,
            prefill,
            mixed,
            token,
            attend,
            context,
            row,
        } = *self;
        [decode, prefill, mixed, token, attend, context, row]
    }

    /// The model with these coefficients.
    pub(crate) fn from_coefficients(coefficients: [Fixed; 7]) -> Self {
        let [decode, prefill, mixed, token, attend, context, row] = coefficients;
        Self {
            decode,
            prefill,
            mixed,
            token,
            attend,
            context,
            row,
        }
    }

    /// T̂ in whole µs, rounded down.
    pub fn step_us(&self, shape: Shape) -> i64 {
        self.regime_us(shape.regime(), shape)
    }

    /// T̂ of a step of the given kind, even when it holds no such rows.
    pub(crate) fn regime_us(&self, regime: Regime, shape: Shape) -> i64 {
        let sum = i128::from(self.intercept(regime))
            + i128::from(self.row) * i128::from(shape.rows)
            + i128::from(self.context) * i128::from(shape.context)
            + i128::from(self.token) * i128::from(shape.tokens)
            + i128::from(self.attend) * i128::from(shape.attended);
        saturate(sum >> FRACTION_BITS)
    }

    /// ΔT of `tokens` prompt tokens from position `start`.
    pub(crate) fn range(&self, start: u32, tokens: u32) -> Fixed {
        let sum = i128::from(self.token) * i128::from(tokens)
            + i128::from(self.attend) * i128::from(attended(start, tokens));
        saturate(sum)
    }

    /// The most tokens from position `start`, at most `most`, whose ΔT fits `room`.
    pub(crate) fn tokens_within(&self, room: Fixed, start: u32, most: u32) -> u32 {
        let (mut low, mut high) = (0, most);
        if high > 0 && self.range(start, 1) > room {
            return 0;
        }
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.range(start, middle) <= room {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }

    fn intercept(&self, regime: Regime) -> Fixed {
        match regime {
            Regime::Decode => self.decode,
            Regime::Prefill => self.prefill,
            Regime::Mixed => self.mixed,
        }
    }
}

pub(crate) fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Whole microseconds in fixed point.
pub(crate) fn fixed(us: i64) -> Fixed {
    us.saturating_mul(1 << FRACTION_BITS)
}

#[cfg(test)]
impl CostModel {
    /// Every coefficient times its own factor, permille.
    pub(crate) fn scaled(&self, permille: [i64; 7]) -> Self {
        let mut coefficients = self.coefficients();
        for (coefficient, factor) in coefficients.iter_mut().zip(permille) {
            *coefficient = *coefficient * factor / 1000;
        }
        Self::from_coefficients(coefficients)
    }
}
