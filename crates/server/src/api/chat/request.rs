//! A chat request's conversation, tools and wishes about thinking, from the wire to [`ChatRequest`].

use andante_text::{ChatRequest, Message, ToolChoice};
use serde_json::{Map, Value, json};

use crate::Server;
use crate::api::{history, message, tools};
use crate::error::ApiError;
use crate::json::Field;

pub(in crate::api) fn decode(server: &Server, body: &Field<'_>) -> Result<ChatRequest, ApiError> {
    refuse_audio(&body.get("modalities"))?;
    let mut tools = tools(body)?;
    let mut messages = message::decode_all(&body.get("messages"))?;
    history::settle(&mut messages);
    Ok(ChatRequest {
        continue_final_message: continues(body, &messages)?,
        messages,
        tool_choice: tool_choice(body, &mut tools)?,
        tools,
        parallel_tool_calls: body.get("parallel_tool_calls").bool()?.unwrap_or(true),
        template_args: template_args(server, body)?,
        add_generation_prompt: body.get("add_generation_prompt").bool()?.unwrap_or(true),
        ..ChatRequest::default()
    })
}

/// Whether the answer goes on with the last message: `continue_final_message`, as vLLM has it. OpenAI's API begins a new one.
fn continues(body: &Field<'_>, messages: &[Message]) -> Result<bool, ApiError> {
    let field = body.get("continue_final_message");
    if field.bool()? != Some(true) {
        return Ok(false);
    }
    if body.get("add_generation_prompt").bool()? == Some(true) {
        return Err(field.error("`add_generation_prompt` asks for another message"));
    }
    if !history::is_open(messages) {
        return Err(field.error("the last message must be text of the assistant"));
    }
    Ok(true)
}

fn refuse_audio(modalities: &Field<'_>) -> Result<(), ApiError> {
    for modality in modalities.items()?.into_iter().flatten() {
        match modality.string()? {
            Some("text") | None => {}
            Some(other) => return Err(modality.unsupported(&format!("`{other}`"))),
        }
    }
    Ok(())
}

/// The tools that the template is to describe; `functions` is their former name.
pub(in crate::api) fn tools(body: &Field<'_>) -> Result<Vec<Value>, ApiError> {
    let mut tools = Vec::new();
    for tool in body.get("tools").items()?.into_iter().flatten() {
        tool.map()?;
        let kind = tool.get("type");
        // Tools of other kinds are offers that no model here can take up; leaving one out breaks no promise.
        if kind.string()?.is_none_or(|kind| kind == "function") {
            tools.push(definition(&tool.get("function"))?);
        }
    }
    if tools.is_empty() {
        for function in body.get("functions").items()?.into_iter().flatten() {
            tools.push(definition(&function)?);
        }
    }
    Ok(tools)
}

/// A definition with everything that templates look for.
fn definition(function: &Field<'_>) -> Result<Value, ApiError> {
    let given = function.map()?.ok_or_else(|| function.missing())?;
    let name = function.get("name");
    let named = name.string()?.filter(|name| !name.is_empty());
    named.ok_or_else(|| name.missing())?;
    function.get("parameters").map()?;
    let mut definition = given.clone();
    definition.retain(|_, value| !value.is_null());
    let none = || json!({"type": "object", "properties": {}});
    definition.entry("description").or_insert_with(|| "".into());
    definition.entry("parameters").or_insert_with(none);
    Ok(json!({"type": "function", "function": definition}))
}

/// Which tools may or must be called. A list of allowed tools leaves only those.
fn tool_choice(body: &Field<'_>, tools: &mut Vec<Value>) -> Result<ToolChoice, ApiError> {
    let field = body.any_of(&["tool_choice", "function_call"]);
    let choice = match field.value() {
        None => ToolChoice::Auto,
        Some(Value::String(word)) => mode(&field, word)?,
        Some(Value::Object(_)) => {
            let allowed = field.get("allowed_tools");
            if allowed.map()?.is_some() {
                let names = names(&allowed.get("tools"))?;
                tools.retain(|tool| names.iter().any(|name| tool["function"]["name"] == *name));
                let word = allowed.get("mode");
                mode(&word, word.string()?.unwrap_or("auto"))?
            } else {
                ToolChoice::Named(name(&field)?.to_owned())
            }
        }
        Some(_) => return Err(field.wrong_type("a string or an object")),
    };
    let names = tools
        .iter()
        .filter_map(|tool| tool["function"]["name"].as_str());
    tools::checked(choice, &field, names)
}

fn mode(field: &Field<'_>, word: &str) -> Result<ToolChoice, ApiError> {
    match word {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "required" | "any" => Ok(ToolChoice::Required),
        other => Err(field.error(format!("`{other}` is no choice"))),
    }
}

/// The function's name in `{"type": "function", "function": {"name"}}`, or in `{"name"}` as it was formerly.
fn name<'a>(field: &Field<'a>) -> Result<&'a str, ApiError> {
    let function = field.get("function");
    let name = match function.map()? {
        Some(_) => function.get("name"),
        None => field.get("name"),
    };
    name.required()
}

fn names<'a>(tools: &Field<'a>) -> Result<Vec<&'a str>, ApiError> {
    let tools = tools.items()?.into_iter().flatten();
    tools.map(|tool| name(&tool)).collect()
}

/// What the chat template can read beside messages and tools.
fn template_args(server: &Server, body: &Field<'_>) -> Result<Map<String, Value>, ApiError> {
    let (thinking, reasoning) = (body.get("thinking"), body.get("reasoning"));
    thinking.map()?;
    reasoning.map()?;
    let effort = match body.get("reasoning_effort").string()? {
        Some(effort) => Some(effort),
        None => reasoning.get("effort").string()?,
    };
    let kind = match thinking.get("type").string()? {
        Some("enabled" | "adaptive") => Some(true),
        Some("disabled") => Some(false),
        _ => None,
    };
    let switches = [
        body.get("enable_thinking").bool()?,
        kind,
        reasoning.get("enabled").bool()?,
        body.get("think").value().and_then(Value::as_bool),
    ];
    let switch = switches.into_iter().flatten().next();
    let given = body.get("chat_template_kwargs").map()?;
    let said = given.is_some_and(|given| SWITCHES.iter().any(|name| given.contains_key(*name)));
    let named = if said {
        None
    } else {
        server.thinks_by_name(body)?
    };
    let mut args = tools::thinking(tools::whether(switch, effort, named), effort);
    args.extend(given.cloned().unwrap_or_default());
    Ok(args)
}

/// Variables by which templates are told whether to think.
const SWITCHES: [&str; 2] = ["enable_thinking", "thinking"];
