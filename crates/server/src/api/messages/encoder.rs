//! An answer as a message, whole or as a stream of events.

use andante_engine::{Delta, EngineHandle, FinishReason, Usage};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::conversation::shown_id;
use crate::Server;
use crate::answer::{Choice, Totals};
use crate::api::blocks::{self, Block, Blocks, Step};
use crate::api::{Encode, tools};
use crate::error::{ApiError, Envelope};
use crate::sse::Frames;

/// Writes messages and their events. One choice, so the index of a choice means nothing here.
pub(in crate::api) struct MessageEncoder {
    engine: EngineHandle,
    id: String,
    model: String,
    request_id: String,
    /// Whether thinking is shown; its signature always is.
    show_thinking: bool,
    blocks: Blocks,
    called: bool,
    reason: FinishReason,
}

impl MessageEncoder {
    pub(super) fn new(
        server: &Server,
        model: &str,
        request_id: String,
        show_thinking: bool,
    ) -> Self {
        Self {
            engine: server.engine().clone(),
            id: server.unique_id("msg_"),
            model: model.to_owned(),
            request_id,
            show_thinking,
            blocks: Blocks::default(),
            called: false,
            reason: FinishReason::Length,
        }
    }

    fn message(&self, content: Vec<ContentBlock>, usage: Usage) -> WholeMessage {
        WholeMessage {
            id: self.id.clone(),
            kind: "message",
            role: "assistant",
            model: self.model.clone(),
            content,
            stop_reason: None,
            stop_sequence: None,
            stop_details: None,
            container: None,
            usage: MessageUsage {
                input_tokens: uncached(usage),
                cache_creation_input_tokens: 0,
                cache_read_input_tokens: usage.cached_tokens,
                cache_creation: CacheCreation {
                    ephemeral_5m_input_tokens: 0,
                    ephemeral_1h_input_tokens: 0,
                },
                output_tokens: usage.completion_tokens,
                output_tokens_details: OutputDetails {
                    thinking_tokens: usage.reasoning_tokens,
                },
                server_tool_use: None,
                service_tier: "standard",
                inference_geo: None,
            },
        }
    }

    /// `stop_reason` and `stop_sequence`. A limit that was reached wins over calls, the last of which it may have cut.
    fn stop(&self) -> (&'static str, Option<&str>) {
        match &self.reason {
            FinishReason::Length => ("max_tokens", None),
            _ if self.called => ("tool_use", None),
            FinishReason::Stop { sequence: None } => ("end_turn", None),
            FinishReason::Stop { sequence } => ("stop_sequence", sequence.as_deref()),
        }
    }

    fn whole_block(&self, block: &Block) -> ContentBlock {
        match block {
            Block::Text(text) => ContentBlock::text(text.clone()),
            Block::Reasoning(text) => ContentBlock::Thinking {
                thinking: if self.show_thinking {
                    text.clone()
                } else {
                    String::new()
                },
                signature: self.engine.seal_reasoning(text),
            },
            Block::Call {
                id,
                name,
                arguments,
            } => ContentBlock::call(id, name, tools::object(arguments)),
        }
    }
}

/// An answer.
#[derive(Serialize, ToSchema)]
#[schema(as = Message)]
pub(in crate::api) struct WholeMessage {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    role: &'static str,
    model: String,
    content: Vec<ContentBlock>,
    stop_reason: Option<&'static str>,
    stop_sequence: Option<String>,
    #[schema(value_type = Option<Object>)]
    stop_details: Option<()>,
    #[schema(value_type = Option<Object>)]
    container: Option<()>,
    usage: MessageUsage,
}

#[derive(Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentBlock {
    Text {
        text: String,
        #[schema(value_type = Option<Object>)]
        citations: Option<()>,
    },
    Thinking {
        thinking: String,
        signature: String,
    },
    ToolUse {
        id: String,
        name: String,
        #[schema(value_type = Object)]
        input: Value,
        caller: ToolCaller,
    },
}

#[derive(Serialize, ToSchema)]
struct ToolCaller {
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize, ToSchema)]
struct MessageUsage {
    input_tokens: u32,
    cache_creation_input_tokens: u32,
    cache_read_input_tokens: u32,
    cache_creation: CacheCreation,
    output_tokens: u32,
    output_tokens_details: OutputDetails,
    #[schema(value_type = Option<Object>)]
    server_tool_use: Option<()>,
    service_tier: &'static str,
    inference_geo: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct CacheCreation {
    ephemeral_5m_input_tokens: u32,
    ephemeral_1h_input_tokens: u32,
}

#[derive(Serialize, ToSchema)]
struct OutputDetails {
    thinking_tokens: u32,
}

impl ContentBlock {
    fn text(text: String) -> Self {
        Self::Text {
            text,
            citations: None,
        }
    }

