//! A request of the Messages API as a conversation.
//!
//! What must not change from one turn to the next is made equal here: marks for a cache go, so does a header that names the
//! client's version, one text block is the same as a string, and tools that are loaded later are described where they
//! are loaded.

use andante_engine::EngineHandle;
use andante_text::{Message, Role, ToolCall, ToolChoice};
use serde_json::{Map, Value, json};

use crate::Server;
use crate::api::tools;
use crate::error::ApiError;
use crate::json::Field;

/// Begins a system text that names version and kind of the client, and changes with them.
const BILLING: &str = "x-anthropic-billing-header:";
/// Begins the type of tools with which the API itself searches for others.
const TOOL_SEARCH: &str = "tool_search_tool";

/// The system prompt; none when there is no text in it.
pub(super) fn system(field: &Field<'_>) -> Result<Vec<Message>, ApiError> {
    let text = match field.value() {
        None => String::new(),
        Some(Value::String(text)) => without_billing(text).to_owned(),
        Some(Value::Array(_)) => {
            let mut texts = Vec::new();
            for block in field.items()?.into_iter().flatten() {
                texts.push(without_billing(block.get("text").required()?));
            }
            texts.retain(|text| !text.is_empty());
            texts.join("\n")
        }
        Some(_) => return Err(field.wrong_type("a string or an array of blocks")),
    };
    Ok(if text.is_empty() {
        Vec::new()
    } else {
        vec![Message::new(Role::System, text)]
    })
}

fn without_billing(text: &str) -> &str {
    if text.starts_with(BILLING) {
        text.split_once('\n').map_or("", |(_, rest)| rest)
    } else {
        text
    }
}

/// Whether and how hard to think. Without a word about it a client of this API expects no thinking, unless it has named a model that
/// does.
pub(super) fn template_args(
    server: &Server,
    body: &Field<'_>,
) -> Result<Map<String, Value>, ApiError> {
    let thinking = body.get("thinking");
    thinking.map()?;
    let kind = thinking.get("type");
    let on = match kind.string()? {
        None => server.thinks_by_name(body)?.unwrap_or(false),
        Some("disabled") => false,
        Some("enabled" | "adaptive") => true,
        Some(other) => return Err(kind.error(format!("`{other}` is no kind of thinking"))),
    };
    let config = body.get("output_config");
    config.map()?;
    Ok(tools::thinking(Some(on), config.get("effort").string()?))
}

/// The tools of a request: those that the prompt lists, and those that are described where they are loaded.
pub(super) struct Tools(Vec<Tool>);

struct Tool {
    name: String,
    definition: Value,
    deferred: bool,
}

impl Tools {
    pub(super) fn decode(field: &Field<'_>) -> Result<Self, ApiError> {
        let mut tools = Vec::new();
        let mut api_searches = false;
        for tool in field.items()?.into_iter().flatten() {
            tool.map()?;
            let kind = tool.get("type").string()?.unwrap_or("custom");
            api_searches |= kind.starts_with(TOOL_SEARCH);
            // Tools that the API itself runs have no schema. They are offers; leaving one out breaks no promise.
            let schema = tool.get("input_schema");
            if kind != "custom" && !schema.is_present() {
                continue;
            }
            schema.map()?;
            let name = tool.get("name").required()?;
            let mut function = Map::new();
            function.insert("name".into(), name.into());
            // Templates add to it without asking whether it is there.
            let description = tool.get("description").string()?.unwrap_or("");
            function.insert("description".into(), description.into());
            let empty = || json!({ "type": "object", "properties": {} });
            let schema = schema.value().cloned().unwrap_or_else(empty);
            function.insert("parameters".into(), schema);
            if let Some(strict) = tool.get("strict").bool()? {
                function.insert("strict".into(), strict.into());
            }
            tools.push(Tool {
                name: name.to_owned(),
                definition: json!({ "type": "function", "function": function }),
                deferred: tool.get("defer_loading").bool()?.unwrap_or(false),
            });
        }
        // The search is not done here, so nothing would ever be found.
        for tool in &mut tools {
            tool.deferred &= !api_searches;
        }
        Ok(Self(tools))
    }

