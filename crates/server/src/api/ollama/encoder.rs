//! An answer in Ollama's form: one object, or one a line.

use andante_engine::{Delta, FinishReason, Usage};
use andante_text::Part;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::answer::{Choice, Totals};
use crate::api::blocks::{self, Block, Blocks, Step};
use crate::api::{Encode, tools};
use crate::error::{ApiError, Envelope};
use crate::sse::{self, Frames};

/// Which of the two routes asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Chat,
    Generate,
}

/// Writes answers. One choice, so the index of a choice means nothing here.
pub(in crate::api) struct OllamaEncoder {
    kind: Kind,
    model: String,
    /// Nothing was asked but that the model be there.
    is_load: bool,
    blocks: Blocks,
    reason: FinishReason,
    calls: usize,
}

/// An answer, or a piece of one.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = OllamaAnswer)]
pub(in crate::api) struct Object {
    model: String,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Message>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<String>,
    done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    done_reason: Option<&'static str>,
    #[serde(flatten)]
    counts: Option<Counts>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = OllamaAnswerMessage)]
struct Message {
    role: &'static str,
    content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    tool_calls: Option<Vec<Value>>,
}

/// Tokens, and nanoseconds.
#[derive(Serialize, ToSchema)]
#[schema(as = OllamaCounts)]
struct Counts {
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: u32,
    prompt_eval_duration: u64,
    eval_count: u32,
    eval_duration: u64,
}

/// What one object tells.
#[derive(Default)]
struct Said {
    text: String,
    thinking: String,
    calls: Vec<Value>,
}

impl OllamaEncoder {
    pub(super) fn new(kind: Kind, model: &str, is_load: bool) -> Self {
        Self {
            kind,
            model: model.to_owned(),
            is_load,
            blocks: Blocks::default(),
            reason: FinishReason::Stop { sequence: None },
            calls: 0,
        }
    }

    fn object(&self, said: Said) -> Object {
        let thinking = Some(said.thinking).filter(|text| !text.is_empty());
        let calls = Some(said.calls).filter(|calls| !calls.is_empty());
        let mut object = Object {
            model: self.model.clone(),
            created_at: jiff::Timestamp::now().to_string(),
            ..Object::default()
        };
        match self.kind {
            Kind::Chat => {
                object.message = Some(Message {
                    role: "assistant",
                    content: said.text,
                    thinking,
                    tool_calls: calls,
                });
            }
            Kind::Generate => {
                object.response = Some(said.text);
                object.thinking = thinking;
            }
        }
        object
    }

    fn last(&self, said: Said, totals: Totals) -> Object {
        let ns = |us: u64| us.saturating_mul(1000);
        let (usage, timings) = (totals.usage, totals.timings);
        let mut object = self.object(said);
        object.done = true;
        object.done_reason = Some(match self.reason {
            _ if self.is_load => "load",
            FinishReason::Stop { .. } => "stop",
            FinishReason::Length => "length",
        });
        if !self.is_load {
            let total_us = timings.queued_us + timings.prefill_us + timings.decode_us;
            object.counts = Some(Counts {
                total_duration: ns(total_us),
                load_duration: 0,
                prompt_eval_count: usage.prompt_tokens,
                prompt_eval_duration: ns(timings.prefill_us),
                eval_count: usage.completion_tokens,
                eval_duration: ns(timings.decode_us),
            });
        }
        object
    }

    /// Adds what a step of a block has to tell: calls are told whole.
    fn step(&mut self, step: &Step<'_>, said: &mut Said) {
        match step {
            Step::Grew(Block::Text(_), text) => said.text.push_str(text),
            Step::Grew(Block::Reasoning(_), text) => said.thinking.push_str(text),
            Step::Closed(Block::Call {
                id,
                name,
                arguments,
            }) => {
                let arguments = tools::object(arguments);
                let function = json!({ "index": self.calls, "name": name, "arguments": arguments });
                said.calls.push(json!({ "id": id, "function": function }));
                self.calls += 1;
            }
            _ => {}
        }
    }
}

impl Encode for OllamaEncoder {
    const CONTENT_TYPE: &'static str = sse::JSON_LINES;

    fn opened(&mut self, frames: &mut Frames) {
        self.keep_alive(frames);
    }

    fn started(&mut self, _choice: usize, _prompt: Usage, _frames: &mut Frames) {}

    fn delta(&mut self, _choice: usize, delta: Delta, frames: &mut Frames) {
        let mut blocks = std::mem::take(&mut self.blocks);
        for part in delta.parts {
            let mut said = Said::default();
            let is_silent = matches!(part, Part::Arguments(_));
            blocks.push(part, &mut |_, step| self.step(&step, &mut said));
            if !is_silent && !said.is_empty() {
                frames.push_line(&self.object(said));
            }
        }
        self.blocks = blocks;
    }

    fn finished(&mut self, _choice: usize, reason: FinishReason, frames: &mut Frames) {
        let mut blocks = std::mem::take(&mut self.blocks);
        let mut said = Said::default();
        blocks.close(&mut |_, step| self.step(&step, &mut said));
        if !said.is_empty() {
            frames.push_line(&self.object(said));
        }
        self.reason = reason;
    }

    fn ended(&mut self, totals: Totals, frames: &mut Frames) {
        frames.push_line(&self.last(Said::default(), totals));
    }

    fn failed(&mut self, error: &ApiError, frames: &mut Frames) {
        frames.push_line(&Envelope::Ollama.body(error, ""));
    }

    /// Lines have no comments: one that adds nothing.
    fn keep_alive(&mut self, frames: &mut Frames) {
        frames.push_line(&self.object(Said::default()));
    }

    fn whole(&mut self, choices: Vec<Choice>, totals: Totals) -> impl Serialize {
        let mut said = Said::default();
        for choice in choices {
            for block in blocks::collect(choice.parts) {
                match &block {
                    Block::Text(text) => said.text.push_str(text),
                    Block::Reasoning(text) => said.thinking.push_str(text),
                    Block::Call { .. } => self.step(&Step::Closed(&block), &mut said),
                }
            }
            self.reason = choice.reason;
        }
        self.last(said, totals)
    }
}

impl Said {
    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.thinking.is_empty() && self.calls.is_empty()
    }
}
