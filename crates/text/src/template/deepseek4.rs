//! DeepSeek V4's encoding of conversations, for model files without a template.
//!
//! ```text
//! BOS [effort] system [tools] <｜User｜>text<｜Assistant｜><think>thought</think>answer[calls]EOS<｜User｜>…<｜Assistant｜><think>
//! ```
//!
//! Nothing stands between the parts. Without thinking an answer begins with `</think>` alone. Results of tools are part of the user's
//! next message. Where implementations part, [`Choices`] says how it is written; the words for tools and effort are [`Prose`].
//!
//! In one thing this is stricter than the official encoding: every answer has its opening. There, one that does not
//! directly follow a user's message (two in a row, or one after a system message) goes without.
//!
//! Source: `encoding/encoding_dsv4.py` of the model's repository.

mod choices;
mod conversation;
mod prose;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub use choices::{Choices, choices};
pub use prose::Prose;

use choices::{DefaultThinking, Effort, Systems, ToolHistory, Tools, ToolsAlone};
use conversation::{Part, Turn};

use super::python;
use crate::chat::function;
use crate::tokenizer::{Fragment, SpecialTokens, TokenKind};
use crate::{ChatRequest, Message, Prompt, TextError, Tokenizer, ToolCall};

const BOS: &str = "<｜begin▁of▁sentence｜>";
const EOS: &str = "<｜end▁of▁sentence｜>";
const USER: &str = "<｜User｜>";
const ASSISTANT: &str = "<｜Assistant｜>";
const THINK: &str = "<think>";
const THINK_END: &str = "</think>";
const DSML: &str = "｜DSML｜";

/// What it is written with; the vocabulary must have them all.
pub(super) const TOKENS: [&str; 7] = [BOS, EOS, USER, ASSISTANT, THINK, THINK_END, DSML];

/// Between texts that are joined.
const GAP: &str = "\n\n";

/// The encoding, with its wording and choices.
#[derive(Debug)]
pub(super) struct DeepSeek4 {
    /// All control tokens, by their spelling.
    control: SpecialTokens,
    prose: Prose,
    choices: Choices,
}

impl DeepSeek4 {
    pub(super) fn new(
        tokenizer: &Tokenizer,
        prose: Prose,
        choices: Choices,
    ) -> Result<Self, TextError> {
        let control = || tokenizer.spellings(&[TokenKind::Control]);
        match TOKENS
            .iter()
            .find(|token| control().all(|(_, text)| text != **token))
        {
            Some(&token) => Err(TextError::MissingToken { token }),
            None => Ok(Self {
                control: SpecialTokens::new(control()),
                prose,
                choices,
            }),
        }
    }

    pub(super) fn render(&self, request: &ChatRequest) -> Prompt {
        let wish = Wish::of(&request.template_args, &self.choices);
        let has_tools = !request.tools.is_empty() || !request.loaded_tools.is_empty();
        let keeps = self.choices.tool_history == ToolHistory::Keep
            && conversation::has_results(&request.messages);
        let drops = wish.drops_thinking && !has_tools && !keeps;
        let mut turns = conversation::turns(&request.messages, &self.choices);
        if wish.thinks && drops {
            conversation::drop_developers(&mut turns);
        }
        let last_user = conversation::last_user(&turns);
        // Reasoning is kept behind the last user's message, or everywhere.
        let thinks_at = |turn: usize| {
            wish.thinks && (!drops || last_user.is_none_or(|last_user| turn > last_user))
        };
        let mut out = Out {
            encoding: self,
            prompt: Prompt::new(),
        };
        out.structure(BOS);
        if wish.thinks {
            out.structure(self.effort(wish.effort.as_deref()));
        }
        let systems = self.head(&turns);
        out.head(&turns[..systems], &request.tools);
        for (index, turn) in turns.iter().enumerate().skip(systems) {
            match turn {
                Turn::System(text) => out.text(text),
                Turn::Developer(text) => {
                    out.structure(USER);
                    out.text(text);
                }
                Turn::User(parts) => out.user(parts),
                Turn::Assistant(message) => {
                    out.open(thinks_at(index));
                    if thinks_at(index) {
                        out.text(message.reasoning.as_deref().unwrap_or_default());
                        out.structure(THINK_END);
                    }
                    let is_continued = request.continue_final_message && index + 1 == turns.len();
                    out.answer(message, is_continued);
                }
            }
        }
        if request.add_generation_prompt && !request.continue_final_message {
            out.open(wish.thinks);
        }
        out.prompt
    }

