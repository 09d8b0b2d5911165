//! Choices against slow definitions in double precision.

use std::sync::Arc;

use andante_sched::Priority;

use super::*;
use crate::tenant::Tenant;

fn request(sampling: Sampling, seed: u64) -> Request {
    Request {
        prompt: Arc::new([1, 2, 3]),
        sampling,
        max_new: 100,
        seed,
        constraint: None,
        tenant: Tenant::default(),
        priority: Priority::Normal,
        salt: 0,
        pooling: None,
        opening: None,
        reports_progress: false,
        name: None,
        traits: crate::request::Traits::default(),
    }
}

fn sampler(sampling: Sampling, seed: u64) -> Sampler {
    Sampler::new(&request(sampling, seed), &[5])
}

fn next(sampler: &mut Sampler, row: &[f32]) -> u32 {
    sampler
        .sample(row, None, &mut Scratch::default())
        .expect("the row is finite")
        .token
}

/// A row like a model's: a normal bulk and some likely tokens; coarse enough to hold equal logits.
fn random_row(rng: &mut Pcg64, vocab: usize) -> Vec<f32> {
    let mut unit = || (rng.next_u64() >> 40) as f32 / (1 << 24) as f32;
    (0..vocab)
        .map(|_| {
            let bulk: f32 = (0..4).map(|_| unit()).sum::<f32>() * 3.0 - 6.0;
            let peak = if unit() < 0.02 { 6.0 * unit() } else { 0.0 };
            ((bulk + peak) * 64.0).round() / 64.0
        })
        .collect()
}

/// The distribution that a request draws from, by full sorts in double precision: `(id, probability)`.
fn reference(row: &[f32], sampling: &Sampling) -> Vec<(u32, f64)> {
    let mut set: Vec<(u32, f64)> = (0..).zip(row).map(|(id, &x)| (id, f64::from(x))).collect();
    set.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if sampling.top_k > 0 {
        set.truncate(sampling.top_k as usize);
    }
    let normalised = |set: &[(u32, f64)]| {
        let total: f64 = set.iter().map(|(_, x)| (x - set[0].1).exp()).sum();
        set.iter()
            .map(|(_, x)| (x - set[0].1).exp() / total)
            .collect::<Vec<_>>()
    };
    if sampling.typical_p < 1.0 {
        let p = normalised(&set);
        let entropy: f64 = p.iter().map(|p| -p * p.ln()).sum();
        let mut order: Vec<usize> = (0..set.len()).collect();
        order.sort_by(|&a, &b| {
            (-p[a].ln() - entropy)
                .abs()
                .total_cmp(&(-p[b].ln() - entropy).abs())
        });
        let mut sum = 0.0;
        let keep = order.iter().position(|&i| {
            sum += p[i];
            sum >= f64::from(sampling.typical_p)
        });
        order.truncate(keep.map_or(order.len(), |last| last + 1));
        order.sort_unstable();
        set = order.into_iter().map(|i| set[i]).collect();
    }
    if sampling.top_p < 1.0 {
        let mut sum = 0.0;
        let keep = normalised(&set).iter().position(|p| {
            sum += p;
            sum >= f64::from(sampling.top_p)
        });
        set.truncate(keep.map_or(set.len(), |last| last + 1));
    }
    let best = set[0].1;
    set.retain(|(_, x)| (x - best).exp() >= f64::from(sampling.min_p));
    let weights: Vec<f64> = set
        .iter()
        .map(|(_, x)| ((x - best) / f64::from(sampling.temperature)).exp())
        .collect();
    let total: f64 = weights.iter().sum();
    set.iter()
        .zip(weights)
        .map(|(&(id, _), weight)| (id, weight / total))
        .collect()
}

