//! The program as its users run it: a real model, real sockets, several clients.

mod kv_store;
mod logged;
mod probe;
mod structured;
mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use support::{Server, Sse};

fn chat(content: &str, max_tokens: u32) -> Value {
    json!({
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_tokens": max_tokens,
        "stream": true,
        "stream_options": {"include_usage": true},
    })
}

/// What must be the same whatever runs beside a request. How much came from the cache is not part of it.
fn outcome(answer: &Sse) -> (String, Option<String>, u64, u64) {
    let usage = &answer.usage;
    let count = |name: &str| usage[name].as_u64().unwrap();
    (
        answer.text.clone(),
        answer.finish_reason.clone(),
        count("prompt_tokens"),
        count("completion_tokens"),
    )
}

#[test]
fn three_clients_get_their_own_answers_at_once() {
    let server = Server::start(&["--sessions", "3"]);
    let prompts = [
        "The capital of France is",
        "The capital of Italy is",
        "The capital of Japan is",
    ];
    let answers = thread::scope(|scope| {
        let asked = prompts.map(|prompt| {
            let body = json!({"prompt": prompt, "temperature": 0, "max_tokens": 96, "ignore_eos": true, "stream": true});
            let server = &server;
            scope.spawn(move || server.stream("/v1/completions", &body))
        });
        asked.map(|thread| thread.join().unwrap())
    });
    for (answer, capital) in answers.iter().zip(["Paris", "Rome", "Tokyo"]) {
        assert!(answer.text.contains(capital), "{:?}", answer.text);
        assert!(answer.done, "the stream must end with [DONE]");
        assert_eq!(answer.finish_reason.as_deref(), Some("length"));
    }
    let overlap = answers.iter().all(|a| {
        answers
            .iter()
            .all(|b| a.times[0] < *b.times.last().unwrap())
    });
    assert!(
        overlap,
        "the answers must be generated at once, not one after the other"
    );
}

#[test]
fn identical_requests_beside_a_long_prompt_give_what_one_alone_gives() {
    let server = Server::start(&["--sessions", "6"]);
    let request = chat("Write two sentences about the sea.", 40);
    let alone = outcome(&server.stream("/v1/chat/completions", &request));
    let filler: Vec<u32> = (0..4000u32).map(|i| 1000 + i * 7919 % 40_000).collect();
    let long = json!({"prompt": filler, "max_tokens": 2, "temperature": 0, "stream": true});
    thread::scope(|scope| {
        let long = scope.spawn(|| server.stream("/v1/completions", &long));
        thread::sleep(Duration::from_millis(200));
        let beside: Vec<_> = (0..4)
            .map(|_| {
                thread::sleep(Duration::from_millis(50));
                scope.spawn(|| server.stream("/v1/chat/completions", &request))
            })
            .collect();
        let beside: Vec<_> = beside
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        let long = long.join().unwrap();
        for answer in &beside {
            assert_eq!(outcome(answer), alone);
        }
        assert!(
            beside[0].times[0] < long.times[0],
            "void: the long prompt was done before the answers began"
        );
    });
}

/// A template that begins every answer with reasoning.
const THINKING: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
    {% endfor %}<|im_start|>assistant\n<think>\n";

#[test]
fn two_equal_streams_beside_an_agent_are_equal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("thinking.jinja");
    std::fs::write(&file, THINKING).unwrap();
    let server = Server::start(&["--chat-template-file", file.to_str().unwrap()]);
    let mut greedy = chat("Write two sentences about the sea.", 60);
    greedy["thinking_budget"] = json!(20);
    let mut seeded = greedy.clone();
    seeded["temperature"] = json!(1.0);
    seeded["seed"] = json!(7);
    for request in [&greedy, &seeded] {
        let busy = AtomicBool::new(true);
        let [one, other] = thread::scope(|scope| {
            let agent = scope.spawn(|| agent(&server, &busy));
            let streams =
                [0, 1].map(|_| scope.spawn(|| server.stream("/v1/chat/completions", request)));
            let answers = streams.map(|stream| stream.join().unwrap());
            busy.store(false, Ordering::Relaxed);
            assert!(agent.join().unwrap() > 0, "the agent worked meanwhile");
            answers
        });
        assert!(!one.text.is_empty() && !one.reasoning.is_empty(), "{one:?}");
        assert_eq!(one.reasoning, other.reasoning);
        assert_eq!(outcome(&one), outcome(&other));
        let alone = server.stream("/v1/chat/completions", request);
        assert_eq!(one.reasoning, alone.reasoning);
        assert_eq!(outcome(&one), outcome(&alone));
    }
}

