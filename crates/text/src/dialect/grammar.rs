//! Constraints in a dialect: how a call is written that the model must or may make, and what may come before it.
//!
//! Markers are tokens where the vocabulary has them as control tokens, text otherwise, as everywhere in a dialect. The grammars
//! are the variant of Lark that `llguidance` documents.

mod bare;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::Opening;
use super::block::is_text;
use crate::chat::function;
use crate::constraint::{embedded, literal};
use crate::tokenizer::{Fragment, SpecialTokens, TokenKind};
use crate::{ChatRequest, Constraint, TextError, Tokenizer, ToolChoice};

/// How a dialect writes calls. `NAME` stands for the function's name.
pub(super) struct Form {
    /// Before the first call.
    pub(super) begin: &'static str,
    /// From a call's beginning to its arguments.
    pub(super) open: &'static str,
    pub(super) arguments: Arguments,
    /// From its arguments to its end.
    pub(super) close: &'static str,
    /// Between two calls; `None` where an answer holds one at most.
    pub(super) between: Option<&'static str>,
    /// After the last call.
    pub(super) end: &'static str,
}

/// How it writes their arguments.
pub(super) enum Arguments {
    Json,
    /// A tag for each argument, with `KEY` in it: the one for raw text and the one for everything else, which is JSON.
    Tags {
        text: &'static str,
        json: &'static str,
        close: &'static str,
    },
    /// An object with bare keys, and texts between this.
    Bare {
        quote: &'static str,
    },
}

/// Any text between control tokens.
const ANY: &str = "/(?s:.)+/?";
/// Blanks between reasoning and what follows.
const BLANKS: &str = "BLANKS: /[ \\n]{1,4}/\n";

impl Opening {
    /// The constraint on a whole answer to a request with tools, reasoning included: with calls where the model must make them, and within the calls
    /// that it may make where a tool is `strict`, or only one call is allowed. `None` where the model is free. Without a call
    /// the answer is `answer`, where that is given.
    ///
    /// # Errors
    /// [`TextError::Constraint`] for a name that no tool has, and for a strict tool whose schema its calls cannot be held to.
    pub fn calls(
        &self,
        chat: &ChatRequest,
        answer: Option<&Constraint>,
        tokenizer: &Tokenizer,
    ) -> Result<Option<Constraint>, TextError> {
        let ChatRequest {
            tool_choice: choice,
            parallel_tool_calls: parallel,
            ..
        } = chat;
        let tools = chat.callable_tools();
        let forced = matches!(choice, ToolChoice::Required | ToolChoice::Named(_));
        let strict = tools.iter().any(is_strict);
        if *choice == ToolChoice::None || tools.is_empty() && !forced {
            return Ok(None);
        }
        if !forced && answer.is_none() && !strict && *parallel {
            return Ok(None);
        }
        let mut lark = Lark::new(tokenizer);
        let forms = self.dialect().syntax().forms;
        let fits = |(token, _): &&(&str, Form)| token.is_empty() || lark.has_token(token);
        let (_, form) = forms.iter().find(fits).expect("the last form fits all");
        let named = match choice {
            ToolChoice::Named(name) => Some(&name[..]),
            _ => None,
        };
        let before = self.before(&mut lark);
        let callable = tools
            .iter()
            .filter(|tool| named.is_none_or(|name| function(tool)["name"] == name));
        let functions: Vec<Function> = callable.map(Function::of).collect();
        if functions.is_empty() {
            let why = match named {
                Some(name) => format!("there is no tool `{name}`"),
                None => "there is no tool to call".to_owned(),
            };
            return Err(TextError::constraint(why));
        }
        let is_bare = matches!(form.arguments, Arguments::Bare { .. });
        let fits =
            |function: &Function| !function.strict || bare::is_enforced(&function.parameters);
        if let Some(function) = functions.iter().find(|function| is_bare && !fits(function)) {
            let why = format!(
                "the schema of `{}` cannot be enforced in this model's calls",
                function.name
            );
            return Err(TextError::constraint(why));
        }
        let wanted = Wanted {
            form,
            functions,
            parallel: *parallel && named.is_none(),
        };
        if forced || answer.is_some() {
            let calls = lark.calls(&wanted, wanted.parallel, "");
            let body = match answer {
                Some(_) if !forced && self.is_harmony() => {
                    let header = lark.spelt("<|channel|>final<|message|>");
                    format!("({calls} | {header} @answer)")
                }
                Some(_) if !forced => format!("({calls} | @answer)"),
                _ => calls,
            };
            lark.rule("start", &format!("{before} {body}"));
            let answer = answer.filter(|_| !forced).cloned();
            return Ok(Some(lark.around(answer)));
        }
        Ok(self.free(lark, &before, &wanted))
    }

