//! `cargo xtask bench-peers`: Andante, llama.cpp and `ik_llama.cpp` by turns on the same files; medians, ratios and the
//! machine's ceiling go into `docs/performance.md` and `docs/bench-peers.svg`.

mod busy;
pub(crate) mod files;
mod options;
mod plot;
mod report;
mod results;
mod runner;

use std::path::Path;

use anyhow::Result;

use crate::{andante, peers};
use files::ModelFile;
use options::Options;
use results::Results;
use runner::{Group, Runner};

/// Measures everything that was asked for and prints it; a whole run also replaces what the documentation shows.
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool talks to its user"
)]
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let options = Options::parse(args)?;
    let python = match &options.python {
        Some(path) => path.clone(),
        None => peers::python(root)?,
    };
    let andante = andante::build(root)?;
    let files = options
        .files
        .iter()
        .map(|name| ModelFile::prepare(name, root, &andante, &python))
        .collect::<Result<Vec<_>>>()?;
    let models: Vec<_> = files.iter().map(|file| file.path.as_path()).collect();
    let runners = Runner::all(root, &andante, &python, &models)?;
    if options.busy {
        println!("{}", busy::measure(&options, &python, &runners, &files)?);
        return Ok(());
    }
    let mut results = Results::default();
    let groups = Group::all(options.quick);
    for round in 1..=options.rounds {
        for &threads in &options.threads {
            for file in &files {
                for group in &groups {
                    eprintln!(
                        "round {round} of {}, {threads} threads: {}, {}",
                        options.rounds, file.name, group.name
                    );
                    for runner in &runners {
                        // A runner that cannot compute a file is left out of its rows, not out of the others.
                        match runner.measure(group, &file.path, threads) {
                            Ok(samples) => {
                                // A run takes an hour: what is known must outlive its end.
                                eprintln!("  {}: {}", runner.name, results::brief(&samples));
                                results.add(file, threads, runner, samples);
                            }
                            Err(error) => eprintln!("{} on {}: {error:#}", runner.name, file.name),
                        }
                    }
                }
            }
        }
    }
    let text = report::markdown(&options, &runners, &results);
    println!("{text}");
    if !options.quick {
        report::write(root, &text, &plot::svg(&results))?;
    }
    Ok(())
}
