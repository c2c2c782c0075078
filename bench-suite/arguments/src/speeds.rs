//! Values of `--speeds`: the source of the speeds for `foldwire sim`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use foldwire_fields::usage::UsageError;

/// Codec speeds that papers report. Each entry is the name that the user writes, and a TOML file
/// with the speeds.
pub const PUBLISHED: [(&str, &str); 7] = [
    ("zccl-1-thread", include_str!("published/zccl-1-thread.toml")),
    ("zccl-multi-thread", include_str!("published/zccl-multi-thread.toml")),
    ("hzccl-18-threads", include_str!("published/hzccl-18-threads.toml")),
    ("hzccl-18-threads-half", include_str!("published/hzccl-18-threads-half.toml")),
    ("gzccl-a100", include_str!("published/gzccl-a100.toml")),
    ("mpc-opt-v100", include_str!("published/mpc-opt-v100.toml")),
    ("mpc-opt-v100-sppm", include_str!("published/mpc-opt-v100-sppm.toml")),
];

/// Figures that papers report of collectives, messages and programs, as TOML.
pub const FIGURES: &str = include_str!("published/figures.toml");

/// Source of codec speeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpeedsArg {
    /// Measured on this machine.
    Measure,
    /// Reported in a paper. The text is an entry's name in [`PUBLISHED`].
    Published(&'static str),
    /// Read from the user's file.
    File(PathBuf),
}

impl FromStr for SpeedsArg {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        let published = PUBLISHED.iter().find(|(name, _)| *name == text);
        let path = Path::new(text);
        let extension = path.extension().and_then(|extension| extension.to_str());
        match (text, published, extension) {
            ("measure", ..) => Ok(Self::Measure),
            (_, Some((name, _)), _) => Ok(Self::Published(name)),
            (_, _, Some("toml" | "json")) => Ok(Self::File(path.to_owned())),
            _ => Err(UsageError::new(format!(
                "`{text}` is neither `measure`, a file NAME.toml or NAME.json, nor one of {}",
                PUBLISHED.map(|(name, _)| name).join(", ")
            ))),
        }
    }
}
