//! Tools for templates that know none: the model is told of them in the system message, and asked for JSON in `<tool_call>` tags.
//!
//! Earlier calls and results are written in the same form, since such a template would leave them out.

use serde_json::{Value, json};

use crate::chat::function;
use crate::{ChatRequest, Message, Role};

/// The same conversation, with its tools as text.
pub(super) fn without_tools(request: &ChatRequest) -> ChatRequest {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    let about = about(&request.tools);
    let mut earlier = request.messages.iter();
    match request.messages.first() {
        Some(first) if matches!(first.role, Role::System | Role::Developer) => {
            let said = first.content.as_deref().unwrap_or_default();
            messages.push(Message::new(Role::System, format!("{said}\n\n{about}")));
            earlier.next();
        }
        _ => messages.push(Message::new(Role::System, about)),
    }
    let mut results = false;
    for message in earlier {
        let text = as_text(message);
        let is_result = message.role == Role::Tool;
        match messages.last_mut() {
            // Results of one turn are one message: many templates want roles to take turns.
            Some(last) if is_result && results => {
                let more = text.content.unwrap_or_default();
                let said = last.content.get_or_insert_default();
                said.push('\n');
                said.push_str(&more);
            }
            _ => messages.push(text),
        }
        results = is_result;
    }
    ChatRequest {
        messages,
        tools: Vec::new(),
        ..request.clone()
    }
}

/// A result, or a message with its calls, as text alone.
fn as_text(message: &Message) -> Message {
    let mut message = message.clone();
    if message.role == Role::Tool {
        let result = message.content.unwrap_or_default();
        let text = format!("<tool_response>\n{result}\n</tool_response>");
        return Message::new(Role::User, text);
    }
    for call in std::mem::take(&mut message.tool_calls) {
        let arguments = serde_json::from_str(&call.arguments);
        let arguments = arguments.unwrap_or_else(|_| Value::from(call.arguments));
        let call = json!({"name": call.name, "arguments": arguments});
        let text = message.content.get_or_insert_default();
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&format!("<tool_call>\n{call}\n</tool_call>"));
    }
    message
}

/// What the model is told.
fn about(tools: &[Value]) -> String {
    let mut text = String::from(
        "You can call functions. These are their definitions, one in each line:\n<tools>\n",
    );
    for tool in tools {
        text.push_str(&function(tool).to_string());
        text.push('\n');
    }
    text.push_str(
        "</tools>\nTo call one, write its name and arguments as JSON between these tags, and nothing after them:\n\
         <tool_call>\n{\"name\": \"the function's name\", \"arguments\": {\"parameter\": \"value\"}}\n</tool_call>\n\
         The result comes in the next message, in <tool_response> tags. Call a function only when it is needed; otherwise \
         answer in plain text.",
    );
    text
}
