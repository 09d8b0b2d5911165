//! What moving KV blocks costs: a straight line through the measured units, and how far they scatter above it.

use super::Margin;
use crate::cost::{FRACTION_BITS, Fixed, IoCost, saturate};

/// Each sample takes this part of the weight of those before it, as a right shift: about the last 64 count.
const FORGETTING_SHIFT: u32 = 6;

/// Most blocks in one unit: the sums hold units of an hour.
const MOST_BLOCKS: u32 = 1 << 16;

/// Weight of one sample: room for the forgetting.
const ONE: i128 = 1 << 20;

/// Least squares for `f + g·blocks` with forgetting, in integers; the line it starts with counts as two samples.
#[derive(Debug, Clone)]
pub(crate) struct IoEstimate {
    cost: IoCost,
    margin: Margin,
    /// `None`: the cost is given and exact.
    sums: Option<Sums>,
}

/// Weighted sums over the samples, `x` in blocks and `y` in [`Fixed`].
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    one: i128,
    x: i128,
    xx: i128,
    y: i128,
    xy: i128,
}

impl Sums {
    fn add(&mut self, blocks: u32, time: Fixed) {
        for sum in [
            &mut self.one,
            &mut self.x,
            &mut self.xx,
            &mut self.y,
            &mut self.xy,
        ] {
            *sum -= *sum >> FORGETTING_SHIFT;
        }
        let (x, y) = (i128::from(blocks), i128::from(time));
        self.one += ONE;
        self.x += ONE * x;
        self.xx += ONE * x * x;
        self.y += ONE * y;
        self.xy += ONE * x * y;
    }

    /// The line, with neither coefficient below zero.
    fn line(&self) -> IoCost {
        let spread = self.one * self.xx - self.x * self.x;
        let slope = if spread > 0 {
            let slope = (self.one * self.xy - self.x * self.y) / spread;
            slope.clamp(0, self.xy / self.xx.max(1))
        } else {
            0
        };
        let unit = (self.y - slope * self.x) / self.one.max(1);
        IoCost {
            unit: saturate(unit.max(0)),
            block: saturate(slope),
        }
    }
}

impl IoEstimate {
    pub(super) fn new(cost: IoCost, fitted: bool) -> Self {
        let sums = fitted.then(|| {
            let mut sums = Sums::default();
            for blocks in [1, 16] {
                sums.add(blocks, cost.units(blocks));
            }
            sums
        });
        Self {
            cost,
            margin: Margin::FIRST,
            sums,
        }
    }

    /// What a unit of `blocks` blocks takes, with its margin.
    pub(crate) fn units(&self, blocks: u32) -> Fixed {
        let time = i128::from(self.cost.units(blocks));
        saturate(time * i128::from(self.permille()) / 1000)
    }

    /// The most blocks of one unit, at most `most`, that fit `room`.
    pub(crate) fn blocks_within(&self, room: Fixed, most: u32) -> u32 {
        if most == 0 || self.units(1) > room {
            return 0;
        }
        let (mut low, mut high) = (1, most.min(MOST_BLOCKS));
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.units(middle) <= room {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }

    pub(super) fn observe(&mut self, blocks: u32, elapsed_us: u64) {
        let Some(sums) = &mut self.sums else {
            return;
        };
        // A unit of hours is as good as one of an hour: no overflow in the sums.
        let elapsed_us = i64::from(u32::try_from(elapsed_us).unwrap_or(u32::MAX));
        let blocks = blocks.min(MOST_BLOCKS);
        let predicted_us = (self.cost.units(blocks) >> FRACTION_BITS).max(1);
        self.margin.learn(elapsed_us.max(1), predicted_us);
        sums.add(blocks, elapsed_us << FRACTION_BITS);
        self.cost = sums.line();
    }

    fn permille(&self) -> i64 {
        match self.sums {
            Some(_) => self.margin.permille(),
            None => 1000,
        }
    }
}

#[cfg(test)]
mod tests;
