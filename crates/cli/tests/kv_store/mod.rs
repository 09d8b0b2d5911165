//! KV on disk as users meet it: a server that is killed, the next one that goes on, and `andante kv`.

#[path = "../support/program.rs"]
mod program;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use super::support::Server;
use program::{andante, stdout};

fn serve(folder: &Path) -> Server {
    serve_with(folder, &[])
}

fn serve_with(folder: &Path, more: &[&str]) -> Server {
    let args = [
        "--sessions",
        "1",
        "--ctx",
        "2048",
        "--kv-disk-dir",
        folder.to_str().expect("a plain path"),
        "--kv-disk-space-mb",
        "200",
    ];
    Server::start(&[&args[..], more].concat())
}

fn ask(server: &Server, prompt: &str) -> (String, u64) {
    let body = json!({"prompt": prompt, "max_tokens": 16, "temperature": 0, "ignore_eos": true});
    let (status, answer) = server.post("/v1/completions", &body);
    assert_eq!(status, 200, "{answer}");
    let cached = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
    let text = answer["choices"][0]["text"].as_str().unwrap();
    (text.to_owned(), cached.as_u64().unwrap())
}

fn prompt_tokens(server: &Server, prompt: &str) -> u64 {
    let body = json!({"prompt": prompt, "max_tokens": 1});
    let (_, answer): (u16, Value) = server.post("/v1/completions", &body);
    answer["usage"]["prompt_tokens"].as_u64().unwrap()
}

#[test]
fn a_killed_server_has_lost_nothing_that_was_on_disk() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("kv");
    let story =
        "Once upon a time there was a server that never forgot what it had read. ".repeat(20);
    let longer = format!("{story}And when it was killed, it");
    let cold = Server::start(&["--sessions", "1", "--ctx", "2048"]);
    let (cold_story, cold_longer) = (ask(&cold, &story), ask(&cold, &longer));
    let tokens = prompt_tokens(&cold, &longer);
    drop(cold);

    let first = serve(&folder);
    assert_eq!(ask(&first, &story), cold_story);
    // Other work, in whose spare time the rest is written.
    ask(&first, "Other work");
    drop(first);

    let second = serve(&folder);
    let (text, cached) = ask(&second, &story);
    assert_eq!(text, cold_story.0);
    assert!(cached > 200, "{cached} tokens came from disk");
    let (text, cached) = ask(&second, &longer);
    assert_eq!(text, cold_longer.0);
    assert!(cached > 200 && cached < tokens, "{cached} of {tokens}");
    drop(second);

    let dir = folder.to_str().unwrap();
    let listing = stdout(&["kv", "ls", dir]);
    assert!(listing.contains("blocks"), "{listing}");
    let whole = stdout(&["kv", "verify", dir]);
    assert!(
        whole.ends_with("blocks are whole, 0 were removed\n"),
        "{whole}"
    );
    let leaf = listing
        .lines()
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap();
    let shown = stdout(&["kv", "show", dir, leaf]);
    assert!(shown.contains("block 0, KV of"), "{shown}");

    // Every file is damaged in the middle: all of it is computed again, and nothing else changes.
    for file in fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|end| end == "kv") {
            let mut bytes = fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
    }
    assert!(!andante(&["kv", "verify", dir]).status.success());
    let third = serve(&folder);
    assert_eq!(ask(&third, &story), cold_story);
    drop(third);
    stdout(&["kv", "verify", "--remove", dir]);
    stdout(&["kv", "prune", "--space-mb", "0", dir]);
    let left = fs::read_dir(&folder).unwrap().count();
    assert_eq!(left, 1, "the lock alone");
}

#[test]
fn an_encrypted_folder_is_of_use_with_its_key_only() {
    let parent = tempfile::tempdir().unwrap();
    let (folder, key) = (parent.path().join("kv"), parent.path().join("key"));
    let (dir, path) = (folder.to_str().unwrap(), key.to_str().unwrap());
    fs::write(&key, "0123456789abcdef".repeat(4) + "\n").unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    let open = andante(&[
        "serve",
        "--port",
        "0",
        "--kv-disk-dir",
        dir,
        "--kv-encrypt-key-file",
        path,
    ]);
    let told = String::from_utf8(open.stderr).unwrap();
    assert!(
        !open.status.success() && told.contains("chmod 600"),
        "{told}"
    );
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let story = "Once upon a time there was a key that nobody else had. ".repeat(12);
    let with_key = ["--kv-encrypt-key-file", path];
    let first = serve_with(&folder, &with_key);
    let said = ask(&first, &story);
    ask(&first, "Other work");
    drop(first);
    let second = serve_with(&folder, &with_key);
    let (text, cached) = ask(&second, &story);
    assert!(
        text == said.0 && cached > 100,
        "{cached} tokens came from disk"
    );
    drop(second);
    let other = serve(&folder);
    assert_eq!(ask(&other, &story), said, "computed again without the key");
    drop(other);
    let unread = stdout(&["kv", "verify", dir]);
    assert!(
        unread.contains("are encrypted with another key"),
        "{unread}"
    );
    let whole = stdout(&["kv", "verify", "--kv-encrypt-key-file", path, dir]);
    assert!(whole.ends_with(" were removed\n"), "{whole}");
}
