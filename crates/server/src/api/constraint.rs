//! The fields that ask for a form of the answer: OpenAI's `response_format`, llama-server's `json_schema` and `grammar`,
//! vLLM's `guided_…` and `structured_outputs`; and the formats of the Responses and the Messages API.

use andante_engine::Constrained;
use andante_text::Constraint;
use serde_json::Value;

use crate::error::ApiError;
use crate::json::Field;

/// A field, its whole name, and how it asks.
struct Asker<'a> {
    field: Field<'a>,
    name: &'static str,
    read: fn(&Field<'_>) -> Result<Option<Constraint>, ApiError>,
}

/// The form that the answer must have; `None` where none is asked for.
pub(super) fn decode(body: &Field<'_>) -> Result<Option<Constrained>, ApiError> {
    refuse_others(body)?;
    let outputs = body.get("structured_outputs");
    outputs.map()?;
    let asker = |field, name, read| Asker { field, name, read };
    let askers = [
        asker(body.get("json_schema"), "json_schema", schema),
        asker(body.get("grammar"), "grammar", grammar),
        asker(body.get("guided_json"), "guided_json", schema),
        asker(body.get("guided_regex"), "guided_regex", regex),
        asker(body.get("guided_choice"), "guided_choice", choice),
        asker(body.get("guided_grammar"), "guided_grammar", grammar),
        asker(body.get("guided_json_object"), "guided_json_object", object),
        asker(outputs.get("json"), "structured_outputs.json", schema),
        asker(outputs.get("regex"), "structured_outputs.regex", regex),
        asker(outputs.get("choice"), "structured_outputs.choice", choice),
        asker(
            outputs.get("grammar"),
            "structured_outputs.grammar",
            grammar,
        ),
        asker(
            outputs.get("json_object"),
            "structured_outputs.json_object",
            object,
        ),
    ];
    let mut found = response_format(&body.get("response_format"))?;
    for Asker { field, name, read } in askers {
        // llama-server's own page sends every field it has, empty ones too.
        if field.value().is_none_or(|value| value == "") {
            continue;
        }
        let asked = read(&field)?.map(|constraint| Constrained { constraint, name });
        found = only(found, asked)?;
    }
    Ok(found)
}

/// The one of two that asks for a form; they must not both.
pub(super) fn only(
    first: Option<Constrained>,
    second: Option<Constrained>,
) -> Result<Option<Constrained>, ApiError> {
    match (first, second) {
        (Some(first), Some(second)) => Err(ApiError::Field {
            path: second.name.to_owned(),
            why: format!("`{}` already asks for a form of the answer", first.name),
        }),
        (first, second) => Ok(first.or(second)),
    }
}

fn response_format(format: &Field<'_>) -> Result<Option<Constrained>, ApiError> {
    format.map()?;
    let kind = format.get("type");
    let plain = format.get("schema");
    let constrained = |constraint, name| Ok(Some(Constrained { constraint, name }));
    match kind.string()? {
        None | Some("text") => Ok(None),
        // llama-server takes a schema here too.
        Some("json_object") => match schema(&plain)? {
            Some(constraint) => constrained(constraint, "response_format.schema"),
            None => constrained(Constraint::JsonObject, "response_format"),
        },
        Some("json_schema") => {
            let named = format.get("json_schema");
            named.map()?;
            // OpenAI promises to follow a schema only where it is asked to be strict.
            let strict = named.get("strict").bool()?.unwrap_or(false);
            if let Some(schema) = named.get("schema").value() {
                let schema = schema.clone();
                let constraint = Constraint::JsonSchema { schema, strict };
                return constrained(constraint, "response_format.json_schema.schema");
            }
            match schema(&plain)? {
                Some(constraint) => constrained(constraint, "response_format.schema"),
                None => Err(named.get("schema").missing()),
            }
        }
        Some(other) => Err(kind.unsupported(&format!("`{other}`"))),
    }
}

/// A format that holds its schema itself: `text.format` of the Responses API, `output_config.format` of the Messages API.
/// `name` is that of its schema, `strict` what it is where it does not say.
pub(super) fn format(
    format: &Field<'_>,
    name: &'static str,
    strict: bool,
) -> Result<Option<Constrained>, ApiError> {
    format.map()?;
    let kind = format.get("type");
    let constraint = match kind.string()? {
        None | Some("text") => return Ok(None),
        Some("json_object") => Constraint::JsonObject,
        Some("json_schema") => {
            let strict = format.get("strict").bool()?.unwrap_or(strict);
            let schema = format.get("schema");
            let schema = schema.value().ok_or_else(|| schema.missing())?.clone();
            Constraint::JsonSchema { schema, strict }
        }
        Some(other) => return Err(kind.unsupported(&format!("`{other}`"))),
    };
    Ok(Some(Constrained { constraint, name }))
}

/// What would change the form that another field asks for, and is not done here.
fn refuse_others(body: &Field<'_>) -> Result<(), ApiError> {
    let lazy = body.get("grammar_lazy");
    if lazy.bool()? == Some(true) {
        return Err(lazy.unsupported("a grammar that begins within the answer"));
    }
    let outputs = body.get("structured_outputs");
    let others = [
        (outputs.get("structural_tag"), "a structural tag"),
        (outputs.get("whitespace_pattern"), "a pattern for blanks"),
        (
            body.get("guided_whitespace_pattern"),
            "a pattern for blanks",
        ),
    ];
    match others.iter().find(|(field, _)| field.is_present()) {
        Some((field, what)) => Err(field.unsupported(what)),
        None => Ok(()),
    }
}

/// A schema, or the text of one.
fn schema(field: &Field<'_>) -> Result<Option<Constraint>, ApiError> {
    let schema = match field.value() {
        None => return Ok(None),
        Some(Value::String(text)) => serde_json::from_str(text)
            .map_err(|error| field.error(format!("holds no JSON: {error}")))?,
        Some(schema @ (Value::Object(_) | Value::Bool(_))) => schema.clone(),
        Some(_) => return Err(field.wrong_type("a JSON schema")),
    };
    let strict = true;
    Ok(Some(Constraint::JsonSchema { schema, strict }))
}

fn regex(field: &Field<'_>) -> Result<Option<Constraint>, ApiError> {
    Ok(field
        .string()?
        .map(|regex| Constraint::Regex(regex.to_owned())))
}

/// GBNF, or Lark, which has no `::=`; a Lark grammar that needs one in a text says what it is by beginning with
/// `%llguidance`.
fn grammar(field: &Field<'_>) -> Result<Option<Constraint>, ApiError> {
    Ok(field.string()?.map(|grammar| {
        let lark = grammar.trim_start().starts_with("%llguidance") || !grammar.contains("::=");
        let kind = if lark {
            Constraint::Lark
        } else {
            Constraint::Gbnf
        };
        kind(grammar.to_owned())
    }))
}

fn choice(field: &Field<'_>) -> Result<Option<Constraint>, ApiError> {
    let Some(items) = field.items()? else {
        return Ok(None);
    };
    let texts = items.map(|item| {
        let text = item.string()?.ok_or_else(|| item.wrong_type("a string"))?;
        Ok(text.to_owned())
    });
    Ok(Some(Constraint::Choice(
        texts.collect::<Result<_, ApiError>>()?,
    )))
}

fn object(field: &Field<'_>) -> Result<Option<Constraint>, ApiError> {
    Ok((field.bool()? == Some(true)).then_some(Constraint::JsonObject))
}

#[cfg(test)]
mod tests;
