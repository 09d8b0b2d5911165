//! `andante simulate` as a program, on traces and logs made here.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use andante_sched::{Admission, Config, Outcome, Plan, Scheduler};
use serde_json::Value;

fn simulate(file: &Path, flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_andante"))
        .arg("simulate")
        .arg(file)
        .args(flags)
        .output()
        .unwrap()
}

fn stdout(file: &Path, flags: &[&str]) -> String {
    let output = simulate(file, flags);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(file: &Path, flags: &[&str]) -> String {
    let output = simulate(file, flags);
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

/// Two answers under way when a long prompt comes, and a short one behind it.
fn trace(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("trace.csv");
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
                2024-01-01 00:00:00.0000000,500,300\n\
                2024-01-01 00:00:00.0000000,500,300\n\
                2024-01-01 00:00:01.0000000,60000,4\n\
                2024-01-01 00:00:01.5000000,200,50\n";
    fs::write(&path, text).unwrap();
    path
}

fn number(json: &Value, run: usize, pointer: &str) -> f64 {
    json[run].pointer(pointer).and_then(Value::as_f64).unwrap()
}

#[test]
fn the_comparison_shows_what_each_policy_costs() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path());
    let svg = folder.path().join("svg");
    let flags = ["--json", "--svg", svg.to_str().unwrap()];
    let json: Value = serde_json::from_str(&stdout(&trace, &flags)).unwrap();
    let names: Vec<&str> = (0..4)
        .map(|run| json[run]["policy"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["ours:100", "prefill-first:8192", "mixed:2048", "mixed:512"]
    );
    let gap = |run| number(&json, run, "/max_gap_ms");
    let short = |run| number(&json, run, "/ttft_by_length/0/p99_s");
    assert!(gap(0) <= 100.0, "{}", gap(0));
    assert!(gap(1) > 5000.0 && gap(2) > 300.0);
    assert!(short(0) < 0.25 && (1..4).all(|run| short(run) > 5.0));
    assert_eq!(
        (0..4)
            .map(|run| number(&json, run, "/unanswered"))
            .sum::<f64>(),
        0.0
    );
    for name in ["steps.svg", "gaps.svg", "ttft.svg"] {
        let figure = fs::read_to_string(svg.join(name)).unwrap();
        assert!(
            figure.contains("mixed:512") && figure.ends_with("</svg>\n"),
            "{name}"
        );
    }
}

#[test]
fn policies_and_load_are_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path());
    let table = stdout(
        &trace,
        &[
            "-p",
            "alternate,ours:50",
            "--chunk",
            "256",
            "--max-prompt",
            "1000",
            "--noise",
            "10",
            "--fit",
        ],
    );
    let names: Vec<&str> = table
        .lines()
        .skip(2)
        .map(|line| line.split_once(' ').unwrap().0)
        .collect();
    assert_eq!(names, ["alternate:256", "ours:50"]);
    let json = stdout(&trace, &["-p", "mixed:512", "--limit", "2", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(number(&json, 0, "/requests"), 2.0);
}

#[test]
fn the_cost_model_can_come_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path());
    let cost = folder.path().join("cost.json");
    let zero = r#""token_us":0,"attend_us":0,"context_us":0,"row_us":0"#;
    fs::write(
        &cost,
        format!(r#"{{"cost":{{"decode_us":7000,"prefill_us":7000,"mixed_us":7000,{zero}}}}}"#),
    )
    .unwrap();
    let flags = [
        "-p",
        "decode-first",
        "--json",
        "--cost",
        cost.to_str().unwrap(),
    ];
    let json: Value = serde_json::from_str(&stdout(&trace, &flags)).unwrap();
    assert_eq!(number(&json, 0, "/max_gap_ms"), 7.0);
}

#[test]
fn the_cost_model_can_come_from_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let request = BufReader::new(&stream).lines().next().unwrap().unwrap();
        let zero = r#""token_us":0,"attend_us":0,"context_us":0,"row_us":0"#;
        let body = format!(
            r#"{{"mode":"mix","cost":{{"decode_us":7000,"prefill_us":7000,"mixed_us":7000,{zero},"margin_permille":[1,2,3]}}}}"#
        );
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).unwrap();
        request
    });
    let flags = ["-p", "decode-first", "--json", "--cost-from", &url];
    let json: Value = serde_json::from_str(&stdout(&trace, &flags)).unwrap();
    assert_eq!(number(&json, 0, "/max_gap_ms"), 7.0);
    assert_eq!(server.join().unwrap(), "GET /scheduler HTTP/1.1");
}

#[test]
fn a_bad_line_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.csv");
    fs::write(
        &path,
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-01-01 00:00:00,5\n",
    )
    .unwrap();
    let error = refused(&path, &[]);
    assert!(
        error.contains("bad.csv") && error.contains("line 2"),
        "{error}"
    );
    let error = refused(&path, &["-p", "fastest"]);
    assert!(error.contains("prefill-first"), "{error}");
    let error = refused(&trace(folder.path()), &["--replay"]);
    assert!(error.contains("not a scheduling log"), "{error}");
}

