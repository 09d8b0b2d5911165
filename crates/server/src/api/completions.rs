//! `POST /v1/completions`: text in, text on. The older of OpenAI's two formats; base models and editors use it.

use andante_engine::{Delta, FinishReason, PromptInput, TokenLogprob, Usage};
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Serialize, Serializer};
use serde_json::Value;
use utoipa::ToSchema;

use super::openapi::{CompletionBody, OpenAiErrors, StreamEvent};
use super::sampling::{self, Delivery};
use super::wire::{Completion, Stamp, finish_reason, finite, lossy};
use super::{Encode, Job};
use crate::Server;
use crate::answer::{Choice, Totals};
use crate::config::{MAX_CHOICES, MAX_TOP_LOGPROBS};
use crate::error::ApiError;
use crate::json::Field;
use crate::sse::Frames;

/// The object's name, whole or in chunks.
const OBJECT: &str = "text_completion";

/// Goes on with a text.
#[utoipa::path(
    post,
    path = "/completions",
    tag = "OpenAI",
    request_body = CompletionBody,
    responses(
        (status = 200, content((Completion<TextChoice> = "application/json"), (StreamEvent = "text/event-stream"))),
        OpenAiErrors
    )
)]
pub(super) async fn create(
    State(server): State<Server>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    super::answer(server, &headers, body, decode).await
}

fn decode(server: &Server, body: &Field<'_>) -> Result<Job<TextEncoder>, ApiError> {
    let delivery = Delivery::decode(server, body)?;
    let suffix = body.get("suffix");
    if suffix.string()?.is_some_and(|suffix| !suffix.is_empty()) {
        return Err(suffix.unsupported("filling in the middle"));
    }
    let mut sampling = sampling::decode(body)?;
    sampling.logprobs = logprobs(body)?;
    let echo = body.get("echo");
    let echoed = echo.bool()?.unwrap_or(false);
    if echoed && sampling.logprobs.is_some() {
        return Err(echo.unsupported("an echo together with `logprobs`"));
    }
    let prompts = prompts(&body.get("prompt"))?;
    if prompts.len() * delivery.n > MAX_CHOICES {
        let why = format!("its texts times `n` are more than {MAX_CHOICES} choices");
        return Err(body.get("prompt").error(why));
    }
    let mut requests = Vec::new();
    let mut choices = Vec::new();
    for prompt in prompts {
        let text = if echoed {
            echo_text(server, &prompt)
        } else {
            String::new()
        };
        choices.resize(
            choices.len() + delivery.n,
            ChoiceState {
                echo: text,
                offset: 0,
            },
        );
        let request = server.engine().prepare_text(prompt, sampling.clone())?;
        requests.extend(delivery.choices(&request));
    }
    Ok(Job {
        requests,
        choices_per_prompt: delivery.n,
        stream: delivery.stream,
        warning: None,
        encoder: TextEncoder {
            stamp: Stamp::new(server, "cmpl-", delivery.model),
            include_usage: delivery.include_usage,
            logprobs: sampling.logprobs.is_some(),
            choices,
        },
    })
}

fn logprobs(body: &Field<'_>) -> Result<Option<u8>, ApiError> {
    let top = body.get("logprobs").integer(0, MAX_TOP_LOGPROBS)?;
    Ok(top.map(|top| u8::try_from(top).expect("the range is checked")))
}

/// One text, a list of texts, the token ids of one, or a list of those.
pub(super) fn prompts(field: &Field<'_>) -> Result<Vec<PromptInput>, ApiError> {
    const EXPECTED: &str =
        "a string, an array of strings, or an array of token ids or of such arrays";
    let items = match field.value() {
        None => return Err(field.missing()),
        Some(Value::String(text)) => return Ok(vec![PromptInput::Text(text.clone())]),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(field.wrong_type(EXPECTED)),
    };
    match items.first() {
        None => Err(field.error("must not be empty")),
        Some(Value::Number(_)) => Ok(vec![PromptInput::Tokens(field.tokens()?)]),
        Some(_) if items.len() > MAX_CHOICES => {
            Err(field.error(format!("may hold at most {MAX_CHOICES} prompts")))
        }
        Some(_) => field
            .items()?
            .into_iter()
            .flatten()
            .map(|item| match item.value() {
                Some(Value::String(text)) => Ok(PromptInput::Text(text.clone())),
                Some(Value::Array(_)) => Ok(PromptInput::Tokens(item.tokens()?)),
                _ => Err(item.wrong_type("a string or an array of token ids")),
            })
            .collect(),
    }
}

