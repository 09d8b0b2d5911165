//! What the APIs have in common about tools and reasoning, each in words of its own.

use andante_text::ToolChoice;
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::json::Field;

/// The degree of effort that templates know for one of an API: they know three, and some `max`. `none` is no degree.
pub(super) fn effort(effort: &str) -> Option<&str> {
    match effort {
        "none" => None,
        "minimal" => Some("low"),
        "xhigh" => Some("high"),
        other => Some(other),
    }
}

/// Whether to think: by a switch, or else by the model's name where it says so, or else since the request says how hard.
pub(super) fn whether(
    switch: Option<bool>,
    effort: Option<&str>,
    named: Option<bool>,
) -> Option<bool> {
    match (switch, effort) {
        (Some(on), _) => Some(on),
        (None, Some("none")) => Some(false),
        (None, effort) => named.or(effort.map(|_| true)),
    }
}

/// The switches of templates for a wish about thinking: whether, and how hard.
pub(super) fn thinking(on: Option<bool>, hard: Option<&str>) -> Map<String, Value> {
    let mut args = Map::new();
    if let Some(on) = on {
        args.insert("enable_thinking".to_owned(), on.into());
    }
    if let Some(effort) = hard.and_then(effort) {
        args.insert("reasoning_effort".to_owned(), effort.into());
    }
    args
}

/// The choice, if it can be kept to: there must be tools, or the one that is named. `field` is where it stands.
pub(super) fn checked<'t>(
    choice: ToolChoice,
    field: &Field<'_>,
    mut names: impl Iterator<Item = &'t str>,
) -> Result<ToolChoice, ApiError> {
    match &choice {
        ToolChoice::Required if names.next().is_none() => Err(field.error("needs `tools`")),
        ToolChoice::Named(name) if !names.any(|known| known == name) => {
            Err(field.error(format!("`{name}` is none of the request's tools")))
        }
        _ => Ok(choice),
    }
}

/// The arguments of an earlier call as text, whichever way the client sends them. They were written by a model and may be
/// no JSON at all.
pub(super) fn arguments(field: &Field<'_>) -> Result<String, ApiError> {
    match field.value() {
        None => Ok("{}".to_owned()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(object @ Value::Object(_)) => Ok(object.to_string()),
        Some(_) => Err(field.wrong_type("an object or a string")),
    }
}

/// A call's arguments as the object that some APIs promise. What is no object is kept as the text that it is.
pub(super) fn object(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(object @ Value::Object(_)) => object,
        _ if arguments.trim().is_empty() => json!({}),
        _ => json!({ "arguments": arguments }),
    }
}
