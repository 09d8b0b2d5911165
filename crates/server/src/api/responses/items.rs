//! Output items: one block of an answer each, with an id that stays the same from its first event to the final object.

use andante_engine::EngineHandle;
use serde_json::{Value, json};

use super::tools::{INPUT, Tools};
use crate::Server;
use crate::api::blocks::Block;

/// What items need to know of the request.
pub(super) struct Items {
    pub(super) tools: Tools,
    /// Whether reasoning goes to the client sealed, for its way back.
    pub(super) seal_reasoning: bool,
}

/// An item under construction.
pub(super) struct Item {
    id: String,
    kind: Kind,
}

enum Kind {
    Message,
    Reasoning {
        seal: bool,
    },
    Call {
        call_id: String,
        name: String,
        namespace: Option<String>,
    },
    /// A call of a tool that takes text.
    Custom {
        call_id: String,
        name: String,
        namespace: Option<String>,
        /// How much of the text has been told.
        told: String,
    },
}

impl Items {
    pub(super) fn open(&self, server: &Server, block: &Block) -> Item {
        let (prefix, kind) = match block {
            Block::Text(_) => ("msg_", Kind::Message),
            Block::Reasoning(_) => {
                let seal = self.seal_reasoning;
                ("rs_", Kind::Reasoning { seal })
            }
            Block::Call { id, name, .. } => {
                let tool = self.tools.called(name);
                let call_id = id.clone();
                let namespace = tool.and_then(|tool| tool.namespace.clone());
                let name = tool.map_or(name, |tool| &tool.name).clone();
                if tool.is_some_and(|tool| tool.is_custom) {
                    let told = String::new();
                    let kind = Kind::Custom {
                        call_id,
                        name,
                        namespace,
                        told,
                    };
                    ("ctc_", kind)
                } else {
                    let kind = Kind::Call {
                        call_id,
                        name,
                        namespace,
                    };
                    ("fc_", kind)
                }
            }
        };
        Item {
            id: server.unique_id(prefix),
            kind,
        }
    }
}

impl Item {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The item when nothing of it is there.
    pub(super) fn begun(&self) -> Value {
        let id = &self.id;
        match &self.kind {
            Kind::Message => {
                json!({ "id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": [] })
            }
            Kind::Reasoning { .. } => json!({ "id": id, "type": "reasoning", "summary": [] }),
            Kind::Call { .. } => self.call("arguments", "", "in_progress"),
            Kind::Custom { .. } => self.call("input", "", "in_progress"),
        }
    }

    /// Events, without what all events of an item have, after the item is added.
    pub(super) fn opening(&self) -> Vec<(&'static str, Value)> {
        match &self.kind {
            Kind::Message => vec![(
                "response.content_part.added",
                json!({ "content_index": 0, "part": output_text("") }),
            )],
            Kind::Reasoning { .. } => vec![(
                "response.reasoning_summary_part.added",
                json!({ "summary_index": 0, "part": summary_text("") }),
            )],
            Kind::Call { .. } | Kind::Custom { .. } => Vec::new(),
        }
    }

    /// Events for a piece that was added to the item's block.
    pub(super) fn growing(&mut self, block: &Block, piece: &str) -> Vec<(&'static str, Value)> {
        match &mut self.kind {
            Kind::Message => vec![(
                "response.output_text.delta",
                json!({ "content_index": 0, "delta": piece, "logprobs": [] }),
            )],
            Kind::Reasoning { .. } => vec![(
                "response.reasoning_summary_text.delta",
                json!({ "summary_index": 0, "delta": piece }),
            )],
            Kind::Call { .. } => vec![(
                "response.function_call_arguments.delta",
                json!({ "delta": piece }),
            )],
            Kind::Custom { told, .. } => tell(told, input_so_far(arguments(block))),
        }
    }

    /// Events before the item is done.
    pub(super) fn closing(&mut self, block: &Block) -> Vec<(&'static str, Value)> {
        match (&mut self.kind, block) {
            (Kind::Message, Block::Text(text)) => vec![
                (
                    "response.output_text.done",
                    json!({ "content_index": 0, "text": text, "logprobs": [] }),
                ),
                (
                    "response.content_part.done",
                    json!({ "content_index": 0, "part": output_text(text) }),
                ),
            ],
            (Kind::Reasoning { .. }, Block::Reasoning(text)) => vec![
                (
                    "response.reasoning_summary_text.done",
                    json!({ "summary_index": 0, "text": text }),
                ),
                (
                    "response.reasoning_summary_part.done",
                    json!({ "summary_index": 0, "part": summary_text(text) }),
                ),
            ],
            (Kind::Call { name, .. }, block) => {
                let mut events = Vec::new();
                let arguments = arguments(block);
                if arguments.is_empty() {
                    let nothing = json!({ "delta": NO_ARGUMENTS });
                    events.push(("response.function_call_arguments.delta", nothing));
                }
                events.push((
                    "response.function_call_arguments.done",
                    json!({ "name": name, "arguments": some_arguments(arguments) }),
                ));
                events
            }
            (Kind::Custom { told, .. }, block) => {
                let input = input(arguments(block));
                let mut events = tell(told, input.clone());
                events.push((
                    "response.custom_tool_call_input.done",
                    json!({ "input": input }),
                ));
                events
            }
            _ => unreachable!("an item is of its block's kind"),
        }
    }