    /// Text as the model likes, and calls in their form.
    fn free(&self, mut lark: Lark<'_>, before: &str, wanted: &Wanted) -> Option<Constraint> {
        let Wanted { form, parallel, .. } = wanted;
        let opener = format!("{}{}", form.begin, form.open);
        let trigger = lark.trigger(opener.split("NAME").next().unwrap_or_default())?;
        let (Trigger::Text(said) | Trigger::Token { before: said }) = &trigger;
        // Blanks between calls are text here, so one call follows the next by itself, unless a block holds them all.
        let listed = *parallel && !form.end.is_empty();
        let calls = lark.calls(wanted, listed, said);
        let times = if *parallel { "*" } else { "?" };
        let pattern = regex_of(said);
        let answer = match &trigger {
            _ if self.is_harmony() => {
                let end = lark.spelt("<|end|><|start|>assistant");
                let text = lark.spelt("<|channel|>final<|message|>");
                let announced = lark.spelt("<|channel|>commentary<|message|>");
                format!("({announced} {ANY} {end})? ({calls} | {text} {ANY})")
            }
            Trigger::Token { before } if before.is_empty() => {
                format!("{ANY} ({calls} {ANY}){times}")
            }
            // What comes before the token is the end of a text, and only there a token may follow.
            Trigger::Token { .. } => {
                _ = writeln!(lark.lark, "FREE: /(?s:.)*{pattern}/");
                format!("(FREE {calls}){times} {ANY}")
            }
            // Text ends at the trigger, or holds none.
            Trigger::Text(said) => {
                _ = writeln!(lark.lark, "free[suffix={}]: /(?s:.)*/", literal(said));
                _ = writeln!(lark.lark, "TAIL: /(?s:.)+/ & ~/(?s:.)*{pattern}(?s:.)*/");
                format!("(free {calls}){times} TAIL?")
            }
        };
        lark.rule("start", &format!("{before} {answer}"));
        Some(lark.around(None))
    }

    /// What may or must come before the answer.
    fn before(&self, lark: &mut Lark<'_>) -> String {
        if !self.is_harmony() {
            if self.has_thought {
                lark.lark.push_str(BLANKS);
                return "BLANKS?".to_owned();
            }
            return self.thoughts(self.is_thinking, lark);
        }
        // A prompt that has begun a message is gone on with as it is.
        if !matches!(&self.end.coded[..], b"" | b"assistant") {
            return String::new();
        }
        let open = lark.spelt("<|channel|>analysis<|message|>");
        let close = lark.spelt("<|end|><|start|>assistant");
        lark.rule("analysis", &format!("{open} {ANY} {close}"));
        "analysis?".to_owned()
    }

