//! Llama 3: a JSON object as the whole answer, or after `<|python_tag|>`, or in `<function=name>…</function>`.
//!
//! ```text
//! {"name": "read", "parameters": {"path": "a.txt"}}
//! <|python_tag|>{"name": "read", "parameters": {"path": "a.txt"}}; {"name": …}
//! <|python_tag|>read.call(path="a.txt")
//! <function=read>{"path": "a.txt"}</function>
//! ```
//!
//! Source: Meta's prompt formats of Llama 3.1 and 3.2. A bare object is a call only if it names one of the request's tools and
//! holds parameters. Python after the tag is read where it is nothing but calls of the request's tools; other code is text.

use std::sync::Arc;

use super::Syntax;
use super::block::{Block, Tools};
use super::fences::ToolCode;
use super::grammar::{Arguments, Form};
use super::json::{JsonCalls, Rules};
use super::marks::Mark;
use super::tagged::{Tagged, Tags};

const THINK: Mark = Mark(0);
const THINK_END: Mark = Mark(1);
const PYTHON: Mark = Mark(2);
const FUNCTION: Mark = Mark(3);
const FUNCTION_END: Mark = Mark(4);
const NEVER: Mark = Mark(5);

pub(super) const LLAMA3: Syntax = Syntax {
    names: &["llama3"],
    marks: &[
        "<think>",
        "</think>",
        "<|python_tag|>",
        "<function=",
        "</function>",
        "<parameter=",
    ],
    thinks: &[(THINK, THINK_END)],
    blocks: &[(PYTHON, python), (FUNCTION, function)],
    bare: Some(bare),
    closers: &[FUNCTION_END],
    forms: &[("", FORM)],
    is_written_in: |evidence| {
        evidence.template_has("<|python_tag|>") || evidence.template_has("<|start_header_id|>")
    },
    ..Syntax::PLAIN
};

const FORM: Form = Form {
    begin: "",
    open: "{\"name\": \"NAME\", \"parameters\": ",
    arguments: Arguments::Json,
    close: "}",
    between: None,
    end: "",
};

const TAGS: Tags = Tags {
    function: FUNCTION,
    function_end: FUNCTION_END,
    parameter: NEVER,
    parameter_end: NEVER,
    calls: &[],
    calls_end: &[],
    in_body: &[FUNCTION, FUNCTION_END],
    in_value: &[],
    in_line: &[],
    quoted: false,
};

fn python(tools: &Arc<Tools>) -> Box<dyn Block> {
    Box::new(ToolCode::new(tools, Some(PYTHON), &[PYTHON], json))
}

fn json(tools: &Arc<Tools>) -> Box<dyn Block> {
    Box::new(JsonCalls::new(Rules {
        open: Some(PYTHON),
        wanted: &[PYTHON],
        known_only: false,
        tools: Arc::clone(tools),
    }))
}

fn function(tools: &Arc<Tools>) -> Box<dyn Block> {
    Box::new(Tagged::function(&TAGS, tools, true))
}

fn bare(tools: &Arc<Tools>) -> Box<dyn Block> {
    Box::new(JsonCalls::new(Rules {
        open: Some(PYTHON),
        wanted: &[PYTHON],
        known_only: true,
        tools: Arc::clone(tools),
    }))
}
