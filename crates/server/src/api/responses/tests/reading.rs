//! Items as a conversation.

use andante_text::{Message, Role, ToolChoice};

use super::*;

fn read(server: &Fixture, body: &Value) -> ChatRequest {
    let body = Field::body(body).unwrap();
    let input = Input::decode(&server.server, &body, &Tenant::default());
    input.unwrap_or_else(|error| panic!("{error}")).chat
}

fn said(messages: &[Message]) -> Vec<(Role, &str)> {
    let text = |message: &Message| (message.role, message.content.clone().unwrap_or_default());
    let texts: Vec<(Role, String)> = messages.iter().map(text).collect();
    texts
        .into_iter()
        .map(|(role, text)| (role, &*text.leak()))
        .collect()
}

#[tokio::test]
async fn a_turn_of_the_assistant_is_one_message() {
    let server = Fixture::new();
    let sealed = server.engine.seal_reasoning("exactly this");
    let body = json!({"input": [
        {"role": "user", "content": "go"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "about this"}], "encrypted_content": sealed},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I "}, {"type": "output_text", "text": "will."}]},
        {"type": "function_call", "name": "read", "arguments": "{\"a\": 1}", "call_id": "call_1"},
        {"type": "custom_tool_call", "name": "apply_patch", "input": "x\ny", "call_id": "call_2"},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": "done"},
        {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"type": "reasoning", "id": "rs_2", "summary": [], "content": [{"type": "reasoning_text", "text": "plain"}], "encrypted_content": null},
        {"type": "function_call", "name": "read", "arguments": "{\"broken", "call_id": "call_3"},
        {"type": "reasoning", "id": "rs_3", "summary": [{"type": "summary_text", "text": "again"}]},
    ]});
    let messages = read(&server, &body).messages;
    let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
    use Role::{Assistant, Tool, User};
    assert_eq!(roles, [User, Assistant, Tool, Tool, Assistant, Assistant]);
    let turn = &messages[1];
    assert_eq!(turn.reasoning.as_deref(), Some("exactly this"));
    assert_eq!(turn.content.as_deref(), Some("I will."));
    assert_eq!(turn.tool_calls[0].arguments, "{\"a\": 1}");
    assert_eq!(turn.tool_calls[1].arguments, r#"{"input":"x\ny"}"#);
    // Results stand in the order of their calls.
    assert_eq!(said(&messages[2..4]), [(Tool, "a\nb"), (Tool, "done")]);
    assert_eq!(messages[3].name.as_deref(), Some("apply_patch"));
    assert_eq!(messages[4].reasoning.as_deref(), Some("plain"));
    assert_eq!(
        (&messages[4].content, messages[4].tool_calls.len()),
        (&None, 1)
    );
    assert_eq!(messages[5].reasoning.as_deref(), Some("again"));
}

#[tokio::test]
async fn leading_instructions_are_one_system_message() {
    let server = Fixture::new();
    let body = json!({"instructions": "one", "input": [
        {"type": "additional_tools", "role": "developer", "tools": tools()},
        {"role": "developer", "content": "two"},
        {"role": "system", "content": [{"type": "input_text", "text": "three"}]},
        {"role": "user", "content": "x"},
        {"role": "developer", "content": "four"},
    ]});
    let chat = read(&server, &body);
    let expected = [
        (Role::System, "one\n\ntwo\n\nthree"),
        (Role::User, "x"),
        (Role::Developer, "four"),
    ];
    assert_eq!(said(&chat.messages), expected);
    assert_eq!(chat.tools.len(), 3);
}

