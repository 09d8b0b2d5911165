//! A mixture-of-experts feed-forward layer.
//!
//! Rows are grouped by the experts they chose: a *place* is one row at one of its experts, and the places of an expert
//! follow each other. Each expert's matrices are read once, by strips, for all of its places. What the experts of a row
//! give is added in the order of the row's own preference, so that it does not matter who else was there.

use super::CpuWeight;
use super::isa::Isa;
use super::matmul::{ActivationBuffer, Form, Inputs, MIN_PRODUCTS, Matrix, Panel, SplitBuffer};
use super::memory::sized;
use super::ops::GRAIN_ELEMENTS;
use super::pool::{Output, Pool, STRIP, Strip, lock};
use super::simd::elementwise::{ActMul, Add};
use super::simd::lanes::{Kernel, Lanes, dispatch};
use crate::{Activation, ExpertsSpec};
use std::ops::Range;
use std::sync::Mutex;

/// A layer's weights, the experts one below the other.
pub(super) struct Experts<'a> {
    pub(super) isa: Isa,
    pub(super) spec: &'a ExpertsSpec,
    /// `[experts * feed_forward, hidden]`.
    pub(super) gate: Projection<'a>,
    /// `[experts * feed_forward, hidden]`.
    pub(super) up: Projection<'a>,
    /// `[experts * hidden, feed_forward]`.
    pub(super) down: Projection<'a>,
}

/// A matrix of all experts.
pub(super) struct Projection<'a> {
    matrix: &'a Matrix,
    /// One value for each row of the matrix.
    bias: Option<&'a [f32]>,
}

impl<'a> Projection<'a> {
    pub(super) fn new(matrix: &'a CpuWeight, bias: Option<&'a CpuWeight>) -> Self {
        Self {
            matrix: matrix.matrix(),
            bias: bias.map(CpuWeight::vector),
        }
    }
}

/// What decides which experts a row takes.
#[derive(Clone, Copy)]
pub(super) enum Preference<'a> {
    /// `[rows, experts]`: the largest, and their softmax as weights.
    Logits(&'a [f32]),
    /// `[rows, chosen]` each: experts and weights.
    Given(&'a [u32], &'a [f32]),
}

/// Memory of the layer, kept from call to call.
#[derive(Default)]
pub(super) struct ExpertsScratch {
    /// `[rows, chosen]`: each row's experts, the preferred one first.
    choices: Vec<Choice>,
    /// `[rows, chosen]`: where each choice's place is.
    places: Vec<u32>,
    /// `[places]`: the row.
    rows: Vec<u32>,
    /// `[experts]`: where each expert's next place is.
    ends: Vec<u32>,
    /// Experts that any row chose.
    active: Vec<usize>,
    /// Places of the active experts: expert `i` has `bounds[i]..bounds[i + 1]`.
    bounds: Vec<usize>,
    /// `[rows, hidden]`.
    quantized: ActivationBuffer,
    /// `[places, hidden]`.
    inputs: PlaceInputs,
    /// `[places, feed_forward]`.
    activated: Vec<f32>,
    activated_quants: ActivationBuffer,
    activated_split: SplitBuffer,
    /// `[places, hidden]`.
    results: Vec<f32>,
    threads: Vec<Mutex<Work>>,
}

/// The input of every place, in the forms that matrices need.
#[derive(Default)]
struct PlaceInputs {
    quants: ActivationBuffer,
    floats: Vec<f32>,
    split: SplitBuffer,
}

/// What one thread works with.
#[derive(Default)]
struct Work {
    panel: Panel,
    /// `[places of an expert, STRIP]`
    up: Vec<f32>,
}

/// One of a row's experts.
#[derive(Clone, Copy, Default)]
struct Choice {
    expert: u32,
    /// The expert's logit, then its share of the row's result.
    weight: f32,
}

