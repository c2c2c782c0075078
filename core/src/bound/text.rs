//! Text form of bounds: `abs:0.5`, `rel:1e-4`, `psnr:60`.

use super::{Bound, BoundError};
use core::fmt;
use core::str::FromStr;

/// Reason why a text is not a bound.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseBoundError {
    /// The text has no colon.
    #[error("a bound needs a prefix that says its kind: {FORMS}")]
    NoKind,
    /// The word before the colon is not a kind of bound.
    #[error("unknown kind of bound: {FORMS}")]
    UnknownKind,
    /// The text after the colon is not a number.
    #[error("the text after the colon is not a number: {FORMS}")]
    NotANumber,
    /// The number is not a usable bound.
    #[error(transparent)]
    Value(#[from] BoundError),
}

const FORMS: &str =
    "write rel:1e-3 (a fraction of the value range), abs:0.5 (in the data's unit) or psnr:60 (dB)";

impl FromStr for Bound {
    type Err = ParseBoundError;

    /// Parses `abs:X`, `rel:X` or `psnr:X`, where X is a positive finite number in Rust's syntax
    /// for `f64`.
    ///
    /// # Examples
    /// ```
    /// use foldwire::Bound;
    ///
    /// assert_eq!("rel:1e-4".parse(), Ok(Bound::Relative(1e-4)));
    /// assert!("1e-4".parse::<Bound>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, ParseBoundError> {
        let (kind, number) = text.split_once(':').ok_or(ParseBoundError::NoKind)?;
        let make = match kind {
            "abs" => Self::Absolute,
            "rel" => Self::Relative,
            "psnr" => Self::Psnr,
            _ => return Err(ParseBoundError::UnknownKind),
        };
        let bound = make(number.parse().map_err(|_| ParseBoundError::NotANumber)?);
        bound.check()?;
        Ok(bound)
    }
}

impl fmt::Display for Bound {
    /// Writes the form that [`from_str`](Self::from_str) parses back to the same bits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, value) = match self {
            Self::Absolute(value) => ("abs", value),
            Self::Relative(value) => ("rel", value),
            Self::Psnr(value) => ("psnr", value),
        };
        if (1e-3..1e6).contains(value) {
            write!(f, "{kind}:{value}")
        } else {
            write!(f, "{kind}:{value:e}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn bounds_need_a_kind_and_a_positive_number() {
        let read = |text: &str| text.parse::<Bound>();
        assert_eq!(read("rel:1e-3"), Ok(Bound::Relative(1e-3)));
        assert_eq!(read("abs:0.5"), Ok(Bound::Absolute(0.5)));
        assert_eq!(read("psnr:60"), Ok(Bound::Psnr(60.0)));
        for text in ["", "1e-3", "rel"] {
            assert_eq!(read(text), Err(ParseBoundError::NoKind), "{text}");
        }
        for text in ["pw:1e-3", ":1", "REL:1", " rel:1"] {
            assert_eq!(read(text), Err(ParseBoundError::UnknownKind), "{text}");
        }
        for text in ["rel:", "rel:1%", "abs: 1", "psnr:60dB"] {
            assert_eq!(read(text), Err(ParseBoundError::NotANumber), "{text}");
        }
        for text in ["rel:0", "rel:-1", "abs:inf", "abs:nan", "psnr:1e400", "abs:1e-400"] {
            let refused = read(text);
            let is_typed =
                matches!(refused, Err(ParseBoundError::Value(BoundError::NotPositive { .. })));
            assert!(is_typed, "{text}: {refused:?}");
        }
    }

    #[test]
    fn bounds_print_as_they_are_written() {
        for text in ["rel:1e-4", "rel:0.001", "abs:0.5", "psnr:60", "abs:2e7"] {
            assert_eq!(text.parse::<Bound>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_printed_reads_as_the_same_bits() {
        let mut bits = 1u64;
        for _ in 0..10_000 {
            // Knuth's multiplier gives bit patterns of all magnitudes.
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let value = f64::from_bits(bits >> 1);
            if !(value > 0.0 && value.is_finite()) {
                continue;
            }
            for bound in [Bound::Absolute(value), Bound::Relative(value), Bound::Psnr(value)] {
                assert_eq!(bound.to_string().parse(), Ok(bound));
            }
        }
    }
}