/// Calls a tool and sends what came of it, again and again, while somebody is `busy`; returns the number of turns.
fn agent(server: &Server, busy: &AtomicBool) -> usize {
    let mut messages = vec![json!({"role": "user", "content": "Look into every drawer."})];
    let schema = json!({"type": "object", "properties": {"drawer": {"enum": ["upper", "lower"]}}, "required": ["drawer"]});
    let tool = json!({"type": "function", "function": {"name": "look", "parameters": schema}});
    let mut turns = 0;
    while busy.load(Ordering::Relaxed) {
        let body = json!({"messages": messages, "tools": [tool], "tool_choice": "required", "parallel_tool_calls": false,
            "thinking_budget": 4, "max_tokens": 64});
        let (status, answer) = server.post("/v1/chat/completions", &body);
        assert_eq!(status, 200, "{answer}");
        let message = answer["choices"][0]["message"].clone();
        let id = message["tool_calls"][0]["id"].clone();
        assert!(id.is_string(), "{answer}");
        messages.push(message);
        messages.push(
            json!({"role": "tool", "tool_call_id": id, "content": "A key, a coin and a letter."}),
        );
        turns += 1;
    }
    turns
}

#[test]
fn a_second_request_computes_only_its_own_suffix() {
    let server = Server::start(&[]);
    let story =
        "Once upon a time there was a server that never forgot what it had read. ".repeat(20);
    let first = server.post(
        "/v1/completions",
        &json!({"prompt": story, "max_tokens": 8, "temperature": 0}),
    );
    let again = server.post(
        "/v1/completions",
        &json!({"prompt": story, "max_tokens": 8, "temperature": 0}),
    );
    assert_eq!(first.0, 200);
    let cached = |answer: &Value| {
        answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap()
    };
    let prompt = again.1["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(cached(&first.1), 0);
    assert!(
        cached(&again.1) + 32 >= prompt,
        "{} of {prompt} tokens were cached",
        cached(&again.1)
    );
    assert_eq!(first.1["choices"][0]["text"], again.1["choices"][0]["text"]);
}

#[test]
fn a_prompt_that_does_not_fit_is_refused_with_the_numbers() {
    let server = Server::start(&["--ctx", "64"]);
    let (status, body) = server.post(
        "/v1/completions",
        &json!({"prompt": "word ".repeat(100), "max_tokens": 4}),
    );
    assert_eq!(status, 400);
    assert_eq!(body["error"]["code"], "context_length_exceeded");
    assert_eq!(body["error"]["n_ctx"], 64);
}

#[test]
fn the_models_template_and_name_are_the_operators_to_choose() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plain.jinja");
    let template = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}<think>";
    std::fs::write(&file, template).unwrap();
    let file = file.to_str().unwrap();
    let server = Server::start(&["--chat-template-file", file, "--alias", "mine"]);
    let body =
        json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "temperature": 0});
    let (_, rendered) = server.post("/apply-template", &body);
    assert_eq!(rendered["prompt"], "user: Hi\n<think>");
    let (_, answer) = server.post("/v1/chat/completions", &body);
    assert_eq!(answer["model"], "mine");
    // The dialect is that template's.
    let message = &answer["choices"][0]["message"];
    assert!(message["reasoning_content"].is_string(), "{message}");
}

#[test]
fn a_client_that_leaves_frees_its_place() {
    let server = Server::start(&["--sessions", "1"]);
    let endless = json!({"prompt": "Count: one two three", "max_tokens": 4000, "ignore_eos": true, "stream": true});
    server.stream_and_leave("/v1/completions", &endless, 3);
    // With one session, this is answered only once the first is gone.
    let (status, _) = server.post(
        "/v1/completions",
        &json!({"prompt": "Hello", "max_tokens": 2}),
    );
    assert_eq!(status, 200);
}

#[test]
fn running_answers_finish_when_the_server_is_told_to_end() {
    let mut server = Server::start(&[]);
    let request = json!({"prompt": "Count: one two three", "max_tokens": 60, "ignore_eos": true, "stream": true});
    let answer = server.stream_and("/v1/completions", &request, || server.terminate());
    assert!(
        answer.done && answer.finish_reason.as_deref() == Some("length"),
        "{answer:?}"
    );
    assert!(server.wait().success());
}
