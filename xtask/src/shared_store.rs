//! `cargo xtask shared-store`: two servers that share their KV through an S3-compatible server, which then goes away.
//!
//! The server is the Python package `moto` (an AWS in memory), installed into `target/peers` and started on loopback.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::served::{self, Server};
use crate::{andante, peers};

const PACKAGE: &str = "moto[server]==5.2.5";
const BUCKET: &str = "andante-kv";
/// How long the bucket may take to start, and a save to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// The S3-compatible server; killed when dropped.
struct Bucket {
    process: Child,
    address: String,
}

#[expect(clippy::print_stdout, reason = "a command-line tool talks to its user")]
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    if !args.is_empty() {
        bail!("shared-store takes no arguments");
    }
    let program = andante::build_with(root, &["--features", "s3"])?;
    let model = andante::pull(&program, "smollm2")?;
    let programs = peers::environment(&root.join("target/peers/moto"), &[PACKAGE])?;
    let bucket = Bucket::start(&programs.join("moto_server"))?;
    let start = |store: bool| start(&program, &model, store.then_some(&bucket));
    let story = "Once upon a time several servers shared what they had read. ".repeat(30);
    let (cold, first) = (start(false)?, start(true)?);
    let expected = ask(&cold, &story)?;
    if ask(&first, &story)?.0 != expected.0 {
        bail!("another answer with an empty bucket");
    }
    bucket.wait_for_objects()?;
    let second = start(true)?;
    let (text, cached) = ask(&second, &story)?;
    println!("{cached} tokens that one server has computed, another has loaded");
    if text != expected.0 || cached < 300 {
        bail!("the second server has {cached} tokens from the first, and says {text:?}");
    }
    // Nobody is there any more, in the middle of the work.
    drop(bucket);
    let longer = format!("{story}But then");
    let expected = ask(&cold, &longer)?.0;
    for server in [&first, &second] {
        if ask(server, &longer)?.0 != expected {
            bail!("another answer without the bucket");
        }
    }
    println!("without the bucket both go on");
    Ok(())
}

fn start(program: &Path, model: &Path, bucket: Option<&Bucket>) -> Result<Server> {
    let url = format!("s3://{BUCKET}/tests");
    let plain = ["--sessions", "1", "--ctx", "2048", "--model"].map(OsStr::new);
    let mut args = plain.to_vec();
    args.push(model.as_os_str());
    let Some(bucket) = bucket else {
        return Server::start(program, &args, &[]);
    };
    args.extend(["--kv-store", &url].map(OsStr::new));
    let endpoint = format!("http://{}", bucket.address);
    let variables = [
        ("AWS_ENDPOINT", endpoint.as_str()),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ];
    Server::start(program, &args, &variables)
}

/// The answer to a prompt, and how many of its tokens were not computed.
fn ask(server: &Server, prompt: &str) -> Result<(String, u64)> {
    let body = json!({"prompt": prompt, "max_tokens": 16, "temperature": 0, "ignore_eos": true});
    let answer: Value = served::ask(&server.address, "/v1/completions", &body)?;
    let text = answer["choices"][0]["text"].as_str().context("no text")?;
    let cached = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
    Ok((text.to_owned(), cached.as_u64().unwrap_or(0)))
}

impl Bucket {
    fn start(program: &PathBuf) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start moto_server")?;
        let bucket = Self {
            process,
            address: format!("127.0.0.1:{port}"),
        };
        bucket.wait(|| {
            Ok(bucket
                .call("PUT", BUCKET)
                .is_ok_and(|answer| answer.contains(" 200 ")))
        })?;
        Ok(bucket)
    }

    /// Until a server has saved some blocks.
    fn wait_for_objects(&self) -> Result<()> {
        self.wait(|| Ok(self.call("GET", BUCKET)?.matches(".kv</Key>").count() >= 10))
    }

    fn wait(&self, done: impl Fn() -> Result<bool>) -> Result<()> {
        const STEP: Duration = Duration::from_millis(200);
        for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
            if done()? {
                // What was begun may still be under way.
                thread::sleep(STEP);
                return Ok(());
            }
            thread::sleep(STEP);
        }
        bail!(
            "nothing happened at {} in {} s",
            self.address,
            PATIENCE.as_secs()
        )
    }

    fn call(&self, method: &str, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(&self.address)?;
        write!(
            stream,
            "{method} /{path} HTTP/1.0\r\nhost: {}\r\ncontent-length: 0\r\n\r\n",
            self.address
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}
