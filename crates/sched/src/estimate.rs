//! What the scheduler believes about costs: the fitted model, its error margin and how far it may be trusted.

mod fit;
mod io;

use crate::config::Config;
use crate::cost::{CostModel, Regime, Shape};
use fit::Fit;
use io::IoEstimate;

/// Longest factor between measured and predicted time that is noise; above, something else held the machine.
const DISTURBANCE: i64 = 3;

/// After so many fitted samples of a regime its prediction is good enough to call a step disturbed.
const LEARNT: u32 = 8;

/// So many disturbed steps in a row are no disturbance but a changed machine.
const CHANGED: u32 = 8;

/// How much longer than predicted a step may take, in 1/1024 permille: the longest of late, slowly forgotten.
///
/// A quantile would be broken by a fixed part of all steps, and each of those is somebody's stall; what a margin costs is
/// little, since a smaller chunk beside decode rows is hardly less efficient.
#[derive(Debug, Clone, Copy)]
struct Margin(i64);

impl Margin {
    /// The part of its value that it loses with each sample below it, as a right shift: a tenth in about four hundred.
    const FORGETTING_SHIFT: u32 = 12;

    /// Its bounds, permille: an estimate that is too high is the fit's to mend, and so is one that is far too low.
    const BOUNDS: std::ops::RangeInclusive<i64> = 1000..=1300;

    /// What it is before anything is measured.
    const FIRST: Self = Self(1200 << 10);

    fn permille(self) -> i64 {
        self.0 >> 10
    }

    fn learn(&mut self, elapsed_us: i64, predicted_us: i64) {
        let ratio = i128::from(elapsed_us) * (1000 << 10) / i128::from(predicted_us);
        let forgotten = self.0 - (self.0 >> Self::FORGETTING_SHIFT);
        let ratio = i64::try_from(ratio).unwrap_or(i64::MAX);
        let (least, most) = (Self::BOUNDS.start() << 10, Self::BOUNDS.end() << 10);
        self.0 = ratio.max(forgotten).clamp(least, most);
    }
}

/// One intercept's regime.
#[derive(Debug, Clone)]
struct Standing {
    margin: Margin,
    /// q_ok: prefill tokens of a step that are known to fit the budget.
    trusted: u32,
    samples: u32,
    /// Most decode rows of a fitted sample: far beyond them a wrong prediction is nobody's disturbance.
    rows: u32,
    disturbed_in_a_row: u32,
}

/// Cost model, margins and trust regions.
#[derive(Debug, Clone)]
pub(crate) struct Estimate {
    model: CostModel,
    /// `None`: the model is given and exact.
    fit: Option<Fit>,
    standings: [Standing; 3],
    load: IoEstimate,
    save: IoEstimate,
    q_min: u32,
    q_max: u32,
    efficiency_permille: u32,
}

/// How a measured step compares with its prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Fitted.
    Normal,
    /// Far too slow for its shape: counted, not fitted.
    Disturbed,
}

impl Estimate {
    pub(crate) fn new(config: &Config) -> Self {
        let standing = Standing {
            margin: Margin::FIRST,
            trusted: config.q_min.max(1),
            samples: 0,
            rows: 0,
            disturbed_in_a_row: 0,
        };
        Self {
            model: config.cost,
            fit: (!config.fixed_cost).then(|| Fit::new(&config.cost)),
            standings: [standing.clone(), standing.clone(), standing],
            load: IoEstimate::new(config.load_cost, !config.fixed_cost),
            save: IoEstimate::new(config.save_cost, !config.fixed_cost),
            q_min: config.q_min.max(1),
            q_max: config.q_max.max(config.q_min).max(1),
            efficiency_permille: config.efficiency_permille.min(990),
        }
    }

    pub(crate) fn model(&self) -> &CostModel {
        &self.model
    }

    /// The margin of a regime, permille.
    pub(crate) fn margin_permille(&self, regime: Regime) -> i64 {
        if self.fit.is_none() {
            return 1000;
        }
        self.standings[regime as usize].margin.permille()
    }

    /// The margins of all regimes, permille: D, P, M.
    pub(crate) fn margins(&self) -> [u32; 3] {
        // At most the upper bound.
        [Regime::Decode, Regime::Prefill, Regime::Mixed]
            .map(|regime| self.margin_permille(regime) as u32)
    }

