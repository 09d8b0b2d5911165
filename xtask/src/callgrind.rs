//! `cargo xtask callgrind`: the instructions of the main kernels, counted by valgrind, beside the counts that are kept.
//!
//! Neither a busy machine nor a fast one changes them, so that a small loss shows. Another compiler may: then, or when a
//! kernel was changed on purpose, `cargo xtask callgrind --record` writes the new ones.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// More of a count than this is a regression, in percent.
const TOLERANCE: f64 = 2.0;

/// The function of the example whose calls are counted.
const FUNCTION: &str = "callgrind::measured";

/// Whether valgrind is there.
pub(crate) fn is_available() -> bool {
    let asked = Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    asked.is_ok_and(|status| status.success())
}

/// Counts and compares, or writes the counts down.
#[expect(clippy::print_stderr, reason = "a command-line tool talks to its user")]
pub(crate) fn run(root: &Path, record: bool) -> Result<()> {
    ensure!(is_available(), "valgrind is not installed");
    let counts = count(root)?;
    let path = kept(root);
    if record {
        let text: String = counts
            .iter()
            .fold(String::new(), |mut text, (name, count)| {
                let _ = writeln!(text, "{name}\t{count}");
                text
            });
        return fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()));
    }
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let differences = compare(&counts, &parse(&text)?);
    for difference in &differences {
        eprintln!("{difference}");
    }
    ensure!(
        differences.is_empty(),
        "instruction counts differ from {} by more than {TOLERANCE} %; \
         if that is meant, `cargo xtask callgrind --record`",
        path.display()
    );
    Ok(())
}

fn kept(root: &Path) -> PathBuf {
    root.join("crates/compute/examples/callgrind.tsv")
}

/// The instructions of each kernel, in the order in which they ran.
fn count(root: &Path) -> Result<Vec<(String, u64)>> {
    crate::peers::run(
        Command::new(env!("CARGO"))
            .args(["build", "--release", "--locked", "--quiet"])
            .args(["-p", "andante-compute", "--example", "callgrind"])
            .current_dir(root),
    )?;
    let folder = root.join("target/callgrind");
    // Counts of an earlier run would be taken for this one's.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let output = folder.join("out");
    let ran = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--toggle-collect={FUNCTION}"))
        .arg(format!("--dump-after={FUNCTION}"))
        .arg(format!("--callgrind-out-file={}", output.display()))
        .arg(root.join("target/release/examples/callgrind"))
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start valgrind")?;
    ensure!(ran.status.success(), "the kernels failed ({})", ran.status);
    let names = String::from_utf8(ran.stdout)?;
    names
        .lines()
        .enumerate()
        .map(|(index, name)| {
            let path = folder.join(format!("out.{}", index + 1));
            let profile = fs::read_to_string(&path)
                .with_context(|| format!("valgrind wrote no {}", path.display()))?;
            let total = profile.lines().find_map(|line| {
                let numbers = line.strip_prefix("summary: ")?;
                numbers.trim().parse().ok()
            });
            let total = total.with_context(|| format!("{} has no summary", path.display()))?;
            Ok((name.to_owned(), total))
        })
        .collect()
}

fn parse(text: &str) -> Result<Vec<(String, u64)>> {
    let parse = |line: &str| {
        let (name, count) = line.split_once('\t')?;
        Some((name.to_owned(), count.parse().ok()?))
    };
    text.lines()
        .map(|line| parse(line).with_context(|| format!("{line:?} is no count")))
        .collect()
}

/// What is not as it was. A machine without AVX2 counts less, which is no difference.
fn compare(now: &[(String, u64)], kept: &[(String, u64)]) -> Vec<String> {
    let mut differences = Vec::new();
    for (name, count) in now {
        match kept.iter().find(|(other, _)| other == name) {
            None => differences.push(format!("{name}: {count}, and no count is kept")),
            Some((_, kept)) => {
                let percent = 100.0 * (*count as f64 / *kept as f64 - 1.0);
                if percent.abs() > TOLERANCE {
                    differences.push(format!("{name}: {count}, was {kept} ({percent:+.1} %)"));
                }
            }
        }
    }
    if now.is_empty() {
        differences.push("no kernel ran".to_owned());
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::{compare, parse};

    #[test]
    fn more_and_less_than_the_tolerance_is_told() {
        let kept = parse("a\t1000\nb, rows 1\t1000\nc\t1000\n").expect("three counts");
        let now = parse("a\t1019\nb, rows 1\t1021\nc\t979\nd\t5\n").expect("four counts");
        let differences = compare(&now, &kept);
        assert_eq!(differences.len(), 3, "{differences:?}");
        assert!(differences[0].starts_with("b, rows 1: 1021, was 1000 (+2.1 %)"));
        assert!(compare(&kept, &kept).is_empty());
        assert!(!compare(&[], &kept).is_empty());
        assert!(parse("no tab").is_err());
    }
}
