//! The engine from outside: prepare a request on the caller's thread, submit it, watch the engine.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use andante_model::{KvLayout, ModelInfo, Pooling};
use andante_sched::{PrefixMap, Priority, Scheduler};
use andante_text::{
    ChatRequest, ChatTemplate, Dialect, Opening, Prompt, Tokenizer, ToolChoice, replay,
};

use crate::clock::Clock;
use crate::config::EngineConfig;
use crate::constraints::{Constraints, Form};
use crate::error::{RequestError, SubmitError};
use crate::event::{self, EventStream};
use crate::mailbox::{Command, Mailbox, Shutdown, Submission};
use crate::places::Places;
use crate::request::{PromptInput, Request, Traits};
use crate::sampling::{Constrained, Sampling};
use crate::seal::{self, Seal};
use crate::spellings::Spellings;
use crate::status::Status;
use crate::store::Holdings;
use crate::tenant::{self, Tenant};
use crate::timeline::{Timeline, TimelineReader};
use crate::turns::Turns;

/// A way to one engine; clones lead to the same one. The engine ends when the last handle and the last stream are gone.
#[derive(Clone)]
pub struct EngineHandle {
    shared: Arc<Shared>,
    mailbox: Mailbox,
    /// What requests prepared with this handle share their prefixes by.
    salt: u64,
}

impl EngineHandle {
    pub(crate) fn new(shared: Arc<Shared>, mailbox: Mailbox) -> Self {
        Self {
            shared,
            mailbox,
            salt: 0,
        }
    }

    /// A handle whose requests share prefixes only with each other and those of handles of the same salt; 0 is the salt of
    /// all others.
    #[must_use]
    pub fn with_salt(&self, salt: u64) -> Self {
        Self {
            salt,
            ..self.clone()
        }
    }

    /// Renders and tokenises a conversation and checks the request, on the caller's thread.
    ///
    /// # Errors
    /// [`RequestError`]: no template, a template that fails, a parameter out of range, a prompt that does not fit, a form of
    /// the answer that cannot be enforced.
    pub fn prepare_chat(
        &self,
        chat: &ChatRequest,
        mut sampling: Sampling,
    ) -> Result<Request, RequestError> {
        let (prompt, opening) = self.render_under(chat, self.salt_of(&sampling))?;
        let whole = self.constrain_calls(chat, &opening, &mut sampling)?;
        let mut request = self.prepare(self.encode(&prompt, &sampling), sampling)?;
        if let Some(form) = &mut request.constraint {
            form.whole = whole;
        }
        request.traits.tools = !chat.callable_tools().is_empty();
        request.traits.thinking = opening.is_thinking();
        request.opening = Some(opening);
        Ok(request)
    }

    /// Puts the constraint that the request's tools ask for in the place of the one on its text. Whether there is one.
    fn constrain_calls(
        &self,
        chat: &ChatRequest,
        opening: &Opening,
        sampling: &mut Sampling,
    ) -> Result<bool, RequestError> {
        let answer = sampling.constraint.as_ref().map(|asked| &asked.constraint);
        let tokenizer = &self.shared.text.tokenizer;
        let calls = opening.calls(chat, answer, tokenizer);
        let name = "tool_choice";
        let calls = calls.map_err(|error| RequestError::Constraint { name, error })?;
        let Some(constraint) = calls else {
            return Ok(false);
        };
        let asked = answer.is_some()
            || matches!(
                chat.tool_choice,
                ToolChoice::Required | ToolChoice::Named(_)
            );
        if !asked && !chat.callable_tools().iter().any(andante_text::is_strict) {
            // Nobody has asked for arguments that fit: tools beyond the compiler are no reason to refuse them.
            let salt = self.salt_of(sampling);
            if self.shared.constraints.compile(salt, &constraint).is_err() {
                return Ok(false);
            }
        }
        let name = "tools";
        sampling.constraint = Some(Constrained { constraint, name });
        Ok(true)
    }

    /// Tokenises a text, or takes tokens as they are, and checks the request, on the caller's thread. A text begins with
    /// the model's begin-of-sequence token when the model asks for one.
    ///
    /// # Errors
    /// [`RequestError`]: an unknown token, a parameter out of range, a prompt that does not fit, a form of the answer that
    /// cannot be enforced.
    pub fn prepare_text(
        &self,
        prompt: PromptInput,
        sampling: Sampling,
    ) -> Result<Request, RequestError> {
        let tokens = match prompt {
            PromptInput::Tokens(tokens) => tokens,
            PromptInput::Text(text) => {
                let mut prompt = Prompt::new();
                prompt.push_text(&text);
                self.encode(&prompt, &sampling)
            }
        };
        self.prepare(tokens, sampling)
    }

