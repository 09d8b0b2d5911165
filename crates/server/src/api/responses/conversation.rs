//! The items of a Responses request as a conversation.

use andante_engine::EngineHandle;
use andante_text::{Message, Role, ToolCall};
use serde_json::{Value, json};

use super::tools::{INPUT, Tools};
use crate::error::ApiError;
use crate::json::Field;

/// Introduces a conversation's summary in its place.
const SUMMARY: &str = "Summary of the conversation so far:\n";

/// Reads items in order. Neighbouring items of the assistant become one message: reasoning, text, calls.
pub(super) struct Reader<'a> {
    engine: &'a EngineHandle,
    tools: &'a Tools,
    messages: Vec<Message>,
    /// The last message is the assistant's, and its next item belongs to it.
    in_turn: bool,
    /// Kinds of items that nobody here knows.
    pub(super) skipped: Vec<String>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(engine: &'a EngineHandle, tools: &'a Tools) -> Self {
        Self {
            engine,
            tools,
            messages: Vec::new(),
            in_turn: false,
            skipped: Vec::new(),
        }
    }

    /// The operator's words ahead of all items.
    pub(super) fn instructions(&mut self, text: &str) {
        self.push(Message::new(Role::System, text));
    }

    pub(super) fn items(&mut self, field: &Field<'_>) -> Result<(), ApiError> {
        for item in field.items()?.into_iter().flatten() {
            self.item(&item)?;
        }
        Ok(())
    }

    /// The conversation: all leading instructions are one system message.
    pub(super) fn finish(mut self) -> Vec<Message> {
        let leading = self.messages.iter();
        let leading = leading
            .take_while(|message| matches!(message.role, Role::System | Role::Developer))
            .count();
        let texts: Vec<String> = self
            .messages
            .drain(..leading)
            .filter_map(|message| message.content)
            .filter(|text| !text.is_empty())
            .collect();
        if !texts.is_empty() {
            let system = Message::new(Role::System, texts.join("\n\n"));
            self.messages.insert(0, system);
        }
        if self.messages.is_empty() {
            self.messages.push(Message::new(Role::User, ""));
        }
        self.messages
    }

    fn item(&mut self, item: &Field<'_>) -> Result<(), ApiError> {
        item.map()?;
        let kind = item.get("type").string()?;
        match kind.unwrap_or("message") {
            "message" => self.message(item),
            "reasoning" => self.reasoning(item),
            "function_call" => {
                let arguments = item.get("arguments").string()?.unwrap_or("{}");
                self.call(item, arguments.to_owned())
            }
            "custom_tool_call" => {
                let input = item.get("input").string()?.unwrap_or_default();
                self.call(item, json!({ INPUT: input }).to_string())
            }
            "function_call_output" | "custom_tool_call_output" => self.result(item),
            "compaction" => {
                let sealed = item.get("encrypted_content").string()?.unwrap_or_default();
                if let Some(summary) = self.engine.open_reasoning(sealed) {
                    self.push(Message::new(Role::User, SUMMARY.to_owned() + &summary));
                }
                Ok(())
            }
            "agent_message" => {
                let text = text(&item.get("content"), "\n")?.unwrap_or_default();
                self.push(Message::new(Role::User, text));
                Ok(())
            }
            // Read before all others.
            "additional_tools" => Ok(()),
            other => {
                self.skipped.push(other.to_owned());
                Ok(())
            }
        }
    }

    fn message(&mut self, item: &Field<'_>) -> Result<(), ApiError> {
        let role = item.get("role");
        let content = item.get("content");
        let (role, joint) = match role.required()? {
            "user" => (Role::User, "\n"),
            "system" => (Role::System, "\n"),
            "developer" => (Role::Developer, "\n"),
            // What the model said in pieces, it said without breaks.
            "assistant" => (Role::Assistant, ""),
            other => return Err(role.error(format!("`{other}` is no role"))),
        };
        let text = text(&content, joint)?.ok_or_else(|| content.missing())?;
        if role == Role::Assistant {
            let message = self.turn();
            message.content.get_or_insert_default().push_str(&text);
        } else {
            self.push(Message::new(role, text));
        }
        Ok(())
    }

    /// What was thought: exactly where the seal holds, else as the client tells it.
    fn reasoning(&mut self, item: &Field<'_>) -> Result<(), ApiError> {
        let sealed = item.get("encrypted_content").string()?.unwrap_or_default();
        let thought = match self.engine.open_reasoning(sealed) {
            Some(thought) => thought,
            None => match text(&item.get("content"), "\n")? {
                Some(text) if !text.is_empty() => text,
                _ => text(&item.get("summary"), "\n")?.unwrap_or_default(),
            },
        };
        if !thought.is_empty() {
            // Reasoning opens a turn: after words or calls it is the next one.
            let last = self.messages.last().filter(|_| self.in_turn);
            let fresh = |last: &Message| last.content.is_none() && last.tool_calls.is_empty();
            self.in_turn = last.is_some_and(fresh);
            let reasoning = &mut self.turn().reasoning;
            match reasoning {
                Some(earlier) => *earlier += &format!("\n{thought}"),
                None => *reasoning = Some(thought),
            }
        }
        Ok(())
    }

    fn call(&mut self, item: &Field<'_>, arguments: String) -> Result<(), ApiError> {
        let name = item.get("name").required()?;
        let namespace = item.get("namespace").string()?;
        let call = ToolCall {
            id: item.get("call_id").string()?.map(str::to_owned),
            name: self.tools.flat_name(namespace, name),
            arguments,
        };
        self.turn().tool_calls.push(call);
        Ok(())
    }

    fn result(&mut self, item: &Field<'_>) -> Result<(), ApiError> {
        let text = text(&item.get("output"), "\n")?.unwrap_or_default();
        self.push(Message {
            tool_call_id: item.get("call_id").string()?.map(str::to_owned),
            ..Message::new(Role::Tool, text)
        });
        Ok(())
    }

    fn push(&mut self, message: Message) {
        self.messages.push(message);
        self.in_turn = false;
    }

    /// The assistant's message that its next item belongs to.
    fn turn(&mut self) -> &mut Message {
        if !self.in_turn {
            self.push(Message {
                content: None,
                ..Message::new(Role::Assistant, "")
            });
            self.in_turn = true;
        }
        self.messages.last_mut().expect("there is one now")
    }
}

/// A string, or the texts of parts; `None` where there is nothing.
fn text(content: &Field<'_>, joint: &str) -> Result<Option<String>, ApiError> {
    match content.value() {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Array(_)) => {
            let mut texts = Vec::new();
            for part in content.items()?.into_iter().flatten() {
                texts.extend(part_text(&part)?);
            }
            Ok(Some(texts.join(joint)))
        }
        Some(_) => Err(content.wrong_type("a string or an array of parts")),
    }
}

fn part_text<'a>(part: &Field<'a>) -> Result<Option<&'a str>, ApiError> {
    part.map()?;
    let kind = part.get("type");
    let text = match kind.required()? {
        "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => {
            part.get("text")
        }
        "refusal" => part.get("refusal"),
        media @ ("input_image"
        | "input_file"
        | "input_audio"
        | "input_video"
        | "computer_screenshot") => {
            let media = media.strip_prefix("input_").unwrap_or(media);
            let why = format!("{media} input is not supported; this model reads text");
            return Err(kind.error(why));
        }
        _ => return Ok(None),
    };
    text.required().map(Some)
}
