//! What may be chosen on the command line of `bench-peers`.

use std::path::PathBuf;
use std::thread;

use anyhow::{Context, Result, bail};

use super::files;

/// What to measure, and how often.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) rounds: usize,
    pub(super) threads: Vec<usize>,
    pub(super) files: Vec<String>,
    /// Short tests only, and nothing is written.
    pub(super) quick: bool,
    /// What another process on one of the cores costs, instead of everything else.
    pub(super) busy: bool,
    /// An interpreter that has the packages already.
    pub(super) python: Option<PathBuf>,
}

const KNOWN: &str = "--rounds N, --threads N,N, --files NAME,NAME, --quick, --busy, --python PATH";

impl Options {
    pub(super) fn parse(args: &[String]) -> Result<Self> {
        let cores = thread::available_parallelism().map_or(2, usize::from);
        let mut options = Self {
            rounds: 3,
            threads: if cores == 1 { vec![1] } else { vec![1, cores] },
            files: files::NAMES.map(str::to_owned).to_vec(),
            quick: false,
            busy: false,
            python: None,
        };
        let mut args = args.iter();
        while let Some(name) = args.next() {
            match name.as_str() {
                "--quick" => options.quick = true,
                "--busy" => options.busy = true,
                "--rounds" | "--threads" | "--files" | "--python" => {
                    let value = args
                        .next()
                        .with_context(|| format!("{name} wants a value"))?;
                    options.set(name, value)?;
                }
                _ => bail!("{name} is not known: {KNOWN}"),
            }
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "--rounds" => self.rounds = number(value)?,
            "--threads" => self.threads = value.split(',').map(number).collect::<Result<_>>()?,
            "--files" => {
                self.files = value.split(',').map(str::to_owned).collect();
                for file in &self.files {
                    if !files::NAMES.contains(&file.as_str()) {
                        bail!("{file} is none of {}", files::NAMES.join(", "));
                    }
                }
            }
            _ => self.python = Some(value.into()),
        }
        Ok(())
    }
}

fn number(text: &str) -> Result<usize> {
    text.parse()
        .ok()
        .filter(|number| *number > 0)
        .with_context(|| format!("{text}: not a number above 0"))
}
