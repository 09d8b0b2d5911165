//! The form that an answer must have, and which tokens may come next in it.
//!
//! Grammars are compiled and followed by the `llguidance` crate, within limits on size, time and memory that are its own
//! and those here. Its errors come back in its words.

mod gbnf;
mod matcher;
mod schema;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::sync::Arc;

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{ParserFactory, panic_utils};
use serde_json::{Value, json};

pub use matcher::Matcher;
use vocabulary::Vocabulary;

use crate::{TextError, Tokenizer};

/// Bytes of a list of choices, or of a schema as JSON.
const MAX_BYTES: usize = 512 << 10;

/// Bytes of a regular expression or a grammar: a chain of as many rules as fit takes half a second.
const MAX_GRAMMAR_BYTES: usize = 128 << 10;

/// The form that an answer must have, as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Constraint {
    /// Any JSON object.
    JsonObject,
    /// JSON that a schema allows.
    JsonSchema {
        /// The schema.
        schema: Value,
        /// Whether keywords that cannot be enforced are an error; otherwise they mean nothing.
        strict: bool,
    },
    /// Text that a regular expression matches as a whole, in the syntax of the `regex-syntax` crate.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A grammar in the variant of Lark that `llguidance` documents.
    Lark(String),
    /// A grammar in llama.cpp's GBNF.
    Gbnf(String),
    /// A Lark grammar around another constraint.
    Framed {
        /// The grammar, in which `@answer` stands for the other constraint.
        frame: String,
        /// The other constraint.
        answer: Box<Self>,
    },
}

impl Constraint {
    /// The schema that it consists of, or that is within it, and whether that is strict.
    fn schema(&self) -> Option<(&Value, bool)> {
        match self {
            Self::JsonSchema { schema, strict } => Some((schema, *strict)),
            Self::Framed { answer, .. } => answer.schema(),
            _ => None,
        }
    }
}

/// Compiles constraints for one vocabulary.
pub struct ConstraintCompiler {
    factory: ParserFactory,
    twins: Arc<[(u32, u32)]>,
}

impl ConstraintCompiler {
    /// Sorts the vocabulary: some ten milliseconds for each ten thousand tokens.
    ///
    /// # Errors
    /// [`TextError::Unconstrainable`] for a vocabulary beyond the engine's limits.
    pub fn new(tokenizer: &Tokenizer) -> Result<Self, TextError> {
        let Vocabulary { environment, twins } = Vocabulary::new(tokenizer)?;
        let capabilities = InferenceCapabilities::default();
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&environment, capabilities, &slices)
            .map_err(|error| TextError::constraint(complaint(&error)))?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(Self { factory, twins })
    }

    /// The beginning of an answer under a constraint. Needs some ten megabytes of stack for the deepest grammars.
    ///
    /// # Errors
    /// [`TextError::Constraint`] for what does not parse, cannot be enforced, or goes beyond the limits.
    pub fn compile(&self, constraint: &Constraint) -> Result<Matcher, TextError> {
        let grammar = lower(constraint)?;
        let parser = self.factory.create_parser(grammar).map_err(|error| {
            let message = complaint(&error);
            let path = constraint
                .schema()
                .and_then(|(schema, strict)| schema::culprit(schema, strict, &message));
            TextError::Constraint { message, path }
        })?;
        Ok(Matcher::new(
            llguidance::Matcher::new(Ok(parser)),
            Arc::clone(&self.twins),
        ))
    }
}

impl std::fmt::Debug for ConstraintCompiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConstraintCompiler").finish_non_exhaustive()
    }
}

/// The engine's usual limits, but for its memory, since a lexer state takes 1 to 2 kB, and for ambiguous grammars, each token
/// of which takes time by the square of a row.
fn limits() -> ParserLimits {
    ParserLimits {
        max_items_in_row: 1000,
        max_lexer_states: 30_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// The constraint in the engine's terms.
fn lower(constraint: &Constraint) -> Result<TopLevelGrammar, TextError> {
    let check = |bytes: usize, most: usize| {
        if bytes > most {
            let message = format!("it is larger than {most} bytes");
            return Err(TextError::constraint(message));
        }
        Ok(())
    };
    Ok(match constraint {
        Constraint::JsonObject => {
            TopLevelGrammar::from_json_schema(schema::prepared(&json!({"type": "object"}), true))
        }
        Constraint::JsonSchema { schema, strict } => {
            check(schema.to_string().len(), MAX_BYTES)?;
            TopLevelGrammar::from_json_schema(schema::prepared(schema, *strict))
        }
        Constraint::Regex(regex) => {
            check(regex.len(), MAX_GRAMMAR_BYTES)?;
            TopLevelGrammar::from_regex(regex)
        }
        Constraint::Choice(choices) => {
            check(choices.iter().map(String::len).sum(), MAX_BYTES)?;
            TopLevelGrammar::from_lark(choice(choices)?)
        }
        Constraint::Lark(grammar) => {
            check(grammar.len(), MAX_GRAMMAR_BYTES)?;
            TopLevelGrammar::from_lark(grammar.clone())
        }
        Constraint::Gbnf(grammar) => {
            check(grammar.len(), MAX_GRAMMAR_BYTES)?;
            TopLevelGrammar::from_lark(gbnf::to_lark(grammar)?)
        }
        Constraint::Framed { frame, answer } => {
            check(frame.len(), MAX_GRAMMAR_BYTES)?;
            let mut whole = TopLevelGrammar::from_lark(frame.clone());
            for mut inner in lower(answer)?.grammars {
                inner.name = Some("answer".to_owned());
                whole.grammars.push(inner);
            }
            whole
        }
    })
}

/// One terminal, so that of two choices of which one begins the other both are reached.
fn choice(choices: &[String]) -> Result<String, TextError> {
    if choices.is_empty() {
        return Err(TextError::constraint("there is nothing to choose"));
    }
    let texts: Vec<String> = choices.iter().map(|text| literal(text)).collect();
    Ok(format!("start: CHOICE\nCHOICE: {}\n", texts.join(" | ")))
}

/// A schema as a part of a Lark grammar.
pub(crate) fn embedded(schema: &Value, strict: bool) -> String {
    format!("%json {}", schema::prepared(schema, strict))
}

/// A text as a literal of Lark.
pub(crate) fn literal(text: &str) -> String {
    // JSON's escapes are Lark's, which wants DEL escaped too.
    Value::from(text).to_string().replace('\x7f', "\\u007f")
}

/// Whether the engine can make a grammar of it, and if not why; much less work than compiling it.
fn validate(grammar: TopLevelGrammar) -> Result<(), String> {
    let init = llguidance::api::GrammarInit::Serialized(grammar);
    let attempt = || init.to_internal(None, limits()).map(|_| ());
    panic_utils::catch_unwind(std::panic::AssertUnwindSafe(attempt))
        .map_err(|error| complaint(&error))
}

/// The engine's complaint without its marks of what it leaves out, and without the trace of a panic.
fn complaint(error: &impl std::fmt::Display) -> String {
    let message = error.to_string();
    if message.starts_with("panic:") {
        return "the grammar engine cannot process it".to_owned();
    }
    match message.find("\n<") {
        Some(end) => message[..end].to_owned(),
        None => message,
    }
}