#[test]
fn draws_follow_the_reference_distribution_of_every_chain() {
    const DRAWS: u32 = 4000;
    let mut rng = Pcg64::seed_from_u64(1);
    let off = Sampling {
        min_p: 0.0,
        ..Sampling::default()
    };
    let mut chains = vec![off.clone()];
    for temperature in [0.3, 1.0, 1.7] {
        for (top_k, typical_p, top_p, min_p) in [
            (0, 1.0, 1.0, 0.0),
            (0, 1.0, 0.9, 0.0),
            (0, 1.0, 1.0, 0.07),
            (0, 1.0, 0.97, 0.013),
            (20, 1.0, 1.0, 0.0),
            (1, 1.0, 1.0, 0.0),
            (50, 1.0, 0.83, 0.021),
            (0, 0.7, 1.0, 0.0),
            (0, 0.4, 0.9, 0.1),
            (30, 0.6, 0.8, 0.0),
        ] {
            chains.push(Sampling {
                temperature,
                top_k,
                typical_p,
                top_p,
                min_p,
                ..off.clone()
            });
        }
    }
    for (index, chain) in chains.iter().enumerate() {
        let row = random_row(&mut rng, 40 + 37 * (index % 20));
        let expected = reference(&row, chain);
        let mut counts = BTreeMap::<u32, u32>::new();
        let mut sampler = sampler(chain.clone(), index as u64);
        for _ in 0..DRAWS {
            *counts.entry(next(&mut sampler, &row)).or_default() += 1;
        }
        for id in counts.keys() {
            assert!(
                expected.iter().any(|(e, _)| e == id),
                "chain {index} {chain:?}: {id} was filtered out"
            );
        }
        // Pearson's statistic over the tokens expected often enough; its mean is about their number.
        let (mut chi, mut degrees) = (0.0, 0);
        for (id, p) in &expected {
            let expected = p * f64::from(DRAWS);
            if expected >= 10.0 {
                chi +=
                    (f64::from(counts.get(id).copied().unwrap_or(0)) - expected).powi(2) / expected;
                degrees += 1;
            }
        }
        let bound = f64::from(degrees) + 5.0 * f64::from(2 * degrees).sqrt();
        assert!(
            chi <= bound,
            "chain {index} {chain:?}: χ² {chi} for {degrees} tokens"
        );
    }
}

#[test]
fn greedy_takes_the_lowest_of_equal_tokens_and_skips_the_filters() {
    let mut row = vec![0.0; 100];
    for id in [17, 40, 99] {
        row[id] = 3.5;
    }
    let sampling = Sampling {
        typical_p: 0.1,
        top_k: 3,
        ..Sampling::greedy()
    };
    assert_eq!(next(&mut sampler(sampling, 0), &row), 17);
}

#[test]
fn end_tokens_are_never_chosen_when_ignored() {
    let mut row = vec![0.0; 10];
    row[5] = 9.0;
    row[6] = 1.0;
    assert_eq!(next(&mut sampler(Sampling::greedy(), 0), &row), 5);
    assert_eq!(
        next(
            &mut sampler(
                Sampling {
                    ignore_eos: true,
                    ..Sampling::greedy()
                },
                0
            ),
            &row
        ),
        6
    );
}

#[test]
fn penalties_change_exactly_the_tokens_they_are_about() {
    let sampling = Sampling {
        repetition_penalty: 2.0,
        repeat_last_n: Some(2),
        frequency_penalty: 0.5,
        presence_penalty: 0.25,
        logit_bias: vec![(9, 1.5), (9, -0.5), (8, f32::NEG_INFINITY)],
        ..Sampling::greedy()
    };
    // The prompt is 1, 2, 3: only 2 and 3 are in the window, and only for the repetition penalty.
    let mut sampler = sampler(sampling, 0);
    let row = [1.0, 1.0, 1.0, -1.0, 0.0, 0.0, 4.0, 0.0, 7.0, 0.5];
    let mut adjusted = Vec::new();
    sampler.adjust(&row, &mut adjusted);
    assert_eq!(
        adjusted,
        [
            1.0,
            1.0,
            0.5,
            -2.0,
            0.0,
            0.0,
            4.0,
            0.0,
            f32::NEG_INFINITY,
            1.5
        ]
    );
    assert_eq!(next(&mut sampler, &row), 6);
    // Now the window is 3, 6 and the answer holds one 6: 4 / 2 - 0.5 - 0.25.
    sampler.adjust(&row, &mut adjusted);
    assert_eq!(
        adjusted,
        [
            1.0,
            1.0,
            1.0,
            -2.0,
            0.0,
            0.0,
            1.25,
            0.0,
            f32::NEG_INFINITY,
            1.5
        ]
    );
    assert_eq!(next(&mut sampler, &row), 9);
    assert_eq!(
        next(&mut sampler, &row),
        6,
        "6 has 1.25, 9 has 1.5 / 2 - 0.75"
    );
}

