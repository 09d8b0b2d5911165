//! The rules that keep the rooms apart: what may import what, where `unsafe` and the environment may be touched,
//! how long a file may grow. `ARCHITECTURE.md` states them; this file holds them.

mod vendored;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, MetadataCommand};

/// A crate and the crates of ours that its library or program may import.
const ROOMS: &[(&str, &[&str])] = &[
    ("andante-gguf", &[]),
    ("andante-compute", &["andante-gguf"]),
    ("andante-model", &["andante-compute", "andante-gguf"]),
    ("andante-text", &["andante-gguf"]),
    ("andante-sched", &[]),
    (
        "andante-engine",
        &["andante-model", "andante-sched", "andante-text"],
    ),
    ("andante-server", &["andante-engine", "andante-text"]),
    (
        "andante-cli",
        &[
            "andante-compute",
            "andante-engine",
            "andante-gguf",
            "andante-model",
            "andante-sched",
            "andante-server",
            "andante-text",
        ],
    ),
    ("xtask", &[]),
];

/// Outside libraries that only these crates may use.
const RESERVED: &[(&str, &[&str])] = &[
    ("tokio", &["andante-server", "andante-cli"]),
    ("axum", &["andante-server", "andante-cli"]),
    ("anyhow", &["andante-cli", "xtask"]),
];

/// Where `unsafe` may stand; everything else forbids it.
const UNSAFE_ROOMS: &[&str] = &[
    "crates/gguf/src/mmap.rs",
    "crates/compute/src/cpu/simd/",
    "crates/compute/src/cpu/memory.rs",
    "crates/compute/src/cpu/pool.rs",
];

const MAX_CODE_LINES: usize = 800;
const MAX_LINES: &[(&str, usize)] = &[("ARCHITECTURE.md", 200), ("STYLE.md", 60)];

/// Pages whose tables name the tests of cases, as `module::test`.
const PAGES_WITH_TESTS: &[&str] = &["docs/clients.md", "docs/kv-format.md"];

/// Exceptions to the lints, all crates together: the number may fall, never rise.
const MAX_EXPECTATIONS: usize = 60;

/// Checks every rule and reports all breaches at once.
pub(crate) fn run(root: &Path) -> Result<()> {
    let mut breaches = Vec::new();
    check_imports(root, &mut breaches)?;
    vendored::check(root, &mut breaches)?;
    let mut expectations = 0;
    let mut functions = BTreeSet::new();
    let mut pages = Vec::new();
    for path in tracked(root)? {
        let Ok(text) = fs::read_to_string(root.join(&path)) else {
            continue;
        };
        let name = path.to_string_lossy().replace('\\', "/");
        check_text(&name, &text, &mut breaches);
        if name.ends_with(".rs") {
            check_rust(&name, &text, &mut breaches);
            expectations += text.matches(concat!("#[", "expect(")).count();
            functions.extend(function_names(&text).map(str::to_owned));
        } else if PAGES_WITH_TESTS.contains(&name.as_str()) {
            pages.push((name, text));
        }
    }
    for (name, text) in &pages {
        check_named_tests(name, text, &functions, &mut breaches);
    }
    if expectations > MAX_EXPECTATIONS {
        breaches.push(format!(
            "{expectations} lint exceptions, at most {MAX_EXPECTATIONS} are allowed"
        ));
    }
    if breaches.is_empty() {
        Ok(())
    } else {
        bail!("{}", breaches.join("\n"))
    }
}

fn check_imports(root: &Path, breaches: &mut Vec<String>) -> Result<()> {
    let metadata = MetadataCommand::new()
        .current_dir(root)
        .no_deps()
        .exec()
        .context("cannot read the workspace's metadata")?;
    let mut found = BTreeSet::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        found.insert(name.to_owned());
        let Some((_, allowed)) = ROOMS.iter().find(|(room, _)| *room == name) else {
            breaches.push(format!(
                "{name}: a crate that the table of rooms does not know"
            ));
            continue;
        };
        for dependency in package
            .dependencies
            .iter()
            .filter(|d| d.kind == DependencyKind::Normal)
        {
            let import = dependency.name.as_str();
            if import.starts_with("andante-") && !allowed.contains(&import) {
                breaches.push(format!("{name} must not import {import}"));
            }
            if let Some((_, users)) = RESERVED.iter().find(|(library, _)| *library == import)
                && !users.contains(&name)
            {
                breaches.push(format!("{name} must not use {import}"));
            }
        }
    }
    for (room, _) in ROOMS {
        if !found.contains(*room) {
            breaches.push(format!("{room} is missing"));
        }
    }
    Ok(())
}