    /// Those at the head of the prompt. Loading another one leaves the list, and with it the cache, as it was.
    pub(super) fn listed(&self) -> Vec<Value> {
        let listed = self.0.iter().filter(|tool| !tool.deferred);
        listed.map(|tool| tool.definition.clone()).collect()
    }

    /// Those that results of a search in `messages` describe.
    pub(super) fn loaded(&self, messages: &[Message]) -> Vec<Value> {
        let results = messages.iter().filter(|message| message.role == Role::Tool);
        let texts: Vec<&str> = results
            .filter_map(|result| result.content.as_deref())
            .collect();
        let deferred = self.0.iter().filter(|tool| tool.deferred);
        let is_there = |tool: &&Tool| {
            let description = tool.definition.to_string();
            texts.iter().any(|text| text.contains(&description))
        };
        deferred
            .filter(is_there)
            .map(|tool| tool.definition.clone())
            .collect()
    }

    /// `tool_choice`, in neutral words.
    pub(super) fn choose(&self, choice: &Field<'_>) -> Result<ToolChoice, ApiError> {
        choice.map()?;
        let kind = choice.get("type");
        let name = choice.get("name");
        let (chosen, place) = match kind.string()? {
            None | Some("auto") => (ToolChoice::Auto, choice),
            Some("any") => (ToolChoice::Required, choice),
            Some("none") => (ToolChoice::None, choice),
            Some("tool") => (ToolChoice::Named(name.required()?.to_owned()), &name),
            Some(other) => return Err(kind.error(format!("`{other}` is no choice"))),
        };
        let names = self.0.iter().map(|tool| tool.name.as_str());
        tools::checked(chosen, place, names)
    }

    /// The description of a tool that is loaded just there.
    fn described(&self, name: &str) -> String {
        let tool = self.0.iter().find(|tool| tool.name == name);
        tool.map_or_else(|| name.to_owned(), |tool| tool.definition.to_string())
    }
}

/// Reads messages.
pub(super) struct Reader<'a> {
    engine: &'a EngineHandle,
    tools: &'a Tools,
}

impl<'a> Reader<'a> {
    pub(super) fn new(engine: &'a EngineHandle, tools: &'a Tools) -> Self {
        Self { engine, tools }
    }

    pub(super) fn messages(&self, field: &Field<'_>) -> Result<Vec<Message>, ApiError> {
        let mut messages = Vec::new();
        for message in field.items()?.ok_or_else(|| field.missing())? {
            message.map()?;
            let role = message.get("role");
            let content = message.get("content");
            match role.required()? {
                "user" => self.user(&content, &mut messages)?,
                "assistant" => messages.push(self.assistant(&content)?),
                // Instructions that come later than the first message.
                "system" => messages.extend(system(&content)?),
                other => {
                    let why = format!("Input should be 'user' or 'assistant', got `{other}`");
                    return Err(role.error(why));
                }
            }
        }
        if messages.is_empty() {
            messages.push(Message::new(Role::User, ""));
        }
        Ok(messages)
    }

    /// A user's texts, and the results of tools between them.
    fn user(&self, content: &Field<'_>, messages: &mut Vec<Message>) -> Result<(), ApiError> {
        let Some(blocks) = blocks(content)? else {
            let text = content.required()?;
            messages.push(Message::new(Role::User, text));
            return Ok(());
        };
        let before = messages.len();
        let mut texts: Vec<String> = Vec::new();
        for block in &blocks {
            if block.get("type").string()? == Some("tool_result") {
                if !texts.is_empty() {
                    messages.push(Message::new(Role::User, texts.join("\n")));
                    texts.clear();
                }
                messages.push(self.tool_result(block)?);
            } else {
                texts.extend(self.text(block)?);
            }
        }
        if !texts.is_empty() || messages.len() == before {
            messages.push(Message::new(Role::User, texts.join("\n")));
        }
        Ok(())
    }

