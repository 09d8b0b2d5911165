//! What a model is told to write whose template knows no tools: JSON in `<tool_call>` tags. The forms that models fall back to
//! are read as well: JSON in a fence or alone, if it calls one of the request's tools.

use std::sync::Arc;

use super::Syntax;
use super::block::{Block, Tools};
use super::fences::{self, JSON, THINK, THINK_END, TOOL_CALL, TOOL_CODE};
use super::hermes;
use super::json::{JsonCalls, Rules};
use super::marks::Mark;

const CALL: Mark = Mark(6);
const CALL_END: Mark = Mark(7);

pub(super) const GENERIC: Syntax = Syntax {
    names: &["generic", "json"],
    marks: &[
        fences::MARKS[0],
        fences::MARKS[1],
        fences::MARKS[2],
        fences::MARKS[3],
        fences::MARKS[4],
        fences::MARKS[5],
        "<tool_call>",
        "</tool_call>",
    ],
    thinks: &[(THINK, THINK_END)],
    blocks: &[
        (JSON, fences::json),
        (TOOL_CALL, fences::json),
        (TOOL_CODE, fences::tool_code),
        (CALL, tool_call),
    ],
    bare: Some(fences::json),
    closers: &[CALL_END],
    forms: &[("", hermes::FORM)],
    is_written_in: |_| true,
    ..Syntax::PLAIN
};

fn tool_call(tools: &Arc<Tools>) -> Box<dyn Block> {
    Box::new(JsonCalls::new(Rules {
        open: Some(CALL),
        wanted: &[CALL, CALL_END],
        known_only: false,
        tools: Arc::clone(tools),
    }))
}
