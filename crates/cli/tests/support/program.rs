//! Runs the program and takes what it prints.

use std::process::{Command, Output};

pub(crate) fn andante(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_andante"))
        .args(args)
        .output()
        .unwrap()
}

/// What it prints; it must succeed.
pub(crate) fn stdout(args: &[&str]) -> String {
    let output = andante(args);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}
