//! The line is found, followed when it moves, and never negative.

use super::*;
use crate::cost::micros;

fn us(time: Fixed) -> i64 {
    time >> FRACTION_BITS
}

#[test]
fn the_line_is_found_and_followed() {
    let start = IoCost {
        unit: micros(10),
        block: micros(9_000),
    };
    let mut io = IoEstimate::new(start, true);
    for (unit, block) in [(300, 40), (100, 700)] {
        for k in 0..400 {
            let blocks = 1 + k * 7 % 30;
            io.observe(blocks, u64::from(unit + block * blocks));
        }
        assert!(
            (us(io.cost.unit) - i64::from(unit)).abs() <= 12,
            "{:?}",
            io.cost
        );
        assert!(
            (us(io.cost.block) - i64::from(block)).abs() <= 2,
            "{:?}",
            io.cost
        );
    }
    // What is planned has a margin, and the most blocks that fit are found.
    let most = io.blocks_within(micros(10_000), u32::MAX);
    assert!(io.units(most) <= micros(10_000) && io.units(most + 1) > micros(10_000));
    assert_eq!(io.blocks_within(io.units(1) - 1, 5), 0);
    assert_eq!(io.blocks_within(micros(4_000_000), 5), 5);
}

#[test]
fn units_of_one_size_and_impossible_times_leave_a_line() {
    let mut io = IoEstimate::new(IoCost::default(), true);
    for _ in 0..300 {
        io.observe(8, 800);
    }
    assert!((us(io.cost.units(8)) - 800).abs() <= 20, "{:?}", io.cost);
    // Bigger units that take less: no negative slope, no negative intercept.
    for k in 0..300 {
        io.observe(1 + k % 20, u64::from(100 - k % 20 * 4));
        assert!(io.cost.unit >= 0 && io.cost.block >= 0);
    }
    io.observe(u32::MAX, u64::MAX);
    io.observe(1, 0);
    assert!(io.cost.unit >= 0 && io.cost.block >= 0);
}

#[test]
fn a_given_cost_is_exact() {
    let cost = IoCost {
        unit: micros(3),
        block: micros(2),
    };
    let mut io = IoEstimate::new(cost, false);
    io.observe(1, 1_000_000);
    assert_eq!(us(io.units(4)), 11);
}
