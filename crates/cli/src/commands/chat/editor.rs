//! The line that is being written: history, several lines, completion of commands.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use rustyline::completion::Completer;
use rustyline::config::Configurer as _;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper};

use super::command::NAMES;

/// Questions that are remembered.
const REMEMBERED: usize = 1000;

/// Begins and ends text of several lines.
const FENCE: &str = "\"\"\"";

/// What the user did.
#[derive(Debug, PartialEq)]
pub(super) enum Entered {
    Text(String),
    /// An empty line, or one that was given up.
    Nothing,
    End,
}

/// Reads from the terminal.
pub(super) struct Editor {
    lines: rustyline::Editor<Rules, FileHistory>,
    history: Option<PathBuf>,
}

impl Editor {
    /// With the history of earlier conversations where there is a file for it.
    pub(super) fn new(history: Option<PathBuf>) -> Result<Self> {
        let mut lines = rustyline::Editor::new().context("cannot use this terminal")?;
        lines.set_helper(Some(Rules));
        lines.set_max_history_size(REMEMBERED)?;
        // What was asked is nobody else's business.
        let history = history.filter(|path| {
            let mut options = OpenOptions::new();
            let file = options.append(true).create(true).mode(0o600).open(path);
            file.is_ok_and(|file| file.set_permissions(Permissions::from_mode(0o600)).is_ok())
        });
        if let Some(path) = &history {
            // A history that cannot be read is an empty one.
            let _ = lines.load_history(path);
        }
        Ok(Self { lines, history })
    }

    pub(super) fn read(&mut self) -> Result<Entered> {
        self.read_from("")
    }

    /// Lets the user change `text`.
    pub(super) fn edit(&mut self, text: Option<String>) -> Result<Option<String>> {
        let text = text.unwrap_or_default();
        let shown = if text.contains('\n') {
            format!("{FENCE}{text}{FENCE}")
        } else {
            text
        };
        Ok(match self.read_from(&shown)? {
            Entered::Text(text) => Some(text),
            Entered::Nothing | Entered::End => None,
        })
    }

    fn read_from(&mut self, text: &str) -> Result<Entered> {
        match self.lines.readline_with_initial("> ", (text, "")) {
            Ok(line) => {
                let text = unfence(&line);
                if text.trim().is_empty() {
                    return Ok(Entered::Nothing);
                }
                self.lines.add_history_entry(line.as_str())?;
                if let Some(path) = &self.history {
                    self.lines.append_history(path)?;
                }
                Ok(Entered::Text(text))
            }
            Err(ReadlineError::Interrupted) => Ok(Entered::Nothing),
            Err(ReadlineError::Eof) => Ok(Entered::End),
            Err(error) => Err(error).context("cannot read from the terminal"),
        }
    }
}

/// The text without its fences, or without the backslashes that continued its lines.
fn unfence(line: &str) -> String {
    let trimmed = line.trim();
    match trimmed.strip_prefix(FENCE) {
        Some(rest) => rest
            .strip_suffix(FENCE)
            .unwrap_or(rest)
            .trim_matches('\n')
            .to_owned(),
        None => trimmed.replace("\\\n", "\n"),
    }
}

/// Whether more lines must follow.
fn is_open(text: &str) -> bool {
    match text.trim_start().strip_prefix(FENCE) {
        Some(rest) => !rest.trim_end().ends_with(FENCE),
        None => text.ends_with('\\'),
    }
}

struct Rules;

impl Helper for Rules {}
impl Highlighter for Rules {}

impl Hinter for Rules {
    type Hint = String;
}

impl Validator for Rules {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if is_open(context.input()) {
            ValidationResult::Incomplete
        } else {
            ValidationResult::Valid(None)
        })
    }
}

impl Completer for Rules {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let written = &line[..at];
        let fitting = NAMES
            .iter()
            .filter(|name| written.starts_with('/') && name.starts_with(written));
        Ok((0, fitting.map(|&name| format!("{name} ")).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_lines_are_fenced_or_continued() {
        for (text, open) in [
            ("one", false),
            ("one\\", true),
            ("\"\"\"one", true),
            ("\"\"\"one\ntwo", true),
            ("\"\"\"one\n\"\"\"", false),
            ("\"\"\"", true),
        ] {
            assert_eq!(is_open(text), open, "{text:?}");
        }
        assert_eq!(unfence("\"\"\"\none\n  two\n\"\"\""), "one\n  two");
        assert_eq!(unfence("one \\\ntwo "), "one \ntwo");
    }

    #[test]
    fn a_history_is_private() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("history");
        std::fs::write(&path, "").expect("written");
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("set");
        let _editor = Editor::new(Some(path.clone())).expect("an editor");
        let mode = std::fs::metadata(&path)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
