//! `andante run`: one answer, or a conversation, in the terminal.

use std::fmt::Arguments;
use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Instant;

use andante_engine::{Event, PromptInput, Request, Sampling};
use andante_text::{ChatRequest, Message, Part, Role};
use anyhow::{Context, Result, bail};

use crate::args::RunArgs;
use crate::footprint;
use crate::output::print;
use crate::session::{self, Session};

/// Answers the prompt of the command line, or every line of standard input with the conversation so far.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let start = Instant::now();
    let session = session::start(&args.model, &args.engine, None, &|_, _| {}, |_| {})?;
    if args.verbose {
        note(format_args!(
            "loaded in {:.3} s",
            session.load_time.as_secs_f64()
        ));
    }
    let mut talk = Talk {
        asked: start,
        session: &session,
        args,
        messages: Vec::new(),
    };
    if let Some(system) = &args.system {
        talk.messages.push(Message::new(Role::System, system));
    }
    match &args.prompt {
        Some(prompt) => talk.turn(prompt)?,
        None => talk.converse()?,
    }
    if args.verbose
        && let Some(bytes) = footprint::peak_bytes()
    {
        note(format_args!(
            "peak memory {:.1} MiB",
            bytes as f64 / f64::from(1 << 20)
        ));
    }
    session.finish()
}

#[expect(
    clippy::print_stderr,
    reason = "standard output holds the answer alone"
)]
fn note(text: Arguments<'_>) {
    eprintln!("{text}");
}

/// Prints a part of the answer and keeps it for the conversation. What the model thinks is shown faintly, and only to a person:
/// elsewhere standard output holds the answer alone.
fn say(part: Part, answer: &mut Message) -> Result<()> {
    match part {
        Part::Text(text) => {
            print(format_args!("{text}"))?;
            answer.content.get_or_insert_default().push_str(&text);
        }
        Part::Reasoning(text) => {
            if io::stdout().is_terminal() {
                print(format_args!("\x1b[2m{text}\x1b[0m"))?;
            }
            answer.reasoning.get_or_insert_default().push_str(&text);
        }
        // Without tools nothing is called.
        Part::Call { .. } | Part::Arguments(_) => {}
    }
    Ok(())
}

struct Talk<'a> {
    session: &'a Session,
    args: &'a RunArgs,
    messages: Vec<Message>,
    /// When the question was asked; the first one, when the program started.
    asked: Instant,
}

impl Talk<'_> {
    fn converse(&mut self) -> Result<()> {
        let prompt = if io::stdin().is_terminal() { "> " } else { "" };
        let mut line = String::new();
        loop {
            print(format_args!("{prompt}"))?;
            line.clear();
            if io::stdin().lock().read_line(&mut line)? == 0 {
                return Ok(());
            }
            if !line.trim().is_empty() {
                self.asked = Instant::now();
                self.turn(line.trim_end())?;
            }
        }
    }

    fn turn(&mut self, text: &str) -> Result<()> {
        let request = self.request(text)?;
        let mut events = self.session.handle.submit(request)?;
        let mut answer = Message::new(Role::Assistant, "");
        let (mut tokens, mut first) = (0_u32, None);
        while let Some(event) = events.recv_blocking() {
            match event {
                Event::Token(delta) => {
                    first.get_or_insert_with(Instant::now);
                    tokens += 1;
                    for part in delta.parts {
                        say(part, &mut answer)?;
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
        io::stdout().flush()?;
        if let Some(first) = first.filter(|_| self.args.verbose) {
            let seconds = first.elapsed().as_secs_f64();
            note(format_args!(
                "first token after {:.3} s, {:.1} tokens/s after it",
                (first - self.asked).as_secs_f64(),
                f64::from(tokens.saturating_sub(1)) / seconds
            ));
        }
        self.messages.push(answer);
        Ok(())
    }

    fn request(&mut self, text: &str) -> Result<Request> {
        let handle = &self.session.handle;
        let sampling = Sampling {
            temperature: self.args.temperature,
            seed: self.args.seed,
            max_tokens: self.args.tokens,
            ..Sampling::default()
        };
        if self.args.raw {
            return Ok(handle.prepare_text(PromptInput::Text(text.to_owned()), sampling)?);
        }
        self.messages.push(Message::new(Role::User, text));
        let chat = ChatRequest {
            messages: self.messages.clone(),
            add_generation_prompt: true,
            ..ChatRequest::default()
        };
        let request = handle.prepare_chat(&chat, sampling);
        request.context("cannot make a prompt of the conversation; --raw continues a text as it is")
    }
}