impl Experts<'_> {
    /// Fills `out`, `[rows, hidden]`, from `x`, `[rows, hidden]`.
    pub(super) fn run(
        &self,
        pool: &Pool,
        scratch: &mut ExpertsScratch,
        (out, x): (&mut [f32], &[f32]),
        preference: Preference<'_>,
    ) {
        let hidden = self.hidden();
        if x.is_empty() {
            return;
        }
        scratch.choose(pool, self.spec, x.len() / hidden, preference);
        scratch.group(self.spec);
        scratch
            .threads
            .resize_with(pool.threads().max(scratch.threads.len()), || {
                Mutex::new(Work {
                    panel: Panel::of_thread(pool.threads()),
                    ..Work::default()
                })
            });
        self.gather(pool, scratch, x);
        self.gate_and_up(pool, scratch);
        self.down(pool, scratch);

        let (isa, chosen) = (self.isa, self.spec.chosen);
        let grain = GRAIN_ELEMENTS.div_ceil(hidden * chosen);
        pool.for_rows(out, hidden, grain, &|first, out| {
            for (row, out) in (first..).zip(out.chunks_exact_mut(hidden)) {
                let choices = row * chosen..(row + 1) * chosen;
                let sum = WeightedSum {
                    out,
                    results: &scratch.results,
                    choices: &scratch.choices[choices.clone()],
                    places: &scratch.places[choices],
                    bias: self.down.bias,
                };
                dispatch(isa, sum);
            }
        });
    }

    /// Panics unless all shapes fit together.
    pub(super) fn check(&self) {
        let Self {
            spec,
            gate,
            up,
            down,
            ..
        } = self;
        assert!((1..=spec.experts).contains(&spec.chosen));
        let (hidden, width) = (self.hidden(), self.feed_forward());
        for (projection, rows, cols) in [
            (gate, width, hidden),
            (up, width, hidden),
            (down, hidden, width),
        ] {
            let all = spec.experts * rows;
            let Projection { matrix, bias } = projection;
            assert!(matrix.rows() == all && matrix.cols() == cols);
            assert!(bias.is_none_or(|bias| bias.len() == all));
            assert!(rows.is_multiple_of(STRIP), "an expert has whole strips");
        }
    }

    /// Width of the layer's input and output.
    pub(super) fn hidden(&self) -> usize {
        self.gate.matrix.cols()
    }

    /// Width of an expert's inner layer.
    fn feed_forward(&self) -> usize {
        self.gate.matrix.rows() / self.spec.experts
    }

    /// What the first two matrices need.
    fn inner_forms(&self) -> [Form; 2] {
        [self.gate.matrix, self.up.matrix].map(|matrix| matrix.form(self.isa))
    }

    /// Brings the rows of `x` to their places.
    fn gather(&self, pool: &Pool, scratch: &mut ExpertsScratch, x: &[f32]) {
        let hidden = self.hidden();
        let forms = self.inner_forms();
        let kinds = || forms.into_iter().filter_map(Form::kind);
        let ExpertsScratch {
            quantized,
            inputs,
            rows,
            ..
        } = scratch;
        if kinds().next().is_some() {
            quantized.quantize((pool, self.isa), x, x.len() / hidden, kinds());
            inputs.quants.gather(pool, quantized, rows);
        }
        inputs.floats.clear();
        if kinds().count() < forms.len() {
            inputs.floats.resize(rows.len() * hidden, 0.0);
            let grain = GRAIN_ELEMENTS.div_ceil(hidden);
            pool.for_rows(&mut inputs.floats, hidden, grain, &|first, places| {
                for (place, &row) in places.chunks_exact_mut(hidden).zip(&rows[first..]) {
                    place.copy_from_slice(&x[row as usize * hidden..][..hidden]);
                }
            });
        }
        if forms.contains(&Form::Split) {
            let PlaceInputs { floats, split, .. } = inputs;
            split.split((pool, self.isa), floats, rows.len());
        }
    }

    /// `activated` = the activation of gate and up.
    fn gate_and_up(&self, pool: &Pool, scratch: &mut ExpertsScratch) {
        let (hidden, width) = (self.hidden(), self.feed_forward());
        let ExpertsScratch {
            bounds,
            active,
            inputs,
            activated,
            threads,
            ..
        } = scratch;
        let output = Output {
            data: sized(activated, last(bounds) * width),
            width,
            strips: 1,
        };
        let forms = self.inner_forms();
        let packed = forms.iter().any(|form| form.kind().is_some());
        let split = forms.contains(&Form::Split);
        let grain = grain(bounds, 2 * hidden);
        pool.for_strips_of_runs(output, bounds, grain, &|thread, run, mut gate| {
            let places = bounds[run]..bounds[run + 1];
            let inputs = Inputs {
                quants: packed.then(|| inputs.quants.part(places.clone())),
                split: split.then(|| inputs.split.part(places.clone())),
                floats: rows_of(&inputs.floats, places.clone(), hidden),
            };
            let group = active[run] * (width / STRIP) + gate.index();
            let Work { panel, up } = &mut *lock(&threads[thread]);
            let up = sized(up, places.len() * STRIP);
            let mut up_strip = Strip::whole(up, STRIP);
            self.gate
                .matrix
                .multiply_group(self.isa, inputs, panel, (group, &mut gate));
            self.up
                .matrix
                .multiply_group(self.isa, inputs, panel, (group, &mut up_strip));
            let of_group = |bias: &'_ [f32]| -> [f32; STRIP] {
                std::array::from_fn(|lane| bias[group * STRIP + lane])
            };
            let activate = Activate {
                gate,
                up,
                gate_bias: self.gate.bias.map(of_group),
                up_bias: self.up.bias.map(of_group),
                act: self.spec.activation,
            };
            dispatch(self.isa, activate);
        });
    }

    /// `results` = what the experts give, without bias and weight.
    fn down(&self, pool: &Pool, scratch: &mut ExpertsScratch) {
        let (hidden, width) = (self.hidden(), self.feed_forward());
        let ExpertsScratch {
            bounds,
            active,
            activated,
            activated_quants,
            activated_split,
            results,
            threads,
            ..
        } = scratch;
        let places = last(bounds);
        let activated = &activated[..places * width];
        let form = self.down.matrix.form(self.isa);
        match form {
            Form::Quants(kind) => {
                let kinds = std::iter::once(kind);
                activated_quants.quantize((pool, self.isa), activated, places, kinds);
            }
            Form::Split => activated_split.split((pool, self.isa), activated, places),
            Form::Floats => {}
        }
        let output = Output {
            data: sized(results, places * hidden),
            width: hidden,
            strips: 1,
        };
        let grain = grain(bounds, width);
        pool.for_strips_of_runs(output, bounds, grain, &|thread, run, mut strip| {
            let places = bounds[run]..bounds[run + 1];
            let inputs = Inputs {
                quants: form.kind().map(|_| activated_quants.part(places.clone())),
                split: (form == Form::Split).then(|| activated_split.part(places.clone())),
                floats: rows_of(activated, places, width),
            };
            let group = active[run] * (hidden / STRIP) + strip.index();
            let panel = &mut lock(&threads[thread]).panel;
            self.down
                .matrix
                .multiply_group(self.isa, inputs, panel, (group, &mut strip));
        });
    }
}

