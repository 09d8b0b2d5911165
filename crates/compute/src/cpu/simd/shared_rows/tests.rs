//! Against double precision, and whatever is computed together.

use super::*;
use crate::cpu::isa::Isa;
use crate::cpu::simd::lanes::dispatch;

fn values(count: usize, salt: usize) -> Vec<f32> {
    let value = |i: usize| ((i * 7919 + salt * 104_729) % 2003) as f32 / 1001.5 - 1.0;
    (0..count).map(value).collect()
}

/// Rows with room behind them, as far apart as whole vectors.
fn padded(rows: &[f32], width: usize) -> Vec<f32> {
    let pitch = width.next_multiple_of(MAX_LANES);
    let pad = |row: &[f32]| [row, &vec![0.0; pitch - width]].concat();
    rows.chunks_exact(width).flat_map(pad).collect()
}

struct Case {
    heads: usize,
    width: usize,
    rows: usize,
    queries: Vec<f32>,
    keys: Vec<f32>,
}

impl Case {
    fn new(heads: usize, width: usize, rows: usize) -> Self {
        Self {
            heads,
            width,
            rows,
            queries: values(heads * width, 1),
            keys: values(rows * width, 2),
        }
    }

    /// `[rows, heads]`.
    fn scores(&self, isa: Isa) -> Vec<f32> {
        let pitch = self.heads.next_multiple_of(MAX_LANES);
        let mut queries = vec![f32::NAN; self.width * pitch];
        LayQueries {
            to: &mut queries,
            from: &self.queries,
            width: self.width,
            pitch,
            factor: 0.5,
        }
        .run();
        let row_pitch = self.width.next_multiple_of(MAX_LANES);
        let whole = self.rows.next_multiple_of(TOGETHER);
        let mut rows = padded(&self.keys, self.width);
        rows.resize(whole * row_pitch, f32::NAN);
        let mut scores = vec![f32::NAN; whole * pitch];
        let kernel = Scores {
            scores: &mut scores,
            rows: &rows,
            row_pitch,
            queries: &queries,
            width: self.width,
            pitch,
        };
        dispatch(isa, kernel);
        let rows = scores.chunks_exact(pitch).take(self.rows);
        rows.flat_map(|row| row[..self.heads].to_vec()).collect()
    }

    /// What shares of all rows give, `[heads, width]`, `chunk` of them at a time.
    fn attend(&self, isa: Isa, chunk: usize) -> Vec<f32> {
        let pitch = self.heads.next_multiple_of(MAX_LANES);
        let row_pitch = self.width.next_multiple_of(MAX_LANES);
        let scores = self.scores(isa);
        let mut scores = padded(&scores, self.heads);
        let rows = padded(&self.keys, self.width);
        let mut out = vec![0.0; self.heads * row_pitch];
        let [mut max, mut sum, mut kept] = [0.25, 1.0, f32::NAN].map(|value| vec![value; pitch]);
        let parts = scores.chunks_mut(chunk * pitch);
        for (shares, rows) in parts.zip(rows.chunks(chunk * row_pitch)) {
            let seen = Seen {
                max: &mut max,
                sum: &mut sum,
                kept: &mut kept,
            };
            dispatch(
                isa,
                Softmax {
                    scores: shares,
                    seen,
                },
            );
            let gather = Gather {
                out: &mut out,
                kept: &kept,
                shares,
                rows,
                row_pitch,
                pitch,
            };
            dispatch(isa, gather);
        }
        let rows = out.chunks_exact(row_pitch).zip(sum);
        rows.flat_map(|(row, sum)| row[..self.width].iter().map(move |x| x / sum))
            .collect()
    }
}

fn cases() -> impl Iterator<Item = Case> {
    let shapes = [
        (1, 24, 1),
        (4, 128, 7),
        (32, 512, 30),
        (64, 128, 13),
        (5, 40, 96),
        (48, 72, 6),
    ];
    shapes
        .into_iter()
        .map(|(heads, width, rows)| Case::new(heads, width, rows))
}

fn exact_scores(case: &Case) -> Vec<f64> {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter()
            .zip(b)
            .map(|(&a, &b)| f64::from(a) * f64::from(b))
            .sum()
    };
    let keys = case.keys.chunks_exact(case.width);
    let of_key = |key| {
        case.queries
            .chunks_exact(case.width)
            .map(move |q| 0.5 * dot(q, key))
    };
    keys.flat_map(of_key).collect()
}

#[test]
fn scores_are_products() {
    for isa in Isa::available() {
        for case in cases() {
            for (found, exact) in case.scores(isa).iter().zip(exact_scores(&case)) {
                assert!(
                    (f64::from(*found) - exact).abs() < 1e-5 * case.width as f64,
                    "{isa}"
                );
            }
        }
    }
}

#[test]
fn shares_are_those_of_a_softmax() {
    for isa in Isa::available() {
        for case in cases() {
            let scores = exact_scores(&case);
            let found = case.attend(isa, 12);
            for head in 0..case.heads {
                let share = |row: usize| scores[row * case.heads + head].exp2();
                // What was seen before: a score of 1/4 without a value.
                let sum: f64 = (0..case.rows).map(share).sum::<f64>() + 0.25_f64.exp2();
                for d in 0..case.width {
                    let term = |row: usize| share(row) * f64::from(case.keys[row * case.width + d]);
                    let exact = (0..case.rows).map(term).sum::<f64>() / sum;
                    let found = f64::from(found[head * case.width + d]);
                    assert!((found - exact).abs() < 1e-4, "{isa}: {found}, {exact}");
                }
            }
        }
    }
}

#[test]
fn heads_and_rows_that_are_computed_together_do_not_show() {
    for isa in Isa::available() {
        for case in cases() {
            let (scores, out) = (case.scores(isa), case.attend(isa, 12));
            for head in [0, case.heads - 1] {
                let alone = Case {
                    heads: 1,
                    queries: case.queries[head * case.width..][..case.width].to_vec(),
                    keys: case.keys.clone(),
                    ..case
                };
                let of_head = scores.iter().skip(head).step_by(case.heads);
                assert!(alone.scores(isa).iter().eq(of_head), "{isa}");
                assert_eq!(
                    alone.attend(isa, 12),
                    out[head * case.width..][..case.width],
                    "{isa}"
                );
            }
            let last = Case {
                rows: 1,
                queries: case.queries.clone(),
                keys: case.keys[(case.rows - 1) * case.width..].to_vec(),
                ..case
            };
            assert_eq!(
                last.scores(isa),
                scores[(case.rows - 1) * case.heads..],
                "{isa}"
            );
        }
    }
}

#[test]
fn sums_leave_out_negative_scores_and_other_lanes() {
    let (heads, pitch) = (19, 32);
    let scores = values(5 * pitch, 3);
    let weights = [values(heads, 4), vec![f32::NAN; pitch - heads]].concat();
    for isa in Isa::available() {
        let mut sums = [f32::NAN; 5];
        let kernel = ScoreSums {
            sums: &mut sums,
            scores: &scores,
            weights: &weights,
            heads,
        };
        dispatch(isa, kernel);
        for (sum, row) in sums.iter().zip(scores.chunks_exact(pitch)) {
            let terms = row[..heads].iter().zip(&weights);
            let exact: f32 = terms.map(|(score, weight)| weight * score.max(0.0)).sum();
            assert!((sum - exact).abs() < 1e-5, "{isa}");
        }
    }
}