    /// Whether a regime's prediction comes from measured steps, or is exact.
    pub(crate) fn is_learnt(&self, regime: Regime) -> bool {
        self.fit.is_none() || self.standings[regime as usize].samples >= LEARNT
    }

    /// What loads cost.
    pub(crate) fn load(&self) -> &IoEstimate {
        &self.load
    }

    /// What saves cost.
    pub(crate) fn save(&self) -> &IoEstimate {
        &self.save
    }

    /// Learns from an I/O unit that moved `blocks` blocks in `elapsed_us`.
    pub(crate) fn observe_io(&mut self, is_load: bool, blocks: u32, elapsed_us: u64) {
        let io = if is_load {
            &mut self.load
        } else {
            &mut self.save
        };
        io.observe(blocks, elapsed_us);
    }

    /// What a step of this prediction takes at the worst of late.
    pub(crate) fn likely_us(&self, regime: Regime, predicted_us: i64) -> i64 {
        predicted_us.saturating_mul(self.margin_permille(regime)) / 1000
    }

    /// What may be planned, in predicted time, so that the worst of late fits `budget_us`.
    pub(crate) fn planned(&self, regime: Regime, budget_us: i64) -> i64 {
        budget_us * 1000 / self.margin_permille(regime)
    }

    /// Most prefill tokens of a step.
    pub(crate) fn most_tokens(&self, regime: Regime) -> u32 {
        match self.fit {
            Some(_) => self.standings[regime as usize].trusted.min(self.q_max),
            None => self.q_max,
        }
    }

    /// Fewest prefill tokens that are worth a step: `q_min`, or what makes the given part of the time per-token time,
    /// `η/(1−η)·a/b`. Where steps mix, only the cost of mixing counts as `a`: the decode rows run anyway.
    pub(crate) fn floor_tokens(&self, regime: Regime) -> u32 {
        let model = &self.model;
        let fixed = match regime {
            Regime::Mixed => (model.mixed - model.decode).max(0),
            Regime::Prefill | Regime::Decode => model.prefill,
        };
        let part = i128::from(self.efficiency_permille);
        let efficient = i128::from(fixed) * part / (1000 - part) / i128::from(model.token.max(1));
        let efficient = u32::try_from(efficient).unwrap_or(u32::MAX);
        self.q_min.max(efficient.min(self.most_tokens(regime)))
    }

    /// Learns from a step that took `elapsed_us` of a budget of `budget_us`.
    pub(crate) fn observe(&mut self, shape: Shape, budget_us: i64, elapsed_us: u64) -> Verdict {
        let Some(fit) = &mut self.fit else {
            return Verdict::Normal;
        };
        let elapsed = i64::try_from(elapsed_us.max(1)).unwrap_or(i64::MAX);
        let predicted = self.model.step_us(shape).max(1);
        let standing = &mut self.standings[shape.regime() as usize];
        let familiar = standing.samples >= LEARNT && shape.rows <= 2 * standing.rows;
        if familiar && elapsed / DISTURBANCE > predicted {
            standing.disturbed_in_a_row += 1;
            if standing.disturbed_in_a_row < CHANGED {
                return Verdict::Disturbed;
            }
            standing.samples = 0;
            fit.forget(shape.regime());
        }
        standing.disturbed_in_a_row = 0;
        standing.samples = standing.samples.saturating_add(1);
        standing.rows = standing.rows.max(shape.rows);
        // Before, what differs is the model's to learn.
        if familiar {
            standing.margin.learn(elapsed, predicted);
        }
        standing.learn_trust(shape.tokens, budget_us, elapsed, self.q_min);
        self.model = fit.add(shape, elapsed);
        Verdict::Normal
    }
}

impl Standing {
    /// A step of `k·q` tokens takes at most `k` times as long as one of `q` tokens (its fixed cost is not negative), so
    /// `q·budget/elapsed` tokens fit. At most doubled, so that one lucky measurement does little.
    fn learn_trust(&mut self, tokens: u64, budget_us: i64, elapsed_us: i64, q_min: u32) {
        if tokens == 0 {
            return;
        }
        let fitting = i128::from(tokens) * i128::from(budget_us) / i128::from(elapsed_us);
        let fitting = u32::try_from(fitting.min(2 * i128::from(tokens))).unwrap_or(u32::MAX);
        self.trusted = if elapsed_us <= budget_us {
            self.trusted.max(fitting)
        } else {
            self.trusted.min(fitting).max(q_min)
        };
    }
}

#[cfg(test)]
mod tests;