    /// Tokenises a text, or takes tokens as they are, for one [`Event::Embedding`](crate::Event::Embedding) in place of an answer.
    ///
    /// # Errors
    /// Those of [`prepare_text`](Self::prepare_text).
    pub fn prepare_embedding(&self, text: PromptInput) -> Result<Request, RequestError> {
        let pooling = self.shared.pooling;
        let sampling = Sampling {
            max_tokens: Some(1),
            // What is found in the cache has no hidden states, and only the last token's are computed all the same.
            cache_prompt: pooling == Pooling::Last,
            ..Sampling::default()
        };
        // Spelt as the tokenizer does: the vector of a text is not to depend on what was said before.
        let tokens = match text {
            PromptInput::Tokens(tokens) => tokens,
            PromptInput::Text(text) => {
                let mut prompt = Prompt::new();
                prompt.push_text(&text);
                prompt.encode(&self.shared.text.tokenizer)
            }
        };
        let mut request = self.prepare(tokens, sampling)?;
        request.pooling = Some(pooling);
        Ok(request)
    }

    /// A conversation as the chat template writes it. Tools that must not be called are left out.
    ///
    /// # Errors
    /// [`RequestError`]: no template, a template that fails.
    pub fn render(&self, chat: &ChatRequest) -> Result<Prompt, RequestError> {
        Ok(self.render_under(chat, self.salt)?.0)
    }

    /// The prompt, what was sampled before in its place, and what it says of its answer.
    fn render_under(
        &self,
        chat: &ChatRequest,
        salt: u64,
    ) -> Result<(Prompt, Opening), RequestError> {
        let text = &self.shared.text;
        let template = text.template.as_ref().ok_or(RequestError::NoTemplate)?;
        let mut chat = Cow::Borrowed(chat);
        if chat.tool_choice == ToolChoice::None && !chat.tools.is_empty() {
            chat.to_mut().tools.clear();
        }
        let turns = if self.shared.turns.is_empty() {
            Vec::new()
        } else {
            self.shared.turns.find(salt, chat.to_mut())
        };
        let prompt = template.render(&chat)?;
        let opening = text.dialect.opening(&chat.callable_tools(), &prompt);
        if turns.is_empty() {
            return Ok((prompt, opening));
        }
        let prompt = replay(&prompt, &turns, &opening, &text.tokenizer);
        Ok((prompt, opening))
    }

    /// The tokens of a conversation, whether they fit the context or not.
    ///
    /// # Errors
    /// [`RequestError`]: no template, a template that fails.
    pub fn count_tokens(&self, chat: &ChatRequest) -> Result<usize, RequestError> {
        let prompt = self.render(chat)?;
        Ok(self.encode(&prompt, &Sampling::default()).len())
    }

    /// The tokens of a prompt, spelt as before where it was said before.
    fn encode(&self, prompt: &Prompt, sampling: &Sampling) -> Vec<u32> {
        let tokenizer = &self.shared.text.tokenizer;
        if sampling.cache_prompt {
            let salt = self.salt_of(sampling);
            self.shared.spellings.encode(prompt, tokenizer, salt)
        } else {
            prompt.encode(tokenizer)
        }
    }

    fn salt_of(&self, sampling: &Sampling) -> u64 {
        match &sampling.cache_salt {
            Some(own) => tenant::salt(self.salt, own),
            None => self.salt,
        }
    }

    fn prepare(&self, prompt: Vec<u32>, mut sampling: Sampling) -> Result<Request, RequestError> {
        let (vocab, salt) = (self.shared.info.vocab, self.salt_of(&sampling));
        sampling.check(vocab)?;
        if prompt.is_empty() {
            return Err(RequestError::EmptyPrompt);
        }
        if let Some(&token) = prompt.iter().find(|&&token| token as usize >= vocab) {
            return Err(RequestError::UnknownToken { token, vocab });
        }
        let context = self.shared.context;
        let room = u32::try_from(prompt.len())
            .ok()
            .and_then(|tokens| context.checked_sub(tokens))
            .unwrap_or(0);
        if room == 0 {
            return Err(RequestError::ContextLength {
                prompt_tokens: prompt.len(),
                context,
            });
        }
        sampling.max_tokens = sampling.max_tokens.or(self.shared.answer_tokens);
        sampling.reasoning_budget = sampling.reasoning_budget.or(self.shared.reasoning_tokens);
        let form = sampling.constraint.is_some();
        let constraint = match sampling.constraint.take() {
            Some(Constrained { constraint, name }) => {
                let compiled = self.shared.constraints.compile(salt, &constraint);
                Some(Form {
                    start: compiled.map_err(|error| RequestError::Constraint { name, error })?,
                    whole: false,
                })
            }
            None => None,
        };
        Ok(Request {
            prompt: prompt.into(),
            constraint,
            max_new: sampling.max_tokens.map_or(room, |asked| asked.min(room)),
            seed: sampling.seed.unwrap_or_else(random_seed),
            sampling,
            tenant: Tenant::default(),
            priority: Priority::default(),
            salt,
            pooling: None,
            opening: None,
            reports_progress: false,
            name: None,
            traits: Traits {
                form,
                ..Traits::default()
            },
        })
    }

