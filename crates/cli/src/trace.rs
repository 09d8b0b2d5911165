//! Traces of requests: when they came, how long prompt and answer are, and, where the trace tells, what their prompts share.
//!
//! Two public forms are read: CSV with `TIMESTAMP,ContextTokens,GeneratedTokens` (Azure LLM inference traces, 2023) and JSON
//! lines with `timestamp` in milliseconds, `input_length`, `output_length` and `hash_ids`, which name the prompt's blocks of
//! 512 tokens (Mooncake, FAST 2025).

use std::str::FromStr;

use andante_sched::{Priority, TenantId};
use jiff::civil::DateTime;
use serde::Deserialize;
use thiserror::Error;

use crate::args::LoadArgs;

/// Tokens of a prompt that one of its hash ids stands for.
const HASH_BLOCK: u32 = 512;

/// Longest prompt or answer: far above any model's context, and small enough to build.
pub(crate) const MAX_TOKENS: u32 = 1 << 24;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// µs since the first request.
    pub(crate) arrival_us: u64,
    pub(crate) prompt: Prompt,
    /// Tokens of the answer, at least 1.
    pub(crate) answer: u32,
    pub(crate) tenant: TenantId,
    pub(crate) priority: Priority,
}

/// What is known of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Prompt {
    /// Its length.
    Length(u32),
    /// Its length and the names of its blocks of 512 tokens.
    Blocks { tokens: u32, ids: Vec<u32> },
    /// All of it.
    Tokens(Vec<u32>),
}

impl Prompt {
    /// Number of tokens, at least 1.
    pub(crate) fn len(&self) -> u32 {
        match self {
            Self::Length(tokens) | Self::Blocks { tokens, .. } => *tokens,
            // The log that it comes from counts them so.
            Self::Tokens(tokens) => tokens.len() as u32,
        }
    }

    /// Tokens that agree with another prompt's exactly as far as the trace says so.
    pub(crate) fn tokens(&self) -> Vec<u32> {
        match self {
            Self::Length(tokens) => vec![0; *tokens as usize],
            Self::Blocks { tokens, ids } => ids
                .iter()
                .flat_map(|&id| std::iter::repeat_n(id, HASH_BLOCK as usize))
                .take(*tokens as usize)
                .collect(),
            Self::Tokens(tokens) => tokens.clone(),
        }
    }

    /// Whether it is known what it shares with others.
    pub(crate) fn has_content(&self) -> bool {
        !matches!(self, Self::Length(_))
    }
}

/// Why a file is no trace.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum TraceError {
    #[error("line {line}: {fault}")]
    Line { line: usize, fault: Fault },
    #[error("there is no request in it")]
    Empty,
    #[error(
        "neither CSV with the columns TIMESTAMP,ContextTokens,GeneratedTokens, nor JSON lines, nor a scheduling log, nor a timeline"
    )]
    UnknownForm,
}

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Fault {
    #[error(
        "a timestamp, the prompt's and the answer's tokens are expected, with commas between them"
    )]
    Columns,
    #[error("the timestamp is not like 2023-11-16 18:17:03.9799600")]
    Timestamp,
    #[error("a number of tokens is not a whole number below 16777216")]
    Tokens,
    #[error("the prompt is empty")]
    EmptyPrompt,
    #[error("not an object with timestamp, input_length and output_length")]
    Json,
    #[error("input_length needs {needed} hash ids of 512 tokens, there are {given}")]
    HashIds { needed: u32, given: usize },
    #[error("it is earlier than the request before it")]
    Order,
}

/// Reads a trace of either text form; `limit` stops after so many lines.
pub(crate) fn parse(text: &str, limit: usize) -> Result<Vec<Request>, TraceError> {
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty())
        .peekable();
    let json = match lines.peek() {
        None => return Err(TraceError::Empty),
        Some((_, line)) if line.starts_with('{') => true,
        Some((_, line)) if line.starts_with("TIMESTAMP,") => {
            lines.next();
            false
        }
        Some(_) => return Err(TraceError::UnknownForm),
    };
    let mut requests: Vec<Request> = Vec::new();
    let mut start = None;
    for (line, text) in lines.take(limit) {
        let at = |fault| TraceError::Line { line, fault };
        let (time_us, prompt, answer) = if json {
            parse_json(text).map_err(at)?
        } else {
            parse_csv(text).map_err(at)?
        };
        if prompt.len() == 0 {
            return Err(at(Fault::EmptyPrompt));
        }
        let since = time_us - *start.get_or_insert(time_us);
        let arrival_us = u64::try_from(since).map_err(|_| at(Fault::Order))?;
        if requests
            .last()
            .is_some_and(|last| last.arrival_us > arrival_us)
        {
            return Err(at(Fault::Order));
        }
        requests.push(Request {
            arrival_us,
            prompt,
            answer: answer.max(1),
            tenant: 0,
            priority: Priority::Normal,
        });
    }
    if requests.is_empty() {
        return Err(TraceError::Empty);
    }
    Ok(requests)
}

/// The requests that shall come, at the times they shall come.
pub(crate) fn select(mut requests: Vec<Request>, load: &LoadArgs) -> Vec<Request> {
    requests.truncate(load.limit.unwrap_or(usize::MAX));
    requests.retain(|request| {
        load.max_prompt
            .is_none_or(|most| request.prompt.len() <= most)
    });
    for request in &mut requests {
        // Rounded down; a cast saturates.
        request.arrival_us = (request.arrival_us as f64 * load.time_scale) as u64;
    }
    requests
}

fn parse_csv(line: &str) -> Result<(i64, Prompt, u32), Fault> {
    let mut columns = line.split(',');
    let (Some(time), Some(prompt), Some(answer), None) = (
        columns.next(),
        columns.next(),
        columns.next(),
        columns.next(),
    ) else {
        return Err(Fault::Columns);
    };
    let time = DateTime::from_str(time).map_err(|_| Fault::Timestamp)?;
    let since = DateTime::constant(2000, 1, 1, 0, 0, 0, 0).duration_until(time);
    let time_us = i64::try_from(since.as_micros()).map_err(|_| Fault::Timestamp)?;
    Ok((time_us, Prompt::Length(tokens(prompt)?), tokens(answer)?))
}

fn tokens(text: &str) -> Result<u32, Fault> {
    text.parse()
        .ok()
        .filter(|&tokens| tokens < MAX_TOKENS)
        .ok_or(Fault::Tokens)
}

#[derive(Deserialize)]
struct JsonLine {
    /// Milliseconds.
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    #[serde(default)]
    hash_ids: Vec<u32>,
}

fn parse_json(line: &str) -> Result<(i64, Prompt, u32), Fault> {
    let line: JsonLine = serde_json::from_str(line).map_err(|_| Fault::Json)?;
    if line.input_length.max(line.output_length) >= MAX_TOKENS {
        return Err(Fault::Tokens);
    }
    let needed = line.input_length.div_ceil(HASH_BLOCK);
    let prompt = if line.hash_ids.is_empty() {
        Prompt::Length(line.input_length)
    } else if line.hash_ids.len() == needed as usize {
        Prompt::Blocks {
            tokens: line.input_length,
            ids: line.hash_ids,
        }
    } else {
        return Err(Fault::HashIds {
            needed,
            given: line.hash_ids.len(),
        });
    };
    // Milliseconds of some thousand years fit; a cast saturates.
    Ok(((line.timestamp * 1000.0) as i64, prompt, line.output_length))
}

#[cfg(test)]
mod tests;
