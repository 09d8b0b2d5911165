//! The fields that chat and text completions share: sampling, stops, the number of choices, streaming.

use andante_engine::{Request, Sampling};
use serde_json::Value;

use super::constraint;
use crate::Server;
use crate::config::{MAX_CHOICES, MAX_STOP_BYTES, MAX_STOPS};
use crate::error::ApiError;
use crate::json::Field;

/// The names of one thing in OpenAI's three APIs, Anthropic's, llama-server's and Ollama's.
const MAX_TOKENS: [&str; 5] = [
    "max_completion_tokens",
    "max_tokens",
    "max_output_tokens",
    "n_predict",
    "num_predict",
];

/// How the answer is to be delivered.
pub(super) struct Delivery {
    pub(super) model: String,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    /// Choices per prompt.
    pub(super) n: usize,
}

impl Delivery {
    pub(super) fn decode(server: &Server, body: &Field<'_>) -> Result<Self, ApiError> {
        // One model is served, so any name means it; the answer repeats the name that was asked for.
        let model = body
            .get("model")
            .string()?
            .unwrap_or(&server.config().model_name);
        let options = body.get("stream_options");
        options.map()?;
        let n = body.get("n").integer(1, MAX_CHOICES as i64)?.unwrap_or(1);
        if let Some(best_of) = body.get("best_of").integer(1, i64::MAX)?
            && best_of != n
        {
            return Err(body.get("best_of").unsupported("a value other than `n`"));
        }
        Ok(Self {
            model: model.to_owned(),
            stream: body.get("stream").bool()?.unwrap_or(false),
            include_usage: options.get("include_usage").bool()?.unwrap_or(false),
            n: usize::try_from(n).expect("the range is checked"),
        })
    }

    /// One request per choice: each samples with its own seed, the first with the one given or drawn.
    pub(super) fn choices(&self, request: &Request) -> impl Iterator<Item = Request> {
        let seeds = (0..self.n as u64).map(|i| request.seed().wrapping_add(i));
        seeds.map(|seed| request.clone().with_seed(seed))
    }
}

/// Everything of `Sampling` but the log-probabilities, which the two APIs ask for in different ways.
pub(super) fn decode(body: &Field<'_>) -> Result<Sampling, ApiError> {
    let usual = Sampling::default();
    let number = |keys: &[&str], usual: f32| -> Result<f32, ApiError> {
        Ok(body.any_of(keys).number()?.unwrap_or(usual))
    };
    // OpenAI allows a share of 0: the most likely token alone.
    let share = |keys: &[&str], usual: f32| -> Result<f32, ApiError> {
        number(keys, usual).map(|share| {
            if share == 0.0 {
                f32::MIN_POSITIVE
            } else {
                share
            }
        })
    };
    Ok(Sampling {
        temperature: number(&["temperature"], usual.temperature)?,
        top_k: top_k(body)?.unwrap_or(usual.top_k),
        top_p: share(&["top_p"], usual.top_p)?,
        min_p: number(&["min_p"], usual.min_p)?,
        typical_p: share(&["typical_p", "typ_p"], usual.typical_p)?,
        repetition_penalty: number(
            &["repetition_penalty", "repeat_penalty"],
            usual.repetition_penalty,
        )?,
        repeat_last_n: repeat_last_n(body)?.unwrap_or(usual.repeat_last_n),
        frequency_penalty: number(&["frequency_penalty"], usual.frequency_penalty)?,
        presence_penalty: number(&["presence_penalty"], usual.presence_penalty)?,
        logit_bias: logit_bias(&body.get("logit_bias"))?,
        seed: body.get("seed").seed()?,
        max_tokens: max_tokens(body)?,
        stop: stop(&body.any_of(&["stop", "stop_sequences"]))?,
        ignore_eos: body.get("ignore_eos").bool()?.unwrap_or(usual.ignore_eos),
        cache_prompt: body
            .get("cache_prompt")
            .bool()?
            .unwrap_or(usual.cache_prompt),
        cache_salt: cache_salt(body)?,
        constraint: constraint::decode(body)?,
        reasoning_budget: reasoning_budget(body)?,
        logprobs: None,
    })
}

