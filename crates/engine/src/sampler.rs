//! From a row of logits to the next token of one request.
//!
//! The parts apply in the order of llama.cpp's default chain: logit bias, banned tokens and those that a constraint does not
//! allow, repetition penalty, frequency and presence penalties, top-k, typical-p, top-p, min-p, temperature, draw. The repetition penalty looks at the last tokens of
//! prompt and answer, the other two penalties at the answer alone. Temperature 0 takes the most likely token after the
//! penalties, the lowest id among equals, and skips the filters. Log-probabilities are those of the row as the model gave it.
//!
//! A choice depends on the row, the request and its own random numbers, one per token, and on nothing else. No path sorts
//! the vocabulary: filters first gather the few tokens that can pass.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use crate::request::Request;
use crate::sampling::Sampling;

mod row;

/// Chooses the tokens of one request.
#[derive(Debug)]
pub(crate) struct Sampler {
    sampling: Sampling,
    banned: Vec<u32>,
    rng: Pcg64,
    /// The last tokens of prompt and answer, and how often each occurs among them; kept for the repetition penalty only.
    window: VecDeque<u32>,
    seen: BTreeMap<u32, u32>,
    /// How often each token occurs in the answer; kept for the frequency and presence penalties only.
    generated: BTreeMap<u32, u32>,
}

/// A token and what the request wants to know about it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sampled {
    pub(crate) token: u32,
    pub(crate) logprobs: Option<Logprobs>,
}

/// Natural log-probabilities under the row's own distribution.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Logprobs {
    pub(crate) chosen: f32,
    /// Most likely first.
    pub(crate) top: Vec<(u32, f32)>,
}

/// Why no token can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// The row holds something that is not a finite number.
    NotFinite,
    /// Every token of it is banned or not allowed.
    NoneAllowed,
}

/// Memory that samplers share, one row after the other.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    adjusted: Vec<f32>,
    candidates: Vec<Candidate>,
    scored: Vec<(f32, Candidate)>,
}

/// A token that may be drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Candidate {
    id: u32,
    logit: f32,
}

impl Candidate {
    /// Most likely first, the lower id first among equals.
    fn rank(&self, other: &Self) -> Ordering {
        other
            .logit
            .total_cmp(&self.logit)
            .then(self.id.cmp(&other.id))
    }
}

impl Sampler {
    /// A sampler at the end of the request's prompt. `ends` are the model's end-of-generation tokens.
    pub(crate) fn new(request: &Request, ends: &[u32]) -> Self {
        let sampling = request.sampling.clone();
        let mut sampler = Self {
            banned: if sampling.ignore_eos {
                ends.to_vec()
            } else {
                Vec::new()
            },
            rng: Pcg64::seed_from_u64(request.seed),
            window: VecDeque::new(),
            seen: BTreeMap::new(),
            generated: BTreeMap::new(),
            sampling,
        };
        let window = sampler
            .sampling
            .repeat_last_n
            .map_or(usize::MAX, |n| n as usize);
        let prompt = &request.prompt;
        for &token in &prompt[prompt.len() - window.min(prompt.len())..] {
            sampler.remember(token);
        }
        sampler
    }

    /// Chooses from `row`, `[vocab]` logits. With a `mask`, one bit a token with the lowest bit of the first word for token
    /// 0, only from tokens whose bit is there and set.
    pub(crate) fn sample(
        &mut self,
        row: &[f32],
        mask: Option<&[u32]>,
        scratch: &mut Scratch,
    ) -> Result<Sampled, Unusable> {
        let row_max = row::finite_max(row).ok_or(Unusable::NotFinite)?;
        let token = if mask.is_some() || self.adjusts() {
            let mut adjusted = std::mem::take(&mut scratch.adjusted);
            self.adjust(row, &mut adjusted);
            if let Some(mask) = mask {
                row::mask(&mut adjusted, mask);
            }
            let max = row::max(&adjusted);
            let token = (max > f32::NEG_INFINITY).then(|| self.choose(&adjusted, max, scratch));
            scratch.adjusted = adjusted;
            token.ok_or(Unusable::NoneAllowed)?
        } else {
            self.choose(row, row_max, scratch)
        };
        let logprobs = self
            .sampling
            .logprobs
            .map(|top| logprobs(row, row_max, token, top, scratch));
        self.remember(token);
        if self.sampling.frequency_penalty != 0.0 || self.sampling.presence_penalty != 0.0 {
            *self.generated.entry(token).or_default() += 1;
        }
        Ok(Sampled { token, logprobs })
    }

    /// Moves the window of the repetition penalty on by one token.
    fn remember(&mut self, token: u32) {
        if self.sampling.repetition_penalty == 1.0 || self.sampling.repeat_last_n == Some(0) {
            return;
        }
        self.window.push_back(token);
        *self.seen.entry(token).or_default() += 1;
        if self
            .sampling
            .repeat_last_n
            .is_some_and(|n| self.window.len() > n as usize)
        {
            let oldest = self.window.pop_front().expect("the window has just grown");
            let count = self
                .seen
                .get_mut(&oldest)
                .expect("every token of the window is counted");
            *count -= 1;
            if *count == 0 {
                self.seen.remove(&oldest);
            }
        }
    }

