//! What generation loses when another process keeps one of the cores busy, half of the time or all of it.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command};

use anyhow::{Context, Result};

use super::files::ModelFile;
use super::options::Options;
use super::results::median;
use super::runner::{Group, Runner};

/// Of every 20 ms, how many the busy process takes.
const LOADS: [u32; 3] = [0, 10, 20];

/// A process that does nothing, fast, on the second core; ended when dropped.
struct Busy(Child);

impl Busy {
    fn start(python: &Path, busy_ms: u32) -> Result<Self> {
        let script = format!(
            "import time\nwhile True:\n  end = time.perf_counter() + {busy_ms}e-3\n  while time.perf_counter() < end: pass\n  \
             time.sleep({}e-3)",
            20 - busy_ms
        );
        let mut command = Command::new("taskset");
        command
            .args(["--cpu-list", "1"])
            .arg(python)
            .args(["-c", &script]);
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
    python: &Path,
    runners: &[Runner],
    files: &[ModelFile],
) -> Result<String> {
    let group = Group::generation();
    let mut text = "| file | threads | program | tok/s alone | a core half taken | left | a core taken | left |\n\
                    | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    for file in files {
        for &threads in &options.threads {
            let mut rates = vec![LOADS.map(|_| Vec::new()); runners.len()];
            for _ in 0..options.rounds {
                for (runner, rates) in runners.iter().zip(&mut rates) {
                    for (busy_ms, rates) in LOADS.into_iter().zip(rates) {
                        let _busy = (busy_ms > 0)
                            .then(|| Busy::start(python, busy_ms))
                            .transpose()?;
                        let samples = runner.measure(&group, &file.path, threads)?;
                        rates.extend(samples.iter().map(super::results::Sample::value));
                    }
                }
            }
            for (runner, rates) in runners.iter().zip(&rates) {
                let [Some(alone), Some(half), Some(whole)] =
                    rates.each_ref().map(|rates| median(rates))
                else {
                    continue;
                };
                let left = |rate: f64| 100.0 * rate / alone;
                let _ = writeln!(
                    text,
                    "| {} | {threads} | {} | {alone:.1} | {half:.1} | {:.0} % | {whole:.1} | {:.0} % |",
                    file.name,
                    runner.name,
                    left(half),
                    left(whole),
                );
            }
        }
    }
    Ok(text)
}
