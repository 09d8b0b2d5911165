//! `cargo xtask docs`: the page that is made from the code, `docs/metrics.md`, made anew. A test compares.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::peers;

pub(crate) fn run(root: &Path) -> Result<()> {
    peers::run(
        Command::new(env!("CARGO"))
            .args(["test", "--locked", "--quiet", "--package", "andante-server"])
            .args(["--lib", "write_the_page", "--", "--ignored"])
            .current_dir(root),
    )
}
