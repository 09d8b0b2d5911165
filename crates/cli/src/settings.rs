//! Settings of `serve` from three places: flags, which come first, variables `ANDANTE_<FLAG>`, and the file that `--config` or
//! `ANDANTE_CONFIG` names. What a place says stands above all that the places after it say of the same flag.
//!
//! Variables and file become flags before the command line is read, so that they mean the same and are checked the same.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{ArgAction, Command, CommandFactory as _};

use crate::args::Cli;

/// Begins the names of variables.
const PREFIX: &str = "ANDANTE_";
/// Variables that are no flags.
const OTHERS: [&str; 4] = ["CACHE", "REPORTS", "API_KEY", "CONFIG"];

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag,
    Variable(String),
    File(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Variable(name) => f.write_str(name),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A command line that holds what all places say.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) arguments: Vec<OsString>,
    /// Of each flag that is set, by its name.
    pub(crate) origins: BTreeMap<String, Origin>,
}

/// The command line with what variables and file add to it, where its command is one that serves.
///
/// # Errors
/// A file that cannot be read, a name that is no flag, a value that no flag can have.
pub(crate) fn gather(
    arguments: Vec<OsString>,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Settings> {
    let word = |place: usize| arguments.get(place).and_then(|word| word.to_str());
    let flags_from = match (word(1), word(2)) {
        (Some("serve"), _) => 2,
        (Some("config"), Some("check")) => 3,
        _ => {
            let origins = BTreeMap::new();
            return Ok(Settings { arguments, origins });
        }
    };
    let flags = Flags::of_serve();
    let given = flags.given(&arguments[flags_from..]);
    let mut settings = Settings {
        origins: given
            .iter()
            .map(|name| (name.clone(), Origin::Flag))
            .collect(),
        arguments,
    };
    let variables = named(variables)?;
    let file = match config_flag(&settings.arguments[flags_from..]) {
        Some(path) => Some(path),
        None => variables.get("CONFIG").map(PathBuf::from),
    };
    for (name, text) in &variables {
        if OTHERS.contains(&name.as_str()) {
            continue;
        }
        let variable = format!("{PREFIX}{name}");
        let value = toml::Value::String(text.clone());
        let name = name.to_lowercase().replace('_', "-");
        settings
            .add(&flags, &name, &value, &Origin::Variable(variable.clone()))
            .context(variable)?;
    }
    if let Some(path) = file {
        let table = read(&path).with_context(|| path.display().to_string())?;
        for (key, value) in &table {
            let name = key.replace('_', "-");
            settings
                .add(&flags, &name, value, &Origin::File(path.clone()))
                .with_context(|| format!("{}: `{key}`", path.display()))?;
        }
    }
    Ok(settings)
}

/// The variables of ours, without the prefix.
fn named(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<BTreeMap<String, String>> {
    let mut named = BTreeMap::new();
    for (name, value) in variables {
        let Some(name) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else {
            continue;
        };
        let Ok(value) = value.into_string() else {
            bail!("{PREFIX}{name} is not text");
        };
        named.insert(name.to_owned(), value);
    }
    Ok(named)
}

fn read(path: &Path) -> Result<toml::Table> {
    Ok(fs::read_to_string(path)?.parse()?)
}

/// The file that `--config` names.
fn config_flag(arguments: &[OsString]) -> Option<PathBuf> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        if text == "--config" {
            return arguments.next().map(PathBuf::from);
        }
        if let Some(path) = text.strip_prefix("--config=") {
            return Some(path.into());
        }
    }
    None
}

impl Settings {
    /// Adds what a place says of a flag, unless one before it has said something.
    fn add(
        &mut self,
        flags: &Flags,
        name: &str,
        value: &toml::Value,
        origin: &Origin,
    ) -> Result<()> {
        let Some(flag) = flags.find(name) else {
            bail!("there is no flag --{name}");
        };
        match self.origins.get(&flag.long) {
            Some(before) if before != origin => return Ok(()),
            Some(_) => bail!("--{} is set twice", flag.long),
            None => {}
        }
        let texts = texts(value)?;
        if !flag.takes_value {
            match texts.as_slice() {
                [text] if ["true", "1", "yes", "on"].contains(&text.as_str()) => {
                    self.arguments.push(format!("--{}", flag.long).into());
                }
                [text] if ["false", "0", "no", "off"].contains(&text.as_str()) => {}
                _ => bail!("it is a switch: true or false"),
            }
        } else if texts.len() != 1 && !flag.repeats {
            bail!("it takes one value");
        } else {
            for text in texts {
                self.arguments
                    .push(format!("--{}={text}", flag.long).into());
            }
        }
        self.origins.insert(flag.long.clone(), origin.clone());
        Ok(())
    }
}

/// A value as it would stand on the command line.
fn texts(value: &toml::Value) -> Result<Vec<String>> {
    Ok(match value {
        toml::Value::String(text) => vec![text.clone()],
        toml::Value::Integer(number) => vec![number.to_string()],
        toml::Value::Float(number) => vec![number.to_string()],
        toml::Value::Boolean(on) => vec![on.to_string()],
        toml::Value::Array(values) => {
            let mut all = Vec::new();
            for value in values {
                if value.is_array() {
                    bail!("a list holds no lists");
                }
                all.extend(texts(value)?);
            }
            all
        }
        toml::Value::Datetime(_) | toml::Value::Table(_) => bail!("no flag has such a value"),
    })
}

/// The flags of `serve`.
struct Flags(Vec<Flag>);

struct Flag {
    long: String,
    aliases: Vec<String>,
    short: Option<char>,
    takes_value: bool,
    repeats: bool,
}

impl Flags {
    fn of_serve() -> Self {
        let cli: Command = Cli::command();
        let serve = cli.find_subcommand("serve").expect("there is a serve");
        let flag = |arg: &clap::Arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            Some(Flag {
                long: arg.get_long()?.to_owned(),
                aliases: aliases.into_iter().map(str::to_owned).collect(),
                short: arg.get_short(),
                takes_value: matches!(arg.get_action(), ArgAction::Set | ArgAction::Append),
                repeats: matches!(arg.get_action(), ArgAction::Append)
                    || arg.get_value_delimiter().is_some(),
            })
        };
        Self(serve.get_arguments().filter_map(flag).collect())
    }

    /// By its name or another spelling of it.
    fn find(&self, name: &str) -> Option<&Flag> {
        let is = |flag: &&Flag| flag.long == name || flag.aliases.iter().any(|alias| alias == name);
        self.0.iter().find(is)
    }

    /// Names of those on the command line.
    fn given(&self, arguments: &[OsString]) -> BTreeSet<String> {
        let mut given = BTreeSet::new();
        for argument in arguments {
            let text = argument.to_string_lossy();
            let flag = if let Some(name) = text.strip_prefix("--") {
                self.find(name.split('=').next().unwrap_or_default())
            } else {
                let short = text.strip_prefix('-').and_then(|rest| rest.chars().next());
                short.and_then(|short| self.0.iter().find(|flag| flag.short == Some(short)))
            };
            given.extend(flag.map(|flag| flag.long.clone()));
        }
        given
    }
}

#[cfg(test)]
mod tests;
