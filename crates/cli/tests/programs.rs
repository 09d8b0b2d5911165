//! The commands that read a model file or compare runtimes, on a real model.

#[path = "support/program.rs"]
mod program;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use program::{andante, stdout};

fn logits(folder: &Path, ids: &Path, name: &str, flags: &[&str]) -> Vec<u8> {
    let output: PathBuf = folder.join(name);
    let mut args = vec!["logits", ids.to_str().unwrap(), output.to_str().unwrap()];
    args.extend(flags);
    stdout(&args);
    std::fs::read(output).unwrap()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks_exact(4)
        .map(|value| f32::from_le_bytes(value.try_into().unwrap()))
        .collect()
}

#[test]
fn tokens_of_user_text_are_never_control_tokens() {
    assert_eq!(stdout(&["tokens", "--special", "<|im_start|>"]), "1\n");
    let as_text = stdout(&["tokens", "<|im_start|>"]);
    assert!(as_text.split_whitespace().count() > 3, "{as_text}");
}

#[test]
fn inspect_names_architecture_and_formats() {
    let shown = stdout(&["inspect"]);
    for fact in [
        "GGUF v3",
        "134.5 M weights",
        "Q4_1",
        "general.architecture",
        "llama",
        "smollm",
    ] {
        assert!(shown.contains(fact), "{fact} is missing in\n{shown}");
    }
}

#[test]
fn a_damaged_file_is_named_and_explained() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.gguf");
    std::fs::write(&path, b"GGUF\x03\0\0\0").unwrap();
    let output = andante(&["inspect", path.to_str().unwrap()]);
    assert!(!output.status.success());
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("damaged.gguf") && message.contains("byte"),
        "{message}"
    );
}

#[test]
fn logits_do_not_depend_on_chunks_or_threads() {
    let folder = tempfile::tempdir().unwrap();
    let ids = folder.path().join("ids");
    let tokens: Vec<u8> = (0..75i32)
        .flat_map(|i| (1000 + i * 7919 % 40_000).to_le_bytes())
        .collect();
    std::fs::write(&ids, tokens).unwrap();
    let whole = logits(
        folder.path(),
        &ids,
        "whole",
        &["--positions", "0-2,40,74", "--threads", "1"],
    );
    assert_eq!(whole.len(), 5 * 49_152 * 4);
    let ragged = logits(
        folder.path(),
        &ids,
        "ragged",
        &["--positions", "0-2,40,74", "--chunk", "7", "--threads", "2"],
    );
    assert!(
        whole == ragged,
        "chunks of 7 on two threads must give the same bits as one chunk on one thread"
    );

    let reference = logits(
        folder.path(),
        &ids,
        "reference",
        &["--positions", "0-2,40,74", "--reference"],
    );
    let (fast, exact) = (floats(&whole), floats(&reference));
    let top = |row: &[f32]| {
        (0..row.len())
            .max_by(|&a, &b| row[a].total_cmp(&row[b]))
            .unwrap()
    };
    let error: f32 = fast
        .iter()
        .zip(&exact)
        .map(|(a, b)| (a - b).abs())
        .sum::<f32>()
        / fast.len() as f32;
    assert!(
        error > 0.0 && error < 0.3,
        "mean error of the fast path is {error}"
    );
    assert_eq!(top(&fast[..49_152]), top(&exact[..49_152]));
}

#[test]
fn run_answers_one_prompt() {
    let prompt = "The capital of France is";
    let answer = stdout(&["run", prompt, "--raw", "--temperature", "0", "-n", "8"]);
    assert!(answer.contains("Paris"), "{answer}");
}

#[test]
fn chat_talks_line_by_line() {
    let mut talk = Command::new(env!("CARGO_BIN_EXE_andante"))
        .args(["chat", "-m", "smollm2", "--temperature", "0", "-n", "16"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    talk.stdin
        .take()
        .unwrap()
        .write_all(b"Hello!\n\nWhat did I just say?\n")
        .unwrap();
    let output = talk.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.lines().filter(|line| !line.is_empty()).count() >= 2,
        "{text}"
    );
}