    /// How many of the first turns belong to the head of the prompt, which tells of the tools.
    fn head(&self, turns: &[Turn<'_>]) -> usize {
        let system = |turn: &Turn<'_>| matches!(turn, Turn::System(_));
        match self.choices.systems {
            Systems::InPlace => usize::from(turns.first().is_some_and(system)),
            Systems::Joined => turns.iter().take_while(|turn| system(turn)).count(),
        }
    }

    /// What says how hard to think.
    fn effort(&self, effort: Option<&str>) -> &str {
        match (self.choices.effort, effort) {
            (Effort::V4, Some("max")) | (Effort::V4_0731, Some("high")) => &self.prose.effort,
            (Effort::V4_0731, Some("max")) => &self.prose.effort_max,
            _ => "",
        }
    }
}

/// What a request says of thinking.
struct Wish {
    thinks: bool,
    drops_thinking: bool,
    effort: Option<String>,
}

impl Wish {
    fn of(args: &Map<String, Value>, choices: &Choices) -> Self {
        let flag = |name: &str| args.get(name).and_then(Value::as_bool);
        let thinks = flag("thinking").or_else(|| flag("enable_thinking"));
        let effort = args.get("reasoning_effort").and_then(Value::as_str);
        Self {
            thinks: thinks.unwrap_or(choices.thinking == DefaultThinking::On),
            drops_thinking: flag("drop_thinking").unwrap_or(true),
            effort: effort.map(str::to_owned),
        }
    }
}

/// A prompt under way.
struct Out<'e> {
    encoding: &'e DeepSeek4,
    prompt: Prompt,
}

impl Out<'_> {
    /// Text that somebody else wrote.
    fn text(&mut self, text: &str) {
        self.prompt.push_text(text);
    }

    /// The encoding's own text: spellings of control tokens are the tokens.
    fn structure(&mut self, text: &str) {
        let prompt = &mut self.prompt;
        let mut done = 0;
        self.encoding
            .control
            .fragments(text, |fragment| match fragment {
                Fragment::Text(part) => {
                    prompt.push_text(part);
                    done += part.len();
                }
                Fragment::Token { id, len } => {
                    prompt.push_control(id, &text[done..done + len]);
                    done += len;
                }
            });
    }

    /// System texts, and what is said of the tools.
    fn head(&mut self, systems: &[Turn<'_>], tools: &[Value]) {
        let choices = &self.encoding.choices;
        let first = choices.tools == Tools::BeforeSystem;
        if first {
            self.tools(tools);
        }
        let mut is_empty = !first || tools.is_empty();
        for turn in systems {
            let Turn::System(text) = turn else { continue };
            if !is_empty {
                self.text(GAP);
            }
            self.text(text);
            is_empty = false;
        }
        if !first && !tools.is_empty() {
            if !is_empty || choices.tools_alone == ToolsAlone::BlankLine {
                self.text(GAP);
            }
            self.tools(tools);
        }
    }

    fn tools(&mut self, tools: &[Value]) {
        if tools.is_empty() {
            return;
        }
        let [before, after] = &self.encoding.prose.tools;
        self.structure(before);
        let schemas: Vec<String> = tools.iter().map(schema).collect();
        self.text(&schemas.join("\n"));
        self.structure(after);
    }

    fn user(&mut self, parts: &[Part<'_>]) {
        self.structure(USER);
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                self.text(self.encoding.choices.gap_before(part));
            }
            match part {
                Part::Text(text) => self.text(text),
                Part::Result { text, .. } => {
                    self.structure("<tool_result>");
                    self.text(text);
                    self.structure("</tool_result>");
                }
            }
        }
    }

    /// The opening of an answer.
    fn open(&mut self, thinks: bool) {
        self.structure(ASSISTANT);
        self.structure(if thinks { THINK } else { THINK_END });
    }

    fn answer(&mut self, message: &Message, is_continued: bool) {
        self.text(message.content.as_deref().unwrap_or_default());
        if !message.tool_calls.is_empty() {
            self.structure("\n\n<｜DSML｜tool_calls>\n");
            for call in &message.tool_calls {
                self.call(call);
            }
            self.structure("</｜DSML｜tool_calls>");
        }
        if !is_continued {
            self.structure(EOS);
        }
    }

    fn call(&mut self, call: &ToolCall) {
        self.structure("<｜DSML｜invoke name=\"");
        self.text(&call.name);
        self.structure("\">\n");
        // What is no object, as where a call was cut, is an argument of this name.
        let arguments = match serde_json::from_str(&call.arguments) {
            Ok(Value::Object(arguments)) => arguments,
            _ => Map::from_iter([("arguments".to_owned(), call.arguments.clone().into())]),
        };
        for (key, value) in &arguments {
            self.structure("<｜DSML｜parameter name=\"");
            self.text(key);
            let (is_string, text) = match value {
                Value::String(text) => ("true", text.clone()),
                other => ("false", python::dumps(other)),
            };
            self.structure(&format!("\" string=\"{is_string}\">"));
            self.text(&text);
            self.structure("</｜DSML｜parameter>\n");
        }
        if arguments.is_empty() {
            self.text("\n");
        }
        self.structure("</｜DSML｜invoke>\n");
    }
}

/// A tool's definition as a line of JSON. A description that is empty was added for templates that want one.
fn schema(tool: &Value) -> String {
    let mut function = function(tool).clone();
    if let Value::Object(members) = &mut function
        && members.get("description").is_some_and(|text| text == "")
    {
        members.shift_remove("description");
    }
    python::dumps(&function)
}
