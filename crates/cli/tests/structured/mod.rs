//! Answers of a real model in a form that was asked for: whatever its temperature, they have it.

use std::thread;

use serde_json::{Value, json};

use crate::support::Server;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 20},
            "kind": {"enum": ["city", "river", "mountain"]},
            "height_m": {"type": "integer", "minimum": 0, "maximum": 9000},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 1, "maxItems": 3},
            "border": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/border"}]}
        },
        "required": ["name", "kind", "height_m", "tags", "border"],
        "additionalProperties": false,
        "$defs": {
            "border": {
                "type": "object",
                "properties": {"with": {"type": "string", "pattern": "^[A-Z][a-z]{1,10}$"}},
                "required": ["with"],
                "additionalProperties": false
            }
        }
    })
}

fn fits(value: &Value) -> bool {
    let short = |value: &Value, range: std::ops::RangeInclusive<usize>| {
        value
            .as_str()
            .is_some_and(|text| range.contains(&text.chars().count()))
    };
    let border = &value["border"];
    let tags = value["tags"].as_array().map_or(&[][..], Vec::as_slice);
    value.as_object().is_some_and(|object| object.len() == 5)
        && short(&value["name"], 1..=20)
        && ["city", "river", "mountain"]
            .iter()
            .any(|kind| value["kind"] == *kind)
        && value["height_m"]
            .as_u64()
            .is_some_and(|height| height <= 9000)
        && (1..=3).contains(&tags.len())
        && tags.iter().all(|tag| short(tag, 0..=8))
        && (border.is_null()
            || border["with"].as_str().is_some_and(|with| {
                with.starts_with(|c: char| c.is_ascii_uppercase()) && (2..=11).contains(&with.len())
            }))
}

fn body(seed: u64) -> Value {
    json!({
        "messages": [{"role": "user", "content": "Describe a place in the Alps as JSON."}],
        "temperature": 1,
        "seed": seed,
        "max_tokens": 400,
        "response_format": {"type": "json_schema", "json_schema": {"name": "place", "schema": schema(), "strict": true}}
    })
}

fn answer(server: &Server, body: &Value) -> String {
    let (status, reply) = server.post("/v1/chat/completions", body);
    assert_eq!(status, 200, "{reply}");
    let choice = &reply["choices"][0];
    assert_eq!(choice["finish_reason"], "stop", "{reply}");
    choice["message"]["content"].as_str().unwrap().to_owned()
}

#[test]
fn every_answer_fits_its_schema_alone_and_beside_others() {
    let server = Server::start(&["--sessions", "3"]);
    let mut alone = Vec::new();
    for seed in 0..6 {
        let text = answer(&server, &body(seed));
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!(fits(&value), "{value}");
        alone.push(text);
    }
    let together = thread::scope(|scope| {
        let asked = [0_u64, 0, 1].map(|seed| {
            let server = &server;
            scope.spawn(move || answer(server, &body(seed)))
        });
        asked.map(|thread| thread.join().unwrap())
    });
    assert_eq!(together, [0, 0, 1].map(|seed| alone[seed].clone()));
}

#[test]
fn grammars_expressions_and_choices_hold() {
    let server = Server::start(&["--sessions", "1"]);
    let ask = |field: &str, value: Value| {
        let mut body = json!({
            "messages": [{"role": "user", "content": "Is the sky blue? Answer."}],
            "temperature": 1, "seed": 3, "max_tokens": 100,
        });
        body[field] = value;
        answer(&server, &body)
    };
    assert!(
        ["yes", "no", "maybe"]
            .contains(&ask("guided_choice", json!(["yes", "no", "maybe"])).as_str())
    );
    let date = ask("guided_regex", json!("[0-9]{4}-[01][0-9]"));
    assert!(date.len() == 7 && date.as_bytes()[4] == b'-', "{date}");
    let list = ask(
        "grammar",
        json!("root ::= \"- \" [a-z ]{3,30} \"\\n\" (\"- \" [a-z ]{3,30} \"\\n\")?"),
    );
    assert!((1..=2).contains(&list.lines().count()), "{list}");
    assert!(
        list.lines()
            .all(|line| line.starts_with("- ") && line.len() >= 5),
        "{list}"
    );
}
