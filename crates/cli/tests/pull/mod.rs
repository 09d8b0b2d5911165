//! Real models, fetched as users fetch them.

use std::path::PathBuf;
use std::process::Command;

/// The file of a model of the catalogue, fetched if need be.
pub(crate) fn pull(name: &str) -> PathBuf {
    let output = Command::new(env!("CARGO_BIN_EXE_andante"))
        .args(["pull", name])
        .output()
        .expect("the program under test starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "andante pull {name}: {errors}");
    let path = String::from_utf8(output.stdout).expect("the path is UTF-8");
    PathBuf::from(path.trim_end())
}
