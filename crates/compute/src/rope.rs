//! Rotary position embedding: which pairs of values turn, and how fast.
//!
//! Source: Su et al., "RoFormer" (arXiv 2104.09864); YaRN: Peng et al. (arXiv 2309.00071), with the ramp and the
//! attention factor as GGUF models expect them.

use std::f64::consts::PI;

/// Which two values of a head make a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeStyle {
    /// Neighbours `(2i, 2i + 1)`: what Llama-family GGUF files are laid out for.
    Interleaved,
    /// `(i, i + rotary_dim / 2)`: GPT-NeoX, Qwen, Gemma.
    Neox,
}

/// How the frequencies are stretched beyond the trained context.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Every frequency divided by `factor`.
    Linear {
        /// The stretch, at least 1.
        factor: f64,
    },
    /// YaRN: low frequencies divided by `factor`, high ones kept, a linear ramp between.
    Yarn {
        /// The stretch, at least 1.
        factor: f64,
        /// Context length of the original training, in tokens.
        original_context: f64,
        /// Pairs that turn more often than this over the original context are kept (32 by default).
        beta_fast: f64,
        /// Pairs that turn less often than this are divided (1 by default).
        beta_slow: f64,
        /// Whether the ramp is widened to begin and end at whole pairs (usual) or not (gpt-oss).
        whole_pairs: bool,
        /// Multiplies the attention magnitude `1 + 0.1 ln(factor)` (1 by default).
        attention_factor: f64,
    },
}

/// What a model file says about its rotary embedding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RopeSpec<'a> {
    /// Values per head.
    pub head_dim: usize,
    /// The first `rotary_dim` values of a head turn, the rest stay. Even, at most `head_dim`.
    pub rotary_dim: usize,
    /// Which values make a pair.
    pub style: RopeStyle,
    /// Base of the frequencies (10,000 by default).
    pub base: f64,
    /// Stretching.
    pub scaling: RopeScaling,
    /// Divisor of each pair's frequency (tensor `rope_freqs.weight`: Llama 3 scaling), `rotary_dim / 2` values.
    pub factors: Option<&'a [f32]>,
}

/// The angles of a rotary embedding: pair `i` of a token at position `p` turns by `p * frequencies[i]` radians.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeTable {
    head_dim: usize,
    start: usize,
    style: RopeStyle,
    frequencies: Vec<f64>, // [rotary_dim / 2], radians per position
    magnitude: f64,
}

impl RopeTable {
    /// Computes the frequencies in double precision.
    ///
    /// # Panics
    /// If `rotary_dim` is odd or larger than `head_dim`, or the number of factors is not `rotary_dim / 2`.
    #[must_use]
    pub fn new(spec: &RopeSpec<'_>) -> Self {
        assert!(spec.rotary_dim.is_multiple_of(2) && spec.rotary_dim <= spec.head_dim);
        let pairs = spec.rotary_dim / 2;
        if let Some(factors) = spec.factors {
            assert_eq!(factors.len(), pairs, "one factor per pair");
        }
        let frequencies = (0..pairs).map(|pair| {
            let exponent = -2.0 * pair as f64 / spec.rotary_dim as f64;
            let divisor = spec.factors.map_or(1.0, |factors| f64::from(factors[pair]));
            spec.scaled(spec.base.powf(exponent) / divisor, pair)
        });
        let magnitude = match spec.scaling {
            RopeScaling::Yarn {
                factor,
                attention_factor,
                ..
            } => attention_factor * (1.0 + 0.1 * factor.ln()),
            RopeScaling::None | RopeScaling::Linear { .. } => 1.0,
        };
        Self {
            head_dim: spec.head_dim,
            start: 0,
            style: spec.style,
            frequencies: frequencies.collect(),
            magnitude,
        }
    }

    /// The same, but the last `rotary_dim` values of a head turn instead of the first.
    #[must_use]
    pub fn at_end(mut self) -> Self {
        self.start = self.head_dim - self.rotary_dim();
        self
    }

    /// Turns back what this one has turned.
    #[must_use]
    pub fn inverse(mut self) -> Self {
        for frequency in &mut self.frequencies {
            *frequency = -*frequency;
        }
        self.magnitude = self.magnitude.recip();
        self
    }

    /// The first value of a head that turns.
    #[must_use]
    pub fn start(&self) -> usize {
        self.start
    }

    /// Values per head.
    #[must_use]
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// How many values of a head turn.
    #[must_use]
    pub fn rotary_dim(&self) -> usize {
        2 * self.frequencies.len()
    }

    /// Which values make a pair.
    #[must_use]
    pub fn style(&self) -> RopeStyle {
        self.style
    }

    /// Radians per position of each pair.
    #[must_use]
    pub fn frequencies(&self) -> &[f64] {
        &self.frequencies
    }

    /// Both cosine and sine are multiplied by this.
    #[must_use]
    pub fn magnitude(&self) -> f64 {
        self.magnitude
    }

    /// `(cos, sin)` of `pair` at `position`, magnitude included.
    #[must_use]
    pub fn cos_sin(&self, position: u32, pair: usize) -> (f64, f64) {
        let (sin, cos) = (f64::from(position) * self.frequencies[pair]).sin_cos();
        (cos * self.magnitude, sin * self.magnitude)
    }

    /// The two indices in a head that make `pair`.
    #[must_use]
    pub fn pair(&self, pair: usize) -> (usize, usize) {
        let (first, second) = match self.style {
            RopeStyle::Interleaved => (2 * pair, 2 * pair + 1),
            RopeStyle::Neox => (pair, pair + self.frequencies.len()),
        };
        (self.start + first, self.start + second)
    }
}

impl RopeSpec<'_> {
    fn scaled(&self, frequency: f64, pair: usize) -> f64 {
        match self.scaling {
            RopeScaling::None => frequency,
            RopeScaling::Linear { factor } => frequency / factor,
            RopeScaling::Yarn {
                factor,
                original_context,
                beta_fast,
                beta_slow,
                whole_pairs,
                ..
            } => {
                // The pair that turns `rotations` times over the original context.
                let pair_of = |rotations: f64| {
                    self.rotary_dim as f64 * (original_context / (rotations * 2.0 * PI)).ln()
                        / (2.0 * self.base.ln())
                };
                let (mut low, mut high) = (pair_of(beta_fast), pair_of(beta_slow));
                if whole_pairs {
                    (low, high) = (low.floor(), high.ceil());
                }
                let (low, high) = (low.max(0.0), high.min(self.rotary_dim as f64 - 1.0));
                let kept = 1.0 - ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                frequency * kept + frequency / factor * (1.0 - kept)
            }
        }
    }
}

#[cfg(test)]
mod tests;
