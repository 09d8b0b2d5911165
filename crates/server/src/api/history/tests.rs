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
