//! `andante chat`: a conversation in the terminal, with a server that runs or with one of its own.

mod command;
mod editor;
mod server;
mod settings;
mod stream;
mod talk;

use std::env;
use std::fs;
use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result};

use crate::access;
use crate::args::ChatArgs;
use crate::output::print;
use crate::peer::{Peer, USUAL};
use command::Command;
use editor::{Editor, Entered};
use server::Own;
use settings::Settings;
use talk::Talk;

/// Talks until the input ends.
pub(crate) fn run(args: &ChatArgs) -> Result<()> {
    let key = args.key.clone().or_else(access::key_of_environment);
    let running = match &args.model {
        Some(_) => None,
        None => running(args.url.as_deref(), key)?,
    };
    let (peer, own) = match running {
        Some(peer) => (peer, None),
        None => {
            let own = Own::start(args)?;
            (own.peer().clone(), Some(own))
        }
    };
    let model = model(&peer)?;
    let settings = Settings {
        system: args.system.clone(),
        temperature: args.temperature,
        max_tokens: args.tokens,
        seed: args.seed,
        ..Settings::default()
    };
    let talked = converse(&mut Talk::new((peer, model), settings, interrupts()?));
    match own {
        Some(own) => talked.and(own.finish()),
        None => talked,
    }
}

/// The server at `url`, or at the usual address; none where none was named and none is there.
fn running(url: Option<&str>, key: Option<String>) -> Result<Option<Peer>> {
    let peer = Peer::new(url.unwrap_or(USUAL), key);
    match peer.json("/health") {
        Ok(_) => Ok(Some(peer)),
        Err(_) if url.is_none() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The model that a server names first.
fn model(peer: &Peer) -> Result<String> {
    let models = peer.json("/v1/models")?;
    let name = models["data"][0]["id"].as_str();
    Ok(name
        .with_context(|| format!("{} has no model", peer.base()))?
        .to_owned())
}

fn converse(talk: &mut Talk) -> Result<()> {
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        for line in io::stdin().lock().lines() {
            let line = line?;
            if !line.trim().is_empty() {
                talk.ask(line.trim_end())?;
            }
        }
        return Ok(());
    }
    print(format_args!(
        "{}; /help lists the commands, \"\"\" begins and ends text of several lines\n",
        talk.model()
    ))?;
    let mut editor = Editor::new(history_file())?;
    loop {
        match editor.read()? {
            Entered::Nothing => {}
            Entered::End => return Ok(()),
            Entered::Text(text) => match Command::parse(&text) {
                None => talk.ask(&text)?,
                Some(Ok(Command::Quit)) => return Ok(()),
                Some(Ok(Command::Edit)) => {
                    if let Some(text) = editor.edit(talk.take_back())? {
                        talk.ask(&text)?;
                    }
                }
                Some(Ok(command)) => talk.obey(command)?,
                Some(Err(wrong)) => print(format_args!("{wrong}\n"))?,
            },
        }
    }
}

/// Set by Ctrl-C, which then stops an answer and not the program.
fn interrupts() -> Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    if !io::stdin().is_terminal() {
        return Ok(asked);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot listen for Ctrl-C")?;
    let set = Arc::clone(&asked);
    thread::Builder::new()
        .name("interrupts".into())
        .spawn(move || {
            runtime.block_on(async {
                while tokio::signal::ctrl_c().await.is_ok() {
                    set.store(true, Ordering::Relaxed);
                }
            });
        })
        .context("cannot listen for Ctrl-C")?;
    Ok(asked)
}

/// Where questions are remembered, by the rules of the XDG base directories; nowhere where that folder cannot be made.
fn history_file() -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.filter(|path| path.is_absolute()).or_else(|| {
        let home = PathBuf::from(env::var_os("HOME")?);
        Some(home.join(".local/state"))
    })?;
    let folder = state.join("andante");
    fs::create_dir_all(&folder).ok()?;
    Some(folder.join("chat-history"))
}
