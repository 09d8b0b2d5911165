//! The ops in plain double precision.

use crate::{Activation, AttentionSpec, ExpertsSpec, RopeTable};

pub(super) fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

pub(super) fn rms_norm(x: &[f64], weight: &[f32], eps: f64) -> Vec<f64> {
    let mut out = Vec::new();
    for row in x.chunks(weight.len()) {
        let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
        out.extend(
            row.iter()
                .zip(weight)
                .map(|(x, &w)| x / (mean + eps).sqrt() * f64::from(w)),
        );
    }
    out
}

/// `weight` is `[rows, cols]`, `x` rows of `cols`.
pub(super) fn matmul(weight: &[f32], x: &[f32], cols: usize) -> Vec<f64> {
    let mut out = Vec::new();
    for x in x.chunks(cols) {
        for weight in weight.chunks(cols) {
            out.push(
                weight
                    .iter()
                    .zip(x)
                    .map(|(&w, &x)| f64::from(w) * f64::from(x))
                    .sum(),
            );
        }
    }
    out
}

pub(super) fn activate(gate: f64, up: f64, act: Activation) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match act {
        Activation::Silu => gate * sigmoid(gate) * up,
        Activation::GeluTanh => {
            let cubic = gate + 0.044715 * gate * gate * gate;
            let inner = (2.0 / std::f64::consts::PI).sqrt() * cubic;
            0.5 * gate * (1.0 + inner.tanh()) * up
        }
        Activation::ClampedSwiglu => {
            let gate = gate.min(7.0);
            gate * sigmoid(1.702 * gate) * (up.clamp(-7.0, 7.0) + 1.0)
        }
        Activation::SiluBelow(limit) => {
            let limit = f64::from(limit);
            let gate = gate.min(limit);
            gate * sigmoid(gate) * up.clamp(-limit, limit)
        }
    }
}

/// One of a mixture-of-experts layer's matrices, `[experts, rows, cols]`, and its bias, `[experts, rows]`.
pub(super) struct Projection {
    pub(super) values: Vec<f32>,
    pub(super) bias: Option<Vec<f32>>,
}

impl Projection {
    fn multiply(&self, expert: usize, experts: usize, x: &[f64]) -> Vec<f64> {
        let rows = self.values.len() / experts / x.len();
        (expert * rows..(expert + 1) * rows)
            .map(|row| {
                let weights = self.values[row * x.len()..][..x.len()].iter();
                let product: f64 = weights.zip(x).map(|(&w, x)| f64::from(w) * x).sum();
                product + self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[row]))
            })
            .collect()
    }
}

/// A mixture-of-experts layer of one row.
pub(super) fn experts(
    x: &[f32],
    logits: &[f32],
    [gate, up, down]: [&Projection; 3],
    spec: &ExpertsSpec,
) -> Vec<f64> {
    let mut order: Vec<usize> = (0..spec.experts).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a])); // stable
    let chosen = &order[..spec.chosen];
    let share = |expert: usize| f64::from(logits[expert]).exp();
    let all: f64 = chosen.iter().map(|&expert| share(expert)).sum();
    let mut out = vec![0.0; x.len()];
    for &expert in chosen {
        let gates = gate.multiply(expert, spec.experts, &widen(x));
        let ups = up.multiply(expert, spec.experts, &widen(x));
        let pairs = gates.iter().zip(&ups);
        let inner: Vec<f64> = pairs
            .map(|(&gate, &up)| activate(gate, up, spec.activation))
            .collect();
        for (out, result) in out
            .iter_mut()
            .zip(down.multiply(expert, spec.experts, &inner))
        {
            *out += share(expert) / all * result;
        }
    }
    out
}

/// `x` is `[positions, heads, head_dim]`.
pub(super) fn rope(x: &[f32], width: usize, positions: &[u32], table: &RopeTable) -> Vec<f64> {
    let mut out = widen(x);
    for (row, &position) in out.chunks_mut(width).zip(positions) {
        for head in row.chunks_mut(table.head_dim()) {
            for pair in 0..table.rotary_dim() / 2 {
                let (first, second) = table.pair(pair);
                let angle = f64::from(position) * table.frequencies()[pair];
                let (x, y) = (head[first], head[second]);
                head[first] = (x * angle.cos() - y * angle.sin()) * table.magnitude();
                head[second] = (x * angle.sin() + y * angle.cos()) * table.magnitude();
            }
        }
    }
    out
}

/// Keys and values of a whole sequence, each `[tokens, kv_heads, head_dim]`.
pub(super) struct Context {
    pub(super) keys: Vec<f32>,
    pub(super) values: Vec<f32>,
}

/// Attention of one row, `[heads, head_dim]`, at `position`.
pub(super) fn attention(
    query: &[f32],
    context: &Context,
    position: usize,
    spec: &AttentionSpec,
    sinks: Option<&[f32]>,
) -> Vec<f64> {
    let &AttentionSpec {
        heads,
        kv_heads,
        head_dim,
        scale,
        window,
    } = spec;
    let first = window.map_or(0, |window| (position + 1).saturating_sub(window as usize));
    let mut out = Vec::new();
    for (head, query) in query.chunks(head_dim).enumerate() {
        let of = |all: &[f32], token: usize| {
            let start = (token * kv_heads + head / (heads / kv_heads)) * head_dim;
            widen(&all[start..start + head_dim])
        };
        let scores: Vec<f64> = (first..=position)
            .map(|token| {
                let products = query
                    .iter()
                    .zip(of(&context.keys, token))
                    .map(|(&q, k)| f64::from(q) * k);
                products.sum::<f64>() * f64::from(scale)
            })
            .collect();
        let logits = || {
            let sink = sinks.map(|sinks| f64::from(sinks[head]));
            scores.iter().copied().chain(sink)
        };
        let max = logits().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits().map(|logit| (logit - max).exp()).sum();
        let mut result = vec![0.0; head_dim];
        for (score, token) in scores.iter().zip(first..) {
            for (result, value) in result.iter_mut().zip(of(&context.values, token)) {
                *result += (score - max).exp() / sum * value;
            }
        }
        out.extend(result);
    }
    out
}
