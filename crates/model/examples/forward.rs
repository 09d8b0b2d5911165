//! Times forward passes of a model file, without tokenizer, scheduler or sampling.
//!
//! `cargo run --release -p andante-model --example forward -- FILE [THREADS [PROMPT [GENERATE [REPEATS]]]]`
//!
//! Prints tokens per second for a prompt of `PROMPT` tokens (512) in one batch, then for `GENERATE` tokens (64) one by one after it.
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::path::Path;
use std::time::Instant;

use andante_compute::{Batch, CpuBackend, CpuConfig, Logits};
use andante_gguf::GgufFile;
use andante_model::{Limits, Model, load};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which model file?")?;
    let mut number = |default| {
        arguments
            .next()
            .map_or(Ok(default), |text| text.parse::<u32>())
    };
    let (threads, prompt, generate, repeats) = (number(2)?, number(512)?, number(64)?, number(3)?);

    let started = Instant::now();
    let file = GgufFile::open(Path::new(&path))?;
    let config = CpuConfig {
        threads: Some(threads as usize),
        ..CpuConfig::default()
    };
    let mut model = load(&file, CpuBackend::new(config)?, &mut |_, _| {})?;
    let block_tokens = model.kv_layout().block_tokens;
    let blocks = (prompt + generate).div_ceil(block_tokens);
    model.reserve(Limits {
        blocks,
        batch_tokens: prompt,
        logit_rows: 1,
        state_rows: 0,
        running_states: 1,
    })?;
    println!("{} on {}", path, model.info().backend);
    println!("load      {:8.3} s", started.elapsed().as_secs_f64());

    let table: Vec<u32> = (0..blocks).collect();
    let tokens: Vec<u32> = (0..prompt + generate)
        .map(|i| 1000 + i * 37 % 10_000)
        .collect();
    for _ in 0..repeats {
        let started = Instant::now();
        step(&mut *model, &tokens[..prompt as usize], 0, &table)?;
        let speed = f64::from(prompt) / started.elapsed().as_secs_f64();
        println!("prompt    {speed:8.1} tokens/s ({prompt} tokens)");

        let started = Instant::now();
        for position in prompt..prompt + generate {
            let token = tokens[position as usize];
            step(&mut *model, &[token], position, &table)?;
        }
        let speed = f64::from(generate) / started.elapsed().as_secs_f64();
        println!("generate  {speed:8.1} tokens/s ({generate} tokens after {prompt})");
    }
    Ok(())
}

fn step(
    model: &mut dyn Model,
    tokens: &[u32],
    position: u32,
    table: &[u32],
) -> Result<(), Box<dyn std::error::Error>> {
    let mut batch = Batch::default();
    let block_tokens = model.kv_layout().block_tokens;
    batch.push_sequence(tokens, position, table, block_tokens, Logits::Last);
    batch.states.push(0);
    model.forward(&batch)?;
    assert!(model.logits()?.row(0).iter().all(|x| x.is_finite()));
    Ok(())
}
