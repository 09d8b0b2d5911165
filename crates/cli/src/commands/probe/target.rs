//! The server under test, and how it wants to be asked.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::answer::Answer;
use super::client::{Endpoint, Line, Running};
use super::prompt::Prompts;
use crate::args::ProbeArgs;

/// Tokens of the prompts that only find out how the server is asked.
const SAMPLE: u32 = 64;

/// A server, ready to be asked.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) endpoint: Endpoint,
    model: Option<String>,
    form: Form,
    prompts: Prompts,
}

/// What the server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    chat: bool,
    /// Prompts as arrays of token ids.
    ids: bool,
    /// Fields beyond OpenAI's: `ignore_eos`, so that an answer has the length that was asked for, and `cache_prompt`.
    extras: bool,
}

impl Target {
    /// Finds the model's name and the richest form of request that the server takes.
    pub(super) fn open(args: &ProbeArgs) -> Result<Self> {
        let base = args.url.trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base);
        if !base.starts_with("http://") && !base.starts_with("https://") {
            bail!("{base}: give the server's address with http:// or https://");
        }
        let key = std::env::var("ANDANTE_API_KEY").ok();
        let endpoint = Endpoint {
            base: base.to_owned(),
            path: if args.chat {
                "/v1/chat/completions"
            } else {
                "/v1/completions"
            },
            key: args
                .api_key
                .clone()
                .or(key.filter(|value| !value.is_empty())),
        };
        let form = Form {
            chat: args.chat,
            ids: !args.chat,
            extras: true,
        };
        let mut target = Self {
            model: args.model.clone().or_else(|| first_model(&endpoint)),
            endpoint,
            form,
            prompts: Prompts::new(args.seed),
        };
        target.agree(Duration::from_secs(args.timeout_s))?;
        Ok(target)
    }

    /// Tries forms until one is taken.
    fn agree(&mut self, timeout: Duration) -> Result<()> {
        let ids = [true, false]
            .into_iter()
            .filter(|ids| !ids || self.form.ids);
        let forms: Vec<_> = ids.flat_map(|ids| [(ids, true), (ids, false)]).collect();
        let mut refusal = String::new();
        for (ids, extras) in forms {
            (self.form.ids, self.form.extras, self.prompts.ids) = (ids, extras, ids);
            let answer = self.ask(SAMPLE, 4, None)?.finish(Instant::now() + timeout);
            let answer = Answer::of(&answer);
            match (answer.status, answer.failure) {
                (Some(200), None) if answer.tokens.is_empty() => {
                    bail!("{} streams no text", self.endpoint.path)
                }
                (Some(200), None) => {
                    if let Some(usage) = answer.usage.filter(|_| !ids) {
                        self.prompts.tokens_per_word = usage.prompt as f64 / f64::from(SAMPLE);
                    }
                    return Ok(());
                }
                (Some(400 | 422 | 500), Some(failure)) => refusal = failure,
                (_, failure) => bail!(
                    "{}{}: {}",
                    self.endpoint.base,
                    self.endpoint.path,
                    failure.unwrap_or_else(|| "no answer in time".to_owned())
                ),
            }
        }
        bail!(
            "{} refuses every form of request: {refusal}",
            self.endpoint.path
        )
    }

    /// Sends a new prompt of `prompt` tokens and asks for `answer` tokens.
    pub(super) fn ask(
        &mut self,
        prompt: u32,
        answer: u32,
        tenant: Option<String>,
    ) -> Result<Running> {
        let body = self.body(prompt, answer);
        self.endpoint.start(body, tenant)
    }

    /// A new prompt of `tokens` tokens.
    pub(super) fn prompt(&mut self, tokens: u32) -> Value {
        self.prompts.prompt(tokens)
    }

    /// Sends a prompt whose beginning the server may know, and which it is to remember.
    pub(super) fn ask_cached(&self, prompt: Value, answer: u32) -> Result<Running> {
        self.endpoint
            .start(self.form_body(prompt, answer, true), None)
    }

    /// A request's body with a prompt that was never sent before.
    pub(super) fn body(&mut self, prompt: u32, answer: u32) -> String {
        let prompt = self.prompt(prompt);
        self.form_body(prompt, answer, false)
    }

    fn form_body(&self, prompt: Value, answer: u32, cache: bool) -> String {
        let mut body = json!({
            "max_tokens": answer,
            "temperature": 0,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        if let Some(model) = &self.model {
            body["model"] = model.as_str().into();
        }
        if self.form.chat {
            body["messages"] = json!([{"role": "user", "content": prompt}]);
        } else {
            body["prompt"] = prompt;
        }
        if self.form.extras {
            body["ignore_eos"] = true.into();
            body["cache_prompt"] = cache.into();
        }
        body.to_string()
    }

    /// How the server is asked, in words.
    pub(super) fn form(&self) -> String {
        let prompts = if self.form.ids { "token ids" } else { "text" };
        let extras = if self.form.extras {
            ""
        } else {
            ", answers may end by themselves"
        };
        format!("{}, prompts as {prompts}{extras}", self.endpoint.path)
    }
}

/// Some servers insist on a name, and some list none.
fn first_model(endpoint: &Endpoint) -> Option<String> {
    let list: Value = endpoint.get(&Line::new(), "/v1/models").ok()?;
    Some(list["data"][0]["id"].as_str()?.to_owned())
}
