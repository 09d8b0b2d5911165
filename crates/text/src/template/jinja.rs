//! Templates in Jinja, as transformers renders them, with one guarantee added.
//!
//! **Only the template's own text produces control tokens.** Users' strings reach the template as they are, so tests such as
//! `'</think>' in content` and every cut, slice and join work; what cannot happen is that they become structure. For this the *template* is
//! changed, not the users' text: before compiling, each complete spelling of a control token in the template's source (and in
//! `bos_token` and `eos_token`) is replaced by a single private character. In the rendered text these characters are the control tokens, and
//! everything else is encoded as plain text. A user who writes `<|im_end|>`, or whose text completes a spelling that the template began, only
//! wrote text. Characters of that private range in users' strings are escaped and restored (`codes`).
//!
//! Two kinds of literals need care (`source`). A literal that is only searched for (`'<x>' in content`, `content.split('<x>')`)
//! stays a plain string, since that is what it must find. A token spelt around a role (`'<|' + message['role'] + '|>'`) becomes a call that
//! gives the control token for the five roles, which are never a user's words. A template that builds a control token in any other way
//! gets plain text. User-defined tokens that are not control tokens are found in all text, as llama.cpp does.
//!
//! **Shapes a template refuses.** Many templates raise on system messages in the middle or on two messages of one role. When rendering fails,
//! it is tried again with tool arguments as text, then with the conversation folded into strict turns, then with the system
//! message folded into the first user message; the first error is reported when all fail.
//!
//! A template's work and memory are bounded by fuel that grows with the request.

use andante_gguf::{Metadata, Value as MetadataValue};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Output, State, Value, context};

use super::codes::{CUT, Codes};
use super::messages::{self, Arguments, Form};
use super::source::{Frame, ROLE_TOKEN, ROLES, rewrite};
use super::{fallback, python};

use crate::tokenizer::TokenKind;
use crate::{ChatRequest, Message, Prompt, TextError, Tokenizer};

/// The name under which errors know the template.
const DEFAULT: &str = "chat_template";
/// The template for requests with tools, where a model has one of its own.
const TOOL_USE: &str = "tool_use";

/// What a template may do before anything of the request is counted, in minijinja's fuel: about one instruction or 64 bytes each.
const BASE_FUEL: u64 = 2_000_000;
/// Fuel for each message.
const MESSAGE_FUEL: u64 = 5_000;

/// A compiled template.
#[derive(Debug)]
pub(super) struct Jinja {
    source: String,
    environment: Environment<'static>,
    codes: Codes,
    bos: String,
    eos: String,
    /// The source of the variant for requests with tools; empty where there is none.
    tool_use: String,
}

impl Jinja {
    /// The template of a model file (`tokenizer.chat_template`), and its `tool_use` variant; `None` when it has none.
    ///
    /// # Errors
    /// A template that does not parse.
    pub(super) fn from_metadata(
        metadata: &Metadata,
        tokenizer: &Tokenizer,
    ) -> Result<Option<Self>, TextError> {
        let named = "tokenizer.chat_template.tool_use";
        let tool_use = match metadata.get(named) {
            Some(MetadataValue::String(_)) => metadata.str(named)?,
            _ => None,
        };
        metadata
            .str("tokenizer.chat_template")?
            .map(|source| Self::build(source, tool_use, tokenizer))
            .transpose()
    }

    /// Compiles a template for a vocabulary, and its variant for requests with tools.
    pub(super) fn build(
        source: &str,
        tool_use: Option<&str>,
        tokenizer: &Tokenizer,
    ) -> Result<Self, TextError> {
        let kinds = [TokenKind::Control, TokenKind::Unknown];
        let control: Vec<(u32, &str)> = tokenizer.spellings(&kinds).collect();
        let texts: Vec<&str> = control.iter().map(|&(_, text)| text).collect();
        let mut codes = Codes::new(control.iter().copied());
        let mut environment = environment();
        let mut frames = Vec::new();
        for (name, source) in [(DEFAULT, Some(source)), (TOOL_USE, tool_use)] {
            if let Some(source) = source {
                let source = rewrite(source, &texts, &mut codes, &mut frames);
                environment
                    .add_template_owned(name, source)
                    .map_err(|error| template_error(&error))?;
            }
        }
        let spelling = |id: Option<u32>| {
            let bytes = id.map_or(&[][..], |id| tokenizer.piece(id));
            String::from_utf8_lossy(bytes).into_owned()
        };
        let bos = codes.encode(&spelling(tokenizer.bos()));
        let eos = codes.encode(&spelling(tokenizer.eos()));
        add_role_tokens(&mut environment, &frames, &mut codes);
        Ok(Self {
            source: source.to_owned(),
            environment,
            codes,
            bos,
            eos,
            tool_use: tool_use.unwrap_or_default().to_owned(),
        })
    }

    /// The template as the model file has it.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// Whether a text occurs in it.
    pub(super) fn contains(&self, text: &str) -> bool {
        self.source.contains(text) || self.tool_use.contains(text)
    }

    /// Whether it tells the model of the request's tools.
    pub(super) fn knows_tools(&self) -> bool {
        self.source.contains("tools") || !self.tool_use.is_empty()
    }