    /// Whether the row must be changed before choosing.
    fn adjusts(&self) -> bool {
        !(self.sampling.logit_bias.is_empty()
            && self.banned.is_empty()
            && self.seen.is_empty()
            && self.generated.is_empty())
    }

    /// The row with bias and penalties. Nothing becomes larger than the largest finite number; a banned token is -∞.
    fn adjust(&self, row: &[f32], adjusted: &mut Vec<f32>) {
        adjusted.clear();
        adjusted.extend_from_slice(row);
        for &(token, bias) in &self.sampling.logit_bias {
            let logit = &mut adjusted[token as usize];
            *logit = (*logit + bias).min(f32::MAX);
        }
        for &token in &self.banned {
            adjusted[token as usize] = f32::NEG_INFINITY;
        }
        let penalty = self.sampling.repetition_penalty;
        for &token in self.seen.keys() {
            let logit = &mut adjusted[token as usize];
            *logit = if *logit <= 0.0 {
                *logit * penalty
            } else {
                (*logit / penalty).min(f32::MAX)
            };
        }
        for (&token, &count) in &self.generated {
            let penalty =
                self.sampling.frequency_penalty * count as f32 + self.sampling.presence_penalty;
            let logit = &mut adjusted[token as usize];
            *logit = (*logit - penalty).min(f32::MAX);
        }
    }

