//! What a recorded answer says: when its tokens came, how it ended, what the server counted.

use std::time::Instant;

use serde_json::Value;

use super::client::Recording;

/// An answer, understood.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) sent: Instant,
    pub(super) ended: Instant,
    /// When the first bytes of the body came, whatever they are.
    pub(super) first_byte: Option<Instant>,
    /// When each event with generated text came. A server may put several tokens into one.
    pub(super) tokens: Vec<Instant>,
    pub(super) usage: Option<Usage>,
    /// HTTP status, if there was an answer at all.
    pub(super) status: Option<u16>,
    /// The probe ended it before the server did.
    pub(super) stopped: bool,
    /// Why it is not an answer.
    pub(super) failure: Option<String>,
}

/// The server's own count of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) prompt: u64,
    pub(super) completion: u64,
    /// Prompt tokens that were not computed; servers that do not say so count as 0.
    pub(super) cached: u64,
}

impl Answer {
    pub(super) fn of(recording: &Recording) -> Self {
        let mut answer = Self {
            sent: recording.sent,
            ended: recording.ended,
            first_byte: recording.body.reads.first().map(|(at, _)| *at),
            tokens: Vec::new(),
            usage: None,
            status: recording.status,
            stopped: recording.stopped,
            failure: recording.broken.clone(),
        };
        match recording.status {
            Some(200) => {
                if let Err(failure) = answer.read(recording) {
                    answer.failure.get_or_insert(failure);
                }
            }
            Some(status) => {
                let text = String::from_utf8_lossy(&recording.body.bytes);
                answer.failure = Some(format!("HTTP {status}: {}", message(&text)));
            }
            None => {}
        }
        answer
    }

    /// Time from sending to the first token, in seconds.
    pub(super) fn ttft_s(&self) -> Option<f64> {
        let first = self.tokens.first()?;
        Some((*first - self.sent).as_secs_f64())
    }

    pub(super) fn first(&self) -> Option<Instant> {
        self.tokens.first().copied()
    }

    /// The last thing that came: the answer counts as running until then.
    pub(super) fn last(&self) -> Option<Instant> {
        self.tokens.last().copied()
    }

    fn read(&mut self, recording: &Recording) -> Result<(), String> {
        let mut complete = false;
        for event in recording.body.events() {
            if event.data == b"[DONE]" {
                complete = true;
                continue;
            }
            let Ok(value) = serde_json::from_slice::<Value>(&event.data) else {
                let text = String::from_utf8_lossy(&event.data);
                return Err(format!("an event that is not JSON: {}", shortened(&text)));
            };
            if value.get("error").is_some_and(|error| !error.is_null()) {
                return Err(format!("an error event: {}", message(&value.to_string())));
            }
            if let Some(usage) = Usage::of(&value["usage"]) {
                self.usage = Some(usage);
            }
            let choice = &value["choices"][0];
            complete |= choice["finish_reason"].is_string();
            if carries_text(choice) {
                self.tokens.push(event.at);
            }
        }
        if complete || self.stopped {
            Ok(())
        } else {
            Err("the stream ended without a finish reason".to_owned())
        }
    }
}

impl Usage {
    fn of(value: &Value) -> Option<Self> {
        Some(Self {
            prompt: value["prompt_tokens"].as_u64()?,
            completion: value["completion_tokens"].as_u64().unwrap_or(0),
            cached: value["prompt_tokens_details"]["cached_tokens"]
                .as_u64()
                .unwrap_or(0),
        })
    }
}

/// Whether an event stands for generated tokens. Text may be empty where a token's bytes are held back; the event that
/// only opens a chat answer and the one that only ends an answer do not count.
fn carries_text(choice: &Value) -> bool {
    let running = choice["finish_reason"].is_null();
    let filled = |text: &Value| text.as_str().is_some_and(|text| !text.is_empty());
    if let Some(text) = choice["text"].as_str() {
        return running || !text.is_empty();
    }
    let delta = &choice["delta"];
    let parts = ["content", "reasoning_content", "reasoning"];
    if parts.iter().any(|part| filled(&delta[*part])) || delta["tool_calls"].is_array() {
        return true;
    }
    running && delta["content"].is_string() && delta["role"].is_null()
}

/// The message of an error document, or the text itself where it is none.
fn message(text: &str) -> String {
    let document: Value = serde_json::from_str(text).unwrap_or_default();
    let error = &document["error"];
    let found = error["message"].as_str().or(error.as_str());
    shortened(found.unwrap_or(text))
}

fn shortened(text: &str) -> String {
    const MOST: usize = 200;
    let line = text.trim().replace(['\n', '\r'], " ");
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests;
