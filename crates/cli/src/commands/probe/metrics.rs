//! What the times of token events amount to.

use std::time::Instant;

use crate::statistics;

/// A stretch of the probe's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) start: Instant,
    pub(super) end: Instant,
}

impl Window {
    pub(super) fn holds(&self, at: Instant) -> bool {
        self.start <= at && at <= self.end
    }

    pub(super) fn seconds(&self) -> f64 {
        (self.end - self.start).as_secs_f64()
    }
}

/// Gaps between neighbouring tokens, in milliseconds, of those that lie at least partly in the window: a stall that began
/// before it or ends after it counts whole.
pub(super) fn gaps_ms(tokens: &[Instant], window: Window) -> Vec<f64> {
    let pairs = tokens.windows(2);
    pairs
        .filter(|pair| pair[1] >= window.start && pair[0] <= window.end)
        .map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1000.0)
        .collect()
}

/// The nearest-rank percentile; 0 without values.
pub(super) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    statistics::percentile(&values, percent).unwrap_or(0.0)
}

/// The middle value, or the mean of the two in the middle; 0 without values.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => 0.0,
        (length, middle) if length % 2 == 1 => values[middle],
        (_, middle) => f64::midpoint(values[middle - 1], values[middle]),
    }
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

pub(super) fn longest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// Part of the time that was spent waiting beyond twice the calm median gap: Σ max(0, g − T) / Σ g.
pub(super) fn stall_ratio(gaps_ms: &[f64], calm_median_ms: f64) -> f64 {
    let limit = 2.0 * calm_median_ms;
    let over: f64 = gaps_ms.iter().map(|gap| (gap - limit).max(0.0)).sum();
    let total: f64 = gaps_ms.iter().sum();
    if total > 0.0 { over / total } else { 0.0 }
}

/// Jain's index of fairness, (Σx)² / (n Σx²): 1 when all are equal, 1/n when one has everything.
///
/// Source: Jain, Chiu, Hawe, "A quantitative measure of fairness and discrimination", 1984.
pub(super) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares > 0.0 {
        sum * sum / (shares.len() as f64 * squares)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests;