    /// Filters and draw. `max` is the largest of `logits` and finite.
    fn choose(&mut self, logits: &[f32], max: f32, scratch: &mut Scratch) -> u32 {
        let Sampling {
            temperature,
            top_k,
            top_p,
            min_p,
            typical_p,
            ..
        } = self.sampling;
        if temperature == 0.0 {
            return row::position(logits, max);
        }
        // One random number for each token, whatever becomes of it: the sequence of draws does not depend on the rows.
        let draw = (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let candidates = &mut scratch.candidates;
        let mut whole = None;
        if top_k > 0 && (top_k as usize) < logits.len() {
            most_likely(logits, top_k as usize, candidates);
        } else if typical_p < 1.0 {
            at_least(logits, f32::NEG_INFINITY, candidates);
        } else if top_p < 1.0 {
            let total = row::exp_sum(logits, max, 1.0);
            nucleus(logits, max, f64::from(top_p) * total, min_p, candidates);
            whole = Some(total);
        } else if min_p > 0.0 {
            at_least(logits, max + min_p.ln(), candidates);
        } else {
            return row::draw(logits, max, temperature, draw);
        }
        if typical_p < 1.0 {
            keep_typical(candidates, typical_p, &mut scratch.scored);
        }
        if top_p < 1.0 {
            let total = whole.unwrap_or_else(|| mass(candidates, max));
            keep_top_p(candidates, max, f64::from(top_p) * total);
        }
        if min_p > 0.0 {
            let best = best(candidates);
            candidates.retain(|c| c.logit >= best + min_p.ln());
        }
        draw_from(candidates, temperature, draw)
    }
}

/// The `k` most likely tokens, in order.
fn most_likely(logits: &[f32], k: usize, out: &mut Vec<Candidate>) {
    out.clear();
    // Collects up to twice as many as needed, then keeps the better half and raises the bar for the rest of the row.
    let limit = (2 * k).max(64);
    let mut bar = f32::NEG_INFINITY;
    let mut open = true;
    row::for_each_chunk(logits, |first_id, chunk| {
        if !open && !row::any_above(chunk, bar) {
            return;
        }
        for (id, &logit) in (first_id..).zip(chunk) {
            // Equal logits come in order of id, so one that equals the bar ranks below it.
            if open || logit > bar {
                out.push(Candidate { id, logit });
            }
            if out.len() == limit {
                out.select_nth_unstable_by(k - 1, Candidate::rank);
                out.truncate(k);
                bar = out[k - 1].logit;
                open = false;
            }
        }
    });
    // Of a masked row there may be fewer.
    out.retain(|c| c.logit > f32::NEG_INFINITY);
    out.sort_unstable_by(Candidate::rank);
    out.truncate(k);
}

/// The tokens with a logit of at least `floor`, in order of id; none with -∞.
fn at_least(logits: &[f32], floor: f32, out: &mut Vec<Candidate>) {
    out.clear();
    let floor = floor.max(f32::MIN);
    row::for_each_chunk(logits, |first_id, chunk| {
        if row::any_at_least(chunk, floor) {
            let tokens = (first_id..).zip(chunk);
            out.extend(
                tokens
                    .filter(|&(_, &x)| x >= floor)
                    .map(|(id, &logit)| Candidate { id, logit }),
            );
        }
    });
}

/// A set that holds every token of the smallest most likely set with a weight of `target`, or all that pass `min_p`.
fn nucleus(logits: &[f32], max: f32, target: f64, min_p: f32, out: &mut Vec<Candidate>) {
    let deepest = if min_p > 0.0 {
        -min_p.ln()
    } else {
        f32::INFINITY
    };
    // Tokens 10 below the best have 1/22,000 of its weight: nearly always this is deep enough.
    let mut depth = 10.0_f32;
    loop {
        at_least(logits, max - depth.min(deepest), out);
        if depth >= deepest || depth.is_infinite() || mass(out, max) >= target {
            return;
        }
        depth = if depth < 80.0 {
            depth * 2.0
        } else {
            f32::INFINITY
        };
    }
}

/// Keeps the most likely candidates until their weight reaches `target`.
fn keep_top_p(candidates: &mut Vec<Candidate>, max: f32, target: f64) {
    keep_until(candidates, target, Candidate::rank, |c| {
        f64::from(row::exp(c.logit - max))
    });
}

/// Keeps the candidates whose surprise is nearest the expected surprise, until their probability reaches `p`
/// (Meister et al., "Locally Typical Sampling", arXiv 2202.00666).
fn keep_typical(candidates: &mut Vec<Candidate>, p: f32, scored: &mut Vec<(f32, Candidate)>) {
    let max = best(candidates);
    let total = mass(candidates, max);
    let log_total = max + total.ln() as f32;
    let weight = |c: &Candidate| f64::from(row::exp(c.logit - max));
    let surprise = |c: &Candidate| log_total - c.logit;
    let expected: f64 = candidates
        .iter()
        .map(|c| weight(c) * f64::from(surprise(c)))
        .sum();
    let entropy = (expected / total) as f32;
    scored.clear();
    scored.extend(
        candidates
            .iter()
            .map(|&c| ((surprise(&c) - entropy).abs(), c)),
    );
    let rank =
        |a: &(f32, Candidate), b: &(f32, Candidate)| a.0.total_cmp(&b.0).then(a.1.rank(&b.1));
    keep_until(scored, f64::from(p) * total, rank, |(_, c)| weight(c));
    candidates.clear();
    candidates.extend(scored.iter().map(|&(_, c)| c));
}

/// Keeps the first items by `rank` until their weight reaches `target`, in order; all if it never does.
///
/// Halves the range in which the last one lies, as a selection by count would, so that only what is kept gets sorted.
fn keep_until<T>(
    items: &mut Vec<T>,
    target: f64,
    rank: impl Fn(&T, &T) -> Ordering,
    weight: impl Fn(&T) -> f64,
) {
    // The first `before` items precede all others and weigh `sum`, which is too little.
    let (mut before, mut sum) = (0, 0.0);
    let mut end = items.len();
    while end - before > 1 {
        let half = (end - before) / 2;
        items[before..end].select_nth_unstable_by(half, &rank);
        let more: f64 = items[before..before + half].iter().map(&weight).sum();
        if sum + more >= target {
            end = before + half;
        } else {
            sum += more;
            before += half;
        }
    }
    items.truncate(end);
    items.sort_unstable_by(rank);
}

/// The largest logit.
fn best(candidates: &[Candidate]) -> f32 {
    candidates
        .iter()
        .fold(f32::NEG_INFINITY, |best, c| best.max(c.logit))
}

/// Sum of the candidates' weights `exp(logit - max)`.
fn mass(candidates: &[Candidate], max: f32) -> f64 {
    candidates
        .iter()
        .map(|c| f64::from(row::exp(c.logit - max)))
        .sum()
}

/// The candidate at `draw` (in 0..1) of their weights at this temperature.
fn draw_from(candidates: &[Candidate], temperature: f32, draw: f64) -> u32 {
    let max = best(candidates);
    let weight = |c: &Candidate| f64::from(row::exp((c.logit - max) / temperature));
    let mut left = draw * candidates.iter().map(weight).sum::<f64>();
    let mut last = candidates[0].id;
    for candidate in candidates {
        let weight = weight(candidate);
        if weight > 0.0 {
            last = candidate.id;
            if left < weight {
                break;
            }
        }
        left -= weight;
    }
    last
}

fn logprobs(row: &[f32], max: f32, token: u32, top: u8, scratch: &mut Scratch) -> Logprobs {
    let log_total = max + row::exp_sum(row, max, 1.0).ln() as f32;
    let candidates = &mut scratch.candidates;
    candidates.clear();
    if top > 0 {
        most_likely(row, usize::from(top), candidates);
    }
    Logprobs {
        chosen: row[token as usize] - log_total,
        top: candidates
            .iter()
            .map(|c| (c.id, c.logit - log_total))
            .collect(),
    }
}

#[cfg(test)]
mod tests;
