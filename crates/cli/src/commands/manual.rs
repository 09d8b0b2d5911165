//! `andante manual`, `andante completions`: what packages hold beside the program, made from its options.

use std::fs;

use anyhow::{Context, Result};
use clap::CommandFactory as _;

use crate::args::{Cli, CompletionsArgs, ManualArgs};
use crate::output::print;

/// Writes `andante.1` and a page for every command, as `andante-serve.1`.
pub(crate) fn pages(args: &ManualArgs) -> Result<()> {
    let folder = &args.folder;
    let written =
        fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    written.with_context(|| format!("cannot write into {}", folder.display()))
}

/// Prints the completions of a shell.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "andante", &mut script);
    print(format_args!("{}", String::from_utf8_lossy(&script)))
}
