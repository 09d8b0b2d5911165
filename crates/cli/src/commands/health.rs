//! `andante health`: for health checks in containers that hold nothing but the program.

use anyhow::Result;

use crate::args::HealthArgs;
use crate::output::print;
use crate::peer::Peer;

/// Prints what the server says of itself; an error unless it is ready.
pub(crate) fn run(args: &HealthArgs) -> Result<()> {
    let said = Peer::new(&args.url, None).json("/health")?;
    print(format_args!("{said}\n"))
}
