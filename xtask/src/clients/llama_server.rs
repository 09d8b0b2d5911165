//! `cargo xtask clients --llama-server`: llama.cpp's own tests of its server, unmodified, against ours. They come with the Python
//! package that the peers come from; `scripts/clients/llama_server.py` has them start our program, and says with
//! `llama_server.json` which do not apply.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::peers;

pub(super) fn run(root: &Path, folder: &Path, program: &Path) -> Result<()> {
    let source = peers::llama_cpp_source(
        &folder.join("llama.cpp"),
        &["tools/server/tests", "models/templates"],
        &folder.join("venv/bin/pip"),
    )?;
    let tests = source.join("tools/server/tests");
    let needed = fs::read_to_string(tests.join("requirements.txt"))?;
    let needed: Vec<&str> = needed.split_whitespace().collect();
    let programs = peers::environment(&folder.join("llama-server-venv"), &needed)?;
    peers::run(
        Command::new(programs.join("python"))
            .args([
                "-m",
                "pytest",
                "-p",
                "llama_server",
                "-p",
                "no:cacheprovider",
            ])
            .args(["--quiet", "--tb=short", "--show-capture=no"])
            .env("ANDANTE", program)
            .env("PYTHONPATH", root.join("scripts/clients"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir(tests),
    )
}