/// The prompt as its answer repeats it.
fn echo_text(server: &Server, prompt: &PromptInput) -> String {
    match prompt {
        PromptInput::Text(text) => text.clone(),
        PromptInput::Tokens(ids) => {
            let tokenizer = server.engine().tokenizer();
            let bytes: Vec<u8> = ids
                .iter()
                .flat_map(|id| tokenizer.piece(*id))
                .copied()
                .collect();
            lossy(&bytes)
        }
    }
}

/// Writes text completions and their chunks.
pub(super) struct TextEncoder {
    stamp: Stamp,
    include_usage: bool,
    logprobs: bool,
    choices: Vec<ChoiceState>,
}

#[derive(Clone)]
struct ChoiceState {
    /// The prompt, where it is to come first in the answer.
    echo: String,
    /// Characters of the answer that stand before the next token: where `text_offset` goes on.
    offset: usize,
}

#[derive(Serialize, ToSchema)]
pub(super) struct TextChoice {
    text: String,
    index: usize,
    logprobs: Option<Logprobs>,
    finish_reason: Option<&'static str>,
}

/// The old shape: parallel lists, one element per token.
#[derive(Serialize, Default, ToSchema)]
#[schema(as = TextLogprobs)]
pub(super) struct Logprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<f32>,
    #[schema(value_type = Vec<HashMap<String, f32>>)]
    top_logprobs: Vec<TopLogprobs>,
    text_offset: Vec<usize>,
}

/// An object from a token's text to its log-probability, most likely first.
struct TopLogprobs(Vec<(String, f32)>);

impl Serialize for TopLogprobs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(token, logprob)| (token, logprob)))
    }
}

impl TextEncoder {
    fn choice(&self, index: usize, text: String) -> TextChoice {
        TextChoice {
            text,
            index,
            logprobs: None,
            finish_reason: None,
        }
    }

    fn push(&self, frames: &mut Frames, choice: TextChoice) {
        frames.push(&self.stamp.completion(OBJECT, vec![choice], None));
    }

    /// The log-probabilities of tokens that begin `offset` characters into the answer, and where the next one begins.
    fn logprobs(&self, tokens: &[TokenLogprob], mut offset: usize) -> (Option<Logprobs>, usize) {
        if !self.logprobs {
            return (None, offset);
        }
        let mut logprobs = Logprobs::default();
        for token in tokens {
            let text = lossy(&token.token.bytes);
            logprobs.text_offset.push(offset);
            offset += text.chars().count();
            logprobs.tokens.push(text);
            logprobs.token_logprobs.push(finite(token.token.logprob));
            let top = token.top.iter();
            let top = top.map(|top| (lossy(&top.bytes), finite(top.logprob)));
            logprobs.top_logprobs.push(TopLogprobs(top.collect()));
        }
        (Some(logprobs), offset)
    }
}

impl Encode for TextEncoder {
    fn started(&mut self, index: usize, _prompt: Usage, frames: &mut Frames) {
        let echo = std::mem::take(&mut self.choices[index].echo);
        if !echo.is_empty() {
            self.push(frames, self.choice(index, echo));
        }
    }

    fn delta(&mut self, index: usize, delta: Delta, frames: &mut Frames) {
        let mut choice = self.choice(index, delta.texts().collect());
        let offset = self.choices[index].offset;
        (choice.logprobs, self.choices[index].offset) = self.logprobs(&delta.logprobs, offset);
        self.push(frames, choice);
    }

    fn finished(&mut self, index: usize, reason: FinishReason, frames: &mut Frames) {
        let mut choice = self.choice(index, String::new());
        choice.finish_reason = Some(finish_reason(&reason, false));
        self.push(frames, choice);
    }

    fn ended(&mut self, totals: Totals, frames: &mut Frames) {
        if self.include_usage {
            let usage = Some(totals.usage);
            frames.push(
                &self
                    .stamp
                    .completion::<TextChoice>(OBJECT, Vec::new(), usage),
            );
        }
        frames.push_done();
    }

    fn whole(&mut self, choices: Vec<Choice>, totals: Totals) -> impl Serialize {
        let choice = |(index, choice): (usize, Choice)| TextChoice {
            text: self.choices[index].echo.clone() + &choice.text(),
            index,
            logprobs: self.logprobs(&choice.logprobs, 0).0,
            finish_reason: Some(finish_reason(&choice.reason, false)),
        };
        let choices = choices.into_iter().enumerate().map(choice).collect();
        self.stamp.completion(OBJECT, choices, Some(totals.usage))
    }
}

#[cfg(test)]
mod tests;