    fn thoughts(&self, opened: bool, lark: &mut Lark<'_>) -> String {
        let syntax = self.dialect().syntax();
        let marks = |mark: super::Mark| syntax.marks[usize::from(mark.0)];
        let mut found = Vec::new();
        for (index, &(open, close)) in syntax.thinks.iter().enumerate() {
            // A model without a token for it does not think.
            if opened || lark.has_token(marks(open)) {
                let rest = format!("thought{index}");
                if lark.control.is_absent(marks(close)) {
                    let close = literal(marks(close));
                    _ = writeln!(lark.lark, "{rest}[suffix={close}]: /(?s:.)*/");
                } else {
                    let close = lark.spelt(marks(close));
                    lark.rule(&rest, &format!("{ANY} {close}"));
                }
                let open = if opened {
                    String::new()
                } else {
                    lark.spelt(marks(open))
                };
                found.push(format!("{open} {rest}"));
            }
        }
        if found.is_empty() {
            return String::new();
        }
        lark.lark.push_str(BLANKS);
        let optional = if opened { "" } else { "?" };
        format!("(({}) BLANKS?){optional}", found.join(" | "))
    }

    fn is_harmony(&self) -> bool {
        self.dialect.syntax.header.is_some()
    }
}

/// Keywords that put schemas together.
const COMBINATORS: [&str; 4] = ["$ref", "anyOf", "oneOf", "allOf"];
/// Keywords that demand nothing.
const ANNOTATIONS: &[&str] = &[
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "$schema",
    "$id",
    "$comment",
];
/// Those of an object that tags can keep to.
const TAGGED_OBJECT: &[&str] = &[
    "type",
    "properties",
    "required",
    "additionalProperties",
    "$defs",
    "definitions",
];
/// Those of a text in a tag.
const TAGGED_TEXT: &[&str] = &["type", "enum", "const"];

/// The texts that a parameter may be; `None` where any will do.
fn texts(schema: &Value) -> Option<Vec<&str>> {
    let values = match (schema.get("const"), schema.get("enum")) {
        (Some(only), _) => std::slice::from_ref(only),
        (None, Some(values)) => values.as_array()?,
        (None, None) => return None,
    };
    Some(values.iter().filter_map(Value::as_str).collect())
}

/// A function that may be called.
struct Function {
    name: String,
    parameters: Value,
    strict: bool,
}

/// Whether a tool, in the form that templates expect, is `strict`: its calls' arguments must fit its schema.
#[must_use]
pub fn is_strict(tool: &Value) -> bool {
    function(tool).get("strict") == Some(&Value::Bool(true))
}

impl Function {
    fn of(tool: &Value) -> Self {
        let parameters = function(tool).get("parameters").and_then(Value::as_object);
        let mut parameters = parameters.cloned().unwrap_or_default();
        // Arguments are an object, whether the schema says so or not.
        if !COMBINATORS.iter().any(|key| parameters.contains_key(*key)) {
            parameters.insert("type".to_owned(), json!("object"));
        }
        Self {
            name: function(tool)["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            parameters: Value::Object(parameters),
            strict: is_strict(tool),
        }
    }

    fn properties(&self) -> impl Iterator<Item = (&String, &Value)> {
        let properties = self.parameters.get("properties");
        properties.and_then(Value::as_object).into_iter().flatten()
    }

    fn required(&self) -> impl Iterator<Item = &str> {
        let required = self.parameters.get("required").and_then(Value::as_array);
        required.into_iter().flatten().filter_map(Value::as_str)
    }

    /// Whether a tag for each parameter can hold the arguments that the schema allows, and, where it is strict, only those.
    fn fits_tags(&self) -> bool {
        let has_only = |schema: &Value, known: &[&str]| {
            let mut keys = schema
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, _)| &key[..]);
            keys.all(|key| known.contains(&key) || ANNOTATIONS.contains(&key))
        };
        let known = |key: &str| self.properties().any(|(known, _)| known == key);
        let is_enforced = |schema: &Value| {
            !is_text(schema)
                || has_only(schema, TAGGED_TEXT)
                    && !matches!(texts(schema), Some(texts) if texts.is_empty())
        };
        !COMBINATORS
            .iter()
            .any(|key| self.parameters.get(key).is_some())
            && self.required().all(known)
            && (!self.strict
                || has_only(&self.parameters, TAGGED_OBJECT)
                    && self.properties().all(|(_, schema)| is_enforced(schema)))
    }

    /// A parameter's schema, with the definitions that it may refer to.
    fn parameter(&self, schema: &Value) -> Value {
        let mut schema = schema.clone();
        if let Value::Object(members) = &mut schema {
            for key in ["$defs", "definitions"] {
                if let Some(definitions) = self.parameters.get(key) {
                    members.insert(key.to_owned(), definitions.clone());
                }
            }
        }
        schema
    }
}

