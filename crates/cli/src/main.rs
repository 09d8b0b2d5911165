//! The andante program.
fn main() {}
