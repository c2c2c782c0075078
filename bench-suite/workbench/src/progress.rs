//! Progress bar for long operations.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on stderr that counts to `n`, with a label. It is hidden if stderr is not a terminal.
pub fn bar(what: &str, n: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} [{bar:40}] {pos}/{len} {eta} {msg}")
        .expect("the template is constant")
        .progress_chars("=> ");
    ProgressBar::new(n as u64).with_style(style).with_prefix(what.to_owned())
}
