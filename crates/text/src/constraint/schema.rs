//! JSON schemas on their way to the grammar engine, and the place in one that it does not take.

use llguidance::api::TopLevelGrammar;
use serde_json::{Map, Value, json};

use super::validate;

/// Between the parts of a JSON text: nothing, a blank, or a line break with indentation. Models like to write either; without
/// a bound small ones write blanks for ever.
const WHITESPACE: &str = r"\x20|\n[\x20\t]{0,40}";

/// Parts of a schema that are compiled in search of a culprit.
const MAX_TRIES: usize = 100;

/// Keywords whose value is one schema.
const ONE: [&str; 4] = ["items", "additionalProperties", "additionalItems", "not"];
/// Keywords whose value is a list of schemas.
const LISTS: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
/// Keywords whose value has a schema for each key; what others refer to before what refers.
const MAPS: [&str; 4] = ["$defs", "definitions", "properties", "patternProperties"];

/// The schema with the engine's options in it.
pub(super) fn prepared(schema: &Value, strict: bool) -> Value {
    let mut schema = match schema {
        Value::Object(members) => members.clone(),
        // `true` and `false` are schemas too, and a schema of another kind is an error of the engine's.
        Value::Bool(true) => Map::new(),
        other => return other.clone(),
    };
    let options = json!({ "whitespace_pattern": WHITESPACE, "lenient": !strict });
    schema.insert("x-guidance".to_owned(), options);
    Value::Object(schema)
}

/// A JSON pointer to the smallest part of the schema that fails with this message by itself; `None` where it is the whole.
pub(super) fn culprit(schema: &Value, strict: bool, message: &str) -> Option<String> {
    let definitions: Map<String, Value> = ["$defs", "definitions"]
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), schema.get(key)?.clone())))
        .collect();
    let fails = |part: &Value| {
        let Value::Object(members) = part else {
            return false;
        };
        let mut whole = definitions.clone();
        whole.extend(members.clone());
        let whole = prepared(&Value::Object(whole), strict);
        let result = validate(TopLevelGrammar::from_json_schema(whole));
        result.is_err_and(|error| head(&error) == head(message))
    };
    let mut tries = 0;
    let mut path = String::new();
    let mut part = schema;
    'descend: loop {
        for (step, child) in children(part) {
            tries += 1;
            if tries > MAX_TRIES {
                break 'descend;
            }
            if fails(child) {
                path.push_str(&step);
                part = child;
                continue 'descend;
            }
        }
        break;
    }
    (!path.is_empty()).then(|| format!("#{path}"))
}

/// What is the same in the complaint about a part and about the whole.
fn head(message: &str) -> &str {
    message.lines().next().unwrap_or_default()
}

/// The schemas in a schema, with the way to them.
fn children(schema: &Value) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    for key in MAPS {
        let members = schema.get(key).and_then(Value::as_object);
        for (name, child) in members.into_iter().flatten() {
            let name = name.replace('~', "~0").replace('/', "~1");
            found.push((format!("/{key}/{name}"), child));
        }
    }
    for key in ONE {
        let child = schema.get(key).filter(|child| child.is_object());
        found.extend(child.map(|child| (format!("/{key}"), child)));
    }
    for key in LISTS {
        let items = schema.get(key).and_then(Value::as_array);
        for (index, child) in items.into_iter().flatten().enumerate() {
            found.push((format!("/{key}/{index}"), child));
        }
    }
    found
}
