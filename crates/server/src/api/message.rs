//! Chat messages from the wire to [`text::Message`](andante_text::Message).
//!
//! One conversation has one form here, however a client spells it (a string or a list with one text part, `null` or an
//! absent key): the rendered prompt must repeat byte for byte, or the next turn finds nothing of it in the cache.

use andante_text::{Message, Role, ToolCall};
use serde_json::Value;

use super::tools;
use crate::error::ApiError;
use crate::json::Field;

/// The names under which clients send a model's reasoning back.
const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];

pub(super) fn decode_all(field: &Field<'_>) -> Result<Vec<Message>, ApiError> {
    let messages = field.items()?.ok_or_else(|| field.missing())?;
    let messages = messages
        .map(|message| decode(&message))
        .collect::<Result<Vec<_>, _>>()?;
    if messages.is_empty() {
        return Err(field.error("must hold at least one message"));
    }
    Ok(messages)
}

fn decode(message: &Field<'_>) -> Result<Message, ApiError> {
    message.map()?;
    let role = role(&message.get("role"))?;
    let content = content(&message.get("content"))?;
    if content.is_none() && !matches!(role, Role::Assistant | Role::Tool) {
        return Err(message.get("content").missing());
    }
    Ok(Message {
        role,
        content,
        name: owned(&message.get("name"))?,
        reasoning: owned(&message.any_of(&REASONING))?,
        tool_calls: tool_calls(message)?,
        tool_call_id: owned(&message.get("tool_call_id"))?,
    })
}

fn role(field: &Field<'_>) -> Result<Role, ApiError> {
    match field.required()? {
        "system" => Ok(Role::System),
        "developer" => Ok(Role::Developer),
        "user" => Ok(Role::User),
        "assistant" => Ok(Role::Assistant),
        // The former name of the same thing.
        "tool" | "function" => Ok(Role::Tool),
        other => Err(field.error(format!("`{other}` is no role"))),
    }
}

/// Text, or text parts joined by line breaks as llama-server and vLLM join them.
fn content(field: &Field<'_>) -> Result<Option<String>, ApiError> {
    match field.value() {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Array(_)) => {
            let parts = field.items()?.into_iter().flatten();
            let texts = parts
                .map(|part| part_text(&part))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Some(texts.join("\n")))
        }
        Some(_) => Err(field.wrong_type("a string or an array of parts")),
    }
}

fn part_text<'a>(part: &Field<'a>) -> Result<&'a str, ApiError> {
    part.map()?;
    let kind = part.get("type");
    let text = match kind.required()? {
        "text" | "input_text" | "output_text" => part.get("text"),
        "refusal" => part.get("refusal"),
        other => {
            let why = format!("`{other}` is not supported; this model reads text");
            return Err(kind.error(why));
        }
    };
    text.required()
}

/// Calls that the assistant made earlier.
fn tool_calls(message: &Field<'_>) -> Result<Vec<ToolCall>, ApiError> {
    let calls = message.get("tool_calls");
    let former = message.get("function_call");
    let mut decoded = Vec::new();
    for call in calls.items()?.into_iter().flatten() {
        call.map()?;
        decoded.push(tool_call(owned(&call.get("id"))?, &call.get("function"))?);
    }
    if decoded.is_empty() && former.is_present() {
        decoded.push(tool_call(None, &former)?);
    }
    Ok(decoded)
}

fn tool_call(id: Option<String>, function: &Field<'_>) -> Result<ToolCall, ApiError> {
    function.map()?.ok_or_else(|| function.missing())?;
    Ok(ToolCall {
        id,
        name: function.get("name").required()?.to_owned(),
        arguments: tools::arguments(&function.get("arguments"))?,
    })
}

fn owned(field: &Field<'_>) -> Result<Option<String>, ApiError> {
    Ok(field.string()?.map(str::to_owned))
}

#[cfg(test)]
mod tests;
