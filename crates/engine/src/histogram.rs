//! Values counted by size, in buckets that are fixed when the program is built: adding one asks for no memory.

/// Values, counted by size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Histogram {
    bounds: &'static [u64],
    counts: [u64; Histogram::MOST_BOUNDS + 1],
    sum: u64,
}

impl Histogram {
    const MOST_BOUNDS: usize = 17;

    /// For gaps and steps, in µs: close around the usual stall bound of 100 ms and what is allowed beyond it.
    pub const DURATIONS_US: [u64; 17] = [
        1_000, 2_000, 5_000, 10_000, 20_000, 35_000, 50_000, 75_000, 100_000, 110_000, 150_000,
        200_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 30_000_000,
    ];
    /// For what whole requests wait for, in µs: long prompts take minutes on small machines.
    pub const WAITS_US: [u64; 17] = [
        5_000,
        10_000,
        20_000,
        50_000,
        100_000,
        200_000,
        500_000,
        1_000_000,
        2_000_000,
        5_000_000,
        10_000_000,
        20_000_000,
        30_000_000,
        60_000_000,
        120_000_000,
        300_000_000,
        600_000_000,
    ];
    /// For measured over expected time, in thousandths.
    pub const RATIOS_PERMILLE: [u64; 13] = [
        250, 500, 750, 900, 950, 1_000, 1_050, 1_100, 1_250, 1_500, 2_000, 3_000, 10_000,
    ];
    /// For tokens of prompts and answers.
    pub const TOKENS: [u64; 17] = [
        1, 4, 16, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536, 131_072,
        262_144, 1_048_576,
    ];

    pub(crate) const fn new(bounds: &'static [u64]) -> Self {
        assert!(bounds.len() <= Self::MOST_BOUNDS, "there is room for them");
        Self {
            bounds,
            counts: [0; Self::MOST_BOUNDS + 1],
            sum: 0,
        }
    }

    pub(crate) fn add(&mut self, value: u64) {
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        self.counts[bucket] += 1;
        self.sum = self.sum.saturating_add(value);
    }

    /// Upper bounds of the buckets, the bound itself included; one more bucket holds what is beyond.
    #[must_use]
    pub fn bounds(&self) -> &'static [u64] {
        self.bounds
    }

    /// Values in each bucket, not summed up: one more than there are bounds.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts[..=self.bounds.len()]
    }

    /// All values together.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }
}

#[cfg(test)]
mod tests;
