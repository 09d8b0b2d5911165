//! One conversation, one form: what clients spell in several ways reaches the template in one, or the next turn finds
//! nothing of it in the cache.

use std::collections::HashMap;

use andante_text::{Message, Role};

/// Gives calls ids, and results the ids, the names and the order of the calls that they answer.
pub(super) fn settle(messages: &mut [Message]) {
    identify(messages);
    order_results(messages);
    name_results(messages);
}

/// Whether the last message is the beginning of an answer, which APIs that allow this have the model go on with.
pub(super) fn is_open(messages: &[Message]) -> bool {
    messages.last().is_some_and(|last| {
        let text = last.content.as_deref().unwrap_or_default();
        last.role == Role::Assistant && last.tool_calls.is_empty() && !text.is_empty()
    })
}

/// Makes up ids where a client has kept none: the first result without one answers the first call that has no answer, of the
/// tool that the result names, if it names one. An id depends on the call's place alone, so that it stays the same.
fn identify(messages: &mut [Message]) {
    let mut open: Vec<(String, String)> = Vec::new();
    let mut count = 0;
    for message in messages {
        if message.role != Role::Tool {
            open.clear();
        }
        for call in &mut message.tool_calls {
            count += 1;
            // Nine letters and digits: some templates take no other ids.
            let id = call.id.get_or_insert_with(|| format!("call{count:05}"));
            open.push((id.clone(), call.name.clone()));
        }
        if message.role == Role::Tool {
            let id = message.tool_call_id.as_ref();
            let wanted = message.name.as_ref();
            let answered = open.iter().position(|(call, name)| match id {
                Some(id) => id == call,
                None => wanted.is_none_or(|wanted| wanted == name),
            });
            if let Some(answered) = answered {
                let (call, _) = open.remove(answered);
                message.tool_call_id.get_or_insert(call);
            }
        }
    }
}

/// Puts the results of an assistant's calls into the order of the calls. Clients that run tools side by side send them
/// as they came in, and not in the same order every time.
fn order_results(messages: &mut [Message]) {
    let mut start = 0;
    while start < messages.len() {
        let (done, rest) = messages[start..].split_at_mut(1);
        start += 1;
        let calls: Vec<&str> = done[0]
            .tool_calls
            .iter()
            .filter_map(|call| call.id.as_deref())
            .collect();
        let results = rest
            .iter()
            .take_while(|message| message.role == Role::Tool)
            .count();
        if calls.len() < 2 || results < 2 {
            continue;
        }
        // Results of no known call stay behind the others, in their order.
        rest[..results].sort_by_key(|result| {
            let id = result.tool_call_id.as_deref();
            let place = calls.iter().position(|&call| Some(call) == id);
            place.unwrap_or(calls.len())
        });
    }
}

/// Many templates want to know which tool a result is of; two of the three APIs say so only by the call's id.
fn name_results(messages: &mut [Message]) {
    let mut names: HashMap<String, String> = HashMap::new();
    for message in messages {
        for call in &message.tool_calls {
            if let Some(id) = &call.id {
                names.insert(id.clone(), call.name.clone());
            }
        }
        if message.role == Role::Tool && message.name.is_none() {
            let id = message.tool_call_id.as_ref();
            message.name = id.and_then(|id| names.get(id)).cloned();
        }
    }
}

#[cfg(test)]
mod tests;
