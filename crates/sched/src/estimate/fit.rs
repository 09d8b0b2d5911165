//! Recursive least squares with forgetting, in integers.
//!
//! Minimises `Σ λᵏ·((x·θ − y)/y)²` over non-negative `θ`: relative errors, so that short and long steps count alike and
//! slow outliers count little. The normal equations are kept per regime (D, P, M) and forgotten only by samples of the
//! same regime, then added up: slopes are shared, and a thousand decode steps do not wash out what is known of prefill.
//! A faint pull towards the initial model decides what the data leave open.

use crate::cost::{CostModel, FRACTION_BITS, Regime, Shape};

/// Coefficients: three intercepts, then per token, per attended token, per context token, per row.
const N: usize = 7;

/// Fraction bits of the scaled features `x/y`.
const FEATURE_BITS: u32 = 40;

/// Features beyond this belong to coefficients below the resolution of a [`crate::Fixed`].
const FEATURE_MAX: i128 = 1 << 58;

/// Fraction bits of the solver.
const SOLVER_BITS: u32 = 48;

/// Weight of the pull towards the initial model, as a right shift: 2⁻²⁰ samples.
const PRIOR_SHIFT: u32 = 20;

/// Relative damping of each solve, as a right shift: bounds the condition of the equations.
const DAMPING_SHIFT: u32 = 22;

type Vector = [i128; N];
type Matrix = [Vector; N];

/// Normal equations of one regime: `Σ z zᵀ` (lower triangle) and `Σ z`, with `z = x·2^FEATURE_BITS / y`.
#[derive(Debug, Clone, Default)]
struct Moments {
    products: Matrix,
    sums: Vector,
}

#[derive(Debug, Clone)]
pub(crate) struct Fit {
    regimes: [Moments; 3],
    prior: Moments,
    current: Vector,
}

/// Scales below which a coefficient of the initial model says nothing: 1 ms, 10 µs a token, 1 ns an attended token, 10 ns
/// a context token, 10 µs a row.
const LEAST_SCALES: [i128; N] = {
    let us = 1 << FRACTION_BITS;
    [
        1000 * us,
        1000 * us,
        1000 * us,
        10 * us,
        us / 1000,
        us / 100,
        10 * us,
    ]
};

impl Fit {
    pub(crate) fn new(prior: &CostModel) -> Self {
        let prior = prior.coefficients().map(i128::from);
        let mut equations = Moments::default();
        for i in 0..N {
            let scale = prior[i].max(LEAST_SCALES[i]);
            let weight = (1 << (FEATURE_BITS + FRACTION_BITS)) / scale;
            equations.products[i][i] = (weight * weight) >> PRIOR_SHIFT;
            equations.sums[i] = (weight * prior[i] / scale) >> PRIOR_SHIFT;
        }
        Self {
            regimes: Default::default(),
            prior: equations,
            current: prior,
        }
    }

    /// Adds a sample and returns the model that fits all of them best.
    pub(crate) fn add(&mut self, shape: Shape, elapsed_us: i64) -> CostModel {
        self.regimes[shape.regime() as usize].add(&features(shape), i128::from(elapsed_us));
        let mut sum = self.prior.clone();
        for moments in &self.regimes {
            sum.join(moments);
        }
        self.current = sum.least_squares(&self.current);
        model(&self.current)
    }

    /// Drops the samples of a regime.
    pub(crate) fn forget(&mut self, regime: Regime) {
        self.regimes[regime as usize] = Moments::default();
    }
}

impl Moments {
    fn add(&mut self, features: &Vector, elapsed_us: i128) {
        let scaled = features.map(|x| ((x << FEATURE_BITS) / elapsed_us).min(FEATURE_MAX));
        for i in 0..N {
            for j in 0..=i {
                self.products[i][j] = faded(self.products[i][j]) + scaled[i] * scaled[j];
            }
            self.sums[i] = faded(self.sums[i]) + scaled[i];
        }
    }

