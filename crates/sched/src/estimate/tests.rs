//! The fit learns what steps cost, keeps its margin and trusts no more than it has seen.

use proptest::prelude::*;

use super::*;
use crate::cost::{micros, nanos};

/// A small model on a few CPU cores.
fn cpu() -> CostModel {
    CostModel {
        decode: micros(9_000),
        prefill: micros(14_000),
        mixed: micros(12_000),
        token: micros(900),
        attend: nanos(60),
        context: nanos(300),
        row: micros(1_500),
    }
}

fn estimate(cost: CostModel) -> Estimate {
    Estimate::new(&Config {
        cost,
        ..Config::new(8, 100, 16)
    })
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// A step as they come: decoding alone, a prompt alone, or both.
    fn shape(&mut self) -> Shape {
        let mut shape = Shape::default();
        let kind = self.below(4);
        if kind != 1 {
            shape.rows = 1 + self.below(6) as u32;
            shape.context = u64::from(shape.rows) * (100 + self.below(3000));
        }
        if kind != 0 {
            shape.add_range(self.below(6000) as u32, 16 + self.below(100) as u32);
        }
        shape
    }
}

/// Measures `steps` steps, each wrong by up to `noise` permille.
fn feed(estimate: &mut Estimate, truth: &CostModel, steps: usize, noise: i64, random: &mut Random) {
    for _ in 0..steps {
        let shape = random.shape();
        let factor = 1000 - noise + random.below(2 * noise as u64 + 1) as i64;
        let elapsed = truth.step_us(shape) * factor / 1000;
        estimate.observe(shape, 100_000, elapsed.cast_unsigned());
    }
}

/// Largest relative error over many shapes, permille.
fn worst_error(model: &CostModel, truth: &CostModel, random: &mut Random) -> i64 {
    let error = |shape: Shape| {
        let exact = truth.step_us(shape);
        (model.step_us(shape) - exact).abs() * 1000 / exact
    };
    (0..200).map(|_| error(random.shape())).max().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_model_wrong_by_ten_is_right_after_a_hundred_steps(
        errors in prop::array::uniform7(100..10_000i64),
        seed in any::<u64>(),
    ) {
        let random = &mut Random(seed);
        let mut estimate = estimate(cpu().scaled(errors));
        feed(&mut estimate, &cpu(), 100, 0, random);
        let worst = worst_error(estimate.model(), &cpu(), random);
        prop_assert!(worst <= 20, "{worst} ‰ wrong: {:?}", estimate.model());
    }

    #[test]
    fn noise_is_averaged_and_covered_by_the_margin(errors in prop::array::uniform7(100..10_000i64), seed in any::<u64>()) {
        let random = &mut Random(seed);
        let mut estimate = estimate(cpu().scaled(errors));
        feed(&mut estimate, &cpu(), 1500, 200, random);
        let worst = worst_error(estimate.model(), &cpu(), random);
        prop_assert!(worst <= 150, "{worst} ‰ wrong: {:?}", estimate.model());
        for margin in estimate.margins() {
            prop_assert!((1100..=1400).contains(&margin), "{:?}", estimate.margins());
        }
    }

    #[test]
    fn any_measurements_give_a_model_that_is_not_negative(
        samples in prop::collection::vec((0..65u32, 0..1u64 << 24, 0..200_000u32, 0..20_000u32, 0..1u64 << 40), 1..200),
    ) {
        let mut estimate = estimate(cpu());
        for (rows, context, start, tokens, elapsed) in samples {
            let mut shape = Shape { rows, context: if rows == 0 { 0 } else { context }, ..Shape::default() };
            shape.add_range(start, tokens);
            estimate.observe(shape, 100_000, elapsed);
            let m = *estimate.model();
            prop_assert!([m.decode, m.prefill, m.mixed, m.token, m.attend, m.context, m.row].iter().all(|&c| c >= 0));
        }
    }
}

#[test]
fn a_given_model_stays() {
    let config = Config {
        cost: cpu(),
        fixed_cost: true,
        ..Config::new(8, 100, 16)
    };
    let mut estimate = Estimate::new(&config);
    feed(
        &mut estimate,
        &cpu().scaled([3000; 7]),
        50,
        200,
        &mut Random(1),
    );
    assert_eq!(*estimate.model(), cpu());
    assert_eq!(estimate.planned(Regime::Mixed, 60_000), 60_000);
    assert_eq!(estimate.most_tokens(Regime::Mixed), config.q_max);
}

