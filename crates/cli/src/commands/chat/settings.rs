//! What the user has set for the answers to come.

use serde_json::{Map, Value, json};

/// Settings of a conversation; what is not set is the server's default.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    pub(super) system: Option<String>,
    pub(super) temperature: Option<f32>,
    pub(super) max_tokens: Option<u32>,
    pub(super) seed: Option<u64>,
    /// `none`, `low`, `medium`, `high`, …, as the OpenAI API has it.
    pub(super) effort: Option<String>,
    /// Whether speed is said after each answer.
    pub(super) stats: bool,
}

/// What `/set` and the like can change.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    System(Option<String>),
    Temperature(Option<f32>),
    MaxTokens(Option<u32>),
    Seed(Option<u64>),
    Effort(Option<String>),
    Stats(bool),
}

impl Settings {
    pub(super) fn apply(&mut self, change: Change) {
        match change {
            Change::System(system) => self.system = system,
            Change::Temperature(temperature) => self.temperature = temperature,
            Change::MaxTokens(tokens) => self.max_tokens = tokens,
            Change::Seed(seed) => self.seed = seed,
            Change::Effort(effort) => self.effort = effort,
            Change::Stats(stats) => self.stats = stats,
        }
    }

    /// The body of a streamed request of the chat API.
    pub(super) fn body(&self, model: &str, messages: &[Value]) -> Value {
        let system = self.system.as_ref();
        let system = system.map(|text| json!({"role": "system", "content": text}));
        let all: Vec<Value> = system.into_iter().chain(messages.iter().cloned()).collect();
        let mut body = Map::new();
        body.insert("model".into(), model.into());
        body.insert("messages".into(), all.into());
        body.insert("stream".into(), true.into());
        body.insert("stream_options".into(), json!({"include_usage": true}));
        body.insert("return_progress".into(), true.into());
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                body.insert(name.into(), value);
            }
        };
        set("temperature", self.temperature.map(Into::into));
        set("max_completion_tokens", self.max_tokens.map(Into::into));
        set("seed", self.seed.map(Into::into));
        set("reasoning_effort", self.effort.clone().map(Into::into));
        Value::Object(body)
    }
}
