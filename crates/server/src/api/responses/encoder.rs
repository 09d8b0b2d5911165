//! An answer as a response object, whole or as a stream of events.

use std::sync::Arc;

use andante_engine::{Delta, FinishReason, Tenant, Usage};
use serde::Serialize;
use serde_json::{Value, json};

use super::items::{Item, Items};
use super::object::ResponseUsage;
use super::store::Stored;
use crate::Server;
use crate::answer::{Choice, Totals};
use crate::api::Encode;
use crate::api::blocks::{self, Block, Blocks, Step};
use crate::error::ApiError;
use crate::server::unix_time_s;
use crate::sse::Frames;

/// Writes responses and their events. One choice, so the index of a choice means nothing here.
pub(in crate::api) struct ResponseEncoder {
    server: Server,
    /// The response as it is at the beginning, the request's fields among its own.
    response: Value,
    /// All items before the answer, where the response is to be kept, and for whom.
    keep: Option<(Vec<Arc<Value>>, Tenant)>,
    items: Items,
    blocks: Blocks,
    /// Items that are complete.
    output: Vec<Value>,
    /// The item of the block that is open.
    open: Option<Item>,
    /// Why the answer has ended, once it has.
    reason: Option<FinishReason>,
    prompt: Usage,
    sequence_number: u64,
}

impl ResponseEncoder {
    pub(super) fn new(server: &Server, response: Value, items: Items) -> Self {
        Self {
            server: server.clone(),
            response,
            keep: None,
            items,
            blocks: Blocks::default(),
            output: Vec::new(),
            open: None,
            reason: None,
            prompt: Usage::default(),
            sequence_number: 0,
        }
    }

    /// Keeps the response with the `input` that it answers.
    pub(super) fn kept(mut self, input: Vec<Arc<Value>>, owner: Tenant) -> Self {
        self.keep = Some((input, owner));
        self
    }

    fn event(&mut self, frames: &mut Frames, kind: &str, fields: Value) {
        let mut event = json!({ "type": kind, "sequence_number": self.sequence_number });
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        self.sequence_number += 1;
        frames.push_named(kind, &event);
    }

    fn step(&mut self, index: usize, step: &Step<'_>, frames: &mut Frames) {
        match step {
            Step::Opened(block) => {
                let item = self.items.open(&self.server, block);
                let added = json!({ "output_index": index, "item": item.begun() });
                self.event(frames, "response.output_item.added", added);
                self.item_events(item.opening(), &item, index, frames);
                self.open = Some(item);
            }
            Step::Grew(block, text) => {
                let mut item = self.open.take().expect("the block is open");
                self.item_events(item.growing(block, text), &item, index, frames);
                self.open = Some(item);
            }
            Step::Closed(block) => {
                let mut item = self.open.take().expect("the block is open");
                self.item_events(item.closing(block), &item, index, frames);
                let done = item.whole(block, self.status(), self.server.engine());
                let event = json!({ "output_index": index, "item": done });
                self.event(frames, "response.output_item.done", event);
                self.output.push(done);
            }
        }
    }

    fn item_events(
        &mut self,
        events: Vec<(&'static str, Value)>,
        item: &Item,
        index: usize,
        frames: &mut Frames,
    ) {
        for (kind, fields) in events {
            let mut event = json!({ "item_id": item.id(), "output_index": index });
            if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
                event.extend(fields);
            }
            self.event(frames, kind, event);
        }
    }

    /// The status of an item that closes. Only one that the end of the answer closes can be cut.
    fn status(&self) -> &'static str {
        match self.reason {
            Some(FinishReason::Length) => "incomplete",
            _ => "completed",
        }
    }

    /// Adds a whole item to the answer.
    fn add(&mut self, block: &Block) {
        let item = self.items.open(&self.server, block);
        let whole = item.whole(block, self.status(), self.server.engine());
        self.output.push(whole);
    }

    /// The response at its end.
    fn finish(&mut self, usage: Usage) -> Value {
        let mut response = self.response.clone();
        if self.reason == Some(FinishReason::Length) {
            response["status"] = "incomplete".into();
            response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        } else {
            response["status"] = "completed".into();
            response["completed_at"] = unix_time_s().into();
        }
        response["output"] = std::mem::take(&mut self.output).into();
        response["usage"] = wire_usage(usage);
        if let Some((input, owner)) = self.keep.take() {
            self.server.responses().insert(Stored {
                response: response.clone(),
                input,
                owner,
            });
        }
        response
    }
}

impl Encode for ResponseEncoder {
    fn opened(&mut self, frames: &mut Frames) {
        let response = json!({ "response": self.response });
        self.event(frames, "response.created", response);
        self.keep_alive(frames);
    }

    fn started(&mut self, _choice: usize, prompt: Usage, _frames: &mut Frames) {
        self.prompt = prompt;
    }

    fn delta(&mut self, _choice: usize, delta: Delta, frames: &mut Frames) {
        let mut blocks = std::mem::take(&mut self.blocks);
        for part in delta.parts {
            blocks.push(part, &mut |index, step| self.step(index, &step, frames));
        }
        self.blocks = blocks;
    }

    fn finished(&mut self, _choice: usize, reason: FinishReason, frames: &mut Frames) {
        let mut blocks = std::mem::take(&mut self.blocks);
        self.reason = Some(reason);
        blocks.close(&mut |index, step| self.step(index, &step, frames));
    }

    fn ended(&mut self, totals: Totals, frames: &mut Frames) {
        let response = self.finish(totals.usage);
        let kind = match self.reason {
            Some(FinishReason::Length) => "response.incomplete",
            _ => "response.completed",
        };
        self.event(frames, kind, json!({ "response": response }));
    }

    fn failed(&mut self, error: &ApiError, frames: &mut Frames) {
        let mut response = self.response.clone();
        response["status"] = "failed".into();
        response["error"] = json!({
            "code": error.code().unwrap_or("server_error"),
            "message": error.to_string(),
        });
        response["output"] = std::mem::take(&mut self.output).into();
        response["usage"] = wire_usage(self.prompt);
        self.event(frames, "response.failed", json!({ "response": response }));
    }

    /// The one sign of life that all clients count: some drop comments before they look at the clock.
    fn keep_alive(&mut self, frames: &mut Frames) {
        let response = json!({ "response": self.response });
        self.event(frames, "response.in_progress", response);
    }

    fn whole(&mut self, choices: Vec<Choice>, totals: Totals) -> impl Serialize {
        for choice in choices {
            let mut blocks = blocks::collect(choice.parts);
            let last = blocks.pop();
            for block in blocks {
                self.add(&block);
            }
            self.reason = Some(choice.reason);
            if let Some(block) = last {
                self.add(&block);
            }
        }
        self.finish(totals.usage)
    }
}

fn wire_usage(usage: Usage) -> Value {
    serde_json::to_value(ResponseUsage::from(usage)).expect("numbers are plain data")
}
