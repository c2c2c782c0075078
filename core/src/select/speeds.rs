//! Speeds of this machine with each codec that an automatic plan may choose, and their text format.

use super::automatic::{CANDIDATES, N_CANDIDATES};
use super::model::MESSAGE_COST;
use crate::codec::CodecId;
use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;

/// Speeds of a rank with each codec that an [automatic plan](crate::Plan::auto) may choose, while
/// the other ranks of its machine work as well.
///
/// There are two numbers for each codec. The speed is the bytes of values per second that a rank
/// both moves and reduces, where each takes half of the time (C of [the model](super)). The message
/// cost is the seconds that a message between ranks of one machine takes, whatever its size (α).
///
/// All ranks of a communicator must have the same speeds: see
/// [`Communicator::share_speeds`](crate::Communicator::share_speeds). The command `foldwire tune`
/// measures them and writes them as the text that [`FromStr`] reads. A line has a codec's name,
/// `=`, a speed, and a message cost; comments start with `#`. Codecs without a line keep the
/// default. If a line has only the speed, the message cost follows from it as in
/// [`with`](Self::with).
///
/// # Examples
/// ```
/// use foldwire::codec::CodecId;
/// use foldwire::select::Speeds;
///
/// let speeds: Speeds = "# of my machine\nraw = 6e9 2e-6\nfz-light = 5e9\n".parse()?;
/// assert_eq!(speeds.of(CodecId::FzLight), Some(5e9));
/// assert_eq!(speeds.message(CodecId::Raw), Some(2e-6));
/// assert_eq!(speeds.of(CodecId::Dense), Speeds::default().of(CodecId::Dense));
/// assert_eq!(speeds.of(CodecId::Szx), None);
/// let config = foldwire::Config::default().with_speeds(speeds);
/// # assert_eq!(config.speeds, speeds);
/// # Ok::<(), foldwire::select::ParseSpeedsError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speeds {
    /// Bytes per second of each codec, and then messages per second of each codec (the reciprocals
    /// of the message costs). So if ranks differ, the smallest of each number counts.
    rates: [f32; 2 * N_CANDIDATES],
}

/// Bytes per second of a codec. In this range, and the next, neither a number nor its reciprocal is
/// infinite or 0 as an `f32`.
const SPEED_RANGE: RangeInclusive<f64> = 1e-3..=1e24;
/// Seconds of a message.
const SECONDS_RANGE: RangeInclusive<f64> = 1e-24..=1e12;

impl Default for Speeds {
    /// Speeds of ranks that each have one core of a server.
    fn default() -> Self {
        let mut rates = [0.0; 2 * N_CANDIDATES];
        for (at, candidate) in CANDIDATES.iter().enumerate() {
            rates[at] = candidate.pace.step_rate as f32;
            rates[N_CANDIDATES + at] = candidate.pace.message.recip() as f32;
        }
        Self { rates }
    }
}

impl Speeds {
    /// The codecs that have speeds.
    pub fn codecs() -> impl ExactSizeIterator<Item = CodecId> {
        CANDIDATES.into_iter().map(|candidate| candidate.codec)
    }

    fn position(codec: CodecId) -> Option<usize> {
        Self::codecs().position(|known| known == codec)
    }

    /// Speed of a codec in bytes per second; `None` if no automatic plan chooses the codec.
    #[must_use]
    pub fn of(&self, codec: CodecId) -> Option<f64> {
        Self::position(codec).map(|at| self.at(at))
    }

    /// Seconds for a message with a codec, whatever its size; `None` if no automatic plan chooses
    /// the codec.
    #[must_use]
    pub fn message(&self, codec: CodecId) -> Option<f64> {
        Self::position(codec).map(|at| self.message_at(at))
    }

