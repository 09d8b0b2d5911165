//! The order of tool results.

use andante_text::ToolCall;

use super::*;

fn calls(ids: &[&str]) -> Message {
    let call = |id: &&str| ToolCall {
        id: Some((*id).to_owned()),
        name: "f".into(),
        arguments: "{}".into(),
    };
    Message {
        tool_calls: ids.iter().map(call).collect(),
        ..Message::new(Role::Assistant, "")
    }
}

fn result(id: &str) -> Message {
    Message {
        tool_call_id: Some(id.into()),
        ..Message::new(Role::Tool, id)
    }
}

#[test]
fn results_follow_the_order_of_their_calls() {
    let mut messages = vec![
        Message::new(Role::User, "go"),
        calls(&["a", "b", "c"]),
        result("c"),
        result("stray"),
        result("a"),
        result("b"),
        calls(&["d", "e"]),
        Message::new(Role::User, "wait"),
        result("e"),
        result("d"),
    ];
    settle(&mut messages);
    let order: Vec<_> = messages
        .iter()
        .filter_map(|message| message.tool_call_id.as_deref())
        .collect();
    // The last two do not follow their calls at once, so nothing says whose they are.
    assert_eq!(order, ["a", "b", "c", "stray", "e", "d"]);
}

#[test]
fn results_have_the_names_of_their_tools() {
    let mut messages = vec![calls(&["a"]), result("a"), result("b")];
    settle(&mut messages);
    let names: Vec<_> = messages
        .iter()
        .map(|message| message.name.as_deref())
        .collect();
    assert_eq!(names, [None, Some("f"), None]);
}

#[test]
fn calls_without_ids_and_their_results_find_each_other_by_order() {
    let nameless = |text: &str| Message::new(Role::Tool, text);
    let of = |tool: &str, text: &str| Message {
        name: Some(tool.into()),
        ..nameless(text)
    };
    let mut several = calls(&["", "b", ""]);
    for (call, name) in several.tool_calls.iter_mut().zip(["f", "g", "h"]) {
        call.name = name.to_owned();
        call.id = call.id.take().filter(|id| !id.is_empty());
    }
    let mut messages = vec![
        several,
        of("h", "third"),
        result("b"),
        nameless("first"),
        nameless("of no call"),
        Message::new(Role::User, "go on"),
        nameless("of no call either"),
    ];
    settle(&mut messages);
    let ids = messages[0].tool_calls.iter().map(|call| call.id.as_deref());
    assert_eq!(
        ids.collect::<Vec<_>>(),
        [Some("call00001"), Some("b"), Some("call00003")]
    );
    let results: Vec<_> = messages
        .iter()
        .filter(|message| message.role == Role::Tool)
        .map(|message| {
            let content = message.content.as_deref().unwrap();
            (
                message.tool_call_id.as_deref(),
                message.name.as_deref(),
                content,
            )
        })
        .collect();
    let expected = [
        (Some("call00001"), Some("f"), "first"),
        (Some("b"), Some("g"), "b"),
        (Some("call00003"), Some("h"), "third"),
        (None, None, "of no call"),
        (None, None, "of no call either"),
    ];
    assert_eq!(results, expected);
}
