//! `andante run`: one answer, or a conversation, in the terminal.

use std::io::{self, BufRead, IsTerminal, Write};

use andante_engine::{Event, PromptInput, Request, Sampling};
use andante_text::{ChatRequest, Message, Role};
use anyhow::{Context, Result, bail};

use crate::args::RunArgs;
use crate::output::print;
use crate::session::{self, Session};

/// Answers the prompt of the command line, or every line of standard input with the conversation so far.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let session = session::start(&args.model, &args.engine, |_| {})?;
    let mut talk = Talk {
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
    session.finish()
}

struct Talk<'a> {
    session: &'a Session,
    args: &'a RunArgs,
    messages: Vec<Message>,
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
                self.turn(line.trim_end())?;
            }
        }
    }

    fn turn(&mut self, text: &str) -> Result<()> {
        let request = self.request(text)?;
        let mut events = self.session.handle.submit(request)?;
        let mut answer = String::new();
        while let Some(event) = events.recv_blocking() {
            match event {
                Event::Token(delta) => {
                    print(format_args!("{}", delta.text))?;
                    answer += &delta.text;
                }
                Event::Failed(failure) => bail!("no answer: {failure}"),
                Event::Started { .. } | Event::Finished { .. } => {}
            }
        }
        print(format_args!("\n"))?;
        io::stdout().flush()?;
        self.messages.push(Message::new(Role::Assistant, &answer));
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