#[test]
fn spikes_are_counted_and_not_fitted() {
    let random = &mut Random(7);
    let mut estimate = estimate(cpu());
    feed(&mut estimate, &cpu(), 40, 50, random);
    let before = *estimate.model();
    for i in 0..40 {
        let shape = random.shape();
        let spike = i % 4 == 0;
        let elapsed = cpu().step_us(shape) * if spike { 10 } else { 1 };
        let verdict = estimate.observe(shape, 100_000, elapsed.cast_unsigned());
        assert_eq!(verdict == Verdict::Disturbed, spike);
    }
    assert!(worst_error(&before, &cpu(), random) <= 60);
    assert!(worst_error(estimate.model(), &cpu(), random) <= 60);
}

#[test]
fn a_machine_that_stays_slow_is_believed() {
    let random = &mut Random(7);
    let mut estimate = estimate(cpu());
    feed(&mut estimate, &cpu(), 100, 50, random);
    let slow = cpu().scaled([5000; 7]);
    feed(&mut estimate, &slow, 150, 0, random);
    let worst = worst_error(estimate.model(), &slow, random);
    assert!(worst <= 100, "{worst} ‰");
}

#[test]
fn many_more_rows_than_ever_are_learnt_from_at_once() {
    let truth = CostModel {
        row: micros(9_000),
        ..cpu()
    };
    let mut estimate = estimate(CostModel {
        row: micros(100),
        ..cpu()
    });
    let shape = |rows: u32| Shape {
        rows,
        context: 500 * u64::from(rows),
        ..Shape::default()
    };
    for _ in 0..50 {
        estimate.observe(shape(1), 100_000, truth.step_us(shape(1)).cast_unsigned());
    }
    let exact = truth.step_us(shape(30));
    assert!(estimate.model().step_us(shape(30)) < exact / 3);
    assert_eq!(
        estimate.observe(shape(30), 100_000, exact.cast_unsigned()),
        Verdict::Normal
    );
    let error = (estimate.model().step_us(shape(30)) - exact).abs();
    assert!(error < exact / 50, "{error} of {exact}");
}

#[test]
fn decode_steps_do_not_wash_out_what_is_known_of_prefill() {
    let random = &mut Random(7);
    let mut estimate = estimate(CostModel::default());
    feed(&mut estimate, &cpu(), 200, 0, random);
    for context in 0..5000 {
        let shape = Shape {
            rows: 1,
            context: 500 + context,
            ..Shape::default()
        };
        estimate.observe(shape, 100_000, cpu().step_us(shape).cast_unsigned());
    }
    let worst = worst_error(estimate.model(), &cpu(), random);
    assert!(worst <= 20, "{worst} ‰");
}

#[test]
fn trust_doubles_at_most_and_never_passes_the_budget() {
    let mut estimate = estimate(cpu().scaled([100; 7]));
    let mut seen = Vec::new();
    for _ in 0..12 {
        let tokens = estimate.most_tokens(Regime::Prefill);
        let mut shape = Shape::default();
        shape.add_range(0, tokens);
        let elapsed = cpu().step_us(shape);
        assert!(elapsed <= 100_000);
        estimate.observe(shape, 100_000, elapsed.cast_unsigned());
        seen.push(tokens);
    }
    assert_eq!(seen[..3], [16, 32, 64]);
    // (100 − 14) ms at 0.9 ms a token.
    assert!(seen[11] >= 94, "{seen:?}");
    // A step that takes twice the budget halves it.
    let mut shape = Shape::default();
    shape.add_range(0, 90);
    estimate.observe(shape, 100_000, 200_000);
    assert_eq!(estimate.most_tokens(Regime::Prefill), 45);
}

#[test]
fn the_efficient_floor_follows_the_fixed_cost() {
    let config = Config {
        efficiency_permille: 500,
        cost: cpu(),
        fixed_cost: true,
        ..Config::new(8, 100, 16)
    };
    let exact = Estimate::new(&config);
    // 14 ms / 0.9 ms is less than q_min; mixing costs 3 ms.
    assert_eq!(
        (
            exact.floor_tokens(Regime::Prefill),
            exact.floor_tokens(Regime::Mixed)
        ),
        (16, 16)
    );
    let keen = Estimate::new(&Config {
        efficiency_permille: 800,
        ..config
    });
    assert_eq!(keen.floor_tokens(Regime::Prefill), 4 * 14_000 / 900);
}
