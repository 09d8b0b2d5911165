//! What reads the inside of a block of calls, and the tools that calls may name.

use std::collections::HashMap;
use std::fmt::Debug;

use serde_json::Value;

use super::marks::{Found, Mark};
use super::out::Out;
use crate::chat::function;

/// The longest head of a call: what is held back until its name is known. A head that is longer is text.
pub(super) const MAX_HEAD: usize = 1 << 14;

/// The longest name of a function or parameter, or text around one.
pub(super) const MAX_NAME: usize = 256;

/// What a block makes of what it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// It goes on.
    Goes,
    /// It ends with this.
    Ends,
    /// It has ended before this.
    Ended,
    /// The head under way is no call. `is_text` says that what began it only looked like a marker.
    Rejects {
        /// Whether the marker before it stays text too.
        is_text: bool,
    },
}

/// A reader of calls, fed byte by byte, so that no cut of an answer can matter to it.
pub(super) trait Block: Debug + Send {
    /// The markers that mean something now.
    fn wanted(&self) -> &'static [Mark];

    /// Takes a byte or one of the wanted markers; `raw` is how it was written.
    fn push(&mut self, found: Found, raw: &[u8], out: &mut Out) -> Flow;

    /// Whether a piece of a marker would be content here rather than a marker that was cut.
    fn is_quoting(&self) -> bool {
        false
    }

    /// Whether a control token of the dialect that means nothing here is content, as it is spelt.
    fn spells_tokens(&self) -> bool {
        false
    }

    /// Whether what comes next is text for the user. A reader of calls takes none.
    fn takes_text(&self) -> bool {
        false
    }

    /// The answer ends here.
    fn end(&mut self, out: &mut Out) -> Flow;
}

/// The tools of a request: names, and the types of their parameters.
#[derive(Debug, Default)]
pub(super) struct Tools {
    /// By name: the schema's `properties`.
    functions: HashMap<String, Value>,
}

impl Tools {
    /// From definitions in the `{"type": "function", "function": {…}}` form.
    pub(super) fn new(tools: &[Value]) -> Self {
        let functions = tools.iter().filter_map(|tool| {
            let function = function(tool);
            let name = function.get("name")?.as_str()?.to_owned();
            let properties = function.get("parameters").and_then(|p| p.get("properties"));
            Some((name, properties.cloned().unwrap_or_default()))
        });
        Self {
            functions: functions.collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    pub(super) fn knows(&self, name: &str) -> bool {
        self.functions.contains_key(name)
    }

    /// Whether a parameter is raw text: its schema says so, or nothing is known of it.
    pub(super) fn is_text(&self, function: &str, parameter: &str) -> bool {
        let schema = self
            .functions
            .get(function)
            .and_then(|properties| properties.get(parameter));
        schema.is_none_or(is_text)
    }
}

/// Whether tags hold a parameter's value as raw text: its schema allows nothing but strings, and says so itself.
pub(super) fn is_text(schema: &Value) -> bool {
    let kind = schema.get("type");
    let is_list_of_texts = |values: &Vec<Value>| {
        kind.is_none() && !values.is_empty() && values.iter().all(Value::is_string)
    };
    let values = schema.get("enum").and_then(Value::as_array);
    kind.is_some_and(|kind| kind == "string")
        || values.is_some_and(is_list_of_texts)
        || kind.is_none() && schema.get("const").is_some_and(Value::is_string)
}