#[test]
fn same_seed_same_tokens_whatever_the_neighbours_do() {
    let mut rng = Pcg64::seed_from_u64(3);
    let rows: Vec<Vec<f32>> = (0..50).map(|_| random_row(&mut rng, 300)).collect();
    let chain = Sampling {
        top_p: 0.95,
        repetition_penalty: 1.1,
        logprobs: Some(2),
        ..Sampling::default()
    };
    let mut alone = sampler(chain.clone(), 42);
    let expected: Vec<u32> = rows.iter().map(|row| next(&mut alone, row)).collect();
    let (mut first, mut second) = (
        sampler(chain.clone(), 42),
        sampler(
            Sampling {
                top_k: 7,
                ..chain.clone()
            },
            43,
        ),
    );
    let mut scratch = Scratch::default();
    let mut mixed = |sampler: &mut Sampler, row| {
        sampler
            .sample(row, None, &mut scratch)
            .expect("the row is finite")
            .token
    };
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for row in &rows {
        b.push(mixed(&mut second, &row[..200]));
        a.push(mixed(&mut first, row));
    }
    assert_eq!(a, expected);
    assert_ne!(a, b);
    let mut other = sampler(chain, 44);
    assert_ne!(
        rows.iter()
            .map(|row| next(&mut other, row))
            .collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn a_row_with_anything_but_numbers_is_refused() {
    for (place, value) in [
        (0, f32::NAN),
        (31, f32::INFINITY),
        (39, f32::NEG_INFINITY),
        (7, -f32::NAN),
    ] {
        let mut row = vec![0.5; 40];
        row[place] = value;
        let sampled = sampler(Sampling::greedy(), 0).sample(&row, None, &mut Scratch::default());
        assert_eq!(sampled, Err(Unusable::NotFinite), "{value} at {place}");
    }
    let all = (0..4).map(|id| (id, f32::NEG_INFINITY)).collect();
    let banned = Sampling {
        logit_bias: all,
        ..Sampling::default()
    };
    assert_eq!(
        sampler(banned, 0).sample(&[0.0; 4], None, &mut Scratch::default()),
        Err(Unusable::NoneAllowed)
    );
}

#[test]
fn extreme_parameters_still_choose_a_token() {
    let row = [-3.0e38_f32, 3.0e38, 0.0, 1.0];
    let extreme = [
        Sampling {
            temperature: f32::MIN_POSITIVE,
            ..Sampling::default()
        },
        Sampling {
            temperature: f32::MAX,
            min_p: 0.0,
            ..Sampling::default()
        },
        Sampling {
            logit_bias: vec![(1, f32::MAX), (1, f32::MAX)],
            ..Sampling::default()
        },
        Sampling {
            repetition_penalty: f32::MIN_POSITIVE,
            ..Sampling::default()
        },
        Sampling {
            frequency_penalty: -f32::MAX,
            presence_penalty: -f32::MAX,
            ..Sampling::default()
        },
        Sampling {
            top_p: f32::MIN_POSITIVE,
            typical_p: f32::MIN_POSITIVE,
            ..Sampling::default()
        },
    ];
    for sampling in extreme {
        let mut sampler = sampler(sampling.clone(), 0);
        for _ in 0..5 {
            assert!(next(&mut sampler, &row) < 4, "{sampling:?}");
        }
    }
}

#[test]
fn logprobs_are_those_of_the_model_before_everything_else() {
    let row = random_row(&mut Pcg64::seed_from_u64(5), 500);
    let sampling = Sampling {
        temperature: 1.9,
        logprobs: Some(4),
        logit_bias: vec![(3, 100.0)],
        ..Sampling::default()
    };
    let sampled = sampler(sampling, 0)
        .sample(&row, None, &mut Scratch::default())
        .expect("the row is finite");
    assert_eq!(sampled.token, 3, "the bias decides");
    let expected = reference(
        &row,
        &Sampling {
            min_p: 0.0,
            ..Sampling::default()
        },
    );
    let of = |id: u32| {
        expected
            .iter()
            .find(|(e, _)| *e == id)
            .expect("no filter")
            .1
            .ln() as f32
    };
    let logprobs = sampled.logprobs.expect("they were asked for");
    assert!((logprobs.chosen - of(3)).abs() < 1e-5);
    let ids: Vec<u32> = logprobs.top.iter().map(|(id, _)| *id).collect();
    assert_eq!(
        ids,
        expected[..4].iter().map(|(id, _)| *id).collect::<Vec<_>>()
    );
    assert!(
        logprobs
            .top
            .iter()
            .all(|&(id, logprob)| (logprob - of(id)).abs() < 1e-5)
    );
}

#[test]
fn partial_selection_equals_a_full_sort() {
    let mut rng = Pcg64::seed_from_u64(9);
    for k in [1, 2, 31, 32, 33, 200, 999] {
        let row = random_row(&mut rng, 1000);
        let mut sorted: Vec<Candidate> = (0..)
            .zip(&row)
            .map(|(id, &logit)| Candidate { id, logit })
            .collect();
        sorted.sort_by(Candidate::rank);
        let mut selected = Vec::new();
        most_likely(&row, k, &mut selected);
        assert_eq!(selected, sorted[..k], "k = {k}");
    }
}

#[test]
fn exp_is_within_a_few_roundings() {
    for step in 0..870_000 {
        let x = -(step as f32) * 1e-4;
        let exact = f64::from(x).exp();
        let error = (f64::from(row::exp(x)) - exact).abs() / exact;
        assert!(error < 2e-7, "exp({x}) is off by {error}");
    }
    assert_eq!(row::exp(0.0), 1.0);
    assert_eq!(row::exp(f32::NEG_INFINITY), 0.0);
}

#[test]
#[ignore = "prints figures: cargo test --release -p andante-engine -- --ignored --nocapture"]
#[expect(clippy::print_stdout, reason = "its purpose is to print figures")]
fn speed_of_a_row() {
    let off = Sampling {
        min_p: 0.0,
        ..Sampling::default()
    };
    let chains = [
        ("greedy", Sampling::greedy()),
        ("no filter", off.clone()),
        ("min_p 0.05", Sampling::default()),
        (
            "top_p 0.95",
            Sampling {
                top_p: 0.95,
                ..off.clone()
            },
        ),
        (
            "top_k 40, top_p 0.95, min_p 0.05",
            Sampling {
                top_k: 40,
                top_p: 0.95,
                ..Sampling::default()
            },
        ),
        (
            "typical_p 0.9",
            Sampling {
                typical_p: 0.9,
                ..off
            },
        ),
        (
            "min_p 0.05, repetition 1.1",
            Sampling {
                repetition_penalty: 1.1,
                ..Sampling::default()
            },
        ),
        (
            "min_p 0.05, 5 logprobs",
            Sampling {
                logprobs: Some(5),
                ..Sampling::default()
            },
        ),
    ];
    for vocab in [49_152_u32, 262_144] {
        // As steep as the next words of a text usually are, in a shuffled order.
        let zipf = |id: u32| -1.5 * ((id.wrapping_mul(40_503) % vocab + 1) as f32).ln();
        let row: Vec<f32> = (0..vocab).map(zipf).collect();
        for (name, chain) in &chains {
            let (mut sampler, mut scratch) = (sampler(chain.clone(), 0), Scratch::default());
            let time = || {
                let start = std::time::Instant::now();
                sampler
                    .sample(&row, None, &mut scratch)
                    .expect("the row is finite");
                start.elapsed()
            };
            let least = std::iter::repeat_with(time)
                .take(300)
                .min()
                .expect("300 rounds");
            println!(
                "{vocab:7} tokens, {name}: {:.1} µs",
                least.as_secs_f64() * 1e6
            );
        }
    }
}

#[test]
fn only_tokens_of_the_mask_are_chosen() {
    let row: Vec<f32> = (0..70).map(|id| 70.0 - id as f32).collect();
    // 3, 40 and 64; the mask says nothing of those beyond 95, there are none.
    let mask = [1 << 3, 1 << 8, 1];
    let chosen = |sampling: Sampling, seed, mask: &[u32]| {
        let sampled = sampler(sampling, seed).sample(&row, Some(mask), &mut Scratch::default());
        sampled.map(|sampled| sampled.token)
    };
    assert_eq!(chosen(Sampling::greedy(), 0, &mask), Ok(3));
    assert_eq!(chosen(Sampling::greedy(), 0, &mask[1..]), Ok(8));
    assert_eq!(chosen(Sampling::greedy(), 0, &[0, 0, u32::MAX]), Ok(64));
    for nothing in [&[0, 0, 0], &[0, 0][..], &[]] {
        let sampled = chosen(Sampling::greedy(), 0, nothing);
        assert_eq!(sampled, Err(Unusable::NoneAllowed));
    }
    let filters = [
        Sampling {
            top_k: 5,
            typical_p: 0.9,
            ..Sampling::default()
        },
        Sampling {
            top_p: 0.9,
            min_p: 0.0,
            ..Sampling::default()
        },
        Sampling {
            min_p: 0.0,
            temperature: 50.0,
            ..Sampling::default()
        },
        Sampling {
            min_p: 0.0,
            temperature: 50.0,
            repetition_penalty: 1.3,
            presence_penalty: 2.0,
            ..Sampling::default()
        },
        // The bias of a token that is not allowed means nothing.
        Sampling {
            logit_bias: vec![(0, f32::INFINITY)],
            ..Sampling::default()
        },
    ];
    for (index, sampling) in filters.into_iter().enumerate() {
        let mut found: Vec<u32> = (0..200)
            .map(|seed| chosen(sampling.clone(), seed, &mask).expect("three are allowed"))
            .collect();
        found.sort_unstable();
        found.dedup();
        assert!(
            found.iter().all(|token| [3, 40, 64].contains(token)),
            "{index}: {found:?}"
        );
        assert!(
            sampling.temperature < 2.0 || found == [3, 40, 64],
            "{index}: {found:?}"
        );
    }
}

#[test]
fn a_mask_leaves_the_logprobs_as_they_are() {
    let row = [3.0, 1.0, 2.0, 0.0];
    let sampling = Sampling {
        logprobs: Some(2),
        ..Sampling::greedy()
    };
    let mut scratch = Scratch::default();
    let masked = sampler(sampling.clone(), 0).sample(&row, Some(&[0b1000]), &mut scratch);
    let free = sampler(sampling, 0).sample(&row, None, &mut scratch);
    let (masked, free) = (masked.expect("one is allowed"), free.expect("finite"));
    assert_eq!((masked.token, free.token), (3, 0));
    let (masked, free) = (
        masked.logprobs.expect("asked"),
        free.logprobs.expect("asked"),
    );
    assert_eq!(masked.top, free.top);
    assert_eq!(masked.chosen, free.chosen - 3.0);
}