    /// Hands a request to the engine. Never waits.
    ///
    /// # Errors
    /// [`SubmitError`] when the queue is full or the engine takes nothing new.
    pub fn submit(&self, request: Request) -> Result<EventStream, SubmitError> {
        match self.health() {
            Health::Ready => {}
            Health::Draining => return Err(SubmitError::ShuttingDown),
            Health::Stopped | Health::Failed => return Err(SubmitError::Dead),
        }
        let Some(permit) = self.shared.places.take() else {
            self.shared.status().refused += 1;
            return Err(SubmitError::QueueFull {
                retry_after_s: self.retry_after_s(),
            });
        };
        let id = self.shared.next_id();
        let (sink, stream) = event::ring(id, self.shared.ring_events, self.mailbox.clone(), permit);
        let submitted_us = self.shared.clock.now_us();
        let submission = Submission {
            id,
            request,
            sink,
            submitted_us,
        };
        if self.mailbox.send(Command::Submit(Box::new(submission))) {
            Ok(stream)
        } else {
            Err(SubmitError::Dead)
        }
    }

    /// The most requests inside at once, running and waiting: more choices than that can never be answered together.
    #[must_use]
    pub fn max_inside(&self) -> u32 {
        self.shared.places.most()
    }

    /// The engine's estimate of when a place in the queue will be free, in seconds, at least 1.
    #[must_use]
    pub fn retry_after_s(&self) -> u32 {
        self.shared.retry_after_s.load(Ordering::Relaxed).max(1)
    }

    /// Whether the engine works.
    #[must_use]
    pub fn health(&self) -> Health {
        Health::from_code(self.shared.health.load(Ordering::Acquire))
    }

    /// Counters and configuration as of the last step.
    #[must_use]
    pub fn status(&self) -> Status {
        let mut status = self.shared.status().clone();
        status.health = self.health();
        status
    }

    /// What happens from now on, and what the engine still knows of before.
    #[must_use]
    pub fn timeline(&self) -> TimelineReader {
        TimelineReader::new(Arc::clone(&self.shared.timeline))
    }

    /// The time now, by the clock that the engine counts by.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.shared.clock.now_us()
    }

    /// The number by which a timeline tells a tenant, or a map of prefixes a salt, from others. Another run of the engine has another one
    /// for it, and nothing can be concluded from it.
    #[must_use]
    pub fn pseudonym(&self, of: u64) -> u32 {
        self.shared.pseudonym(of)
    }

    /// Which prefixes memory holds, and what knows which of them the store has, if there is one. Waits until the engine is between two
    /// steps; `None` if it has ended.
    #[must_use]
    pub fn prefix_map(&self) -> Option<(PrefixMap, Option<Holdings>)> {
        let (answer, map) = std::sync::mpsc::channel();
        self.mailbox.send(Command::Map(answer));
        map.recv().ok()
    }

    /// [`Self::status`] for who must not wait, since the engine may be what has stopped; `None` when another is just looking.
    #[must_use]
    pub fn try_status(&self) -> Option<Status> {
        let mut status = match self.shared.status.try_lock() {
            Ok(status) => status.clone(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().clone(),
            Err(TryLockError::WouldBlock) => return None,
        };
        status.health = self.health();
        Some(status)
    }

    /// For how long the step in flight has been under way; `None` between steps. One that takes minutes will never end.
    #[must_use]
    pub fn step_age(&self) -> Option<Duration> {
        let began_us = self.shared.step_began_us.load(Ordering::Relaxed);
        let now_us = self.shared.clock.now_us();
        (began_us > 0).then(|| Duration::from_micros(now_us.saturating_sub(began_us)))
    }

    /// Facts about the model.
    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.shared.info
    }

    /// Tokens that one sequence may hold, prompt and answer together.
    #[must_use]
    pub fn context(&self) -> u32 {
        self.shared.context
    }

    /// How the model writes tool calls and reasoning.
    #[must_use]
    pub fn dialect(&self) -> &Dialect {
        &self.shared.text.dialect
    }

    /// The model's tokenizer.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.shared.text.tokenizer
    }

    /// An opaque string that holds reasoning for its way through a client: the `signature` of an Anthropic thinking block, the
    /// `encrypted_content` of a Responses reasoning item. Seal a block's whole text once it is complete; send the handle even where
    /// the text itself is not to be shown.
    #[must_use]
    pub fn seal_reasoning(&self, text: &str) -> String {
        self.shared.seal.seal(text)
    }

    /// The reasoning behind a handle of [`Self::seal_reasoning`], for [`Message::reasoning`](andante_text::Message): exact,
    /// whatever the client made of the visible copy. `None` when the handle is not of this server or was changed; then the visible
    /// text stands, if there is any.
    #[must_use]
    pub fn open_reasoning(&self, handle: &str) -> Option<String> {
        self.shared.seal.open(handle)
    }

    /// The model's chat template, if it has one.
    #[must_use]
    pub fn template(&self) -> Option<&ChatTemplate> {
        self.shared.text.template.as_deref()
    }

    /// Asks the engine to end. Requests submitted after this are refused.
    pub fn shutdown(&self, how: Shutdown) {
        self.shared.set_health(Health::Draining);
        self.mailbox.send(Command::Shutdown(how));
    }
}

