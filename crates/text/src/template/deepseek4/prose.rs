//! The words of the encoding: our own, unless a file gives others.

use crate::TextError;

/// Our own wording, in the form of such a file.
const OWN: &str = include_str!("prose.txt");

/// Stands for the tools' definitions.
const SCHEMAS: &str = "{schemas}";

/// The wording of what the encoding tells the model. Spellings of control tokens in it are the tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prose {
    /// What is said of tools: before their definitions, and after them.
    pub(super) tools: [String; 2],
    /// Behind BOS, for the effort `max` of the first release and `high` of 0731.
    pub(super) effort: String,
    /// The same for `max` of 0731.
    pub(super) effort_max: String,
}

impl Default for Prose {
    fn default() -> Self {
        let none = Self {
            tools: [String::new(), String::new()],
            effort: String::new(),
            effort_max: String::new(),
        };
        none.with(OWN).expect("our own wording is well-formed")
    }
}

impl Prose {
    /// The wording of a file: sections that begin with lines such as `=== tools ===`. A section is all text between such lines, or
    /// to the end, less its last line break. The sections are `tools`, in which `{schemas}` stands once for the definitions, one
    /// to a line; `effort`; `effort-max`. One that is absent keeps our own words. Before the first section there may be
    /// empty lines and comments (`#`).
    ///
    /// # Errors
    /// [`TextError::Prose`] where the file has another form.
    pub fn parse(file: &str) -> Result<Self, TextError> {
        Self::default().with(file)
    }

    fn with(mut self, file: &str) -> Result<Self, TextError> {
        let mut section: Option<(usize, &str)> = None;
        let mut text = String::new();
        for (index, line) in file.split_inclusive('\n').enumerate() {
            let number = index + 1;
            if let Some(name) = header(line) {
                self.set(section, &text)?;
                section = Some((number, name));
                text.clear();
            } else if section.is_some() {
                text.push_str(line);
            } else if !line.trim().is_empty() && !line.starts_with('#') {
                return Err(error(number, "text before the first section"));
            }
        }
        self.set(section, &text)?;
        Ok(self)
    }

    fn set(&mut self, section: Option<(usize, &str)>, text: &str) -> Result<(), TextError> {
        let Some((line, name)) = section else {
            return Ok(());
        };
        let text = text.strip_suffix('\n').unwrap_or(text).to_owned();
        match name {
            "tools" => {
                let parts: Vec<&str> = text.split(SCHEMAS).collect();
                let [before, after] = parts[..] else {
                    return Err(error(line, "`tools` must have {schemas} in it once"));
                };
                self.tools = [before.to_owned(), after.to_owned()];
            }
            "effort" => self.effort = text,
            "effort-max" => self.effort_max = text,
            _ => return Err(error(line, "a section is tools, effort or effort-max")),
        }
        Ok(())
    }
}

/// The name in the line that begins a section.
fn header(line: &str) -> Option<&str> {
    let name = line.trim_end().strip_prefix("=== ")?;
    name.strip_suffix(" ===")
}

fn error(line: usize, what: &'static str) -> TextError {
    TextError::Prose { line, what }
}