    fn tool_result(&self, block: &Field<'_>) -> Result<Message, ApiError> {
        let content = block.get("content");
        let text = match blocks(&content)? {
            None => content.string()?.unwrap_or_default().to_owned(),
            Some(blocks) => {
                let mut texts = Vec::new();
                for block in &blocks {
                    texts.extend(self.text(block)?);
                }
                texts.join("\n")
            }
        };
        Ok(Message {
            tool_call_id: Some(call_id(block.get("tool_use_id").required()?)),
            ..Message::new(Role::Tool, text)
        })
    }

    /// A block's text, if it is of a kind that has one.
    fn text(&self, block: &Field<'_>) -> Result<Option<String>, ApiError> {
        block.map()?;
        let kind = block.get("type");
        match kind.required()? {
            "text" => Ok(Some(block.get("text").required()?.to_owned())),
            "tool_reference" => {
                let name = block.get("tool_name").required()?;
                Ok(Some(self.tools.described(name)))
            }
            "document" if block.get("source").get("type").string()? == Some("text") => {
                Ok(Some(block.get("source").get("data").required()?.to_owned()))
            }
            "search_result" => {
                let mut texts = vec![block.get("title").required()?.to_owned()];
                for part in block.get("content").items()?.into_iter().flatten() {
                    texts.push(part.get("text").required()?.to_owned());
                }
                Ok(Some(texts.join("\n")))
            }
            media @ ("image" | "document" | "audio" | "video" | "file") => Err(kind.error(
                format!("{media} input is not supported; this model reads text"),
            )),
            // What nobody here knows is not for this model.
            _ => Ok(None),
        }
    }

    fn assistant(&self, content: &Field<'_>) -> Result<Message, ApiError> {
        let Some(blocks) = blocks(content)? else {
            let text = content.required()?;
            return Ok(Message::new(Role::Assistant, text));
        };
        let mut text = String::new();
        let mut thoughts: Vec<String> = Vec::new();
        let mut tool_calls = Vec::new();
        for block in &blocks {
            block.map()?;
            match block.get("type").string()? {
                Some("text") => text.push_str(block.get("text").required()?),
                Some("thinking") => thoughts.extend(self.thought(block, "signature")?),
                Some("redacted_thinking") => thoughts.extend(self.thought(block, "data")?),
                Some("tool_use") => tool_calls.push(tool_call(block)?),
                _ => {}
            }
        }
        Ok(Message {
            // A message that only calls has no text, not an empty one.
            content: (!text.is_empty() || tool_calls.is_empty()).then_some(text),
            reasoning: (!thoughts.is_empty()).then(|| thoughts.join("\n")),
            tool_calls,
            ..Message::new(Role::Assistant, "")
        })
    }

    /// What was thought: exactly where the seal holds, else as the client tells it.
    fn thought(&self, block: &Field<'_>, seal: &str) -> Result<Option<String>, ApiError> {
        let sealed = block.get(seal).string()?.unwrap_or_default();
        let told = block.get("thinking").string()?.unwrap_or_default();
        let thought = self.engine.open_reasoning(sealed);
        let thought = thought.unwrap_or_else(|| told.to_owned());
        Ok(Some(thought).filter(|thought| !thought.is_empty()))
    }
}

fn tool_call(block: &Field<'_>) -> Result<ToolCall, ApiError> {
    Ok(ToolCall {
        id: block.get("id").string()?.map(call_id),
        name: block.get("name").required()?.to_owned(),
        arguments: tools::arguments(&block.get("input"))?,
    })
}

/// A call's neutral id for the one that this API shows.
fn call_id(shown: &str) -> String {
    match shown.strip_prefix("toolu_") {
        Some(rest) => format!("call_{rest}"),
        None => shown.to_owned(),
    }
}

/// The id that this API shows for a call's neutral one.
pub(super) fn shown_id(id: &str) -> String {
    match id.strip_prefix("call_") {
        Some(rest) => format!("toolu_{rest}"),
        None => id.to_owned(),
    }
}

/// The blocks of a content that is not a string.
fn blocks<'a>(content: &Field<'a>) -> Result<Option<Vec<Field<'a>>>, ApiError> {
    match content.value() {
        Some(Value::Array(_)) => Ok(content.items()?.map(Iterator::collect)),
        None | Some(Value::String(_)) => Ok(None),
        Some(_) => Err(content.wrong_type("a string or an array of blocks")),
    }
}