/// The most tokens of reasoning: `thinking_budget` (Qwen's servers), `thinking_budget_tokens` (llama-server's),
/// `thinking: {"budget_tokens"}` (Anthropic's form) or `reasoning: {"max_tokens"}` (OpenRouter's). `-1` is no bound.
fn reasoning_budget(body: &Field<'_>) -> Result<Option<u32>, ApiError> {
    let fields = [
        body.any_of(&["thinking_budget", "thinking_budget_tokens"]),
        body.get("thinking").get("budget_tokens"),
        body.get("reasoning").get("max_tokens"),
    ];
    for field in fields {
        if let Some(tokens) = field.integer(-1, i64::from(u32::MAX))? {
            return Ok(u32::try_from(tokens).ok());
        }
    }
    Ok(None)
}

/// What the prompt's prefix is shared by: vLLM's `cache_salt`. OpenAI's `prompt_cache_key` is an aid to routing between
/// machines with caches of their own, and `prompt_cache_retention` says for how long one is kept: here is one cache, which
/// keeps what fits, so they are understood and change nothing.
fn cache_salt(body: &Field<'_>) -> Result<Option<String>, ApiError> {
    body.get("prompt_cache_key").string()?;
    body.get("prompt_cache_retention").string()?;
    Ok(body.get("cache_salt").string()?.map(str::to_owned))
}

/// Zero, less or absent: all tokens are candidates.
fn top_k(body: &Field<'_>) -> Result<Option<u32>, ApiError> {
    let top_k = body.get("top_k").integer(i64::MIN, i64::MAX)?;
    Ok(top_k.map(|k| u32::try_from(k.max(0)).unwrap_or(u32::MAX)))
}

/// The window of the repetition penalty; `-1` is everything.
fn repeat_last_n(body: &Field<'_>) -> Result<Option<Option<u32>>, ApiError> {
    let window = body.get("repeat_last_n").integer(-1, i64::from(u32::MAX))?;
    Ok(window.map(|window| u32::try_from(window).ok()))
}

/// The most tokens to generate. More than fit means as many as fit, and so does `-1`, as in llama-server.
fn max_tokens(body: &Field<'_>) -> Result<Option<u32>, ApiError> {
    let field = body.any_of(&MAX_TOKENS);
    match field.integer(-1, i64::MAX)? {
        None | Some(-1) => Ok(None),
        Some(0) => Err(field.error("must be at least 1")),
        Some(most) => Ok(Some(u32::try_from(most).unwrap_or(u32::MAX))),
    }
}

/// A string or a list of them; empty ones stop nothing.
fn stop(field: &Field<'_>) -> Result<Vec<String>, ApiError> {
    let stops = match field.value() {
        Some(Value::String(stop)) => vec![stop.clone()],
        Some(Value::Array(_)) => {
            let mut stops = Vec::new();
            for item in field.items()?.into_iter().flatten() {
                stops.push(item.string()?.unwrap_or_default().to_owned());
            }
            stops
        }
        Some(_) => return Err(field.wrong_type("a string or an array of strings")),
        None => Vec::new(),
    };
    if stops.len() > MAX_STOPS {
        return Err(field.error(format!(
            "may hold at most {MAX_STOPS} strings, got {}",
            stops.len()
        )));
    }
    if stops.iter().any(|stop| stop.len() > MAX_STOP_BYTES) {
        return Err(field.error(format!(
            "may hold strings of at most {MAX_STOP_BYTES} bytes"
        )));
    }
    Ok(stops.into_iter().filter(|stop| !stop.is_empty()).collect())
}

/// OpenAI's object of id to bias, or llama-server's list of `[id, bias]` pairs, where `false` forbids the token.
fn logit_bias(field: &Field<'_>) -> Result<Vec<(u32, f32)>, ApiError> {
    let wrong = |id: &str| field.error(format!("no token id in `{id}`"));
    match field.value() {
        None => Ok(Vec::new()),
        Some(Value::Object(biases)) => biases
            .keys()
            .map(|id| Ok((id.parse().map_err(|_| wrong(id))?, bias(&field.get(id))?)))
            .collect(),
        Some(Value::Array(_)) => field
            .items()?
            .into_iter()
            .flatten()
            .map(|pair| match pair.array()? {
                Some([id, _]) => {
                    let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
                    let id = id.ok_or_else(|| pair.error("must begin with a token id"))?;
                    Ok((id, bias(&pair.item(1))?))
                }
                _ => Err(pair.wrong_type("a pair of a token id and a bias")),
            })
            .collect(),
        Some(_) => Err(field.wrong_type("an object")),
    }
}

fn bias(field: &Field<'_>) -> Result<f32, ApiError> {
    match field.value() {
        Some(Value::Bool(false)) => Ok(f32::NEG_INFINITY),
        _ => field.number()?.ok_or_else(|| field.missing()),
    }
}
