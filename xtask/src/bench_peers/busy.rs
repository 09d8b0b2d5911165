//! What generation loses when another process keeps one of the cores busy.

use std::fmt::Write as _;
use std::process::{Child, Command};

use anyhow::{Context, Result};

use super::files::ModelFile;
use super::options::Options;
use super::results::median;
use super::runner::{Group, Runner};

/// A process that does nothing, fast, on the second core; ended when dropped.
struct Busy(Child);

impl Busy {
    fn start() -> Result<Self> {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", "1", "sh", "-c", "while :; do :; done"]);
        Ok(Self(command.spawn().context(
            "cannot start taskset, which pins the busy process to a core",
        )?))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // It never ends by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Generation alone and beside the busy process, by turns; the part that is left.
pub(super) fn measure(
    options: &Options,
    runners: &[Runner],
    files: &[ModelFile],
) -> Result<String> {
    let group = Group::generation();
    let mut text = "| file | threads | program | tok/s alone | beside a busy process | left |\n\
                    | --- | ---: | --- | ---: | ---: | ---: |\n"
        .to_owned();
    for file in files {
        for &threads in &options.threads {
            let mut rates = vec![[Vec::new(), Vec::new()]; runners.len()];
            for _ in 0..options.rounds {
                for (runner, rates) in runners.iter().zip(&mut rates) {
                    for (busy, rates) in [false, true].into_iter().zip(rates) {
                        let _busy = busy.then(Busy::start).transpose()?;
                        let samples = runner.measure(&group, &file.path, threads)?;
                        rates.extend(samples.iter().map(super::results::Sample::value));
                    }
                }
            }
            for (runner, [alone, beside]) in runners.iter().zip(&rates) {
                if let (Some(alone), Some(beside)) = (median(alone), median(beside)) {
                    let _ = writeln!(
                        text,
                        "| {} | {threads} | {} | {alone:.1} | {beside:.1} | {:.0} % |",
                        file.name,
                        runner.name,
                        100.0 * beside / alone
                    );
                }
            }
        }
    }
    Ok(text)
}
