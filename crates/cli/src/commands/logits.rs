//! `andante logits`: token ids in, logits out, as plain binary files that any runtime can write and read.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;

use andante_model::{Batch, Limits, Model};
use anyhow::{Context, Result, bail, ensure};

use crate::args::LogitsArgs;
use crate::backend::{self, Precision};
use crate::progress;

/// Computes one sequence in chunks and writes `[positions, vocabulary]`.
pub(crate) fn run(args: &LogitsArgs) -> Result<()> {
    let tokens = read_tokens(&args.tokens)?;
    let wanted = parse_positions(&args.positions, tokens.len())?;
    let precision = if args.reference {
        Precision::Reference
    } else {
        Precision::Fast
    };
    let mut model = backend::load(&args.model, precision)?.model;
    let vocab = model.info().vocab;
    if let Some(token) = tokens.iter().find(|token| **token as usize >= vocab) {
        bail!("token {token} is outside the vocabulary of {vocab}");
    }
    let file = File::create(&args.output)
        .with_context(|| format!("cannot write {}", args.output.display()))?;
    let mut output = BufWriter::new(file);
    compute(
        model.as_mut(),
        &tokens,
        &wanted,
        args.chunk.max(1),
        &mut output,
    )?;
    output
        .flush()
        .with_context(|| format!("cannot write {}", args.output.display()))
}

fn compute(
    model: &mut dyn Model,
    tokens: &[u32],
    wanted: &[Range<usize>],
    chunk: u32,
    output: &mut impl Write,
) -> Result<()> {
    let block_tokens = model.kv_layout().block_tokens;
    let blocks = u32::try_from(tokens.len())?.div_ceil(block_tokens);
    model.reserve(Limits {
        blocks,
        batch_tokens: chunk,
        logit_rows: chunk,
        state_rows: 0,
        running_states: 1,
    })?;
    let table: Vec<u32> = (0..blocks).collect();
    let bar = progress::steps(tokens.len() as u64, "logits");
    let mut batch = Batch::default();
    let mut position = 0u32;
    for piece in tokens.chunks(chunk as usize) {
        batch.clear();
        batch.push_sequence(
            piece,
            position,
            &table,
            block_tokens,
            andante_compute::Logits::None,
        );
        batch.states.push(0);
        let is_wanted = |row: &u32| {
            wanted
                .iter()
                .any(|range| range.contains(&((position + row) as usize)))
        };
        batch
            .logit_rows
            .extend((0..batch.tokens.len() as u32).filter(is_wanted));
        model.forward(&batch)?;
        let logits = model.logits()?;
        for row in 0..logits.rows() {
            for value in logits.row(row) {
                output.write_all(&value.to_le_bytes())?;
            }
        }
        position += batch.tokens.len() as u32;
        bar.set_position(u64::from(position));
    }
    bar.finish_and_clear();
    Ok(())
}

fn read_tokens(path: &Path) -> Result<Vec<u32>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(
        !bytes.is_empty() && bytes.len().is_multiple_of(4),
        "{} must hold 32-bit token ids, but has {} bytes",
        path.display(),
        bytes.len()
    );
    bytes
        .chunks_exact(4)
        .map(|id| {
            let id = i32::from_le_bytes(id.try_into().expect("four bytes"));
            u32::try_from(id).with_context(|| format!("{id} is no token id"))
        })
        .collect()
}

/// `last`, `all`, or a list of positions and inclusive ranges such as `0,5,10-19`.
fn parse_positions(text: &str, count: usize) -> Result<Vec<Range<usize>>> {
    let parse_one = |text: &str| -> Result<usize> {
        let position = text
            .trim()
            .parse()
            .with_context(|| format!("{text:?} is no position"))?;
        ensure!(
            position < count,
            "there is no position {position}: the file has {count} tokens"
        );
        Ok(position)
    };
    match text {
        "all" => Ok(vec![Range {
            start: 0,
            end: count,
        }]),
        "last" => Ok(vec![Range {
            start: count - 1,
            end: count,
        }]),
        _ => text
            .split(',')
            .map(|part| {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                let (first, last) = (parse_one(first)?, parse_one(last)?);
                ensure!(first <= last, "{part:?} runs backwards");
                Ok(first..last + 1)
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_positions;

    #[test]
    fn positions_are_lists_of_ranges() {
        assert_eq!(parse_positions("0,5,7-9", 10).unwrap(), [0..1, 5..6, 7..10]);
        assert_eq!(
            parse_positions("last", 10).unwrap().as_slice(),
            std::slice::from_ref(&(9..10))
        );
        assert_eq!(
            parse_positions("all", 10).unwrap().as_slice(),
            std::slice::from_ref(&(0..10))
        );
        for wrong in ["10", "3-2", "x", "", "1-", "-1"] {
            assert!(parse_positions(wrong, 10).is_err(), "{wrong}");
        }
    }
}
