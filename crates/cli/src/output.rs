//! What a person sees: standard output, where a closed pipe is an ordinary end, and notes beside it.
//!
//! Models, model files and clients write what is shown. On a terminal their control characters could move the cursor, set the window's
//! title or fill the clipboard, so that they are shown as symbols there; into files and pipes goes what was said.

use std::borrow::Cow;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, IsTerminal, Write};

use anyhow::Result;

/// Control characters that text of several lines has.
pub(crate) const OF_TEXT: &[char] = &['\n', '\t'];

/// Prints at once; a reader that has left (`| head`) ends the program without noise.
pub(crate) fn print(text: Arguments<'_>) -> Result<()> {
    let text = text.to_string();
    if io::stdout().is_terminal() {
        write(&visible(&text, OF_TEXT))
    } else {
        write(&text)
    }
}

/// [`print()`], faintly where a terminal can.
pub(crate) fn print_faint(text: Arguments<'_>) -> Result<()> {
    if !io::stdout().is_terminal() {
        return print(text);
    }
    let text = text.to_string();
    write(&format!("\x1b[2m{}\x1b[0m", visible(&text, OF_TEXT)))
}

fn write(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        result => Ok(result?),
    }
}

/// Control characters as symbols (U+2400 and on, or the replacement character), but for those that are `kept`.
pub(crate) fn visible<'a>(text: &'a str, kept: &[char]) -> Cow<'a, str> {
    let acts = |character: char| character.is_control() && !kept.contains(&character);
    if !text.contains(acts) {
        return text.into();
    }
    let symbol = |character: char| match u32::from(character) {
        _ if !acts(character) => character,
        code @ 0..0x20 => char::from_u32(0x2400 + code).unwrap_or(char::REPLACEMENT_CHARACTER),
        0x7F => '\u{2421}',
        _ => char::REPLACEMENT_CHARACTER,
    };
    text.chars().map(symbol).collect()
}

/// Prints to standard error, where standard output holds the answer alone; as it is, so only what this program says.
#[expect(
    clippy::print_stderr,
    reason = "standard output holds the answer alone"
)]
pub(crate) fn note(text: Arguments<'_>) {
    eprint!("{text}");
}

#[cfg(test)]
mod tests {
    use super::{OF_TEXT, visible};

    #[test]
    fn what_would_act_on_a_terminal_is_shown() {
        for (text, kept, expected) in [
            ("a\tb\nc äö 漢 😀", OF_TEXT, "a\tb\nc äö 漢 😀"),
            ("\x1b]0;title\x07", OF_TEXT, "␛]0;title␇"),
            ("over\rwritten\x08", OF_TEXT, "over␍written␈"),
            ("\u{9b}2J\x7f\0", OF_TEXT, "\u{fffd}2J␡␀"),
            ("a\tb\n", &[], "a␉b␊"),
        ] {
            assert_eq!(visible(text, kept), expected);
        }
    }
}