/// The calls that an answer may hold.
struct Wanted {
    form: &'static Form,
    functions: Vec<Function>,
    /// Whether it may hold several.
    parallel: bool,
}

/// With what structure begins.
enum Trigger {
    /// With this text: a marker to its closing bracket, or to the end of its line.
    Text(String),
    /// With a control token, before which there is some text, or none.
    Token { before: String },
}

/// A grammar under way.
struct Lark<'t> {
    /// All control tokens.
    control: SpecialTokens,
    tokenizer: &'t Tokenizer,
    lark: String,
}

impl<'t> Lark<'t> {
    fn new(tokenizer: &'t Tokenizer) -> Self {
        Self {
            control: SpecialTokens::new(tokenizer.spellings(&[TokenKind::Control])),
            tokenizer,
            lark: String::new(),
        }
    }

    fn rule(&mut self, name: &str, body: &str) {
        _ = writeln!(self.lark, "{name}: {}", body.trim());
    }

    fn around(self, answer: Option<Constraint>) -> Constraint {
        match answer {
            Some(answer) => Constraint::Framed {
                frame: self.lark,
                answer: Box::new(answer),
            },
            None => Constraint::Lark(self.lark),
        }
    }

    /// A text of structure: control tokens by their numbers, the rest as it is.
    fn spelt(&self, text: &str) -> String {
        let mut parts = Vec::new();
        self.control.fragments(text, |fragment| match fragment {
            Fragment::Token { id, .. } => parts.push(format!("<[{id}]>")),
            Fragment::Text(text) => parts.push(literal(text)),
        });
        parts.join(" ")
    }

    /// Structure with a name in this place, which is text, whatever tokens are spelt like it.
    fn filled(&self, structure: &str, place: &str, name: &str) -> String {
        let (before, after) = structure.split_once(place).unwrap_or((structure, ""));
        let [before, after] = [before, after].map(|text| self.spelt(text));
        format!("{before} {} {after}", literal(name))
    }

    /// What tells structure from the text before it; `None` where nothing does.
    fn trigger(&self, structure: &str) -> Option<Trigger> {
        let mut text = String::new();
        let mut has_token = false;
        self.control
            .fragments(structure, |fragment| match fragment {
                Fragment::Token { .. } => has_token = true,
                Fragment::Text(more) if !has_token => text.push_str(more),
                Fragment::Text(_) => {}
            });
        let end = text.find(['>', ']', '\n']).map_or(0, |at| at + 1);
        if end > 1 {
            text.truncate(end);
            Some(Trigger::Text(text))
        } else {
            has_token.then_some(Trigger::Token { before: text })
        }
    }

    /// Whether the vocabulary has a token, of structure or of text, with which this begins.
    fn has_token(&self, text: &str) -> bool {
        let kinds = [TokenKind::Control, TokenKind::UserDefined];
        let mut tokens = self.tokenizer.spellings(&kinds);
        tokens.any(|(_, token)| text.starts_with(token))
    }

