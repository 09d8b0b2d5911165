//! What a server writes of itself and of its requests.

use std::fs::{self, File};

use serde_json::{Value, json};

use crate::support::Server;

const SECRET: &str = "Xylophones are my secret";

/// The log of a server that answered one conversation, and then ended well.
fn log_of(flags: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut server = Server::start_logging(flags, File::create(&path).unwrap());
    let body = json!({
        "messages": [{"role": "user", "content": SECRET}],
        "max_tokens": 5,
        "ignore_eos": true,
    });
    let (status, answer) = server.post("/v1/chat/completions", &body);
    assert_eq!(status, 200, "{answer}");
    server.terminate();
    assert!(server.wait().success());
    let log = fs::read_to_string(&path).unwrap();
    let said = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(!log.contains(SECRET) && !log.contains(said), "{log}");
    log
}

#[test]
fn requests_and_flags_have_readable_lines() {
    let log = log_of(&["--quality", "--batched-session", "2", "--ctx", "1000"]);
    let line = |part: &str| {
        let found = log.lines().find(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("no {part} in\n{log}"))
    };
    line("--quality: there is one arithmetic");
    line("model: ");
    line("Interactive profile, 2 sessions of 1000 tokens, mix, stall ");
    let begins = line(" chat: ctx 0..");
    assert!(
        begins.contains(" INFO req_") && begins.contains(" cached 0 new "),
        "{begins}"
    );
    let ends = line(" | length");
    assert!(
        ends.contains(" | prefill ") && ends.contains(" t/s, 5 tokens | length"),
        "{ends}"
    );
}

#[test]
fn json_lines_hold_the_same_figures() {
    let log = log_of(&["--log-format", "json"]);
    let objects: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let event = |name: &str| {
        let found = objects.iter().find(|object| object["event"] == name);
        found.unwrap_or_else(|| panic!("no {name} in\n{log}"))
    };
    let (begins, ends) = (event("prompt"), event("finished"));
    assert_eq!(begins["request"], ends["request"]);
    assert!(begins["prompt_tokens"].as_u64().unwrap() > 5);
    assert_eq!(ends["completion_tokens"], 5);
    assert_eq!(ends["cached_tokens"], 0);
    assert_eq!(ends["reason"], "length");
    assert!(ends["decode_per_s"].as_f64().unwrap() > 0.0);
}
