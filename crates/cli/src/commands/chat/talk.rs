//! The conversation: what was said, and how an answer is shown while it comes.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use crossterm::terminal;
use serde_json::{Value, json};

use super::command::{COMMANDS, Command};
use super::settings::Settings;
use super::stream::{self, Progress, Said, Usage};
use crate::output::{note, print, print_faint};
use crate::peer::Peer;

/// How often Ctrl-C is looked for.
const GLANCE: Duration = Duration::from_millis(50);

/// Back to the line's begin, and nothing on it.
const WIPE: &str = "\r\x1b[K";

/// A conversation with a server.
pub(super) struct Talk {
    peer: Peer,
    /// As the server names it.
    model: String,
    settings: Settings,
    /// Messages of the chat API, without the system's.
    messages: Vec<Value>,
    interrupted: Arc<AtomicBool>,
    /// Progress, colours and complaints are for people.
    person: bool,
}

/// An answer as far as it came.
#[derive(Default)]
struct Answer {
    text: String,
    reasoning: String,
    usage: Option<Usage>,
    first: Option<Instant>,
    /// A line with progress is on the screen.
    progress: bool,
    /// What is being shown is reasoning.
    thinking: bool,
}

impl Talk {
    pub(super) fn new(
        (peer, model): (Peer, String),
        settings: Settings,
        interrupted: Arc<AtomicBool>,
    ) -> Self {
        let person = io::stdout().is_terminal() && io::stdin().is_terminal();
        Self {
            peer,
            model,
            settings,
            messages: Vec::new(),
            interrupted,
            person,
        }
    }

    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// Asks `text` and shows the answer. What goes wrong between two people ends the question, between two programs the program.
    pub(super) fn ask(&mut self, text: &str) -> Result<()> {
        let text = text
            .strip_prefix('/')
            .filter(|rest| rest.starts_with('/'))
            .unwrap_or(text);
        self.messages.push(json!({"role": "user", "content": text}));
        self.answer()
    }