    /// The same speeds with another speed of a codec, in bytes per second. The codec's message cost
    /// changes too: what it adds to the default cost of an exact message is assumed to be inversely
    /// proportional to the speed. Returns the speeds unchanged if no automatic plan chooses the
    /// codec, or if the speed is not from 1e-3 to 1e24.
    #[must_use]
    pub fn with(mut self, codec: CodecId, bytes_per_s: f64) -> Self {
        if let Some(at) = Self::position(codec)
            && SPEED_RANGE.contains(&bytes_per_s)
        {
            let usual = CANDIDATES[at].pace;
            let added = (usual.message - MESSAGE_COST) * usual.step_rate / bytes_per_s;
            self.rates[at] = bytes_per_s as f32;
            self.rates[N_CANDIDATES + at] = (MESSAGE_COST + added).recip() as f32;
        }
        self
    }

    /// The same speeds with another message cost of a codec, in seconds. Returns the speeds
    /// unchanged if no automatic plan chooses the codec, or if the cost is not from 1e-24 to 1e12.
    #[must_use]
    pub fn with_message(mut self, codec: CodecId, seconds: f64) -> Self {
        if let Some(at) = Self::position(codec)
            && SECONDS_RANGE.contains(&seconds)
        {
            self.rates[N_CANDIDATES + at] = seconds.recip() as f32;
        }
        self
    }

    /// The same speeds for `n_ranks` ranks that share `n_cores` cores: lower if there are fewer
    /// cores than ranks.
    #[must_use]
    pub fn shared_by(mut self, n_ranks: usize, n_cores: usize) -> Self {
        let part = n_cores.max(1) as f32 / n_ranks.max(1) as f32;
        let (speeds, _) = self.rates.split_at_mut(N_CANDIDATES);
        speeds.iter_mut().for_each(|speed| *speed *= part.min(1.0));
        self
    }

    pub(super) fn at(&self, candidate: usize) -> f64 {
        self.rates[candidate].into()
    }

    pub(super) fn message_at(&self, candidate: usize) -> f64 {
        f64::from(self.rates[N_CANDIDATES + candidate]).recip()
    }

    pub(crate) const fn values_mut(&mut self) -> &mut [f32] {
        &mut self.rates
    }
}

/// Reason why a text is not [`Speeds`]. Lines count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseSpeedsError {
    /// The line is not of the form `fz-light = 3e9 4e-6`.
    #[error("line {line} is not of the form `fz-light = 3e9 4e-6`")]
    Form {
        /// Number of the line.
        line: usize,
    },
    /// No codec that automatic plans choose has this name.
    #[error("line {line} does not name a codec of automatic plans: raw, fz-light, fz-nd or dense")]
    Codec {
        /// Number of the line.
        line: usize,
    },
    /// The speed is not a number of bytes per second, or none that a machine can have.
    #[error("line {line}: the speed is not a number of bytes per second from 1e-3 to 1e24")]
    Speed {
        /// Number of the line.
        line: usize,
    },
    /// The message cost is not a number of seconds, or none that a machine can have.
    #[error("line {line}: the message cost is not a number of seconds from 1e-24 to 1e12")]
    Message {
        /// Number of the line.
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
            let mut numbers = speed.split_whitespace();
            let number = |text: &str, range: RangeInclusive<f64>| {
                text.parse().ok().filter(|x: &f64| range.contains(x))
            };
            let speed = numbers.next().and_then(|text| number(text, SPEED_RANGE));
            let speed = speed.ok_or(ParseSpeedsError::Speed { line })?;
            speeds = speeds.with(codec, speed);
            if let Some(message) = numbers.next() {
                let seconds = number(message, SECONDS_RANGE);
                let seconds = seconds.ok_or(ParseSpeedsError::Message { line })?;
                speeds = speeds.with_message(codec, seconds);
            }
            if numbers.next().is_some() {
                return Err(ParseSpeedsError::Form { line });
            }
        }
        Ok(speeds)
    }
}

