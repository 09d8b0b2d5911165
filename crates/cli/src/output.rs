//! Standard output, where a closed pipe is an ordinary end.

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
