//! Calls in Markdown fences, as models write them that were told of tools by their prompt alone: JSON, or a line of Python.
//!
//! ````text
//! ```json
//! {"name": "read", "parameters": {"path": "a.txt"}}
//! ```
//! ```tool_code
//! print(read(path="a.txt"))
//! ```
//! ````
//!
//! Fences are for showing code too, so only what calls one of the request's tools, and nothing else, is a call.

use std::sync::Arc;

use super::block::{Block, Flow, MAX_HEAD, Tools};
use super::grammar::{Arguments, Form};
use super::json::{JsonCalls, Rules};
use super::marks::{Found, Mark};
use super::out::Out;
use super::python_call;
use super::{Evidence, NewBlock, Syntax};

pub(super) const THINK: Mark = Mark(0);
pub(super) const THINK_END: Mark = Mark(1);
pub(super) const FENCE: Mark = Mark(2);
pub(super) const JSON: Mark = Mark(3);
pub(super) const TOOL_CODE: Mark = Mark(4);
pub(super) const TOOL_CALL: Mark = Mark(5);

/// In the order of the marks above; who reads fences begins with these.
pub(super) const MARKS: [&str; 6] = [
    "<think>",
    "</think>",
    "```",
    "```json\n",
    "```tool_code\n",
    "```tool_call\n",
];

/// Gemma 1 to 3.
pub(super) const GEMMA: Syntax = Syntax {
    names: &["gemma", "gemma3"],
    marks: &MARKS,
    thinks: &[(THINK, THINK_END)],
    blocks: &[(JSON, json), (TOOL_CALL, json), (TOOL_CODE, tool_code)],
    bare: Some(json),
    forms: &[("", FORM)],
    is_written_in: is_gemma,
    ..Syntax::PLAIN
};

const FORM: Form = Form {
    begin: "",
    open: "```json\n{\"name\": \"NAME\", \"parameters\": ",
    arguments: Arguments::Json,
    close: "}\n```",
    between: Some("\n"),
    end: "",
};

fn is_gemma(evidence: &Evidence<'_>) -> bool {
    evidence.template_has("<start_of_turn>")
}

/// JSON in a fence, or alone.
pub(super) fn json(tools: &Arc<Tools>) -> Box<dyn Block> {
    Box::new(JsonCalls::new(Rules {
        open: None,
        wanted: &[FENCE],
        known_only: true,
        tools: Arc::clone(tools),
    }))
}

/// Python in a fence, or JSON after all.
pub(super) fn tool_code(tools: &Arc<Tools>) -> Box<dyn Block> {
    Box::new(ToolCode::new(tools, None, &[FENCE], json))
}

/// Reads calls as Python, or as JSON where a bracket comes first.
#[derive(Debug)]
pub(super) struct ToolCode {
    tools: Arc<Tools>,
    /// What opens the block, and is ignored where it is repeated.
    open: Option<Mark>,
    wanted: &'static [Mark],
    new_json: NewBlock,
    code: Vec<u8>,
    json: Option<Box<dyn Block>>,
}

impl ToolCode {
    pub(super) fn new(
        tools: &Arc<Tools>,
        open: Option<Mark>,
        wanted: &'static [Mark],
        new_json: NewBlock,
    ) -> Self {
        Self {
            tools: Arc::clone(tools),
            open,
            wanted,
            new_json,
            code: Vec::new(),
            json: None,
        }
    }

    fn is_blank(&self) -> bool {
        self.code.trim_ascii().is_empty()
    }

    /// The code is complete.
    fn call(&self, out: &mut Out) -> Flow {
        let code = String::from_utf8_lossy(&self.code);
        let Some(calls) = python_call::parse(&code, &self.tools) else {
            // Nothing but a marker is left out.
            let is_text = self.open.is_none() || !self.is_blank();
            return Flow::Rejects { is_text };
        };
        for (name, arguments) in calls {
            out.call(&name);
            out.arguments(arguments.to_string().as_bytes());
        }
        Flow::Ends
    }
}

impl Block for ToolCode {
    fn wanted(&self) -> &'static [Mark] {
        self.wanted
    }

    fn push(&mut self, found: Found, raw: &[u8], out: &mut Out) -> Flow {
        if let Some(json) = &mut self.json {
            return json.push(found, raw, out);
        }
        match found {
            Found::Nothing => Flow::Goes,
            Found::Mark(mark) if Some(mark) == self.open && self.is_blank() => Flow::Goes,
            Found::Mark(_) => self.call(out),
            Found::Byte(b'{' | b'[') if self.is_blank() => {
                let mut block = (self.new_json)(&self.tools);
                let flow = block.push(found, raw, out);
                self.json = Some(block);
                flow
            }
            Found::Byte(_) if self.code.len() > MAX_HEAD => Flow::Rejects { is_text: true },
            Found::Byte(byte) => {
                self.code.push(byte);
                Flow::Goes
            }
        }
    }

    fn is_quoting(&self) -> bool {
        self.json.as_ref().is_some_and(|json| json.is_quoting())
    }

    fn end(&mut self, out: &mut Out) -> Flow {
        match &mut self.json {
            Some(json) => json.end(out),
            None => self.call(out),
        }
    }
}