impl ExpertsScratch {
    /// Which experts each row takes, and their weights.
    fn choose(&mut self, pool: &Pool, spec: &ExpertsSpec, rows: usize, by: Preference<'_>) {
        let choices = sized(&mut self.choices, rows * spec.chosen);
        match by {
            Preference::Logits(logits) => {
                let grain = GRAIN_ELEMENTS.div_ceil(spec.experts);
                pool.for_rows(choices, spec.chosen, grain, &|first, choices| {
                    let logits = logits[first * spec.experts..].chunks_exact(spec.experts);
                    for (choices, logits) in choices.chunks_exact_mut(spec.chosen).zip(logits) {
                        take_largest(choices, logits);
                        weigh(choices);
                    }
                });
            }
            Preference::Given(experts, weights) => {
                let given = experts.iter().zip(weights);
                for (choice, (&expert, &weight)) in choices.iter_mut().zip(given) {
                    *choice = Choice { expert, weight };
                }
            }
        }
        self.rows.clear();
        self.rows.resize(choices.len(), 0);
    }

    /// Gives every choice its place.
    fn group(&mut self, spec: &ExpertsSpec) {
        let Self {
            choices,
            places,
            rows,
            ends,
            active,
            bounds,
            ..
        } = self;
        let choices = &choices[..rows.len()];
        // First the number of places of each expert, then where its next one is.
        ends.clear();
        ends.resize(spec.experts, 0);
        for choice in choices {
            ends[choice.expert as usize] += 1;
        }
        active.clear();
        bounds.clear();
        bounds.push(0);
        let mut place = 0;
        for (expert, end) in ends.iter_mut().enumerate() {
            let count = std::mem::replace(end, place);
            if count > 0 {
                place += count;
                active.push(expert);
                bounds.push(place as usize);
            }
        }
        places.clear();
        for (index, choice) in choices.iter().enumerate() {
            let place = &mut ends[choice.expert as usize];
            places.push(*place);
            rows[*place as usize] = (index / spec.chosen) as u32;
            *place += 1;
        }
    }
}