    /// The whole item.
    pub(super) fn whole(&self, block: &Block, status: &str, engine: &EngineHandle) -> Value {
        let id = &self.id;
        match (&self.kind, block) {
            (Kind::Message, Block::Text(text)) => json!({
                "id": id,
                "type": "message",
                "status": status,
                "role": "assistant",
                "content": [output_text(text)],
            }),
            (Kind::Reasoning { seal }, Block::Reasoning(text)) => {
                let mut item =
                    json!({ "id": id, "type": "reasoning", "summary": [summary_text(text)] });
                if *seal {
                    item["encrypted_content"] = engine.seal_reasoning(text).into();
                }
                item
            }
            (Kind::Call { .. }, block) => {
                self.call("arguments", some_arguments(arguments(block)), status)
            }
            (Kind::Custom { .. }, block) => self.call("input", &input(arguments(block)), status),
            _ => unreachable!("an item is of its block's kind"),
        }
    }

    fn call(&self, key: &str, text: &str, status: &str) -> Value {
        let (Kind::Call {
            call_id,
            name,
            namespace,
        }
        | Kind::Custom {
            call_id,
            name,
            namespace,
            ..
        }) = &self.kind
        else {
            unreachable!("only calls are written as such");
        };
        let kind = if key == "input" {
            "custom_tool_call"
        } else {
            "function_call"
        };
        let mut item = json!({ "id": self.id, "type": kind, "status": status, "call_id": call_id, "name": name });
        if let Some(namespace) = namespace {
            item["namespace"] = namespace.as_str().into();
        }
        item[key] = text.into();
        item
    }
}

/// The arguments of a call of which the model wrote none: clients parse what they get.
const NO_ARGUMENTS: &str = "{}";

fn some_arguments(arguments: &str) -> &str {
    if arguments.is_empty() {
        NO_ARGUMENTS
    } else {
        arguments
    }
}

fn arguments(block: &Block) -> &str {
    match block {
        Block::Call { arguments, .. } => arguments,
        Block::Text(_) | Block::Reasoning(_) => "",
    }
}

fn output_text(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn summary_text(text: &str) -> Value {
    json!({ "type": "summary_text", "text": text })
}

/// The event for what `text` has more than was told.
fn tell(told: &mut String, text: String) -> Vec<(&'static str, Value)> {
    let more = text.strip_prefix(told.as_str()).unwrap_or_default();
    if more.is_empty() {
        return Vec::new();
    }
    let event = json!({ "delta": more });
    *told = text;
    vec![("response.custom_tool_call_input.delta", event)]
}

/// The text of a custom call: its one argument, or what the model wrote in its place.
fn input(arguments: &str) -> String {
    match serde_json::from_str::<Value>(arguments) {
        Ok(Value::Object(object)) => match object.get(INPUT) {
            Some(Value::String(text)) => text.clone(),
            _ => arguments.to_owned(),
        },
        Ok(Value::String(text)) => text,
        // A call that was cut has at least its beginning.
        _ => match input_so_far(arguments) {
            beginning if beginning.is_empty() => arguments.to_owned(),
            beginning => beginning,
        },
    }
}

/// The beginning of the text in JSON that is not complete, `{"input": "…`: all whole characters of it.
fn input_so_far(arguments: &str) -> String {
    let begin = |text| -> Option<&str> {
        let text = str::trim_start(text).strip_prefix('{')?;
        let text = text.trim_start().strip_prefix("\"input\"")?;
        text.trim_start()
            .strip_prefix(':')?
            .trim_start()
            .strip_prefix('"')
    };
    let Some(body) = begin(arguments) else {
        return String::new();
    };
    // The longest beginning that is a string by itself: an escape at the end may be cut.
    let mut end = body.len();
    let mut escaped = false;
    for (at, byte) in body.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => {
                end = at;
                break;
            }
            _ => {}
        }
    }
    /// Bytes of the longest escape, a pair of surrogates.
    const LONGEST_ESCAPE: usize = 12;
    let shortest = end.saturating_sub(LONGEST_ESCAPE);
    let ends = (shortest..=end)
        .rev()
        .filter(|&end| body.is_char_boundary(end));
    ends.map(|end| format!("\"{}\"", &body[..end]))
        .find_map(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
