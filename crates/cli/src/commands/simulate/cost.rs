//! Where the cost model comes from: a name, a file, or a running server that has fitted one.

use std::path::Path;

use andante_sched::{CostModel, FRACTION_BITS, Fixed};
use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Round figures of an A100-like dense 7-8B model; µs.
const A100: Coefficients = Coefficients {
    decode_us: 8000.0,
    prefill_us: 8000.0,
    mixed_us: 9000.0,
    token_us: 110.0,
    attend_us: 0.0026,
    context_us: 0.065,
    row_us: 20.0,
};

/// The coefficients as `GET /scheduler` shows them.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Coefficients {
    decode_us: f64,
    prefill_us: f64,
    mixed_us: f64,
    token_us: f64,
    attend_us: f64,
    context_us: f64,
    row_us: f64,
}

/// The answer of `GET /scheduler`, as far as it matters here, or its `cost` alone.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Document {
    Whole { cost: Coefficients },
    Cost(Coefficients),
}

/// The model of that name, or of the JSON in that file.
pub(super) fn named(name: &str) -> Result<CostModel> {
    if name == "a100" {
        return A100.model();
    }
    let path = Path::new(name);
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("--cost: {name} is neither `a100` nor a file that can be read"))?;
    parse(&text).with_context(|| name.to_owned())
}

/// The model that a running server has fitted.
pub(super) fn fetch(url: &str) -> Result<CostModel> {
    let url = format!("{}/scheduler", url.trim_end_matches('/'));
    let text = ureq::get(&url)
        .call()
        .and_then(|mut answer| answer.body_mut().read_to_string())
        .with_context(|| format!("cannot ask {url}"))?;
    parse(&text).with_context(|| url)
}

fn parse(text: &str) -> Result<CostModel> {
    let document: Document = serde_json::from_str(text).context(
        "no cost model: an object with decode_us, prefill_us, mixed_us, token_us, attend_us, context_us and row_us is expected",
    )?;
    match document {
        Document::Whole { cost } | Document::Cost(cost) => cost.model(),
    }
}

impl Coefficients {
    pub(super) fn model(self) -> Result<CostModel> {
        Ok(CostModel {
            decode: fixed(self.decode_us)?,
            prefill: fixed(self.prefill_us)?,
            mixed: fixed(self.mixed_us)?,
            token: fixed(self.token_us)?,
            attend: fixed(self.attend_us)?,
            context: fixed(self.context_us)?,
            row: fixed(self.row_us)?,
        })
    }
}

/// Largest coefficient, µs: a quarter of an hour.
const MOST_US: f64 = 1e9;

fn fixed(us: f64) -> Result<Fixed> {
    if !(0.0..=MOST_US).contains(&us) {
        bail!("{us} µs is no cost");
    }
    Ok((us * f64::from(1u32 << FRACTION_BITS)).round() as Fixed)
}

#[cfg(test)]
mod tests;
