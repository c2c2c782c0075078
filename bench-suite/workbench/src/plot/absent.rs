//! In place of plots, where this build has none: to ask for one is an error that says how to get
//! it.

use std::path::Path;
use std::str::FromStr;

use foldwire_fields::usage::UsageError;

/// In place of drawing: there is no file to draw into, so what would be drawn is not made.
#[macro_export]
macro_rules! draw {
    ($file:expr, $plot:expr) => {
        $file.draw()
    };
}
/// A picture's file, of which there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlotFile {}

impl PlotFile {
    /// Where the picture goes.
    pub fn path(&self) -> &Path {
        match *self {}
    }

    /// The same with `-name` at the end of the file's name.
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
        Err(UsageError::new(
            "this foldwire was built without plots, files that end in .svg or .png; build it with \
             --features plots, as in `cargo run --release --features plots -- bench allreduce \
             --plot allreduce.svg`",
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
