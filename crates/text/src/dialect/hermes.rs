//! `<tool_call>` blocks: Hermes and Qwen's JSON in them, or the `<function=…>` form of the Qwen coder models.
//!
//! ```text
//! <tool_call>
//! {"name": "read", "arguments": {"path": "a.txt"}}
//! </tool_call>
//! ```
//!
//! Source: the chat templates of Hermes 2 Pro, Qwen 2.5, Qwen 3 and Qwen 3 Coder.

use std::sync::Arc;

use super::block::{Block, Flow, Tools};
use super::grammar::{Arguments, Form};
use super::json::{JsonCalls, Rules};
use super::marks::{Found, Mark};
use super::out::Out;
use super::tagged::{Tagged, Tags};
use super::{Evidence, Syntax};

const THINK: Mark = Mark(0);
const THINK_END: Mark = Mark(1);
const CALL: Mark = Mark(2);
const CALL_END: Mark = Mark(3);
const FUNCTION: Mark = Mark(4);
const FUNCTION_END: Mark = Mark(5);
const PARAMETER: Mark = Mark(6);
const PARAMETER_END: Mark = Mark(7);

const MARKS: &[&str] = &[
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<function=",
    "</function>",
    "<parameter=",
    "</parameter>",
];

pub(super) const HERMES: Syntax = Syntax {
    names: &["hermes", "qwen3", "chatml"],
    marks: MARKS,
    thinks: &[(THINK, THINK_END)],
    blocks: &[(CALL, tool_call)],
    closers: &[CALL_END],
    forms: &[("", FORM)],
    is_written_in: |evidence| evidence.template_has("<tool_call>"),
    ..Syntax::PLAIN
};

pub(super) const QWEN_CODER: Syntax = Syntax {
    names: &["qwen-coder"],
    marks: MARKS,
    thinks: &[(THINK, THINK_END)],
    blocks: &[(CALL, tool_call), (FUNCTION, function)],
    closers: &[CALL_END, FUNCTION_END, PARAMETER_END],
    forms: &[("", CODER_FORM)],
    is_written_in: is_qwen_coder,
    ..Syntax::PLAIN
};

pub(super) const FORM: Form = Form {
    begin: "",
    open: "<tool_call>\n{\"name\": \"NAME\", \"arguments\": ",
    arguments: Arguments::Json,
    close: "}\n</tool_call>",
    between: Some("\n"),
    end: "",
};

const CODER_FORM: Form = Form {
    begin: "",
    open: "<tool_call>\n<function=NAME>\n",
    arguments: Arguments::Tags {
        text: "<parameter=KEY>\n",
        json: "<parameter=KEY>\n",
        close: "\n</parameter>\n",
    },
    close: "</function>\n</tool_call>",
    between: Some("\n"),
    end: "",
};

fn is_qwen_coder(evidence: &Evidence<'_>) -> bool {
    evidence.template_has("<function=") && evidence.template_has("<parameter=")
}

/// The tags of the `<function=…>` form.
const TAGS: Tags = Tags {
    function: FUNCTION,
    function_end: FUNCTION_END,
    parameter: PARAMETER,
    parameter_end: PARAMETER_END,
    calls: &[CALL],
    calls_end: &[CALL_END],
    in_body: &[FUNCTION, FUNCTION_END, PARAMETER, CALL, CALL_END],
    in_value: &[PARAMETER_END, FUNCTION_END, PARAMETER, CALL_END],
    in_line: &[PARAMETER_END, FUNCTION_END, PARAMETER, CALL_END],
    quoted: false,
};

fn tool_call(tools: &Arc<Tools>) -> Box<dyn Block> {
    Box::new(ToolCall {
        tools: Arc::clone(tools),
        inside: None,
    })
}

fn function(tools: &Arc<Tools>) -> Box<dyn Block> {
    Box::new(Tagged::function(&TAGS, tools, true))
}

/// What follows `<tool_call>`: JSON or tags.
#[derive(Debug)]
struct ToolCall {
    tools: Arc<Tools>,
    inside: Option<Box<dyn Block>>,
}

impl ToolCall {
    fn enter(
        &mut self,
        mut block: Box<dyn Block>,
        found: Found,
        raw: &[u8],
        out: &mut Out,
    ) -> Flow {
        let flow = block.push(found, raw, out);
        self.inside = Some(block);
        flow
    }
}

impl Block for ToolCall {
    fn wanted(&self) -> &'static [Mark] {
        match &self.inside {
            Some(block) => block.wanted(),
            None => &[CALL, CALL_END, FUNCTION],
        }
    }

    fn push(&mut self, found: Found, raw: &[u8], out: &mut Out) -> Flow {
        if let Some(block) = &mut self.inside {
            return block.push(found, raw, out);
        }
        match found {
            Found::Byte(b'{' | b'[') => {
                let rules = Rules {
                    open: Some(CALL),
                    wanted: &[CALL, CALL_END],
                    known_only: false,
                    tools: Arc::clone(&self.tools),
                };
                self.enter(Box::new(JsonCalls::new(rules)), found, raw, out)
            }
            Found::Mark(FUNCTION) => {
                let block = Tagged::calls(&TAGS, &self.tools);
                self.enter(Box::new(block), found, raw, out)
            }
            Found::Byte(byte) if !byte.is_ascii_whitespace() => Flow::Rejects { is_text: true },
            Found::Mark(CALL_END) => Flow::Rejects { is_text: false },
            Found::Nothing | Found::Byte(_) | Found::Mark(_) => Flow::Goes,
        }
    }

    fn is_quoting(&self) -> bool {
        self.inside.as_ref().is_some_and(|block| block.is_quoting())
    }

    fn end(&mut self, out: &mut Out) -> Flow {
        match &mut self.inside {
            Some(block) => block.end(out),
            None => Flow::Rejects { is_text: false },
        }
    }
}