/// A recorded run of two requests, 3 ms a step.
fn log() -> Vec<u8> {
    let mut scheduler = Scheduler::new(Config::new(2, 100, 16));
    scheduler.record(true);
    let mut log = Vec::new();
    for id in 0..2 {
        scheduler.add(Admission::new(id, &[5; 40], 4)).unwrap();
    }
    let mut now_us = 1_000_000;
    while let Plan::Step(step) = scheduler.plan(now_us) {
        let step = step.clone();
        let mut outcomes = vec![Outcome::Token(7); step.decode.len()];
        outcomes.extend(step.prefill.iter().map(|range| {
            if range.last {
                Outcome::Token(7)
            } else {
                Outcome::Prefilled
            }
        }));
        scheduler.complete(step.step_no, 3000, &outcomes).unwrap();
        now_us += 3000;
        scheduler.take_log(&mut log);
    }
    scheduler.take_log(&mut log);
    log
}

#[test]
fn a_log_is_replayed_and_is_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.log");
    fs::write(&path, log()).unwrap();
    let shown = stdout(&path, &[]);
    assert!(
        shown.contains("are the recorded ones") && shown.contains("\nrecorded |"),
        "{shown}"
    );
    let json = stdout(&path, &["--replay", "-p", "mixed:512", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (json[0]["policy"].as_str(), json[1]["policy"].as_str()),
        (Some("recorded"), Some("mixed:512"))
    );
    assert_eq!(number(&json, 0, "/max_gap_ms"), 3.0);
    assert_eq!(
        (
            number(&json, 1, "/requests"),
            number(&json, 1, "/unanswered")
        ),
        (2.0, 0.0)
    );
}

#[test]
fn a_cut_log_is_used_and_a_damaged_one_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.log");
    let mut log = log();
    fs::write(&path, &log[..log.len() - 3]).unwrap();
    assert!(stdout(&path, &[]).contains("cut off"));
    let prompt = log.windows(40).position(|bytes| bytes == [5; 40]).unwrap();
    log[prompt] = 6;
    fs::write(&path, &log).unwrap();
    let error = refused(&path, &[]);
    assert!(
        error.contains("run.log") && error.contains("damaged"),
        "{error}"
    );
}

#[test]
fn a_timeline_is_shown_beside_what_policies_would_have_done() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("schedule.json");
    // An answer of two tokens, 40 ms apart; a machine whose steps of answers take 5 ms, of prompts 7 ms.
    let text = r#"{"cost": {"decode_us": 5000, "prefill_us": 7000, "mixed_us": 9000, "token_us": 0, "attend_us": 0,
        "context_us": 0, "row_us": 0, "margin_permille": [1000, 1000, 1000]}, "missed": false, "moments": [
        {"kind": "arrived", "at_us": 100, "id": 4, "tenant": "0a", "priority": "normal", "prompt_tokens": 50,
         "stored_tokens": 0, "max_new": 9, "cache": true},
        {"kind": "step", "started_us": 200, "actual_us": 1000, "rows": 0, "decode": [],
         "prefill": [{"id": 4, "start": 0, "tokens": 50, "last": true}]},
        {"kind": "step", "started_us": 1200, "actual_us": 40000, "rows": 1, "decode": [4], "prefill": []},
        {"kind": "ended", "at_us": 41200, "id": 4, "how": "stop", "cached_tokens": 0, "tokens": 2}]}"#;
    fs::write(&path, text).unwrap();
    let shown = stdout(&path, &[]);
    assert!(
        shown.starts_with("steps: 2, requests: 1; 0 of 50 prompt tokens were known")
            && shown.contains("\nrecorded |"),
        "{shown}"
    );
    let json = stdout(&path, &["-p", "ours,mixed:512", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let gaps = [0, 1, 2].map(|run| number(&json, run, "/max_gap_ms"));
    assert_eq!(gaps, [40.0, 5.0, 5.0]);
    assert_eq!(number(&json, 1, "/ttft/p50_s"), 0.007);
    // What is asked for stands above what is in the file.
    let json = stdout(&path, &["-p", "ours", "--cost", "a100", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(number(&json, 1, "/max_gap_ms") > 8.0);
    assert!(refused(&path, &["--replay"]).contains("not a scheduling log"));
    fs::write(&path, r#"{"moments": [{"kind": "step"}]}"#).unwrap();
    let error = refused(&path, &[]);
    assert!(
        error.contains("schedule.json") && error.contains("GET /timeline"),
        "{error}"
    );
}

#[test]
fn a_simulated_run_can_be_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("ours.log");
    let trace = trace(folder.path());
    let flags = ["-p", "ours:60", "--noise", "20", "--fit", "--json"];
    let recording = [&flags[..], &["--record", log.to_str().unwrap()]].concat();
    let ran: Value = serde_json::from_str(&stdout(&trace, &recording)).unwrap();
    let read: Value = serde_json::from_str(&stdout(&log, &["--json"])).unwrap();
    for figure in [
        "/max_gap_ms",
        "/gap_p99_ms",
        "/end_s",
        "/steps",
        "/tokens_per_s",
    ] {
        assert_eq!(
            number(&ran, 0, figure),
            number(&read, 0, figure),
            "{figure}"
        );
    }
}
