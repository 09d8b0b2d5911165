//! A request that has passed every check: what `prepare` makes and `submit` takes.

use std::sync::Arc;

use andante_model::Pooling;
use andante_sched::Priority;
use andante_text::Opening;

use crate::constraints::Form;
use crate::sampling::Sampling;
use crate::tenant::Tenant;

/// A prompt in tokens with its sampling, checked against the model and the context.
#[derive(Debug, Clone)]
pub struct Request {
    pub(crate) prompt: Arc<[u32]>,
    pub(crate) sampling: Sampling,
    /// The form that was asked for.
    pub(crate) constraint: Option<Form>,
    /// The most tokens to generate: what was asked, less what the context does not hold.
    pub(crate) max_new: u32,
    pub(crate) seed: u64,
    pub(crate) tenant: Tenant,
    pub(crate) priority: Priority,
    /// Its prefix is shared only with requests of the same salt.
    pub(crate) salt: u64,
    /// How its hidden states become one, if it is to be an embedding.
    pub(crate) pooling: Option<Pooling>,
    /// How its answer is to be read, if it answers a conversation.
    pub(crate) opening: Option<Opening>,
    /// The client is told how far the prompt has come.
    pub(crate) reports_progress: bool,
    /// What the log calls it.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) traits: Traits,
}

/// What a request asks for beside an answer, for the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Traits {
    /// It offers tools.
    pub(crate) tools: bool,
    /// Its answer begins with reasoning.
    pub(crate) thinking: bool,
    /// Its answer has a form.
    pub(crate) form: bool,
}

impl Request {
    /// Tokens of the prompt.
    #[must_use]
    pub fn prompt_tokens(&self) -> u32 {
        u32::try_from(self.prompt.len()).expect("a prompt fits the context")
    }

    /// The seed in force, given or drawn.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The same request with other random numbers, for several answers to one prompt.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether there are to be [`Event::Progress`](crate::Event::Progress) events, after each step that computes a part of the prompt
    /// and does not end it; without this there are none.
    #[must_use]
    pub fn with_progress(mut self, reports: bool) -> Self {
        self.reports_progress = reports;
        self
    }

    /// Says whose the request is, and its weight among its tenant's own; without this it is the default tenant's, and `Normal`.
    pub fn set_account(&mut self, tenant: Tenant, priority: Priority) {
        self.tenant = tenant;
        self.priority = priority;
    }

    /// Says what the log shall call the request; without this it has a number.
    pub fn set_name(&mut self, name: Arc<str>) {
        self.name = Some(name);
    }
}

/// A prompt that is not a conversation.
#[derive(Debug, Clone)]
pub enum PromptInput {
    /// Text, tokenised as it is; control tokens in it stay text.
    Text(String),
    /// Token ids.
    Tokens(Vec<u32>),
}
