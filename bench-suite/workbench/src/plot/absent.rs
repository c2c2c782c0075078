//! Replacement for plots in builds without them: a request for a plot is an error that says how to
//! build with plots.

use std::str::FromStr;

use foldwire_fields::usage::{UsageError, usage};

/// Replacement for drawing. It never evaluates the plot, because no file can exist.
#[macro_export]
macro_rules! draw {
    ($file:expr, $plot:expr) => {
        match &$file {
            Some(file) => $crate::plot::PlotFile::draw(file),
            None => Ok(()),
        }
    };
}
/// A picture file. This type has no values in builds without plots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlotFile {}

impl PlotFile {
    /// The same file with `-name` at the end of its name.
    pub fn of(&self, _name: &str) -> Self {
        match *self {}
    }

    /// Draws into the file.
    ///
    /// # Errors
    /// None.
    pub fn draw(&self) -> anyhow::Result<()> {
        match *self {}
    }
}

impl FromStr for PlotFile {
    type Err = UsageError;

    fn from_str(_: &str) -> Result<Self, UsageError> {
        Err(usage!(
            "this foldwire was built without plots (files that end in .svg or .png); build it with \
             --features plots, as in `cargo run --release --features plots -- bench allreduce \
             --plot allreduce.svg`"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_a_plot_is_told_how_to_get_it() {
        let message = "a.svg".parse::<PlotFile>().unwrap_err().to_string();
        assert!(message.contains("--features plots"), "{message}");
    }
}
