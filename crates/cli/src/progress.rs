//! Progress bars, on standard error, shown only to a person at a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that counts bytes out of `total`.
pub(crate) fn bytes(total: u64, what: &str) -> ProgressBar {
    bar(
        total,
        what,
        "{msg:12} [{bar:32}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
    )
}

/// A bar that counts steps out of `total`.
pub(crate) fn steps(total: u64, what: &str) -> ProgressBar {
    bar(total, what, "{msg:12} [{bar:32}] {pos}/{len} {eta}")
}

fn bar(total: u64, what: &str, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template)
        .expect("the template is well formed")
        .progress_chars("=> ");
    let bar = ProgressBar::new(total)
        .with_style(style)
        .with_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