/// The text that [`FromStr`] reads.
impl fmt::Display for Speeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, codec) in Self::codecs().enumerate() {
            writeln!(f, "{} = {:.3e} {:.3e}", codec.name(), self.at(at), self.message_at(at))?;
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
        let speeds = speeds.with_message(CodecId::FzLight, 1.25e-6);
        let read: Speeds = speeds.to_string().parse().expect("what is written");
        for codec in Speeds::codecs() {
            assert_eq!(read.of(codec), speeds.of(codec));
            let [a, b] = [read, speeds].map(|speeds| speeds.message(codec).expect("a candidate"));
            assert!((a / b - 1.0).abs() < 1e-3, "{codec:?}: {a} for {b}");
        }
        assert_eq!("".parse(), Ok(Speeds::default()));
        let as_it_was = speeds.with(CodecId::Raw, -1.0).with_message(CodecId::Raw, 0.0);
        assert_eq!(as_it_was.with(CodecId::Szx, 1.0).with_message(CodecId::Szx, 1.0), speeds);
    }

    #[test]
    fn a_number_that_is_infinite_or_zero_as_a_rate_is_refused() {
        for text in ["raw = 3e69", "raw = 1e-60", "raw = inf", "raw = NaN", "raw = 0"] {
            assert_eq!(text.parse::<Speeds>(), Err(ParseSpeedsError::Speed { line: 1 }), "{text}");
        }
        for text in ["raw = 1e9 1e-60", "raw = 1e9 1e60", "raw = 1e9 0"] {
            let refused = Err(ParseSpeedsError::Message { line: 1 });
            assert_eq!(text.parse::<Speeds>(), refused, "{text}");
        }
        let usual = Speeds::default();
        for number in [f64::INFINITY, 3e69, 1e-60, f64::NAN] {
            assert_eq!(usual.with(CodecId::Dense, number), usual);
            assert_eq!(usual.with_message(CodecId::Dense, number), usual);
        }
        let ends = usual.with(CodecId::Dense, 1e-3).with(CodecId::FzNd, 1e24);
        let ends = ends.with_message(CodecId::Raw, 1e-24);
        assert!(ends.to_string().parse::<Speeds>().is_ok(), "{ends}");
    }

    #[test]
    fn messages_of_slower_codecs_cost_more_unless_told() {
        let slower = Speeds::default().with(CodecId::FzNd, 1e9);
        assert!(slower.message(CodecId::FzNd) > Speeds::default().message(CodecId::FzNd));
        let usual = Speeds::default().of(CodecId::FzNd).expect("a candidate");
        let back = slower.with(CodecId::FzNd, usual).message(CodecId::FzNd).expect("a candidate");
        let before = Speeds::default().message(CodecId::FzNd).expect("a candidate");
        assert!((back / before - 1.0).abs() < 1e-6);
        let text = "fz-nd = 1e9 7e-6".parse::<Speeds>().expect("a speed and a message");
        assert_eq!(text.message(CodecId::FzNd).map(|s| (s * 1e9).round()), Some(7000.0));
    }

    #[test]
    fn ranks_that_share_cores_are_slower_and_others_no_faster() {
        let usual = Speeds::default();
        assert_eq!(usual.shared_by(2, 16), usual);
        let shared = usual.shared_by(8, 2);
        for codec in Speeds::codecs() {
            assert_eq!(shared.of(codec), usual.of(codec).map(|speed| speed / 4.0));
            assert_eq!(shared.message(codec), usual.message(codec));
        }
        assert_eq!(usual.shared_by(0, 0), usual);
    }

    #[test]
    fn mistakes_are_told_by_line() {
        let error = |text: &str| text.parse::<Speeds>().expect_err("a mistake");
        assert_eq!(error("raw = 1\n\nraw 1"), ParseSpeedsError::Form { line: 3 });
        assert_eq!(error("raw = 1 1 1"), ParseSpeedsError::Form { line: 1 });
        assert_eq!(error("szx = 1e9"), ParseSpeedsError::Codec { line: 1 });
        for bad in ["0", "-1", "nan", "inf", "fast"] {
            let text = std::format!("# speeds\nraw = {bad}");
            assert_eq!(error(&text), ParseSpeedsError::Speed { line: 2 });
            let text = std::format!("# speeds\nraw = 1e9 {bad}");
            assert_eq!(error(&text), ParseSpeedsError::Message { line: 2 });
        }
        assert_eq!(error("raw ="), ParseSpeedsError::Speed { line: 1 });
    }
}