    fn join(&mut self, other: &Self) {
        for i in 0..N {
            for j in 0..=i {
                self.products[i][j] += other.products[i][j];
            }
            self.sums[i] += other.sums[i];
        }
    }

    /// The non-negative `θ` that solves the equations: a negative coefficient is set to zero, the worst one first, and the
    /// rest solved again.
    fn least_squares(&self, current: &Vector) -> Vector {
        // Powers of two bring the diagonal between 1 and 4.
        let scales: [i32; N] =
            std::array::from_fn(|i| self.products[i][i].max(1).ilog2() as i32 / 2);
        let unit = SOLVER_BITS as i32;
        // From a coefficient to the solver's variable.
        let zoom: [i32; N] =
            scales.map(|scale| scale + unit - (FEATURE_BITS + FRACTION_BITS) as i32);
        let mut a = Matrix::default();
        let mut b = Vector::default();
        for i in 0..N {
            for j in 0..=i {
                a[i][j] = shifted(self.products[i][j], unit - scales[i] - scales[j]);
            }
            let damping = a[i][i] >> DAMPING_SHIFT;
            a[i][i] += damping;
            b[i] = shifted(self.sums[i], unit - scales[i])
                + times(damping, shifted(current[i], zoom[i]));
        }
        let mut free = [true; N];
        loop {
            let solution = solve(&a, &b, &free);
            let worst = (0..N).min_by_key(|&i| solution[i]).expect("N > 0");
            if solution[worst] >= 0 {
                return std::array::from_fn(|i| shifted(solution[i], -zoom[i]));
            }
            free[worst] = false;
        }
    }
}

/// Solves the free part of `a·v = b` by `LDLᵀ`, in fixed point; the other unknowns are zero. `a`: lower triangle, positive
/// definite.
fn solve(a: &Matrix, b: &Vector, free: &[bool; N]) -> Vector {
    let mut lower = Matrix::default();
    let mut diagonal = Vector::default();
    let mut v = Vector::default();
    let mut inverse = Vector::default();
    for i in (0..N).filter(|&i| free[i]) {
        v[i] = b[i];
        diagonal[i] = a[i][i];
        let mut scaled = Vector::default();
        for j in (0..i).filter(|&j| free[j]) {
            scaled[j] = a[i][j] - (0..j).map(|k| times(scaled[k], lower[j][k])).sum::<i128>();
            lower[i][j] = times(scaled[j], inverse[j]);
            diagonal[i] -= times(scaled[j], lower[i][j]);
            v[i] -= times(lower[i][j], v[j]);
        }
        // Damping keeps it positive but for rounding.
        inverse[i] =
            (1 << (2 * SOLVER_BITS)) / diagonal[i].max(1 << (SOLVER_BITS - DAMPING_SHIFT - 2));
    }
    for i in (0..N).filter(|&i| free[i]).rev() {
        v[i] = times(v[i], inverse[i]) - (i + 1..N).map(|k| times(lower[k][i], v[k])).sum::<i128>();
    }
    v
}

fn times(x: i128, y: i128) -> i128 {
    (x * y) >> SOLVER_BITS
}

/// `x·2^bits`.
fn shifted(x: i128, bits: i32) -> i128 {
    if bits >= 0 {
        x << bits
    } else {
        x >> bits.unsigned_abs().min(127)
    }
}

/// One step of forgetting: λ = 1 − 1/64 − 1/256 ≈ 0.98.
fn faded(x: i128) -> i128 {
    x - (x >> 6) - (x >> 8)
}

fn features(shape: Shape) -> Vector {
    let mut x = Vector::default();
    x[shape.regime() as usize] = 1;
    x[3] = i128::from(shape.tokens);
    x[4] = i128::from(shape.attended);
    x[5] = i128::from(shape.context);
    x[6] = i128::from(shape.rows);
    x
}

fn model(coefficients: &Vector) -> CostModel {
    // Far above any machine, far below overflow.
    let most = 1 << 52;
    CostModel::from_coefficients(coefficients.map(|c| c.clamp(0, most) as i64))
}
