//! Streams: an answer as a response body that is made as it is read, in server-sent events or lines of JSON.
//!
//! The body *is* the work's owner: when hyper drops it because the client has gone, the event streams inside are
//! dropped too, and that cancels the work. It is pulled, never pushed: a slow reader leaves the events in the engine's
//! bounded ring, where the sequence is parked.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use serde::Serialize;
use tokio::time::{Instant, Sleep};

use crate::answer::{Answer, Progress};
use crate::api::Encode;

/// Bytes gathered before a frame is handed on, when that many events are ready at once.
const FRAME_BYTES: usize = 32 << 10;

/// The content type of server-sent events.
pub(crate) const EVENT_STREAM: &str = "text/event-stream";
/// The content type of lines of JSON.
pub(crate) const JSON_LINES: &str = "application/x-ndjson";

/// A piece of a stream under construction.
#[derive(Default)]
pub(crate) struct Frames(Vec<u8>);

impl Frames {
    /// Adds an event without a name, `data: {…}`.
    pub(crate) fn push(&mut self, data: &impl Serialize) {
        self.0.extend_from_slice(b"data: ");
        self.json(data);
        self.0.extend_from_slice(b"\n\n");
    }

    /// Adds an event with its name: some clients go by the one, some by the `type` inside the data.
    pub(crate) fn push_named(&mut self, name: &str, data: &impl Serialize) {
        self.0.extend_from_slice(b"event: ");
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'\n');
        self.push(data);
    }

    /// Adds a line of JSON.
    pub(crate) fn push_line(&mut self, data: &impl Serialize) {
        self.json(data);
        self.0.push(b'\n');
    }

    /// OpenAI's mark of a stream's end.
    pub(crate) fn push_done(&mut self) {
        self.0.extend_from_slice(b"data: [DONE]\n\n");
    }

    /// What readers of server-sent events pass over.
    pub(crate) fn push_comment(&mut self) {
        self.0.extend_from_slice(b": keep-alive\n\n");
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What has been written, to be sent.
    pub(crate) fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.0).into()
    }

    fn json(&mut self, data: &impl Serialize) {
        // serde_json writes no raw line breaks, so one line holds any value.
        serde_json::to_writer(&mut self.0, data).expect("wire types are plain data");
    }

    /// What has been written so far.
    #[cfg(test)]
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.0).expect("JSON is text")
    }
}

/// The response that streams `answer` as `encoder` writes it.
pub(crate) fn response<E: Encode>(
    answer: Answer,
    mut encoder: E,
    keep_alive: Duration,
) -> Response {
    let mut frames = Frames::default();
    encoder.opened(&mut frames);
    let body = EventBody {
        answer,
        encoder,
        frames,
        keep_alive,
        silence: Box::pin(tokio::time::sleep(keep_alive)),
        ended: false,
    };
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static(E::CONTENT_TYPE),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        // Proxies of the nginx kind would otherwise gather events into large buffers.
        (
            header::HeaderName::from_static("x-accel-buffering"),
            HeaderValue::from_static("no"),
        ),
    ];
    (headers, Body::from_stream(body)).into_response()
}

struct EventBody<E> {
    answer: Answer,
    encoder: E,
    frames: Frames,
    keep_alive: Duration,
    silence: Pin<Box<Sleep>>,
    ended: bool,
}

impl<E: Encode> EventBody<E> {
    /// Encodes everything that is ready, up to a frame's size.
    fn fill(&mut self, cx: &mut Context<'_>) {
        while !self.ended && self.frames.0.len() < FRAME_BYTES {
            let Poll::Ready(progress) = self.answer.poll_progress(cx) else {
                return;
            };
            match progress {
                Progress::Prompt(choice, progress) => {
                    self.encoder.progress(choice, &progress, &mut self.frames);
                }
                Progress::Started(choice, prompt) => {
                    self.encoder.started(choice, prompt, &mut self.frames);
                }
                Progress::Delta(choice, delta) => {
                    self.encoder.delta(choice, delta, &mut self.frames);
                }
                // Nobody asks for these in a stream.
                Progress::Embedding(..) => {}
                Progress::Finished(choice, reason) => {
                    self.encoder.finished(choice, reason, &mut self.frames);
                }
                Progress::Ended(totals) => {
                    self.encoder.ended(totals, &mut self.frames);
                    self.ended = true;
                }
                Progress::Failed(error) => {
                    tracing::warn!(%error, "answer failed");
                    self.encoder.failed(&error, &mut self.frames);
                    self.ended = true;
                }
            }
        }
    }
}

impl<E: Encode> Stream for EventBody<E> {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let body = self.get_mut();
        if body.ended {
            return Poll::Ready(None);
        }
        body.fill(cx);
        if body.frames.is_empty() {
            if body.silence.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            body.encoder.keep_alive(&mut body.frames);
        }
        body.silence
            .as_mut()
            .reset(Instant::now() + body.keep_alive);
        Poll::Ready(Some(Ok(body.frames.take())))
    }
}

#[cfg(test)]
mod tests;