/// How the model's tokens and text relate.
#[derive(Clone)]
pub struct TextStack {
    /// The model's tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// The model's chat template, if it has one.
    pub template: Option<Arc<ChatTemplate>>,
    /// How it writes tool calls and reasoning.
    pub dialect: Arc<Dialect>,
}

impl TextStack {
    /// With the dialect that template and vocabulary point to.
    #[must_use]
    pub fn new(tokenizer: Tokenizer, template: Option<ChatTemplate>) -> Self {
        Self {
            dialect: Arc::new(Dialect::of_model(template.as_ref(), &tokenizer)),
            tokenizer: Arc::new(tokenizer),
            template: template.map(Arc::new),
        }
    }
}

/// Whether the engine works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It takes requests.
    Ready,
    /// It finishes what it has.
    Draining,
    /// It has ended as asked.
    Stopped,
    /// It has ended after a failure of the model, or a bug.
    Failed,
}

impl Health {
    fn from_code(code: u8) -> Self {
        [Self::Ready, Self::Draining, Self::Stopped, Self::Failed][usize::from(code)]
    }
}

/// What handle and engine share.
pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) info: ModelInfo,
    pub(crate) text: TextStack,
    pub(crate) spellings: Arc<Spellings>,
    pub(crate) turns: Arc<Turns>,
    seal: Seal,
    constraints: Constraints,
    context: u32,
    /// Those of an answer, and of its reasoning, where a request does not say.
    answer_tokens: Option<u32>,
    reasoning_tokens: Option<u32>,
    /// How embeddings are made.
    pooling: Pooling,
    /// For the requests that run and those that wait.
    places: Places,
    ring_events: usize,
    next_id: AtomicU64,
    health: AtomicU8,
    /// The engine's estimate of when a place in the queue will be free, in seconds.
    pub(crate) retry_after_s: AtomicU32,
    /// When the step in flight began, in µs, never 0; 0 between steps.
    pub(crate) step_began_us: AtomicU64,
    status: Mutex<Status>,
    pub(crate) timeline: Arc<Timeline>,
    pseudonyms: RandomState,
}

impl Shared {
    pub(crate) fn new(
        config: &EngineConfig,
        info: ModelInfo,
        text: TextStack,
        (scheduler, layout): (&Scheduler, KvLayout),
        clock: Arc<dyn Clock>,
    ) -> Self {
        let context = config.context_of(info.context);
        let status = Status::new(config, context, scheduler, layout.block_bytes);
        Self {
            clock,
            pooling: config.pooling_of(&info),
            info,
            constraints: Constraints::new(Arc::clone(&text.tokenizer)),
            text,
            spellings: Arc::default(),
            turns: Arc::default(),
            seal: Seal::new(&config.secret.unwrap_or_else(seal::random)),
            context,
            answer_tokens: config.answer_tokens,
            reasoning_tokens: config.reasoning_tokens,
            places: Places::new(config.max_inside()),
            ring_events: config.ring_events,
            next_id: AtomicU64::new(1),
            health: AtomicU8::new(Health::Ready as u8),
            retry_after_s: AtomicU32::new(1),
            step_began_us: AtomicU64::new(0),
            status: Mutex::new(status),
            timeline: Arc::new(Timeline::new()),
            pseudonyms: RandomState::new(),
        }
    }

    /// A name for a sequence that no other has.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn pseudonym(&self, of: u64) -> u32 {
        // The upper half of the hash.
        (self.pseudonyms.hash_one(of) >> 32) as u32
    }

    pub(crate) fn set_health(&self, health: Health) {
        // Only towards the end: a late shutdown request must not hide a failure.
        self.health.fetch_max(health as u8, Ordering::AcqRel);
    }

    pub(crate) fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The standard library keys each of its hash maps with numbers from the operating system.
fn random_seed() -> u64 {
    RandomState::new().hash_one(())
}
