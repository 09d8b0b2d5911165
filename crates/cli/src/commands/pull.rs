//! `andante pull`: fetch a model and print where it is.

use anyhow::Result;

use crate::args::PullArgs;
use crate::models::{CATALOGUE, Store};
use crate::output::print;

/// Fetches the model unless it is there; the path goes to standard output, progress to standard error.
pub(crate) fn run(args: &PullArgs) -> Result<()> {
    if args.list {
        for entry in CATALOGUE {
            print(format_args!("{:10} {}\n", entry.name, entry.about))?;
        }
        return Ok(());
    }
    let path = Store::from_environment()?.fetch(&args.model)?;
    print(format_args!("{}\n", path.display()))
}