    /// Renders a conversation. Where the template knows no tools and the request has some, the model is told of them in our
    /// own words, and earlier calls and results become text of the form that it is asked to write (`fallback`).
    ///
    /// # Errors
    /// What the template raised, with its line, or that it used up its fuel.
    pub(super) fn render(&self, request: &ChatRequest) -> Result<Prompt, TextError> {
        if !request.tools.is_empty() && !self.knows_tools() {
            return self.render_as_is(&fallback::without_tools(request));
        }
        self.render_as_is(request)
    }

    fn render_as_is(&self, request: &ChatRequest) -> Result<Prompt, TextError> {
        let form = |arguments| Form {
            developer: self.source.contains("developer"),
            thinking: self.source.contains("message.thinking"),
            nine_digits: self.source.replace(' ', "").contains("|length!=9"),
            arguments,
        };
        let first = match self.try_render(request, &request.messages, form(Arguments::Parsed)) {
            Ok(prompt) => return Ok(prompt),
            Err(error) => error,
        };
        let folded = messages::fold(&request.messages);
        let without_system = messages::fold_system(&request.messages);
        let others = [
            (&request.messages, Arguments::Text),
            (&request.messages, Arguments::Object),
            (&folded, Arguments::Parsed),
            (&without_system, Arguments::Parsed),
            (&without_system, Arguments::Text),
        ];
        others
            .into_iter()
            .find_map(|(messages, arguments)| {
                self.try_render(request, messages, form(arguments)).ok()
            })
            .ok_or_else(|| template_error(&first))
    }

    /// Makes the highest effort the one below it, where the template does not know it.
    fn lower(&self, effort: &mut serde_json::Value) {
        let known = ["'max'", "\"max\""].iter().any(|word| self.contains(word));
        if *effort == "max" && !known {
            *effort = "high".into();
        }
    }

    fn try_render(
        &self,
        request: &ChatRequest,
        messages: &[Message],
        form: Form,
    ) -> Result<Prompt, Error> {
        let name = match self.environment.get_template(TOOL_USE) {
            Ok(_) if !request.tools.is_empty() => TOOL_USE,
            _ => DEFAULT,
        };
        let tools = match &request.tools[..] {
            [] => Value::from(()),
            tools => tools
                .iter()
                .map(|tool| template_value(&messages::user_value(tool)))
                .collect(),
        };
        let mut arguments = request.template_args.clone();
        // Two names of one switch: Qwen's and GLM's, DeepSeek's and Granite's.
        if let Some(on) = arguments.get("enable_thinking").cloned() {
            arguments.entry("thinking").or_insert(on);
        }
        if let Some(effort) = arguments.get_mut("reasoning_effort") {
            self.lower(effort);
        }
        let arguments = serde_json::Value::Object(arguments);
        let continued = request.continue_final_message;
        let mut messages_json = messages::to_json(messages, form);
        if continued {
            messages::push_to_last(&mut messages_json, CUT);
        }
        let context = context! {
            messages => template_value(&messages_json),
            tools,
            add_generation_prompt => request.add_generation_prompt && !continued,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
            ..template_value(&messages::user_value(&arguments))
        };
        let mut environment = self.environment.clone();
        let count = messages.len() as u64;
        environment.set_fuel(Some(
            BASE_FUEL + count * MESSAGE_FUEL + messages::size(request),
        ));
        let text = environment.get_template(name)?.render(context)?;
        if !continued {
            return Ok(self.codes.decode(&text));
        }
        let cut = text.rfind(CUT).ok_or_else(|| {
            let why = "it leaves out the last message's end, so the answer cannot go on with it";
            Error::new(ErrorKind::InvalidOperation, why)
        })?;
        Ok(self.codes.decode(&text[..cut]))
    }
}

/// The Jinja dialect of transformers.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    environment.set_syntax(syntax.expect("the usual delimiters are valid"));
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(
        |out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value| {
            out.write_str(&python::str(value)?).map_err(Error::from)
        },
    );
    environment.add_filter("tojson", python::tojson);
    environment.add_filter("string", |value: &Value| python::str(value));
    environment.add_function("raise_exception", python::raise_exception);
    environment.add_function("strftime_now", python::strftime_now);
    environment
}

/// The function that rewritten templates call for a token spelt around a role.
fn add_role_tokens(environment: &mut Environment<'static>, frames: &[Frame], codes: &mut Codes) {
    let spelt = |role: &str, (before, after): &Frame| format!("{before}{role}{after}");
    let tokens: Vec<[String; ROLES.len()]> = frames
        .iter()
        .map(|frame| ROLES.map(|role| codes.encode(&spelt(role, frame))))
        .collect();
    let frames = frames.to_vec();
    environment.add_function(ROLE_TOKEN, move |role: String, frame: usize| {
        match ROLES.iter().position(|&known| known == role) {
            Some(index) => tokens.get(frame).map(|tokens| tokens[index].clone()),
            None => frames.get(frame).map(|frame| spelt(&role, frame)),
        }
    });
}

fn template_value(json: &serde_json::Value) -> Value {
    Value::from(Serde(json))
}

fn template_error(error: &Error) -> TextError {
    TextError::Template {
        line: error.line(),
        message: match error.detail() {
            Some(detail) => detail.to_owned(),
            None => error.kind().to_string(),
        },
    }
}