fn check_text(name: &str, text: &str, breaches: &mut Vec<String>) {
    let prose = [".rs", ".md", ".toml", ".py", ".sh", ".yml"]
        .iter()
        .any(|end| name.ends_with(end));
    if prose {
        for (number, line) in text.lines().enumerate() {
            if line.ends_with([' ', '\t']) {
                breaches.push(format!("{name}:{}: trailing white space", number + 1));
            }
        }
    }
    if let Some((_, most)) = MAX_LINES.iter().find(|(file, _)| *file == name) {
        let lines = text.lines().count();
        if lines > *most {
            breaches.push(format!("{name}: {lines} lines, at most {most} are allowed"));
        }
    }
}

/// The names of all functions, in order.
fn function_names(text: &str) -> impl Iterator<Item = &str> {
    let after = text.lines().filter_map(|line| line.split_once("fn "));
    after.map(|(_, rest)| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    })
}

/// A table that names tests must name some that are there.
fn check_named_tests(
    name: &str,
    text: &str,
    functions: &BTreeSet<String>,
    breaches: &mut Vec<String>,
) {
    for line in text.lines().filter(|line| line.starts_with('|')) {
        // What stands between two backticks is every second piece.
        for code in line.split('`').skip(1).step_by(2) {
            if let Some((_, test)) = code.rsplit_once("::")
                && !functions.contains(test)
            {
                breaches.push(format!("{name}: there is no test `{code}`"));
            }
        }
    }
}

fn check_rust(name: &str, text: &str, breaches: &mut Vec<String>) {
    if !text.starts_with("//!") && !text.starts_with("#!") {
        breaches.push(format!(
            "{name}: must begin with a `//!` line that says what it is for"
        ));
    }
    let is_test =
        name.contains("/tests/") || name.ends_with("/tests.rs") || name.starts_with("fuzz/");
    let code = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("//"));
    let exempt = is_test || name.contains("/simd/");
    let lines = code.clone().count();
    if lines > MAX_CODE_LINES && !exempt {
        breaches.push(format!(
            "{name}: {lines} code lines, at most {MAX_CODE_LINES} are allowed"
        ));
    }
    let may_be_unsafe = is_test || UNSAFE_ROOMS.iter().any(|room| name.starts_with(room));
    for line in code {
        if !may_be_unsafe
            && (line.contains(concat!("unsafe", " {")) || line.contains(concat!("unsafe", " fn")))
        {
            breaches.push(format!(
                "{name}: unsafe code outside the rooms for it: {line}"
            ));
        }
        let reads_environment = line.contains(concat!("env::", "var"));
        if reads_environment && !is_test && !name.starts_with("crates/cli/") {
            breaches.push(format!(
                "{name}: only the program may read the environment: {line}"
            ));
        }
        if line.contains(concat!("feature = ", "\"cuda\"")) && name != "crates/cli/src/backend.rs" {
            breaches.push(format!(
                "{name}: the choice of a backend belongs in crates/cli/src/backend.rs"
            ));
        }
    }
}

/// Files under version control, relative to the root; a source archive without git history is walked instead.
fn tracked(root: &Path) -> Result<Vec<PathBuf>> {
    let listing = std::process::Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output();
    match listing {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(PathBuf::from)
            .collect()),
        _ => {
            let mut files = Vec::new();
            walk(root, Path::new(""), &mut files)?;
            Ok(files)
        }
    }
}

fn walk(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(root.join(folder))
        .with_context(|| format!("cannot list {}", folder.display()))?
    {
        let entry = entry?;
        let name = entry.file_name();
        if name == "target" || name.to_string_lossy().starts_with('.') {
            continue;
        }
        let path = folder.join(name);
        if entry.file_type()?.is_dir() {
            walk(root, &path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