#[tokio::test]
async fn tools_of_all_kinds_become_functions() {
    let server = Fixture::new();
    let mut list = tools();
    list.as_array_mut().unwrap().push(
        json!({"type": "namespace", "name": "b", "tools": [{"type": "function", "name": "read"}]}),
    );
    let chat = read(&server, &json!({"input": "", "tools": list}));
    let names: Vec<&Value> = chat
        .tools
        .iter()
        .map(|tool| &tool["function"]["name"])
        .collect();
    // Only where two have one name it needs the namespace.
    assert_eq!(names, ["read", "apply_patch", "close", "b__read"]);
    let patch = &chat.tools[1]["function"];
    assert!(
        patch["description"]
            .as_str()
            .unwrap()
            .contains("start: \"x\"")
    );
    assert_eq!(patch["parameters"]["required"], json!(["input"]));
    assert_eq!(patch["strict"], Value::Null);
    // An expression is kept to.
    let format = json!({"type": "grammar", "syntax": "regex", "definition": "a|b"});
    let custom = json!([{"type": "custom", "name": "letter", "format": format}]);
    let chat = read(&server, &json!({"input": "", "tools": custom}));
    let letter = &chat.tools[0]["function"];
    let pattern = &letter["parameters"]["properties"]["input"]["pattern"];
    assert_eq!(
        (pattern, &letter["strict"]),
        (&json!("^(?:a|b)$"), &json!(true))
    );
    let called = json!({"type": "function_call", "name": "read", "namespace": "b", "call_id": "call_1", "arguments": "{}"});
    let chat = read(&server, &json!({"input": [called], "tools": list}));
    assert_eq!(chat.messages[0].tool_calls[0].name, "b__read");
}

#[tokio::test]
async fn choices_and_switches() {
    let server = Fixture::new();
    let named = |name: &str| ToolChoice::Named(name.to_owned());
    for (choice, expected, count) in [
        (json!(null), ToolChoice::Auto, 3),
        (json!("required"), ToolChoice::Required, 3),
        (json!("none"), ToolChoice::None, 3),
        (
            json!({"type": "function", "name": "read"}),
            named("read"),
            3,
        ),
        (
            json!({"type": "custom", "name": "apply_patch"}),
            named("apply_patch"),
            3,
        ),
        (
            json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "close"}]}),
            ToolChoice::Required,
            1,
        ),
    ] {
        let body = json!({"input": "", "tools": tools(), "tool_choice": choice});
        let chat = read(&server, &body);
        assert_eq!(
            (chat.tool_choice, chat.tools.len()),
            (expected, count),
            "{body}"
        );
    }
    for (choice, words) in [
        (json!("required"), "`tool_choice`: needs `tools`"),
        (
            json!({"type": "function", "name": "f"}),
            "`f` is none of the request's tools",
        ),
    ] {
        let body = json!({"input": "", "tool_choice": choice});
        let error = Input::decode(
            &server.server,
            &Field::body(&body).unwrap(),
            &Tenant::default(),
        )
        .err()
        .unwrap();
        assert!(error.to_string().contains(words), "{error}");
    }
    for (reasoning, args) in [
        (json!(null), json!({})),
        (json!({"summary": "auto"}), json!({})),
        (json!({"effort": "none"}), json!({"enable_thinking": false})),
        (
            json!({"effort": "minimal"}),
            json!({"enable_thinking": true, "reasoning_effort": "low"}),
        ),
        (
            json!({"effort": "medium"}),
            json!({"enable_thinking": true, "reasoning_effort": "medium"}),
        ),
    ] {
        let chat = read(&server, &json!({"input": "", "reasoning": reasoning}));
        assert_eq!(Value::Object(chat.template_args), args);
    }
}

#[tokio::test]
async fn a_summary_takes_the_place_of_what_it_sums_up() {
    let server = Fixture::new();
    let sealed = server.engine.seal_reasoning("Launch on Tuesday.");
    let body = json!({"input": [
        {"type": "compaction", "encrypted_content": sealed},
        {"type": "compaction", "encrypted_content": "of somebody else"},
        {"type": "agent_message", "content": [{"type": "input_text", "text": "report"}]},
    ]});
    let chat = read(&server, &body);
    let expected = [
        (
            Role::User,
            "Summary of the conversation so far:\nLaunch on Tuesday.",
        ),
        (Role::User, "report"),
    ];
    assert_eq!(said(&chat.messages), expected);
}
