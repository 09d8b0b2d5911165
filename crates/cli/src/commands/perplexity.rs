//! `andante perplexity`: how well a model predicts a text, by the rules of llama.cpp's llama-perplexity, so that the figures
//! can be compared: the text is cut into contexts of equal length, each starts afresh, and the tokens of its second half
//! are scored.

use std::fs;

use andante_model::{Batch, Limits, Model};
use andante_text::{Special, Tokenizer};
use anyhow::{Context, Result, ensure};

use crate::args::{ModelArgs, PerplexityArgs};
use crate::backend::{self, Loaded, Precision};
use crate::output::print;

/// Rows whose logits are held at once.
const SCORED_ROWS: usize = 64;

/// Scores the text and prints the estimate after each context and in the end.
pub(crate) fn run(args: &PerplexityArgs) -> Result<()> {
    let text = fs::read_to_string(&args.file)
        .with_context(|| format!("cannot read {}", args.file.display()))?;
    let precision = if args.reference {
        Precision::Reference
    } else {
        Precision::Fast
    };
    let Loaded {
        file, mut model, ..
    } = backend::load(
        &ModelArgs {
            model: args.model.clone(),
            compute: args.compute.clone(),
        },
        precision,
    )?;
    let tokenizer =
        Tokenizer::from_metadata(file.metadata()).context("cannot use the file's tokenizer")?;
    // As llama.cpp does it: one line end less, the beginning that the model wants, and no control tokens in the text.
    let first = tokenizer.bos().filter(|_| tokenizer.add_bos());
    let text = tokenizer.encode(text.strip_suffix('\n').unwrap_or(&text), Special::Text);
    let tokens: Vec<u32> = first.into_iter().chain(text).collect();
    let context = args.ctx as usize;
    ensure!(
        tokens.len() >= 2 * context,
        "the text has {} tokens; two contexts of {context} are the least",
        tokens.len()
    );
    let contexts =
        (tokens.len() / context).min(args.chunks.map_or(usize::MAX, |chunks| chunks as usize));
    let mut scorer = Scorer::new(model.as_mut(), context)?;
    let mut score = Score::default();
    print(format_args!(
        "{} tokens, {contexts} contexts of {context}\n",
        tokens.len()
    ))?;
    for (index, tokens) in tokens.chunks_exact(context).take(contexts).enumerate() {
        scorer.score(tokens, first, &mut score)?;
        let line_end = if (index + 1) % 8 == 0 { "\n" } else { " " };
        print(format_args!(
            "[{}]{:.4}{line_end}",
            index + 1,
            score.perplexity()
        ))?;
    }
    print(format_args!(
        "\nperplexity {:.4} ± {:.5} over {} tokens\n",
        score.perplexity(),
        score.error(),
        score.count
    ))
}

/// A model with room for one context.
struct Scorer<'a> {
    model: &'a mut dyn Model,
    table: Vec<u32>,
    block_tokens: u32,
    batch: Batch,
}

impl<'a> Scorer<'a> {
    fn new(model: &'a mut dyn Model, context: usize) -> Result<Self> {
        let block_tokens = model.kv_layout().block_tokens;
        let context = u32::try_from(context)?;
        let blocks = context.div_ceil(block_tokens);
        model.reserve(Limits {
            blocks,
            batch_tokens: (context / 2).max(SCORED_ROWS as u32),
            logit_rows: SCORED_ROWS as u32,
            state_rows: 0,
            running_states: 1,
        })?;
        Ok(Self {
            model,
            table: (0..blocks).collect(),
            block_tokens,
            batch: Batch::default(),
        })
    }

    /// Adds the scores of a context's second half; its first token is computed as `beginning` where the model wants one.
    fn score(&mut self, tokens: &[u32], beginning: Option<u32>, score: &mut Score) -> Result<()> {
        let half = tokens.len() / 2;
        let mut input = tokens.to_vec();
        input[0] = beginning.unwrap_or(input[0]);
        self.forward(&input[..half], 0, false)?;
        // The last token's logits say nothing about the context.
        let scored = half..tokens.len() - 1;
        for start in scored.clone().step_by(SCORED_ROWS) {
            let end = scored.end.min(start + SCORED_ROWS);
            self.forward(&input[start..end], start, true)?;
            let logits = self.model.logits()?;
            for (row, &next) in tokens[start + 1..=end].iter().enumerate() {
                score.add(surprise(logits.row(row), next));
            }
        }
        Ok(())
    }

    fn forward(&mut self, tokens: &[u32], position: usize, scored: bool) -> Result<()> {
        self.batch.clear();
        self.batch.push_sequence(
            tokens,
            position as u32,
            &self.table,
            self.block_tokens,
            andante_compute::Logits::None,
        );
        self.batch.states.push(0);
        if scored {
            self.batch.logit_rows.extend(0..tokens.len() as u32);
        }
        Ok(self.model.forward(&self.batch)?)
    }
}

/// -ln of the probability that `logits` give to `token`.
fn surprise(logits: &[f32], token: u32) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits
        .iter()
        .map(|&logit| f64::from((logit - max).exp()))
        .sum();
    sum.ln() - f64::from(logits[token as usize] - max)
}

/// Sums over all scored tokens.
#[derive(Default)]
struct Score {
    count: u64,
    sum: f64,
    squares: f64,
}

impl Score {
    fn add(&mut self, surprise: f64) {
        self.count += 1;
        self.sum += surprise;
        self.squares += surprise * surprise;
    }

    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    fn perplexity(&self) -> f64 {
        self.mean().exp()
    }

    /// The standard error of the mean, carried over to the perplexity to first order.
    fn error(&self) -> f64 {
        let variance = self.squares / self.count as f64 - self.mean() * self.mean();
        (variance.max(0.0) / (self.count as f64 - 1.0)).sqrt() * self.perplexity()
    }
}

#[cfg(test)]
mod tests {
    use super::{Score, surprise};

    #[test]
    fn an_even_distribution_has_the_perplexity_of_its_size() {
        let mut score = Score::default();
        for token in 0..4 {
            score.add(surprise(&[7.0; 4], token));
        }
        assert!((score.perplexity() - 4.0).abs() < 1e-9);
        assert!(score.error() < 1e-6);
    }

    #[test]
    fn surprise_is_the_negative_logarithm_of_the_softmax() {
        // Probabilities 1/4 and 3/4.
        let logits = [0.0, 3_f32.ln()];
        assert!((surprise(&logits, 0) - 4_f64.ln()).abs() < 1e-6);
        assert!((surprise(&logits, 1) - (4.0_f64 / 3.0).ln()).abs() < 1e-6);
    }

    #[test]
    fn the_error_is_that_of_a_mean() {
        let mut score = Score::default();
        for surprise in [1.0, 3.0, 1.0, 3.0, 2.0] {
            score.add(surprise);
        }
        // Variance 4/5 of five values: a standard error of sqrt(0.8 / 4) on a mean of 2.
        assert!((score.error() - 0.2_f64.sqrt() * 2_f64.exp()).abs() < 1e-9);
    }
}
