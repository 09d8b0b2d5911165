//! `andante config check`: what `serve` would be told by flags, variables and file together.

use std::collections::BTreeMap;
use std::ffi::OsString;

use anyhow::Result;
use clap::CommandFactory as _;
use clap::parser::ValueSource;

use crate::args::Cli;
use crate::output::print;
use crate::settings::Origin;

/// Flags whose values are secrets.
const SECRETS: [&str; 1] = ["api-key"];

/// Prints each setting that is not the default, and where it comes from. What is wrong with them has been said before.
pub(crate) fn check(arguments: &[OsString], origins: &BTreeMap<String, Origin>) -> Result<()> {
    let cli = Cli::command();
    let matches = cli.clone().get_matches_from(arguments);
    let (_, config) = matches.subcommand().expect("config was asked for");
    let (_, given) = config.subcommand().expect("check was asked for");
    let serve = cli.find_subcommand("serve").expect("there is a serve");
    let mut count = 0;
    for arg in serve.get_arguments() {
        let id = arg.get_id().as_str();
        let Some(long) = arg.get_long() else {
            continue;
        };
        if given.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let raw = given.get_raw(id).into_iter().flatten();
        let values: Vec<String> = raw
            .map(|value| value.to_string_lossy().into_owned())
            .collect();
        let value = match (SECRETS.contains(&long), values.as_slice()) {
            (true, _) => "(secret)".to_owned(),
            (false, []) => "true".to_owned(),
            (false, values) => values.join(", "),
        };
        let origin = origins.get(long).unwrap_or(&Origin::Flag);
        print(format_args!("{long} = {value}  ({origin})\n"))?;
        count += 1;
    }
    print(format_args!(
        "{count} settings; all others are as `andante serve --help` says\n"
    ))
}
