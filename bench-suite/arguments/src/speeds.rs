//! Values of `--speeds`: the source of the speeds for `foldwire sim`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use foldwire_fields::usage::{UsageError, usage};
use foldwire_published::SPEEDS;

/// Source of codec speeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpeedsArg {
    /// Measured on this machine.
    Measure,
    /// Reported in a paper. The text is an entry's name in [`SPEEDS`].
    Published(&'static str),
    /// Read from the user's file.
    File(PathBuf),
}

impl FromStr for SpeedsArg {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        let published = SPEEDS.iter().find(|(name, _)| *name == text);
        let path = Path::new(text);
        let extension = path.extension().and_then(|extension| extension.to_str());
        match (text, published, extension) {
            ("measure", ..) => Ok(Self::Measure),
            (_, Some((name, _)), _) => Ok(Self::Published(name)),
            (_, _, Some("toml" | "json")) => Ok(Self::File(path.to_owned())),
            _ => Err(usage!(
                "`{text}` is neither `measure`, a file NAME.toml or NAME.json, nor one of {}",
                SPEEDS.map(|(name, _)| name).join(", ")
            )),
        }
    }
}
