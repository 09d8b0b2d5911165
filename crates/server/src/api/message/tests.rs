//! Messages: one form for every spelling, and complaints that name the field.

use serde_json::{Value, json};

use super::*;

#[expect(
    clippy::needless_pass_by_value,
    reason = "a literal is what every caller has"
)]
fn decode(messages: Value) -> Result<Vec<Message>, String> {
    let body = json!({ "messages": messages });
    let body = Field::body(&body).expect("an object");
    decode_all(&body.get("messages")).map_err(|error| error.to_string())
}

fn refused(messages: Value) -> String {
    decode(messages).expect_err("a complaint")
}

#[test]
fn a_text_and_a_list_with_that_text_are_one_message() {
    let spelled = [
        json!([{"role": "user", "content": "hi"}]),
        json!([{"role": "user", "content": [{"type": "text", "text": "hi"}]}]),
        json!([{"role": "user", "content": [{"type": "input_text", "text": "hi", "cache_control": {"type": "ephemeral"}}], "name": null}]),
    ];
    for messages in spelled {
        assert_eq!(decode(messages), Ok(vec![Message::new(Role::User, "hi")]));
    }
}

#[test]
fn an_assistant_without_content_is_spelled_three_ways() {
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":"}});
    let expected = ToolCall {
        id: Some("call_1".into()),
        name: "f".into(),
        arguments: "{\"a\":".into(),
    };
    for (mut message, content) in [
        (json!({"role": "assistant", "tool_calls": [call]}), None),
        (
            json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            None,
        ),
        (
            json!({"role": "assistant", "content": "", "tool_calls": [call]}),
            Some(String::new()),
        ),
    ] {
        message["reasoning_content"] = json!("because");
        let decoded = decode(json!([message])).unwrap().remove(0);
        assert_eq!(decoded.content, content);
        assert_eq!(decoded.reasoning.as_deref(), Some("because"));
        assert_eq!(decoded.tool_calls, std::slice::from_ref(&expected));
    }
}

#[test]
fn every_role_is_known_and_parts_are_joined_by_line_breaks() {
    let roles = [
        "system",
        "developer",
        "user",
        "assistant",
        "tool",
        "function",
    ];
    let messages = roles.map(|role| json!({"role": role, "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}));
    let decoded = decode(json!(messages)).unwrap();
    let decoded: Vec<_> = decoded
        .iter()
        .map(|m| (m.role, m.content.as_deref()))
        .collect();
    let expected = [
        Role::System,
        Role::Developer,
        Role::User,
        Role::Assistant,
        Role::Tool,
        Role::Tool,
    ];
    assert_eq!(decoded, expected.map(|role| (role, Some("a\nb"))));
}

#[test]
fn tool_results_keep_their_call_and_former_calls_become_calls() {
    let decoded = decode(json!([
        {"role": "assistant", "function_call": {"name": "f", "arguments": {"x": 1}}},
        {"role": "function", "name": "f", "content": "1"},
        {"role": "assistant", "tool_calls": [{"id": null, "function": {"name": "g"}}]},
        {"role": "tool", "tool_call_id": "call_2", "content": null},
    ]))
    .unwrap();
    assert_eq!(decoded[0].tool_calls[0].arguments, "{\"x\":1}");
    assert_eq!(decoded[1].name.as_deref(), Some("f"));
    assert_eq!(
        (
            decoded[2].tool_calls[0].id.clone(),
            decoded[2].tool_calls[0].arguments.as_str()
        ),
        (None, "{}")
    );
    assert_eq!(decoded[3].tool_call_id.as_deref(), Some("call_2"));
}

#[test]
fn what_is_wrong_is_named() {
    let user = json!({"role": "user", "content": "x"});
    for (messages, complaint) in [
        (Value::Null, "`messages`: required"),
        (json!({}), "`messages`: must be an array, got an object"),
        (json!([]), "`messages`: must hold at least one message"),
        (
            json!(["hi"]),
            "`messages[0]`: must be an object, got a string",
        ),
        (
            json!([user, {"content": "x"}]),
            "`messages[1].role`: required",
        ),
        (
            json!([{"role": "User", "content": "x"}]),
            "`messages[0].role`: `User` is no role",
        ),
        (
            json!([user, user, {"role": "user", "content": 7}]),
            "`messages[2].content`: must be a string or an array of parts, got a number",
        ),
        (json!([{"role": "user"}]), "`messages[0].content`: required"),
        (
            json!([{"role": "user", "content": [{"text": "x"}]}]),
            "`messages[0].content[0].type`: required",
        ),
        (
            json!([{"role": "user", "content": [{"type": "text"}]}]),
            "`messages[0].content[0].text`: required",
        ),
        (
            json!([{"role": "user", "content": ["x"]}]),
            "`messages[0].content[0]`: must be an object, got a string",
        ),
        (
            json!([{"role": "assistant", "tool_calls": {}}]),
            "`messages[0].tool_calls`: must be an array, got an object",
        ),
        (
            json!([{"role": "assistant", "tool_calls": [{"id": "a"}]}]),
            "`messages[0].tool_calls[0].function`: required",
        ),
        (
            json!([{"role": "assistant", "tool_calls": [{"function": {"name": 1}}]}]),
            "`messages[0].tool_calls[0].function.name`: must be a string, got a number",
        ),
    ] {
        assert_eq!(refused(messages), complaint);
    }
}

#[test]
fn images_and_audio_are_refused_by_name() {
    for kind in ["image_url", "input_audio", "file", "video_url"] {
        let complaint = refused(json!([{"role": "user", "content": [{"type": kind}]}]));
        assert!(
            complaint.starts_with("`messages[0].content[0].type`: "),
            "{complaint}"
        );
        assert!(
            complaint.contains(kind) && complaint.contains("not supported"),
            "{complaint}"
        );
    }
}
