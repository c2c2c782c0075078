//! Progress bar for long operations.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on stderr that counts to `n`, with a label. It is hidden if stderr is not a terminal.
pub fn bar(what: &str, n: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} [{bar:40}] {pos}/{len} {eta} {msg}")
        .expect("the template is constant")
        .progress_chars("=> ");
    ProgressBar::new(n as u64).with_style(style).with_prefix(what.to_owned())
}

/// A bar on stderr that counts bytes, up to `n_bytes` if that is known.
pub fn bytes(what: &str, n_bytes: Option<u64>) -> ProgressBar {
    let template = match n_bytes {
        Some(_) => "{prefix} [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        None => "{prefix} {bytes} {bytes_per_sec}",
    };
    let style = ProgressStyle::with_template(template).expect("the template is constant");
    let bar = n_bytes.map_or_else(ProgressBar::no_length, ProgressBar::new);
    bar.with_style(style.progress_chars("=> ")).with_prefix(what.to_owned())
}
