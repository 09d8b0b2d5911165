//! `andante run`: one answer in the terminal.

use std::io::{self, IsTerminal, Read};
use std::time::Instant;

use andante_engine::{Event, PromptInput, Request, Sampling};
use andante_text::{ChatRequest, Message, Part, Role};
use anyhow::{Context, Result, bail, ensure};

use crate::args::RunArgs;
use crate::footprint;
use crate::output::{note, print, print_faint};
use crate::session::{self, Session};

/// Answers the prompt of the command line, or what standard input holds.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let start = Instant::now();
    let prompt = match &args.prompt {
        Some(prompt) => prompt.clone(),
        None => prompt_of_input()?,
    };
    let session = session::start(&args.model, &args.engine, None, &|_, _| {}, |_| {})?;
    if args.verbose {
        note(format_args!(
            "loaded in {:.3} s\n",
            session.load_time.as_secs_f64()
        ));
    }
    answer(args, &session, prompt, start)?;
    if args.verbose
        && let Some(bytes) = footprint::peak_bytes()
    {
        note(format_args!(
            "peak memory {:.1} MiB\n",
            bytes as f64 / f64::from(1 << 20)
        ));
    }
    session.finish()
}

fn prompt_of_input() -> Result<String> {
    ensure!(
        !io::stdin().is_terminal(),
        "give a prompt; `andante chat` talks"
    );
    let mut prompt = String::new();
    io::stdin().read_to_string(&mut prompt)?;
    let prompt = prompt.trim_end().to_owned();
    ensure!(!prompt.is_empty(), "standard input is empty");
    Ok(prompt)
}

/// Prints a part of the answer. What the model thinks is shown faintly, and only to a person: elsewhere standard output holds
/// the answer alone.
fn say(part: Part) -> Result<()> {
    match part {
        Part::Text(text) => print(format_args!("{text}")),
        Part::Reasoning(text) if io::stdout().is_terminal() => print_faint(format_args!("{text}")),
        // Without tools nothing is called.
        Part::Reasoning(_) | Part::Call { .. } | Part::Arguments(_) => Ok(()),
    }
}

fn answer(args: &RunArgs, session: &Session, prompt: String, asked: Instant) -> Result<()> {
    let mut events = session.handle.submit(request(args, session, prompt)?)?;
    let (mut tokens, mut first) = (0_u32, None);
    while let Some(event) = events.recv_blocking() {
        match event {
            Event::Token(delta) => {
                first.get_or_insert_with(Instant::now);
                tokens += 1;
                for part in delta.parts {
                    say(part)?;
                }
            }
            Event::Failed(failure) => bail!("no answer: {failure}"),
            Event::Progress(_)
            | Event::Started { .. }
            | Event::Embedding(_)
            | Event::Finished { .. } => {}
        }
    }
    print(format_args!("\n"))?;
    if let Some(first) = first.filter(|_| args.verbose) {
        let seconds = first.elapsed().as_secs_f64();
        note(format_args!(
            "first token after {:.3} s, {:.1} tokens/s after it\n",
            (first - asked).as_secs_f64(),
            f64::from(tokens.saturating_sub(1)) / seconds
        ));
    }
    Ok(())
}

fn request(args: &RunArgs, session: &Session, prompt: String) -> Result<Request> {
    let sampling = Sampling {
        temperature: args.temperature,
        seed: args.seed,
        max_tokens: args.tokens,
        ..Sampling::default()
    };
    if args.raw {
        return Ok(session
            .handle
            .prepare_text(PromptInput::Text(prompt), sampling)?);
    }
    let system = args.system.as_ref();
    let mut messages: Vec<_> = system
        .map(|text| Message::new(Role::System, text))
        .into_iter()
        .collect();
    messages.push(Message::new(Role::User, prompt));
    let chat = ChatRequest {
        messages,
        add_generation_prompt: true,
        ..ChatRequest::default()
    };
    let request = session.handle.prepare_chat(&chat, sampling);
    request.context("cannot make a prompt of it; --raw continues a text as it is")
}
