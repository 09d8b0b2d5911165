//! Chat templates: how a conversation becomes a prompt. A model file brings one in Jinja (`jinja`); DeepSeek V4 came without, so
//! its encoding is built in (`deepseek4`).
//!
//! Either way only the template's own text produces control tokens: what users, tools and models wrote is text.

mod codes;
mod deepseek4;
mod fallback;
mod jinja;
mod messages;
mod python;
mod source;
#[cfg(test)]
mod tests;

use andante_gguf::Metadata;

use deepseek4::DeepSeek4;
pub use deepseek4::{Choices, Prose, choices};
use jinja::Jinja;

use crate::{ChatRequest, Prompt, TextError, Tokenizer};

/// How a model's conversations are written.
#[derive(Debug)]
pub struct ChatTemplate(Kind);

#[derive(Debug)]
enum Kind {
    Jinja(Box<Jinja>),
    DeepSeek4(Box<DeepSeek4>),
}

impl ChatTemplate {
    /// The template of a model file: its own (`tokenizer.chat_template`, and its `tool_use` variant), or else the encoding that is
    /// built in for its architecture; `None` where there is neither.
    ///
    /// # Errors
    /// A template that does not parse; a vocabulary that lacks a token of the built-in encoding.
    pub fn from_metadata(
        metadata: &Metadata,
        tokenizer: &Tokenizer,
    ) -> Result<Option<Self>, TextError> {
        if let Some(own) = Jinja::from_metadata(metadata, tokenizer)? {
            return Ok(Some(Self(Kind::Jinja(Box::new(own)))));
        }
        match metadata.str("general.architecture")? {
            Some("deepseek4") => {
                Self::deepseek4(tokenizer, Prose::default(), Choices::default()).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Compiles a template for a vocabulary.
    ///
    /// # Errors
    /// A template that does not parse.
    pub fn new(source: &str, tokenizer: &Tokenizer) -> Result<Self, TextError> {
        let template = Jinja::build(source, None, tokenizer)?;
        Ok(Self(Kind::Jinja(Box::new(template))))
    }

    /// DeepSeek V4's encoding, with this wording and these choices.
    ///
    /// # Errors
    /// A vocabulary that lacks a token of it.
    pub fn deepseek4(
        tokenizer: &Tokenizer,
        prose: Prose,
        choices: Choices,
    ) -> Result<Self, TextError> {
        let encoding = DeepSeek4::new(tokenizer, prose, choices)?;
        Ok(Self(Kind::DeepSeek4(Box::new(encoding))))
    }

    /// The template as the model file has it; nothing where it is built in.
    #[must_use]
    pub fn source(&self) -> &str {
        match &self.0 {
            Kind::Jinja(template) => template.source(),
            Kind::DeepSeek4(_) => "",
        }
    }

    /// Whether it writes the token or text.
    #[must_use]
    pub fn contains(&self, text: &str) -> bool {
        match &self.0 {
            Kind::Jinja(template) => template.contains(text),
            Kind::DeepSeek4(_) => deepseek4::TOKENS.iter().any(|token| token.contains(text)),
        }
    }

    /// Whether it tells the model of the request's tools.
    #[must_use]
    pub fn knows_tools(&self) -> bool {
        match &self.0 {
            Kind::Jinja(template) => template.knows_tools(),
            Kind::DeepSeek4(_) => true,
        }
    }

    /// Renders a conversation. Where the template knows no tools and the request has some, the model is told of them in our
    /// own words, and earlier calls and results become text of the form that it is asked to write (`fallback`).
    ///
    /// # Errors
    /// What the template raised, with its line, or that it used up its fuel.
    pub fn render(&self, request: &ChatRequest) -> Result<Prompt, TextError> {
        match &self.0 {
            Kind::Jinja(template) => template.render(request),
            Kind::DeepSeek4(encoding) => Ok(encoding.render(request)),
        }
    }
}
