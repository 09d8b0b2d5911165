//! `andante tokens`: the token ids of a text.

use std::io::Read;

use andante_text::{Special, Tokenizer};
use anyhow::{Context, Result};

use crate::args::TokensArgs;
use crate::backend;
use crate::models::Store;
use crate::output::print;

/// Prints the ids, separated by spaces; with `--pieces`, one per line with its text.
pub(crate) fn run(args: &TokensArgs) -> Result<()> {
    let path = Store::from_environment()?.fetch(&args.model)?;
    let file = backend::open(&path)?;
    let tokenizer =
        Tokenizer::from_metadata(file.metadata()).context("cannot use the file's tokenizer")?;
    let mut text = args.text.clone();
    if text == "-" {
        text.clear();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read standard input as UTF-8")?;
    }
    let special = if args.special {
        Special::Parse
    } else {
        Special::Text
    };
    let ids = tokenizer.encode(&text, special);
    if args.pieces {
        for id in ids {
            print(format_args!(
                "{id:8} {:?}\n",
                String::from_utf8_lossy(tokenizer.piece(id))
            ))?;
        }
        return Ok(());
    }
    let ids: Vec<_> = ids.iter().map(u32::to_string).collect();
    print(format_args!("{}\n", ids.join(" ")))
}
