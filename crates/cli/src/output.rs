//! What a person sees: standard output, where a closed pipe is an ordinary end, and notes beside it.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

use anyhow::Result;

/// Prints at once; a reader that has left (`| head`) ends the program without noise.
pub(crate) fn print(text: Arguments<'_>) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        result => Ok(result?),
    }
}

/// Prints to standard error, where standard output holds the answer alone.
#[expect(
    clippy::print_stderr,
    reason = "standard output holds the answer alone"
)]
pub(crate) fn note(text: Arguments<'_>) {
    eprint!("{text}");
}
