//! `andante bench`: speed of prompts and of generation, in the columns of llama-bench, beside what the machine allows.

mod ceiling;

use std::time::{Duration, Instant};

use andante_compute::{CpuConfig, Peak};
use andante_model::{Batch, Limits, Model};
use anyhow::Result;

use crate::args::BenchArgs;
use crate::backend::{self, Loaded, Precision};
use crate::footprint;
use crate::output::print;
use crate::progress;
use ceiling::{Ceiling, Demand};

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
    let peak = if args.no_ceiling {
        None
    } else {
        Some(Peak::measure(&CpuConfig {
            threads: args.model.compute.threads,
            bound: args.model.compute.bind_threads,
            ..CpuConfig::default()
        })?)
    };
    let own_peak = footprint::restart_peak();
    let mut loaded = backend::load(&args.model, Precision::Fast)?;
    let layout = loaded.model.kv_layout();
    let most = |size: fn(Case) -> u32| cases.iter().map(|case| size(*case)).max().unwrap_or(1);
    let blocks = most(Case::sequences) * most(Case::length).div_ceil(layout.block_tokens);
    let rows = most(Case::sequences).max(CHUNK);
    loaded.model.reserve(Limits {
        blocks,
        batch_tokens: rows,
        logit_rows: most(Case::sequences),
        state_rows: 0,
        running_states: most(Case::sequences),
    })?;
    head(&loaded, peak.as_ref(), args.json)?;
    let demand = Demand::of(&loaded.file, loaded.model.as_ref());
    let mut memory = Memory::new(most(Case::sequences), blocks / most(Case::sequences));
    for case in cases {
        let rates = measure(loaded.model.as_mut(), &mut memory, case, args.repetitions)?;
        let ceiling = peak.as_ref().map(|peak| demand.ceiling(case, peak));
        report(&loaded, case, &rates, ceiling, args.json)?;
    }
    match footprint::peak_bytes().filter(|_| own_peak) {
        Some(bytes) if args.json => print(format_args!("{{\"peak_bytes\":{bytes}}}\n")),
        Some(bytes) => print(format_args!("\npeak memory {:.1} MiB\n", mib(bytes))),
        None => Ok(()),
    }
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
fn measure(
    model: &mut dyn Model,
    memory: &mut Memory,
    case: Case,
    repetitions: u32,
) -> Result<Vec<f64>> {
    let bar = progress::steps(u64::from(repetitions) + 1, &case.name());
    let mut sequences = Sequences::new(model, memory, case);
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

/// What was measured before the tests, and the table's head.
fn head(loaded: &Loaded, peak: Option<&Peak>, json: bool) -> Result<()> {
    let load_s = loaded.load_time.as_secs_f64();
    if json {
        let mut line = serde_json::json!({ "model": loaded.name, "load_s": load_s });
        if let Some(peak) = peak {
            line["threads"] = peak.threads.into();
            line["isa"] = peak.isa.to_string().into();
            line["read_bytes_per_s"] = peak.read_bytes_per_s.into();
            line["int8_macs_per_s"] = peak.int8_macs_per_s.into();
            line["float_macs_per_s"] = peak.float_macs_per_s.into();
            line["bf16_macs_per_s"] = peak.bf16_macs_per_s.into();
        }
        return print(format_args!("{line}\n"));
    }
    if let Some(peak) = peak {
        print(format_args!(
            "machine, {} threads: reads {:.1} GB/s; multiplies and adds {:.0} G int8/s ({}), {:.0} G f32/s, {:.0} G bf16/s\n",
            peak.threads,
            peak.read_bytes_per_s / 1e9,
            peak.int8_macs_per_s / 1e9,
            peak.isa,
            peak.float_macs_per_s / 1e9,
            peak.bf16_macs_per_s / 1e9
        ))?;
    }
    print(format_args!(
        "loaded in {load_s:.3} s\n\n\
         | model | size | params | backend | test | t/s | ceiling t/s | reached | limit |\n\
         | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | --- |\n"
    ))
}

fn report(
    loaded: &Loaded,
    case: Case,
    rates: &[f64],
    ceiling: Option<Ceiling>,
    json: bool,
) -> Result<()> {
    let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let variance =
        rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / rates.len().max(1) as f64;
    let (info, name) = (loaded.model.info(), case.name());
    if json {
        let mut line =
            serde_json::json!({ "model": loaded.name, "test": name, "tokens_per_s": rates });
        if let Some(ceiling) = ceiling {
            line["ceiling_tokens_per_s"] = ceiling.tokens_per_s.into();
            line["bytes_per_token"] = ceiling.bytes_per_token.into();
            line["limit"] = ceiling.limit().into();
        }
        return print(format_args!("{line}\n"));
    }
    let beside = ceiling.map_or_else(
        || " | |".to_owned(),
        |ceiling| {
            format!(
                "{:.1} | {:.0} % | {}, {:.2} MB a token",
                ceiling.tokens_per_s,
                100.0 * mean / ceiling.tokens_per_s,
                ceiling.limit(),
                ceiling.bytes_per_token / 1e6
            )
        },
    );
    print(format_args!(
        "| {} | {:.2} MiB | {:.2} M | {} | {name} | {mean:.2} ± {:.2} | {beside} |\n",
        loaded.name,
        mib(info.weight_bytes),
        info.parameters as f64 / 1e6,
        info.backend,
        variance.sqrt()
    ))
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Sequences side by side in KV memory.
struct Memory {
    /// Blocks of each sequence.
    tables: Vec<Vec<u32>>,
    /// Tokens of each that are there: the same ones in every case.
    filled: Vec<u32>,
}

impl Memory {
    fn new(sequences: u32, blocks: u32) -> Self {
        let table = |sequence| (sequence * blocks..(sequence + 1) * blocks).collect();
        Self {
            tables: (0..sequences).map(table).collect(),
            filled: vec![0; sequences as usize],
        }
    }
}

/// Those of a case; the measured part is computed over again each time.
struct Sequences<'a> {
    model: &'a mut dyn Model,
    tables: &'a [Vec<u32>],
    filled: &'a mut [u32],
    block_tokens: u32,
    batch: Batch,
    vocab: u32,
}

impl<'a> Sequences<'a> {
    fn new(model: &'a mut dyn Model, memory: &'a mut Memory, case: Case) -> Self {
        let count = case.sequences() as usize;
        let (block_tokens, vocab) = (model.kv_layout().block_tokens, model.info().vocab as u32);
        Self {
            model,
            tables: &memory.tables[..count],
            filled: &mut memory.filled[..count],
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
            self.prompt(sequence, self.filled[sequence], depth)?;
            self.filled[sequence] = self.filled[sequence].max(depth);
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
            self.batch.states.push(sequence as u32);
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
            self.batch.states.push(sequence as u32);
        }
        self.forward()
    }

    fn forward(&mut self) -> Result<()> {
        self.model.forward(&self.batch)?;
        self.model.logits()?;
        Ok(())
    }
}
