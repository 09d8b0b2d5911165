//! `andante bench`: speed of prompts and of generation, in the columns of llama-bench.

use std::time::{Duration, Instant};

use andante_model::{Batch, Limits, Model};
use anyhow::Result;

use crate::args::BenchArgs;
use crate::backend::{self, Loaded, Precision};
use crate::output::print;
use crate::progress;

/// Rows of a prompt's forward pass.
const CHUNK: u32 = 512;

/// One line of the table.
#[derive(Clone, Copy)]
struct Case {
    what: Measure,
    /// Tokens of each sequence before the measured ones.
    depth: u32,
}

#[derive(Clone, Copy)]
enum Measure {
    /// One prompt of so many tokens.
    Prompt(u32),
    /// So many tokens for each of `batch` sequences.
    Generation { tokens: u32, batch: u32 },
}

impl Case {
    fn sequences(self) -> u32 {
        match self.what {
            Measure::Prompt(_) => 1,
            Measure::Generation { batch, .. } => batch,
        }
    }

    /// Tokens of one sequence, those before the measured ones included.
    fn length(self) -> u32 {
        self.depth
            + match self.what {
                Measure::Prompt(tokens) | Measure::Generation { tokens, .. } => tokens,
            }
    }

    fn measured_tokens(self) -> u32 {
        match self.what {
            Measure::Prompt(tokens) => tokens,
            Measure::Generation { tokens, batch } => tokens * batch,
        }
    }

    fn name(self) -> String {
        let mut name = match self.what {
            Measure::Prompt(tokens) => format!("pp{tokens}"),
            Measure::Generation { tokens, batch: 1 } => format!("tg{tokens}"),
            Measure::Generation { tokens, batch } => format!("tg{tokens} b{batch}"),
        };
        if self.depth > 0 {
            name += &format!(" @ d{}", self.depth);
        }
        name
    }
}

/// Measures every combination and prints one line for each.
pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    let cases = cases(args);
    let mut loaded = backend::load(&args.model, Precision::Fast)?;
    let layout = loaded.model.kv_layout();
    let most = |size: fn(Case) -> u32| cases.iter().map(|case| size(*case)).max().unwrap_or(1);
    let blocks = most(Case::sequences) * most(Case::length).div_ceil(layout.block_tokens);
    let rows = most(Case::sequences).max(CHUNK);
    loaded.model.reserve(Limits {
        blocks,
        batch_tokens: rows,
        logit_rows: most(Case::sequences),
    })?;
    if !args.json {
        print(format_args!(
            "| model | size | params | backend | test | t/s |\n| --- | ---: | ---: | --- | ---: | ---: |\n"
        ))?;
    }
    for case in cases {
        let rates = measure(loaded.model.as_mut(), case, args.repetitions)?;
        report(&loaded, case, &rates, args.json)?;
    }
    Ok(())
}

fn cases(args: &BenchArgs) -> Vec<Case> {
    let mut cases = Vec::new();
    for &depth in &args.n_depth {
        let prompts = args.n_prompt.iter().map(|&tokens| Measure::Prompt(tokens));
        let generations = args.batch.iter().flat_map(|&batch| {
            args.n_gen.iter().map(move |&tokens| Measure::Generation {
                tokens,
                batch: batch.max(1),
            })
        });
        cases.extend(prompts.chain(generations).map(|what| Case { what, depth }));
    }
    cases.retain(|case| case.measured_tokens() > 0);
    cases
}

/// Tokens per second of each repetition, after one that only warms up.
fn measure(model: &mut dyn Model, case: Case, repetitions: u32) -> Result<Vec<f64>> {
    let bar = progress::steps(u64::from(repetitions) + 1, &case.name());
    let mut sequences = Sequences::new(model, case);
    sequences.fill(case.depth)?;
    let mut rates = Vec::new();
    for repetition in 0..=repetitions {
        let elapsed = sequences.run(case)?;
        if repetition > 0 {
            rates.push(f64::from(case.measured_tokens()) / elapsed.as_secs_f64());
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(rates)
}

fn report(loaded: &Loaded, case: Case, rates: &[f64], json: bool) -> Result<()> {
    let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let variance =
        rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / rates.len().max(1) as f64;
    let (info, name) = (loaded.model.info(), case.name());
    if json {
        let model = &loaded.name;
        return print(format_args!(
            "{{\"model\":{model:?},\"test\":{name:?},\"tokens_per_s\":{rates:?}}}\n"
        ));
    }
    let (mib, millions) = (
        info.weight_bytes as f64 / f64::from(1 << 20),
        info.parameters as f64 / 1e6,
    );
    print(format_args!(
        "| {} | {mib:.2} MiB | {millions:.2} M | {} | {name} | {mean:.2} ± {:.2} |\n",
        loaded.name,
        info.backend,
        variance.sqrt()
    ))
}

/// Sequences side by side in KV memory; the measured part is computed over again each time.
struct Sequences<'a> {
    model: &'a mut dyn Model,
    tables: Vec<Vec<u32>>,
    block_tokens: u32,
    batch: Batch,
    vocab: u32,
}

impl<'a> Sequences<'a> {
    fn new(model: &'a mut dyn Model, case: Case) -> Self {
        let block_tokens = model.kv_layout().block_tokens;
        let blocks = case.length().div_ceil(block_tokens);
        let tables = (0..case.sequences())
            .map(|i| (i * blocks..(i + 1) * blocks).collect())
            .collect();
        let vocab = model.info().vocab as u32;
        Self {
            model,
            tables,
            block_tokens,
            batch: Batch::default(),
            vocab,
        }
    }

    /// Any tokens do: speed does not depend on them.
    fn token(&self, sequence: usize, position: u32) -> u32 {
        (position * 7919 + sequence as u32 * 104_729 + 1) % self.vocab
    }

    fn fill(&mut self, depth: u32) -> Result<()> {
        for sequence in 0..self.tables.len() {
            self.prompt(sequence, 0, depth)?;
        }
        Ok(())
    }

    fn run(&mut self, case: Case) -> Result<Duration> {
        let start = Instant::now();
        match case.what {
            Measure::Prompt(tokens) => self.prompt(0, case.depth, case.depth + tokens)?,
            Measure::Generation { tokens, .. } => {
                for position in case.depth..case.depth + tokens {
                    self.step(position)?;
                }
            }
        }
        Ok(start.elapsed())
    }

    fn prompt(&mut self, sequence: usize, start: u32, end: u32) -> Result<()> {
        let mut position = start;
        while position < end {
            let next = end.min(position + CHUNK);
            let tokens: Vec<_> = (position..next)
                .map(|position| self.token(sequence, position))
                .collect();
            let logits = if next == end {
                andante_compute::Logits::Last
            } else {
                andante_compute::Logits::None
            };
            self.batch.clear();
            self.batch.push_sequence(
                &tokens,
                position,
                &self.tables[sequence],
                self.block_tokens,
                logits,
            );
            self.forward()?;
            position = next;
        }
        Ok(())
    }

    /// One token for every sequence.
    fn step(&mut self, position: u32) -> Result<()> {
        self.batch.clear();
        for sequence in 0..self.tables.len() {
            let token = self.token(sequence, position);
            let table = &self.tables[sequence];
            self.batch.push_sequence(
                &[token],
                position,
                table,
                self.block_tokens,
                andante_compute::Logits::Last,
            );
        }
        self.forward()
    }

    fn forward(&mut self) -> Result<()> {
        self.model.forward(&self.batch)?;
        self.model.logits()?;
        Ok(())
    }
}
