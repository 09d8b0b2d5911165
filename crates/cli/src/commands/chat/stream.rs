//! A streamed answer of the chat API, as what is to be shown.

use std::io::Read;

use serde_json::Value;

use crate::peer::events;

/// What the server says while it answers.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    /// So much of the prompt is processed.
    Progress(Progress),
    Reasoning(String),
    Text(String),
    Usage(Usage),
    /// The answer's end and its reason.
    Ended(String),
}

/// Of a prompt's tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Progress {
    pub(super) total: u64,
    /// Found in the prefix cache.
    pub(super) cached: u64,
    /// Those included.
    pub(super) processed: u64,
    /// Time spent on the others.
    pub(super) ms: f64,
}

impl Progress {
    /// What is left at the speed so far, in seconds; none before there is one.
    pub(super) fn seconds_left(&self) -> Option<f64> {
        let computed = self.processed.saturating_sub(self.cached);
        let left = self.total.saturating_sub(self.processed);
        (computed > 0 && self.ms > 0.0).then(|| left as f64 * self.ms / computed as f64 / 1000.0)
    }
}

/// Tokens of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    pub(super) prompt: u64,
    pub(super) cached: u64,
    pub(super) generated: u64,
}

/// Reads events and gives what they say to `take`, until it says that this is enough, or the stream ends. An error is what the
/// server or the connection had to say.
pub(super) fn read(stream: impl Read, mut take: impl FnMut(Said) -> bool) -> Result<(), String> {
    for event in events(stream) {
        let data = event
            .map_err(|error| format!("the connection broke: {error}"))?
            .data;
        if data == "[DONE]" {
            return Ok(());
        }
        let event: Value = serde_json::from_str(&data)
            .map_err(|error| format!("the server sent what is not JSON: {error}"))?;
        if let Some(message) = event["error"]["message"].as_str() {
            return Err(message.to_owned());
        }
        for said in understand(&event) {
            if !take(said) {
                return Ok(());
            }
        }
    }
    Err("the server ended the answer without an end".to_owned())
}

fn understand(event: &Value) -> Vec<Said> {
    let mut said = Vec::new();
    let count = |value: &Value| value.as_u64().unwrap_or_default();
    let progress = &event["prompt_progress"];
    if progress.is_object() {
        said.push(Said::Progress(Progress {
            total: count(&progress["total"]),
            cached: count(&progress["cache"]),
            processed: count(&progress["processed"]),
            ms: progress["time_ms"].as_f64().unwrap_or_default(),
        }));
    }
    let choice = &event["choices"][0];
    let text = |name: &str| {
        let text = choice["delta"][name].as_str();
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    said.extend(text("reasoning_content").map(Said::Reasoning));
    said.extend(text("content").map(Said::Text));
    let usage = &event["usage"];
    if usage.is_object() {
        said.push(Said::Usage(Usage {
            prompt: count(&usage["prompt_tokens"]),
            cached: count(&usage["prompt_tokens_details"]["cached_tokens"]),
            generated: count(&usage["completion_tokens"]),
        }));
    }
    if let Some(reason) = choice["finish_reason"].as_str() {
        said.push(Said::Ended(reason.to_owned()));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(stream: &str) -> (Vec<Said>, Result<(), String>) {
        let mut said = Vec::new();
        let result = read(stream.as_bytes(), |one| {
            said.push(one);
            true
        });
        (said, result)
    }

    #[test]
    fn an_answer_is_understood() {
        let stream = ": comment\n\n\
            data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
            data: {\"choices\":[],\"prompt_progress\":{\"total\":100,\"cache\":20,\"processed\":60,\"time_ms\":80}}\n\n\
            data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}\r\n\r\n\
            data:{\"choices\":[{\"delta\":{\"content\":\"yes\"},\"finish_reason\":\"stop\"}]}\n\n\
            data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":20}}}\n\n\
            data: [DONE]\n\n";
        let progress = Progress {
            total: 100,
            cached: 20,
            processed: 60,
            ms: 80.0,
        };
        assert_eq!(progress.seconds_left(), Some(0.08));
        let (said, result) = all(stream);
        assert_eq!(result, Ok(()));
        assert_eq!(
            said,
            [
                Said::Progress(progress),
                Said::Reasoning("hm".into()),
                Said::Text("yes".into()),
                Said::Ended("stop".into()),
                Said::Usage(Usage {
                    prompt: 100,
                    cached: 20,
                    generated: 2
                }),
            ]
        );
    }

    #[test]
    fn a_broken_answer_says_why() {
        let (_, result) = all("data: {\"error\":{\"message\":\"no memory\"}}\n\n");
        assert_eq!(result, Err("no memory".to_owned()));
        let (said, result) = all("data: {\"choices\":[{\"delta\":{\"content\":\"y\"}}]}\n\n");
        assert_eq!(said.len(), 1);
        assert!(result.is_err_and(|why| why.contains("without an end")));
        assert!(all("data: nonsense\n\n").1.is_err());
    }

    #[test]
    fn who_has_enough_reads_no_further() {
        let stream = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: nonsense\n\n";
        assert_eq!(read(stream.as_bytes(), |_| false), Ok(()));
    }
}
