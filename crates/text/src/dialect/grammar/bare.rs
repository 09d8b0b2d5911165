//! Arguments as Gemma writes them: an object with bare keys, and texts between quotation tokens.
//!
//! `llguidance` knows schemas of JSON only, so the schema is followed here: members in its order, what it says of their kinds, and
//! which texts there may be.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{ANNOTATIONS, ANY, Function, Lark, embedded, literal};

/// Keywords that are kept to.
const KNOWN: [&str; 15] = [
    "type",
    "properties",
    "required",
    "items",
    "enum",
    "const",
    "anyOf",
    "oneOf",
    "$defs",
    "definitions",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
];
/// Kinds that are written as in JSON.
const PLAIN: [&str; 4] = ["integer", "number", "boolean", "null"];

/// Whether arguments can be held to all that their schema demands.
pub(super) fn is_enforced(schema: &Value) -> bool {
    let Value::Object(members) = schema else {
        return true;
    };
    let all = |value: &Value| match value {
        Value::Object(schemas) => schemas.values().all(is_enforced),
        Value::Array(schemas) => schemas.iter().all(is_enforced),
        _ => true,
    };
    members.iter().all(|(key, value)| match &key[..] {
        "properties" | "$defs" | "definitions" | "anyOf" | "oneOf" => all(value),
        "items" => is_enforced(value),
        "additionalProperties" => value.is_boolean(),
        "$ref" => value.as_str().is_some_and(|target| target.starts_with('#')),
        key => KNOWN.contains(&key) || ANNOTATIONS.contains(&key),
    })
}

/// The body of a rule for a function's arguments.
pub(super) fn arguments(
    lark: &mut Lark<'_>,
    rule: &str,
    function: &Function,
    quote: &'static str,
) -> String {
    let mut bare = Bare {
        lark,
        function,
        quote,
        prefix: rule,
        rules: 0,
        references: HashMap::new(),
        has_any: false,
    };
    bare.object(&function.parameters)
}

/// The grammar of one function's arguments under way.
struct Bare<'l, 't> {
    lark: &'l mut Lark<'t>,
    function: &'l Function,
    /// Around a text.
    quote: &'static str,
    /// What the names of its rules begin with.
    prefix: &'l str,
    rules: usize,
    /// The rules of what is referred to.
    references: HashMap<String, String>,
    /// The rule for any value is there.
    has_any: bool,
}

impl Bare<'_, '_> {
    fn name(&mut self) -> String {
        self.rules += 1;
        format!("{}_{}", self.prefix, self.rules)
    }

    fn rule(&mut self, body: &str) -> String {
        let name = self.name();
        self.lark.rule(&name, body);
        name
    }

    /// The members that a schema names, in its order, those that are not required there or not.
    fn object(&mut self, schema: &Value) -> String {
        let properties = schema.get("properties").and_then(Value::as_object);
        if properties.is_none() && schema.get("additionalProperties") != Some(&Value::Bool(false)) {
            return self.any_object();
        }
        let required = schema.get("required").and_then(Value::as_array);
        let mut members = Vec::new();
        for (key, schema) in properties.into_iter().flatten() {
            let value = self.value(schema);
            let is_required = required.is_some_and(|keys| keys.iter().any(|known| known == key));
            members.push((
                format!("{} {value}", literal(&format!("{key}:"))),
                is_required,
            ));
        }
        // From the last on: what may follow a member, and what may come where none has come yet.
        let (mut rest, mut first) = (String::new(), String::new());
        for (member, is_required) in members.into_iter().rev() {
            let after = self.rule(&rest);
            if is_required {
                first = format!("{member} {after}");
                rest = format!("\",\" {member} {after}");
            } else {
                let none = self.rule(&first);
                first = format!("({member} {after} | {none})");
                rest = format!("(\",\" {member})? {after}");
            }
        }
        format!("\"{{\" {first} \"}}\"")
    }

    fn value(&mut self, schema: &Value) -> String {
        let list = |key: &str| schema.get(key).and_then(Value::as_array);
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            return self.reference(target);
        }
        if let Some(options) = list("anyOf").or_else(|| list("oneOf")) {
            let options: Vec<String> = options.iter().map(|option| self.value(option)).collect();
            return format!("({})", options.join(" | "));
        }
        let only = schema.get("const").map(std::slice::from_ref);
        if let Some(values) = only.or_else(|| list("enum").map(Vec::as_slice)) {
            let quote = self.lark.spelt(self.quote);
            let written = |value: &Value| match value {
                Value::String(text) => format!("{quote} {} {quote}", literal(text)),
                other => literal(&other.to_string()),
            };
            let options: Vec<String> = values.iter().map(written).collect();
            return format!("({})", options.join(" | "));
        }
        match schema.get("type") {
            Some(Value::String(kind)) => self.kind(kind, schema),
            Some(Value::Array(kinds)) => {
                let kinds = kinds.iter().filter_map(Value::as_str);
                let kinds: Vec<String> = kinds.map(|kind| self.kind(kind, schema)).collect();
                format!("({})", kinds.join(" | "))
            }
            _ => self.anything(),
        }
    }

    fn reference(&mut self, target: &str) -> String {
        if let Some(name) = self.references.get(target) {
            return name.clone();
        }
        let pointer = target.strip_prefix('#');
        let Some(schema) = pointer.and_then(|at| self.function.parameters.pointer(at)) else {
            return self.anything();
        };
        let schema = schema.clone();
        let name = self.name();
        self.references.insert(target.to_owned(), name.clone());
        let body = self.value(&schema);
        self.lark.rule(&name, &body);
        name
    }

    fn kind(&mut self, kind: &str, schema: &Value) -> String {
        match kind {
            "string" => self.text(),
            "object" => self.object(schema),
            "array" => {
                let item = schema.get("items").map(|items| self.value(items));
                let item = item.unwrap_or_else(|| self.anything());
                let item = self.rule(&item);
                format!("\"[\" ({item} (\",\" {item})*)? \"]\"")
            }
            kind if PLAIN.contains(&kind) => {
                let mut schema = schema.clone();
                schema["type"] = kind.into();
                embedded(&schema, self.function.strict)
            }
            _ => self.anything(),
        }
    }

    fn text(&mut self) -> String {
        let quote = self.lark.spelt(self.quote);
        if !self.lark.control.is_absent(self.quote) {
            return format!("{quote} {ANY} {quote}");
        }
        let value = self.name();
        let end = literal(self.quote);
        _ = writeln!(self.lark.lark, "{value}[suffix={end}]: /(?s:.)*/");
        format!("{quote} {value}")
    }

    fn any_object(&mut self) -> String {
        let value = self.anything();
        let member = format!("/[^\\s:,{{}}\\[\\]\"]+/ \":\" {value}");
        format!("\"{{\" ({member} (\",\" {member})*)? \"}}\"")
    }

    /// Any value.
    fn anything(&mut self) -> String {
        let value = format!("{}_any", self.prefix);
        if !std::mem::replace(&mut self.has_any, true) {
            let text = self.text();
            let plain = embedded(&json!({ "type": PLAIN }), true);
            let object = self.any_object();
            let list = format!("\"[\" ({value} (\",\" {value})*)? \"]\"");
            let body = format!("{text} | {plain} | {object} | {list}");
            self.lark.rule(&value, &body);
        }
        value
    }
}
