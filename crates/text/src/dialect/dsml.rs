//! DeepSeek V4's markup (and V3.2's, whose block has another name).
//!
//! ```text
//! <｜DSML｜tool_calls>
//! <｜DSML｜invoke name="read">
//! <｜DSML｜parameter name="path" string="true">a.txt</｜DSML｜parameter>
//! </｜DSML｜invoke>
//! </｜DSML｜tool_calls>
//! ```
//!
//! Strings are raw text, everything else is JSON. In the vocabulary `｜DSML｜` is a control token and what surrounds it is text. A JSON
//! object of all arguments in their place is read too (SGLang does the same), and so are calls without the outer tags.
//! Source: `encoding_dsv4.py` of the model's repository.

use std::sync::Arc;

use super::block::{Block, Tools};
use super::grammar::{Arguments, Form};
use super::marks::Mark;
use super::tagged::{Tagged, Tags};
use super::{Evidence, Syntax};

const THINK: Mark = Mark(0);
const THINK_END: Mark = Mark(1);
const CALLS: Mark = Mark(2);
const CALLS_END: Mark = Mark(3);
const FORMER: Mark = Mark(4);
const FORMER_END: Mark = Mark(5);
const INVOKE: Mark = Mark(6);
const INVOKE_END: Mark = Mark(7);
const PARAMETER: Mark = Mark(8);
const PARAMETER_END: Mark = Mark(9);

pub(super) const DSML: Syntax = Syntax {
    names: &["deepseek-v4", "dsml"],
    marks: &[
        "<think>",
        "</think>",
        "<｜DSML｜tool_calls>",
        "</｜DSML｜tool_calls>",
        "<｜DSML｜function_calls>",
        "</｜DSML｜function_calls>",
        "<｜DSML｜invoke",
        "</｜DSML｜invoke>",
        "<｜DSML｜parameter",
        "</｜DSML｜parameter>",
    ],
    thinks: &[(THINK, THINK_END)],
    blocks: &[(CALLS, calls), (FORMER, calls), (INVOKE, invoke)],
    closers: &[CALLS_END, FORMER_END, INVOKE_END, PARAMETER, PARAMETER_END],
    forms: &[("", FORM)],
    reasoning_end: "</think>",
    is_written_in,
    ..Syntax::PLAIN
};

const FORM: Form = Form {
    begin: "<｜DSML｜tool_calls>\n",
    open: "<｜DSML｜invoke name=\"NAME\">\n",
    arguments: Arguments::Tags {
        text: "<｜DSML｜parameter name=\"KEY\" string=\"true\">",
        json: "<｜DSML｜parameter name=\"KEY\" string=\"false\">",
        close: "</｜DSML｜parameter>\n",
    },
    close: "</｜DSML｜invoke>\n",
    between: Some(""),
    end: "</｜DSML｜tool_calls>",
};

const TAGS: Tags = Tags {
    function: INVOKE,
    function_end: INVOKE_END,
    parameter: PARAMETER,
    parameter_end: PARAMETER_END,
    calls: &[CALLS, FORMER],
    calls_end: &[CALLS_END, FORMER_END],
    in_body: &[
        INVOKE, INVOKE_END, PARAMETER, CALLS, FORMER, CALLS_END, FORMER_END,
    ],
    in_value: &[
        PARAMETER_END,
        INVOKE_END,
        CALLS_END,
        FORMER_END,
        INVOKE,
        PARAMETER,
    ],
    in_line: &[PARAMETER_END, INVOKE_END, CALLS_END, FORMER_END],
    quoted: true,
};

/// The model came without a template, so its vocabulary has to do.
fn is_written_in(evidence: &Evidence<'_>) -> bool {
    evidence.template_has("DSML｜") || (!evidence.has_template() && evidence.has_token("｜DSML｜"))
}

fn calls(tools: &Arc<Tools>) -> Box<dyn Block> {
    Box::new(Tagged::calls(&TAGS, tools))
}

fn invoke(tools: &Arc<Tools>) -> Box<dyn Block> {
    Box::new(Tagged::function(&TAGS, tools, false))
}
