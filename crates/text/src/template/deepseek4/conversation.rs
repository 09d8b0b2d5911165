//! A conversation as turns: results of tools belong to users' messages.

use super::GAP;
use super::choices::{Choices, Developer, ResultGap, ResultOrder, Systems};
use crate::{Message, Role, ToolCall};

/// A turn.
pub(super) enum Turn<'m> {
    System(&'m str),
    User(Vec<Part<'m>>),
    /// Words of a developer that are a message of their own.
    Developer(&'m str),
    Assistant(&'m Message),
}

/// A part of a user's message.
#[derive(Clone, Copy)]
pub(super) enum Part<'m> {
    Text(&'m str),
    /// What the call of this id gave.
    Result {
        call: Option<&'m str>,
        text: &'m str,
    },
}

impl Choices {
    /// What stands between a part and the one before it.
    pub(super) fn gap_before(&self, part: &Part<'_>) -> &'static str {
        match (part, self.result_gap) {
            (Part::Result { .. }, ResultGap::None) => "",
            _ => GAP,
        }
    }
}

/// The turns of a conversation.
pub(super) fn turns<'m>(messages: &'m [Message], choices: &Choices) -> Vec<Turn<'m>> {
    let mut turns = Vec::with_capacity(messages.len());
    for message in messages {
        let text = message.content.as_deref().unwrap_or_default();
        match (message.role, choices.developer) {
            (Role::System, _) | (Role::Developer, Developer::System) => {
                turns.push(Turn::System(text));
            }
            (Role::Developer, Developer::Own) => turns.push(Turn::Developer(text)),
            (Role::User, _) | (Role::Developer, Developer::User) => {
                add(Part::Text(text), &mut turns);
            }
            (Role::Tool, _) => {
                let call = message.tool_call_id.as_deref();
                add(Part::Result { call, text }, &mut turns);
            }
            (Role::Assistant, _) => turns.push(Turn::Assistant(message)),
        }
    }
    if choices.systems == Systems::Joined {
        // A stable sort: the system texts go first, and nothing else changes its order.
        turns.sort_by_key(|turn| !matches!(turn, Turn::System(_)));
    }
    if choices.result_order == ResultOrder::Calls {
        sort_results(&mut turns);
    }
    turns
}

/// Adds a part to the user's message under way, or begins one.
fn add<'m>(part: Part<'m>, turns: &mut Vec<Turn<'m>>) {
    match turns.last_mut() {
        Some(Turn::User(parts)) => parts.push(part),
        _ => turns.push(Turn::User(vec![part])),
    }
}

/// Puts the results of a message in the order of the calls before it; texts between them stay where they are. A result of no
/// known call goes with the first.
fn sort_results(turns: &mut [Turn<'_>]) {
    let mut calls: &[ToolCall] = &[];
    for turn in turns {
        match turn {
            Turn::Assistant(message) if !message.tool_calls.is_empty() => {
                calls = &message.tool_calls;
            }
            Turn::User(parts) => {
                let is_result = |part: &Part<'_>| matches!(part, Part::Result { .. });
                let mut results: Vec<Part<'_>> = parts.iter().copied().filter(is_result).collect();
                results.sort_by_key(|part| {
                    let Part::Result { call: Some(id), .. } = part else {
                        return 0;
                    };
                    let of = |call: &ToolCall| call.id.as_deref() == Some(*id);
                    calls.iter().position(of).unwrap_or(0)
                });
                let places = parts.iter_mut().filter(|part| is_result(part));
                for (place, result) in places.zip(results) {
                    *place = result;
                }
            }
            _ => {}
        }
    }
}

/// Where the last message of a user or developer is.
pub(super) fn last_user(turns: &[Turn<'_>]) -> Option<usize> {
    turns
        .iter()
        .rposition(|turn| matches!(turn, Turn::User(_) | Turn::Developer(_)))
}

/// Leaves out developers' messages before the last message of a user or developer.
pub(super) fn drop_developers(turns: &mut Vec<Turn<'_>>) {
    let mut left = last_user(turns).unwrap_or(0);
    turns.retain(|turn| {
        let is_before = left > 0;
        left = left.saturating_sub(1);
        !(is_before && matches!(turn, Turn::Developer(_)))
    });
}

/// Whether a tool has answered.
pub(super) fn has_results(messages: &[Message]) -> bool {
    messages.iter().any(|message| message.role == Role::Tool)
}