    fn call(id: &str, name: &str, input: Value) -> Self {
        Self::ToolUse {
            id: shown_id(id),
            name: name.to_owned(),
            input,
            caller: ToolCaller { kind: "direct" },
        }
    }
}

impl Encode for MessageEncoder {
    fn started(&mut self, _choice: usize, prompt: Usage, frames: &mut Frames) {
        let message = self.message(Vec::new(), prompt);
        push(
            frames,
            &json!({ "type": "message_start", "message": message }),
        );
    }

    fn delta(&mut self, _choice: usize, delta: Delta, frames: &mut Frames) {
        let Self {
            engine,
            show_thinking,
            blocks,
            called,
            ..
        } = self;
        for part in delta.parts {
            blocks.push(part, &mut |index, step| {
                *called |= matches!(step, Step::Opened(Block::Call { .. }));
                events(engine, *show_thinking, index, &step, frames);
            });
        }
    }

    fn finished(&mut self, _choice: usize, reason: FinishReason, frames: &mut Frames) {
        let Self {
            engine,
            show_thinking,
            blocks,
            ..
        } = self;
        blocks.close(&mut |index, step| events(engine, *show_thinking, index, &step, frames));
        self.reason = reason;
    }

    fn ended(&mut self, totals: Totals, frames: &mut Frames) {
        let (stop_reason, stop_sequence) = self.stop();
        let usage = totals.usage;
        let delta = json!({
            "stop_reason": stop_reason,
            "stop_sequence": stop_sequence,
            "stop_details": null,
            "container": null,
        });
        let usage = json!({
            "input_tokens": uncached(usage),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached_tokens,
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": { "thinking_tokens": usage.reasoning_tokens },
            "server_tool_use": null,
        });
        push(
            frames,
            &json!({ "type": "message_delta", "delta": delta, "usage": usage }),
        );
        push(frames, &json!({ "type": "message_stop" }));
    }

    fn failed(&mut self, error: &ApiError, frames: &mut Frames) {
        push(frames, &Envelope::Anthropic.body(error, &self.request_id));
    }

    fn keep_alive(&mut self, frames: &mut Frames) {
        push(frames, &json!({ "type": "ping" }));
    }

    fn whole(&mut self, choices: Vec<Choice>, totals: Totals) -> impl Serialize {
        let mut content = Vec::new();
        for choice in choices {
            let blocks = blocks::collect(choice.parts);
            self.called = blocks
                .iter()
                .any(|block| matches!(block, Block::Call { .. }));
            self.reason = choice.reason;
            content.extend(blocks.iter().map(|block| self.whole_block(block)));
        }
        let (stop_reason, stop_sequence) = self.stop();
        WholeMessage {
            stop_reason: Some(stop_reason),
            stop_sequence: stop_sequence.map(str::to_owned),
            ..self.message(content, totals.usage)
        }
    }
}

/// The events of one step of a block.
fn events(
    engine: &EngineHandle,
    show_thinking: bool,
    index: usize,
    step: &Step<'_>,
    frames: &mut Frames,
) {
    let delta = |frames: &mut Frames, delta: Value| {
        push(
            frames,
            &json!({ "type": "content_block_delta", "index": index, "delta": delta }),
        );
    };
    match step {
        Step::Opened(block) => {
            let block = match block {
                Block::Text(_) => ContentBlock::text(String::new()),
                Block::Reasoning(_) => ContentBlock::Thinking {
                    thinking: String::new(),
                    signature: String::new(),
                },
                Block::Call { id, name, .. } => ContentBlock::call(id, name, json!({})),
            };
            push(
                frames,
                &json!({ "type": "content_block_start", "index": index, "content_block": block }),
            );
        }
        Step::Grew(Block::Text(_), text) => {
            delta(frames, json!({ "type": "text_delta", "text": text }));
        }
        Step::Grew(Block::Reasoning(_), text) => {
            if show_thinking {
                delta(
                    frames,
                    json!({ "type": "thinking_delta", "thinking": text }),
                );
            }
        }
        Step::Grew(Block::Call { .. }, text) => {
            delta(
                frames,
                json!({ "type": "input_json_delta", "partial_json": text }),
            );
        }
        Step::Closed(block) => {
            // Clients drop thinking without a signature, or take it for text.
            if let Block::Reasoning(text) = block {
                let signature = engine.seal_reasoning(text);
                delta(
                    frames,
                    json!({ "type": "signature_delta", "signature": signature }),
                );
            }
            push(
                frames,
                &json!({ "type": "content_block_stop", "index": index }),
            );
        }
    }
}

/// Adds an event under the name that is its type.
fn push(frames: &mut Frames, event: &Value) {
    let name = event["type"].as_str().expect("every event has a type");
    frames.push_named(name, event);
}

/// Tokens of the prompt that were computed for this answer.
fn uncached(usage: Usage) -> u32 {
    usage.prompt_tokens - usage.cached_tokens
}
