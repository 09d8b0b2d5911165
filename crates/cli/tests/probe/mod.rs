//! The probe against the program's own server, with a real model: one round of each mode, and runs that are void.

use std::process::{Command, Output};

use serde_json::Value;

use crate::support::Server;

fn probe(server: &Server, flags: &str) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_andante"))
        .args(["probe", &server.url(), "--json"])
        .args(flags.split_whitespace())
        .output();
    output.unwrap()
}

/// The report of a run that is to be valid.
fn report(server: &Server, flags: &str) -> Value {
    let output = probe(server, flags);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{flags}: {complaint}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn running_answers_get_tokens_while_a_long_prompt_is_processed() {
    let server = Server::start(&["--sessions", "4", "--max-stall-ms", "100"]);
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("timeline.svg");
    let flags = format!("--long 3000 --work 20 --svg {}", svg.display());
    let report = report(&server, &flags);
    assert_eq!(report["void"], Value::Null);
    assert_eq!(report["requests"], "/v1/completions, prompts as token ids");
    let round = &report["rounds"][0];
    for tokens in round["tokens_by_victim"].as_array().unwrap() {
        assert!(tokens.as_u64().unwrap() > 5, "{report:#}");
    }
    let second = |key: &str| round[key].as_f64().unwrap();
    assert!(
        second("newcomer_ttft_ms") < second("long_ttft_s") * 1000.0,
        "{report:#}"
    );
    assert!(
        std::fs::read_to_string(svg)
            .unwrap()
            .contains("running answer 2")
    );
    // As text, through the chat endpoint.
    let chat = self::report(&server, "--chat --long 2500 --victims 1 --work 5");
    assert_eq!(chat["requests"], "/v1/chat/completions, prompts as text");
    assert_eq!(chat["void"], Value::Null);
}

#[test]
fn f28_without_overlap_the_run_is_void_and_the_program_fails() {
    // One session: the long prompt waits until the only answer has ended.
    let server = Server::start(&["--sessions", "1"]);
    let output = probe(
        &server,
        "--victims 1 --victim-tokens 100 --long 1500 --work 5",
    );
    assert!(!output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let why = report["void"].as_str().unwrap();
    assert!(
        why.contains("ended before the long prompt's first token"),
        "{why}"
    );
}
