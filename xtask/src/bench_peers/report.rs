//! The table, and its place in the documentation.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::options::Options;
use super::results::{Results, Row, median};
use super::runner::Runner;

const BEGIN: &str = "<!-- bench-peers:begin -->\n";
const END: &str = "<!-- bench-peers:end -->";

/// A table for each number of threads, and what must be known to read it.
pub(super) fn markdown(options: &Options, runners: &[Runner], results: &Results) -> String {
    let mut text = format!("{}. Medians of {} rounds", machine(), options.rounds);
    text += ", in tokens/s where nothing else is said. The ratio is Andante's over the best peer's: above 1 is faster, \
             and for memory and time, below 1 is better. The ceiling is what the measured memory bandwidth and the \
             measured peak of multiply-adds allow.\n";
    for remark in runners.iter().filter_map(Runner::remark) {
        let _ = writeln!(text, "{remark}");
    }
    for &threads in &options.threads {
        let _ = write!(text, "\nThreads: {threads}\n\n| file | test |");
        for runner in runners {
            let _ = write!(text, " {} |", runner.name);
        }
        text += " ratio | ratios by round | ceiling | reached |\n| --- | --- |";
        text += &" ---: |".repeat(runners.len());
        text += " ---: | --- | --- | ---: |\n";
        for row in results.rows.iter().filter(|row| row.threads == threads) {
            line(&mut text, row, runners, options.rounds);
        }
    }
    text
}

fn line(text: &mut String, row: &Row, runners: &[Runner], rounds: usize) {
    let _ = write!(text, "| {} | {} |", row.file, row.test);
    for runner in runners {
        match median(row.values(runner.name)) {
            Some(value) => drop(write!(text, " {value:.1} |")),
            None => *text += " - |",
        }
    }
    match row.ratio() {
        Some(ratio) => drop(write!(text, " {ratio:.2} |")),
        None => *text += " - |",
    }
    for ratio in (0..rounds).filter_map(|round| row.ratio_in_round(round)) {
        let _ = write!(text, " {ratio:.2}");
    }
    match (median(&row.ceilings), median(row.values("andante"))) {
        (Some(ceiling), Some(ours)) => {
            let reached = 100.0 * ours / ceiling;
            let _ = writeln!(text, " | {ceiling:.1}, {} | {reached:.0} % |", row.limit);
        }
        _ => *text += " | | |\n",
    }
}

fn machine() -> String {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let name = name.map_or("An unknown processor", |name| {
        name.trim_start_matches([' ', '\t', ':'])
    });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{name}, {cores} cores")
}

/// Replaces the table in the documentation, and its picture.
pub(super) fn write(root: &Path, table: &str, svg: &str) -> Result<()> {
    let path = root.join("docs/performance.md");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = replaced(&text, &format!("{table}\n![ratios](bench-peers.svg)\n"))
        .with_context(|| format!("{} lacks the lines {BEGIN} and {END}", path.display()))?;
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    fs::write(root.join("docs/bench-peers.svg"), svg).context("cannot write the picture")
}

/// `text` with something else between the markers; `None` without them.
fn replaced(text: &str, new: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{new}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::{BEGIN, END, replaced};

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let text = format!("head\n{BEGIN}old\ntable\n{END}\ntail\n");
        let expected = format!("head\n{BEGIN}new\n{END}\ntail\n");
        assert_eq!(replaced(&text, "new\n"), Some(expected));
        assert_eq!(replaced("no markers", "new"), None);
    }
}
