//! Conversations in the form that templates expect, and the other shapes to try when a template refuses one.

use serde_json::{Map, Value, json};

use super::codes::escape;
use crate::{ChatRequest, Message, Role};

/// How to write messages for a template.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    /// Whether the template knows the developer role; else those messages are system messages.
    pub(super) developer: bool,
    pub(super) arguments: Arguments,
    /// Whether the template looks for reasoning under `thinking` (gpt-oss's does, and takes no text beside it in a message
    /// that calls tools).
    pub(super) thinking: bool,
    /// Whether the template refuses ids of calls that are not nine letters and digits long (Mistral's of 2024 do).
    pub(super) nine_digits: bool,
}

/// How to write the arguments of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arguments {
    /// Those that are JSON are given parsed, as most templates want them.
    Parsed,
    /// As text.
    Text,
    /// As an object, for templates that go through its members. The arguments of a call that was cut are no JSON: they are the
    /// only member.
    Object,
}

/// The messages in the form of the Hugging Face libraries.
pub(super) fn to_json(messages: &[Message], form: Form) -> Value {
    messages
        .iter()
        .map(|message| message_json(message, form))
        .collect()
}

/// Adds a character to the text of the last of these messages.
pub(super) fn push_to_last(messages: &mut Value, mark: char) {
    let last = messages.as_array_mut().and_then(|all| all.last_mut());
    if let Some(Value::String(text)) = last.and_then(|message| message.get_mut("content")) {
        text.push(mark);
    }
}

fn message_json(message: &Message, form: Form) -> Value {
    let role = match message.role {
        Role::Developer if !form.developer => Role::System,
        role => role,
    };
    let mut object = Map::new();
    object.insert("role".into(), role.as_str().into());
    // A message that only calls tools has no content; templates that test for it test for none.
    let absent = if message.tool_calls.is_empty() {
        json!("")
    } else {
        Value::Null
    };
    let thought = message.reasoning.as_ref().filter(|_| form.thinking);
    let content = message.content.as_deref();
    let content = content.filter(|_| thought.is_none() || message.tool_calls.is_empty());
    object.insert("content".into(), content.map_or(absent, user_text));
    if let Some(thought) = thought {
        object.insert("thinking".into(), user_text(thought));
    }
    let optional = [
        ("name", &message.name),
        ("reasoning_content", &message.reasoning),
    ];
    for (key, value) in optional {
        if let Some(text) = value {
            object.insert(key.into(), user_text(text));
        }
    }
    if let Some(id) = &message.tool_call_id {
        object.insert("tool_call_id".into(), call_id(id, form));
    }
    if !message.tool_calls.is_empty() {
        let calls = message.tool_calls.iter().map(|call| {
            let parsed = serde_json::from_str(&call.arguments);
            let arguments = match (parsed, form.arguments) {
                (Ok(parsed @ Value::Object(_)), Arguments::Parsed | Arguments::Object)
                | (Ok(parsed), Arguments::Parsed) => user_value(&parsed),
                (_, Arguments::Object) => json!({"arguments": user_text(&call.arguments)}),
                _ => user_text(&call.arguments),
            };
            let mut object = Map::new();
            if let Some(id) = &call.id {
                object.insert("id".into(), call_id(id, form));
            }
            object.insert("type".into(), "function".into());
            object.insert(
                "function".into(),
                json!({"name": user_text(&call.name), "arguments": arguments}),
            );
            Value::Object(object)
        });
        object.insert("tool_calls".into(), calls.collect());
    }
    Value::Object(object)
}

/// The id of a call: where it has to be short, its end, which is what tells our own ids apart.
fn call_id(id: &str, form: Form) -> Value {
    const DIGITS: usize = 9;
    if !form.nine_digits {
        return user_text(id);
    }
    let mut digits: Vec<char> = id.chars().filter(char::is_ascii_alphanumeric).collect();
    let surplus = digits.len().saturating_sub(DIGITS);
    digits.drain(..surplus);
    digits
        .into_iter()
        .chain(['0'; DIGITS])
        .take(DIGITS)
        .collect::<String>()
        .into()
}

/// A user's string, without codes of control tokens.
fn user_text(text: &str) -> Value {
    Value::String(escape(text).into_owned())
}

/// A user's JSON, without codes of control tokens in any string or key.
pub(super) fn user_value(value: &Value) -> Value {
    match value {
        Value::String(text) => user_text(text),
        Value::Array(items) => items.iter().map(user_value).collect(),
        Value::Object(entries) => entries
            .iter()
            .map(|(key, value)| (escape(key).into_owned(), user_value(value)))
            .collect(),
        other => other.clone(),
    }
}

/// The conversation in the shape that strict templates want: one system message, at the beginning; then roles that take turns.
/// Later system messages become user messages, neighbours of one role are joined, absent content is empty.
pub(super) fn fold(messages: &[Message]) -> Vec<Message> {
    let mut folded: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages {
        let mut message = message.clone();
        message.content.get_or_insert_default();
        if matches!(message.role, Role::System | Role::Developer) {
            let leading = folded.iter().all(|earlier| earlier.role == Role::System);
            message.role = if leading { Role::System } else { Role::User };
        }
        match folded.last_mut() {
            Some(last) if can_join(last, &message) => join(last, &message),
            _ => folded.push(message),
        }
    }
    folded
}

/// The same without a system message: its text opens the first user message.
pub(super) fn fold_system(messages: &[Message]) -> Vec<Message> {
    let mut folded = fold(messages);
    if let [system, user, ..] = &mut folded[..]
        && system.role == Role::System
        && user.role == Role::User
    {
        let mut text = system.content.take().unwrap_or_default();
        text.push_str("\n\n");
        text.push_str(user.content.as_deref().unwrap_or_default());
        user.content = Some(text);
        folded.remove(0);
    }
    folded
}

fn can_join(first: &Message, second: &Message) -> bool {
    first.role == second.role
        && first.role != Role::Tool
        && first.name == second.name
        && first.tool_calls.is_empty()
        && second.reasoning.is_none()
}

fn join(first: &mut Message, second: &Message) {
    let text = first.content.get_or_insert_default();
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(second.content.as_deref().unwrap_or_default());
    first.tool_calls.clone_from(&second.tool_calls);
}

/// About how much there is to render: bytes of text and messages.
pub(super) fn size(request: &ChatRequest) -> u64 {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let messages = request.messages.iter().map(|message| {
        let calls = message.tool_calls.iter();
        let calls: usize = calls
            .map(|call| call.name.len() + call.arguments.len())
            .sum();
        text(&message.content) + text(&message.reasoning) + calls
    });
    let tools = request.tools.iter().map(|tool| tool.to_string().len());
    messages.chain(tools).map(|bytes| bytes as u64).sum()
}