    /// The rule for calls; of the first one, `said` has been said.
    fn calls(&mut self, wanted: &Wanted, parallel: bool, said: &str) -> String {
        let Wanted {
            form, functions, ..
        } = wanted;
        let rest = |text: &str| text.strip_prefix(said).unwrap_or(text).to_owned();
        let (begin, first_open) = if form.begin.is_empty() {
            (String::new(), rest(form.open))
        } else {
            (rest(form.begin), form.open.to_owned())
        };
        let first = self.alternatives("first", &first_open, form, functions);
        let begin = self.spelt(&begin);
        let end = self.spelt(form.end);
        let more = match form.between {
            Some(between) if parallel => {
                let call = if first_open == form.open {
                    first.clone()
                } else {
                    self.alternatives("more", form.open, form, functions)
                };
                let between = self.spelt(between);
                format!("({between} {call})*")
            }
            _ => String::new(),
        };
        self.rule("calls", &format!("{begin} {first} {more} {end}"));
        "calls".to_owned()
    }

    /// One rule for each function, and the choice between them.
    fn alternatives(
        &mut self,
        rule: &str,
        open: &str,
        form: &Form,
        functions: &[Function],
    ) -> String {
        let mut names = Vec::new();
        for (index, function) in functions.iter().enumerate() {
            let name = format!("{rule}_{index}");
            let in_json = matches!(form.arguments, Arguments::Json) && open.contains('"');
            let shown = if in_json {
                Value::from(&function.name[..])
                    .to_string()
                    .trim_matches('"')
                    .to_owned()
            } else {
                function.name.clone()
            };
            let head = self.filled(open, "NAME", &shown);
            let arguments = match form.arguments {
                Arguments::Json => embedded(&function.parameters, function.strict),
                Arguments::Bare { quote } => bare::arguments(self, &name, function, quote),
                Arguments::Tags { text, json, close } => {
                    self.tags(&name, function, [text, json, close])
                }
            };
            let close = self.spelt(form.close);
            self.rule(&name, &format!("{head} {arguments} {close}"));
            names.push(name);
        }
        format!("({})", names.join(" | "))
    }

    /// The tags of a function's arguments, in the order of its schema; where tags cannot hold what the schema asks for, one
    /// JSON object in their place.
    fn tags(&mut self, rule: &str, function: &Function, [text, json, close]: [&str; 3]) -> String {
        if !function.fits_tags() {
            return embedded(&function.parameters, function.strict);
        }
        let mut tags = Vec::new();
        for (index, (key, schema)) in function.properties().enumerate() {
            let name = format!("{rule}_{index}");
            let open = self.filled(if is_text(schema) { text } else { json }, "KEY", key);
            let body = match texts(schema) {
                _ if !is_text(schema) => {
                    let value = embedded(&function.parameter(schema), function.strict);
                    format!("{open} {value} {}", self.spelt(close))
                }
                Some(texts) => {
                    let texts: Vec<String> = texts.into_iter().map(literal).collect();
                    format!("{open} ({}) {}", texts.join(" | "), self.spelt(close))
                }
                None => self.raw(&name, &open, close),
            };
            self.rule(&name, &body);
            let needed = function.required().any(|needed| needed == key);
            tags.push(if needed { name } else { format!("{name}?") });
        }
        tags.join(" ")
    }

    /// Text up to its closing tag.
    fn raw(&mut self, rule: &str, open: &str, close: &str) -> String {
        let is_text = self.control.is_absent(close);
        if is_text {
            let value = format!("{rule}_value");
            let suffix = literal(close);
            _ = writeln!(self.lark, "{value}[suffix={suffix}]: /(?s:.)*/");
            return format!("{open} {value}");
        }
        // The tag is text around a control token, and that text alone may be part of the value.
        let close = self.spelt(close);
        format!("{open} (/[^<]+/ | \"<\" | \"</\")* {close}")
    }
}

/// A text as a regular expression of Lark.
fn regex_of(text: &str) -> String {
    let codes = text.chars().map(|c| format!("\\x{{{:x}}}", u32::from(c)));
    codes.collect()
}