    /// Does what a command says, those apart that need the editor.
    pub(super) fn obey(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Help => {
                for (name, takes, does) in COMMANDS {
                    print(format_args!("{:<24} {does}\n", format!("{name} {takes}")))?;
                }
            }
            Command::New => self.messages.clear(),
            Command::Undo => drop(self.take_back()),
            Command::Retry => {
                if let Some(text) = self.take_back() {
                    return self.ask(&text);
                }
            }
            Command::Show => self.show()?,
            Command::Set(change) => self.settings.apply(change),
            Command::Save(path) => self.say(|talk| talk.save(&path))?,
            Command::Load(path) => self.say(|talk| talk.load(&path))?,
            Command::Edit | Command::Quit => {}
        }
        Ok(())
    }

    /// Forgets the last question and what followed; its text.
    pub(super) fn take_back(&mut self) -> Option<String> {
        let asked = self
            .messages
            .iter()
            .rposition(|message| message["role"] == "user")?;
        let text = self.messages[asked]["content"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        self.messages.truncate(asked);
        Some(text)
    }

    fn show(&self) -> Result<()> {
        if let Some(system) = &self.settings.system {
            print_faint(format_args!("{system}\n"))?;
        }
        for message in &self.messages {
            let mark = if message["role"] == "user" { "> " } else { "" };
            print(format_args!(
                "{mark}{}\n",
                message["content"].as_str().unwrap_or_default()
            ))?;
        }
        Ok(())
    }

    /// Does what may fail without ending the conversation.
    fn say(&mut self, act: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        match act(self) {
            Err(error) if self.person => print(format_args!("{error:#}\n")),
            result => result,
        }
    }

    fn save(&self, path: &Path) -> Result<()> {
        let kept = json!({"system": self.settings.system, "messages": self.messages});
        let text = serde_json::to_string_pretty(&kept)?;
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn load(&mut self, path: &Path) -> Result<()> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let kept: Value = serde_json::from_str(&text)
            .with_context(|| format!("{} is no JSON", path.display()))?;
        let Some(messages) = kept["messages"].as_array() else {
            bail!("{} has no `messages`", path.display());
        };
        self.messages.clone_from(messages);
        self.settings.system = kept["system"].as_str().map(str::to_owned);
        self.show()
    }

    fn answer(&mut self) -> Result<()> {
        self.interrupted.store(false, Ordering::Relaxed);
        let asked = Instant::now();
        let mut answer = Answer::default();
        let ended = self.receive(&mut answer);
        if answer.progress {
            note(format_args!("{WIPE}"));
        }
        let said = !answer.text.is_empty() || !answer.reasoning.is_empty();
        if said {
            print(format_args!("\n"))?;
            let mut message = json!({"role": "assistant", "content": answer.text});
            if !answer.reasoning.is_empty() {
                message["reasoning_content"] = answer.reasoning.as_str().into();
            }
            self.messages.push(message);
        } else if ended.is_err() {
            self.messages.pop();
        }
        if self.settings.stats {
            statistics(&answer, asked)?;
        }
        match ended? {
            Ok(()) => Ok(()),
            Err(why) if self.person => print_faint(format_args!("{why}\n")),
            Err(why) => bail!("no answer: {why}"),
        }
    }

    /// Shows the answer as it comes; the inner error is the server's.
    fn receive(&self, answer: &mut Answer) -> Result<Result<(), String>> {
        let body = self.settings.body(&self.model, &self.messages);
        let peer = self.peer.clone();
        let (sender, receiver) = mpsc::sync_channel(64);
        let reader = thread::Builder::new()
            .name("answer".into())
            .spawn(move || {
                let stream = peer.post("/v1/chat/completions", &body);
                let stream = stream.map_err(|error| format!("{error:#}"))?;
                // A receiver that is gone ends the request: the connection is dropped.
                stream::read(stream, |said| sender.send(said).is_ok())
            })?;
        loop {
            match receiver.recv_timeout(GLANCE) {
                Ok(said) => self.display(said, answer)?,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.interrupted.swap(false, Ordering::Relaxed) {
                drop(receiver);
                return Ok(Err("stopped".to_owned()));
            }
        }
        Ok(reader
            .join()
            .unwrap_or_else(|_| Err("the reader of the answer failed".to_owned())))
    }

    fn display(&self, said: Said, answer: &mut Answer) -> Result<()> {
        if let Said::Progress(progress) = &said {
            if self.person && progress.processed < progress.total {
                // A line that the terminal had to wrap would not be wiped whole.
                let columns = terminal::size().map_or(80, |(columns, _)| columns);
                let words = in_words(progress);
                let words = words.chars().take(usize::from(columns.saturating_sub(1)));
                let words: String = words.collect();
                note(format_args!("{WIPE}\x1b[2m{words}\x1b[0m"));
                answer.progress = true;
            }
            return Ok(());
        }
        if std::mem::take(&mut answer.progress) {
            note(format_args!("{WIPE}"));
        }
        match said {
            Said::Reasoning(text) => {
                answer.first.get_or_insert_with(Instant::now);
                if self.person {
                    print_faint(format_args!("{text}"))?;
                    answer.thinking = true;
                }
                answer.reasoning.push_str(&text);
            }
            Said::Text(text) => {
                answer.first.get_or_insert_with(Instant::now);
                let begin = if std::mem::take(&mut answer.thinking) {
                    "\n"
                } else {
                    ""
                };
                print(format_args!("{begin}{text}"))?;
                answer.text.push_str(&text);
            }
            Said::Usage(usage) => answer.usage = Some(usage),
            Said::Ended(_) | Said::Progress(_) => {}
        }
        Ok(())
    }
}

/// `1,200 of 5,000 tokens of the prompt, 3 s left`.
fn in_words(progress: &Progress) -> String {
    let percent = progress.processed * 100 / progress.total.max(1);
    let mut words = format!(
        "reading {} of {} tokens, {percent} %",
        progress.processed, progress.total
    );
    if let Some(seconds) = progress.seconds_left() {
        words.push_str(&format!(", {:.0} s left", seconds.ceil()));
    }
    words
}

fn statistics(answer: &Answer, asked: Instant) -> Result<()> {
    let (Some(usage), Some(first)) = (answer.usage, answer.first) else {
        return Ok(());
    };
    let seconds = first.elapsed().as_secs_f64();
    print_faint(format_args!(
        "prompt {} tokens, {} of them known; first token after {:.2} s; {} tokens, {:.1} a second\n",
        usage.prompt,
        usage.cached,
        (first - asked).as_secs_f64(),
        usage.generated,
        usage.generated.saturating_sub(1) as f64 / seconds.max(1e-9),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_said_in_words() {
        let mut progress = Progress {
            total: 5000,
            cached: 1000,
            processed: 1000,
            ms: 0.0,
        };
        assert_eq!(in_words(&progress), "reading 1000 of 5000 tokens, 20 %");
        progress.processed = 3000;
        progress.ms = 1500.0;
        assert_eq!(
            in_words(&progress),
            "reading 3000 of 5000 tokens, 60 %, 2 s left"
        );
    }
}
