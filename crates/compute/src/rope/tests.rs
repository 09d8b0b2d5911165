//! Frequencies against values worked out by hand.

use super::*;

fn spec(scaling: RopeScaling) -> RopeSpec<'static> {
    RopeSpec {
        head_dim: 64,
        rotary_dim: 64,
        style: RopeStyle::Neox,
        base: 10_000.0,
        scaling,
        factors: None,
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * b.abs()
}

#[test]
fn plain_linear_and_factors() {
    let plain = RopeTable::new(&spec(RopeScaling::None));
    assert_eq!(plain.rotary_dim(), 64);
    assert!(close(plain.frequencies()[0], 1.0));
    assert!(close(plain.frequencies()[16], 0.01));
    assert!(close(plain.frequencies()[8], 0.1));

    let linear = RopeTable::new(&spec(RopeScaling::Linear { factor: 4.0 }));
    assert!(close(linear.frequencies()[16], 0.0025));

    let mut factors = [1.0_f32; 32];
    factors[16] = 8.0;
    let scaled = RopeTable::new(&RopeSpec {
        factors: Some(&factors),
        ..spec(RopeScaling::None)
    });
    assert!(close(scaled.frequencies()[8], 0.1));
    assert!(close(scaled.frequencies()[16], 0.00125));
}

#[test]
fn yarn_keeps_fast_pairs_and_divides_slow_ones() {
    let yarn = RopeScaling::Yarn {
        factor: 4.0,
        original_context: 4096.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        whole_pairs: true,
        attention_factor: 1.0,
    };
    let plain = RopeTable::new(&spec(RopeScaling::None));
    let table = RopeTable::new(&spec(yarn));
    // 64 * ln(4096 / (32 * 2 pi)) / (2 ln 10000) = 10.46 and 64 * ln(4096 / (2 pi)) / (2 ln 10000) = 22.51:
    // pairs up to 10 are kept, from 23 on divided, and pair 15 is 5/13 of the way.
    for pair in 0..=10 {
        assert!(close(table.frequencies()[pair], plain.frequencies()[pair]));
    }
    for pair in 23..32 {
        assert!(close(
            table.frequencies()[pair],
            plain.frequencies()[pair] / 4.0
        ));
    }
    let way = 5.0 / 13.0;
    let expected = plain.frequencies()[15] * (1.0 - way) + plain.frequencies()[15] / 4.0 * way;
    assert!(close(table.frequencies()[15], expected));
    assert!(close(table.magnitude(), 1.0 + 0.1 * 4.0_f64.ln()));
}

#[test]
fn pairs_and_angles() {
    let neox = RopeTable::new(&spec(RopeScaling::None));
    assert_eq!(neox.pair(3), (3, 35));
    let interleaved = RopeTable::new(&RopeSpec {
        style: RopeStyle::Interleaved,
        ..spec(RopeScaling::None)
    });
    assert_eq!(interleaved.pair(3), (6, 7));
    let (cos, sin) = neox.cos_sin(5, 8);
    assert!(close(cos, 0.5_f64.cos()) && close(sin, 0.5_f64.sin()));
}

#[test]
fn the_last_values_turn_and_turn_back() {
    let spec = RopeSpec {
        head_dim: 64,
        rotary_dim: 16,
        style: RopeStyle::Interleaved,
        base: 100.0,
        scaling: RopeScaling::Yarn {
            factor: 4.0,
            original_context: 256.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            whole_pairs: true,
            attention_factor: 1.0,
        },
        factors: None,
    };
    let table = RopeTable::new(&spec).at_end();
    assert_eq!((table.pair(0), table.pair(7)), ((48, 49), (62, 63)));
    let back = table.clone().inverse();
    for pair in 0..8 {
        let (cos, sin) = table.cos_sin(77, pair);
        let (cos_back, sin_back) = back.cos_sin(77, pair);
        let (x, y) = (
            cos_back * cos - sin_back * sin,
            sin_back * cos + cos_back * sin,
        );
        assert!((x - 1.0).abs() < 1e-12 && y.abs() < 1e-12, "{x} {y}");
    }
}