/// Fills `choices` with the experts of the largest logits, descending; of equal ones the first comes first.
fn take_largest(choices: &mut [Choice], logits: &[f32]) {
    let mut taken = 0;
    for (expert, &weight) in (0..).zip(logits) {
        let above = |choice: &Choice| choice.weight.total_cmp(&weight).is_ge();
        let rank = choices[..taken].partition_point(above);
        if rank == choices.len() {
            continue;
        }
        taken = choices.len().min(taken + 1);
        choices[rank..taken].rotate_right(1);
        choices[rank] = Choice { expert, weight };
    }
}

/// Turns the logits of the chosen into weights: their softmax.
fn weigh(choices: &mut [Choice]) {
    let max = choices[0].weight;
    let sum: f32 = choices.iter().map(|c| (c.weight - max).exp()).sum();
    for choice in choices {
        choice.weight = (choice.weight - max).exp() / sum;
    }
}

/// The activation of a strip of gate and up, `[places, STRIP]`, in place of gate.
struct Activate<'a> {
    gate: Strip<'a>,
    up: &'a mut [f32],
    gate_bias: Option<[f32; STRIP]>,
    up_bias: Option<[f32; STRIP]>,
    act: Activation,
}

impl Kernel for Activate<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(mut self, s: S) {
        for (place, up) in self.up.chunks_exact_mut(STRIP).enumerate() {
            let gate = self.gate.row(place);
            if let Some(y) = &self.gate_bias {
                Add { x: gate, y }.run(s);
            }
            if let Some(y) = &self.up_bias {
                Add { x: up, y }.run(s);
            }
            let act = self.act;
            ActMul { gate, up, act }.run(s);
        }
    }
}

/// `out = sum of weight * (result + bias)` over a row's experts in order.
struct WeightedSum<'a> {
    /// `[hidden]`.
    out: &'a mut [f32],
    /// `[places, hidden]`.
    results: &'a [f32],
    choices: &'a [Choice],
    places: &'a [u32],
    /// `[experts, hidden]`.
    bias: Option<&'a [f32]>,
}

impl Kernel for WeightedSum<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let width = self.out.len();
        self.out.fill(0.0);
        for (choice, &place) in self.choices.iter().zip(self.places) {
            let weight = s.splat(choice.weight);
            let result = &self.results[place as usize * width..][..width];
            let bias = self
                .bias
                .map(|bias| &bias[choice.expert as usize * width..][..width]);
            for start in (0..width).step_by(S::N) {
                let part = start..width.min(start + S::N);
                let mut value = s.load_part(&result[part.clone()]);
                if let Some(bias) = bias {
                    value = s.add(value, s.load_part(&bias[part.clone()]));
                }
                let out = &mut self.out[part];
                let sum = s.mul_add(weight, value, s.load_part(out));
                s.store_part(out, sum);
            }
        }
    }
}

/// Strips that a thread takes at a time, for products with rows of `cols` values.
fn grain(bounds: &[usize], cols: usize) -> usize {
    let places = last(bounds).div_ceil(bounds.len() - 1);
    MIN_PRODUCTS.div_ceil(places * cols * STRIP)
}

fn last(bounds: &[usize]) -> usize {
    bounds[bounds.len() - 1]
}

/// Rows `range` of `values`, `[rows, width]`, if there are any.
fn rows_of(values: &[f32], range: Range<usize>, width: usize) -> &[f32] {
    values
        .get(range.start * width..range.end * width)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
