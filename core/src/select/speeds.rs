//! How fast this machine computes by each codec that an automatic plan may choose, and the same as
//! text.

use super::automatic::{CANDIDATES, N_CANDIDATES};
use crate::codec::CodecId;
use core::fmt;
use core::str::FromStr;

/// How fast a rank computes by each codec that an [automatic plan](crate::Plan::auto) may choose:
/// bytes of values per second that it moves and reduces, half of the time for each, with the other
/// ranks of its machine at work as well. (C of [the model](super).)
///
/// All ranks of a communicator must have the same: see
/// [`Communicator::share_speeds`](crate::Communicator::share_speeds). The command `foldwire tune`
/// measures them, and writes them as the text that is read here: lines of a codec's name, `=` and a
/// speed, and comments from `#` on. Codecs without a line keep the usual speed.
///
/// # Examples
/// ```
/// use foldwire::codec::CodecId;
/// use foldwire::select::Speeds;
///
/// let speeds: Speeds = "# of my machine\nraw = 6e9\nfz-light = 5e9\n".parse()?;
/// assert_eq!(speeds.of(CodecId::FzLight), Some(5e9));
/// assert_eq!(speeds.of(CodecId::Dense), Speeds::default().of(CodecId::Dense));
/// assert_eq!(speeds.of(CodecId::Szx), None);
/// let config = foldwire::Config::default().with_speeds(speeds);
/// # assert_eq!(config.speeds, speeds);
/// # Ok::<(), foldwire::select::ParseSpeedsError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speeds([f64; N_CANDIDATES]);

impl Default for Speeds {
    /// Those of ranks with a core of a server each.
    fn default() -> Self {
        Self(CANDIDATES.map(|candidate| candidate.pace.step_rate))
    }
}

impl Speeds {
    /// The codecs that have one.
    pub fn codecs() -> impl ExactSizeIterator<Item = CodecId> {
        CANDIDATES.into_iter().map(|candidate| candidate.codec)
    }

    /// A codec's, in bytes per second; `None` if no automatic plan chooses it.
    #[must_use]
    pub fn of(&self, codec: CodecId) -> Option<f64> {
        Self::codecs().position(|known| known == codec).map(|at| self.0[at])
    }

    /// The same with another speed of a codec, in bytes per second; as it is if no automatic plan
    /// chooses that, or the speed is not above 0.
    #[must_use]
    pub fn with(mut self, codec: CodecId, bytes_per_s: f64) -> Self {
        if let Some(at) = Self::codecs().position(|known| known == codec)
            && bytes_per_s > 0.0
        {
            self.0[at] = bytes_per_s;
        }
        self
    }

    pub(super) const fn at(&self, candidate: usize) -> f64 {
        self.0[candidate]
    }

    pub(crate) const fn values_mut(&mut self) -> &mut [f64] {
        &mut self.0
    }
}

/// Why a text is no [`Speeds`]; lines count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseSpeedsError {
    /// Not of the form `fz-light = 3e9`.
    #[error("line {line} is not of the form `fz-light = 3e9`")]
    Form {
        /// Which.
        line: usize,
    },
    /// No codec that automatic plans choose has this name.
    #[error("line {line} names no codec that automatic plans choose")]
    Codec {
        /// Which.
        line: usize,
    },
    /// Not a number above 0, of bytes per second.
    #[error("line {line} has no speed above 0, in bytes per second")]
    Speed {
        /// Which.
        line: usize,
    },
}

impl FromStr for Speeds {
    type Err = ParseSpeedsError;

    fn from_str(text: &str) -> Result<Self, ParseSpeedsError> {
        let mut speeds = Self::default();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.split('#').next().unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            let (name, speed) = text.split_once('=').ok_or(ParseSpeedsError::Form { line })?;
            let codec = Self::codecs().find(|codec| codec.name() == name.trim());
            let codec = codec.ok_or(ParseSpeedsError::Codec { line })?;
            let speed: f64 = speed.trim().parse().unwrap_or(0.0);
            if !(speed > 0.0 && speed.is_finite()) {
                return Err(ParseSpeedsError::Speed { line });
            }
            speeds = speeds.with(codec, speed);
        }
        Ok(speeds)
    }
}

/// The text that [`FromStr`] reads.
impl fmt::Display for Speeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (codec, speed) in Self::codecs().zip(self.0) {
            writeln!(f, "{} = {speed:.3e}", codec.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn what_is_written_is_read() {
        let speeds = Speeds::default().with(CodecId::Raw, 6.25e9).with(CodecId::Dense, 3e8);
        assert_eq!(speeds.to_string().parse(), Ok(speeds));
        assert_eq!("".parse(), Ok(Speeds::default()));
        assert_eq!(speeds.with(CodecId::Raw, -1.0).with(CodecId::Szx, 1.0), speeds);
    }

    #[test]
    fn mistakes_are_told_by_line() {
        let error = |text: &str| text.parse::<Speeds>().expect_err("a mistake");
        assert_eq!(error("raw = 1\n\nraw 1"), ParseSpeedsError::Form { line: 3 });
        assert_eq!(error("szx = 1e9"), ParseSpeedsError::Codec { line: 1 });
        for speed in ["0", "-1", "nan", "inf", "fast"] {
            let text = std::format!("# speeds\nraw = {speed}");
            assert_eq!(error(&text), ParseSpeedsError::Speed { line: 2 });
        }
    }
}
