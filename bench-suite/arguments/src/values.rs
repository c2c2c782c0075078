//! Values of command-line options with their own grammar: link rates, times, counts. (The library
//! parses bounds.)
//!
//! Each parser takes one argument. It returns a value that needs no further check, or a message
//! that says what would be accepted.

use std::fmt;
use std::ops::RangeBounds;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use foldwire::Bound;
use foldwire_fields::usage::{UsageError, usage};

/// Rate of one rank's link, each way.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkRate {
    text: String,
    bytes_per_s: Option<f64>,
}

impl LinkRate {
    /// Bytes per second each way, or `None` for no limit.
    pub fn bytes_per_s(&self) -> Option<f64> {
        self.bytes_per_s
    }
}

impl LinkRate {
    /// The rate as part of a sentence: `at 10 Gbit/s`.
    pub fn words(&self) -> String {
        let Some(bytes_per_s) = self.bytes_per_s else { return "at the speed of memory".into() };
        let bits = 8.0 * bytes_per_s;
        let units = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
        let (unit, name) =
            units.into_iter().find(|(unit, _)| bits >= *unit).unwrap_or((1.0, "bit/s"));
        // At most three digits after the point.
        format!("at {} {name}", (bits / unit * 1e3).round() / 1e3)
    }
}

impl FromStr for LinkRate {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        if text == "none" {
            return Ok(Self { text: text.to_owned(), bytes_per_s: None });
        }
        let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        // `1e9bit`: the exponent belongs to the number.
        let unit_at = match text[unit_at..].strip_prefix(['e', 'E']) {
            Some(rest) if rest.starts_with(|c: char| c.is_ascii_digit()) => rest
                .find(|c: char| c.is_ascii_alphabetic())
                .map_or(text.len(), |at| unit_at + 1 + at),
            _ => unit_at,
        };
        let (number, unit) = text.split_at(unit_at);
        let bytes = match unit {
            "B/s" => 1.0,
            "kB/s" | "KB/s" => 1e3,
            "MB/s" => 1e6,
            "GB/s" => 1e9,
            _ => match unit.to_ascii_lowercase().trim_end_matches("/s") {
                "bit" => 1.0 / 8.0,
                "kbit" => 1e3 / 8.0,
                "mbit" => 1e6 / 8.0,
                "gbit" => 1e9 / 8.0,
                _ => {
                    return Err(usage!(
                        "`{text}` is no link rate: write a number and its unit, as in 10gbit, \
                         250mbit, 100MB/s or 12.5GB/s, or `none` for no limit"
                    ));
                }
            },
        };
        match number.parse::<f64>().map(|value| value * bytes) {
            Ok(rate) if rate.is_finite() && rate > 0.0 => {
                Ok(Self { text: text.to_owned(), bytes_per_s: Some(rate) })
            }
            _ => Err(usage!(
                "`{text}` is no link rate: the number must be above 0, as in 10gbit or 250MB/s; \
                `none` means no limit"
            )),
        }
    }
}

impl fmt::Display for LinkRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Parses a bound on operands. A relative bound is at most 1.
pub fn bound(text: &str) -> Result<Bound, UsageError> {
    let parsed = text.parse::<Bound>().map_err(|error| UsageError::new(error.to_string()))?;
    match parsed.check_on_operands() {
        Ok(()) => Ok(parsed),
        Err(error) => Err(usage!("`{text}`: {error}")),
    }
}

/// Parses a time with its unit: 2us, 1.5ms, 0s.
pub fn time(text: &str) -> Result<f64, UsageError> {
    let unit_at = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let scale = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => f64::NAN,
    };
    let seconds = number.parse::<f64>().map_or(f64::NAN, |number| number * scale);
    if (0.0..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(usage!(
            "`{text}` is no time: write a number and its unit (ns, us, ms, s), as in 2us, an hour \
            at most"
        ))
    }
}

/// Parses the peak frequency of a simulated shot in Hz.
pub fn frequency(text: &str) -> Result<f32, UsageError> {
    let most = foldwire_wave::MAX_HZ;
    text.parse().ok().filter(|hz| (1.0..=most).contains(hz)).ok_or_else(|| {
        usage!("`{text}` is no frequency from 1 to {most} Hz, as points lie 10 m apart")
    })
}

/// Parses the time of a simulated image, in units of the time that the direct wave takes to the
/// bottom.
pub fn way_down(text: &str) -> Result<f32, UsageError> {
    text.parse().ok().filter(|part| *part > 0.0 && *part <= 2.0).ok_or_else(|| {
        usage!("`{text}` is no time above 0, 2 at most; 1 is when the bottom is reached")
    })
}

/// Parses a fraction of 0 or more by which a time may exceed another.
pub fn tolerance(text: &str) -> Result<f64, UsageError> {
    text.parse()
        .ok()
        .filter(|part: &f64| part.is_finite() && *part >= 0.0)
        .ok_or_else(|| usage!("`{text}` is no fraction: write a number of 0 or more, such as 0.15"))
}

/// Parses a number of warm-up rounds, which may be 0.
pub fn warmup(text: &str) -> Result<usize, UsageError> {
    if text == "0" { Ok(0) } else { repeat(text) }
}

/// Returns the requested values in their order, each once.
pub fn each_once<V: PartialEq>(requested: impl IntoIterator<Item = V>) -> Vec<V> {
    let mut each = Vec::new();
    for value in requested {
        if !each.contains(&value) {
            each.push(value);
        }
    }
    each
}

/// Returns a parser of numbers in this range. `needed` is the message for anything else.
pub(super) fn within<N: FromStr + PartialOrd>(
    range: impl RangeBounds<N> + Clone + Send + Sync + 'static,
    needed: &'static str,
) -> impl Fn(&str) -> Result<N, &'static str> + Clone + Send + Sync + 'static {
    move |text| text.parse().ok().filter(|number| range.contains(number)).ok_or(needed)
}

/// Returns a parser of names, each with its value.
pub(super) fn by_name<V: Clone + Send + Sync + 'static>(
    known: impl IntoIterator<Item = (PossibleValue, V)>,
) -> impl TypedValueParser<Value = V> {
    let (names, values): (Vec<PossibleValue>, Vec<V>) = known.into_iter().unzip();
    PossibleValuesParser::new(names.clone()).map(move |text| {
        let place = names.iter().position(|name| name.matches(&text, false));
        values[place.expect("the parser lets nothing else pass")].clone()
    })
}

/// Largest number of ranks in one process.
const MAX_RANKS: usize = 1024;

/// Parses a number of ranks, 1…1024.
pub fn ranks(text: &str) -> Result<usize, UsageError> {
    count(text, MAX_RANKS).ok_or_else(|| {
        usage!("a collective needs at least 1 rank, and this program supports at most {MAX_RANKS}")
    })
}

/// Parses a number of repetitions, 1…10 000.
pub fn repeat(text: &str) -> Result<usize, UsageError> {
    count(text, 10_000).ok_or_else(|| usage!("a whole number from 1 to 10000 is needed"))
}

fn count(text: &str, max: usize) -> Option<usize> {
    text.parse().ok().filter(|n| (1..=max).contains(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_rates_tell_bits_from_bytes() {
        let rate = |text: &str| text.parse::<LinkRate>().unwrap().bytes_per_s();
        assert_eq!(rate("10gbit"), Some(1.25e9));
        assert_eq!(rate("1Gbit/s"), Some(1.25e8));
        assert_eq!(rate("2.5mbit"), Some(312_500.0));
        assert_eq!(rate("8kbit"), Some(1000.0));
        assert_eq!(rate("100MB/s"), Some(1e8));
        assert_eq!(rate("12.5GB/s"), Some(1.25e10));
        assert_eq!(rate("1e9bit"), Some(1.25e8));
        assert_eq!(rate("none"), None);
        let words = |text: &str| text.parse::<LinkRate>().unwrap().words();
        assert_eq!(words("10gbit"), "at 10 Gbit/s");
        assert_eq!(words("100MB/s"), "at 800 Mbit/s");
        assert_eq!(words("2.5mbit"), "at 2.5 Mbit/s");
        assert_eq!(words("none"), "at the speed of memory");
        for wrong in [
            "",
            "10",
            "10Gb/s",
            "gbit",
            "-1gbit",
            "0gbit",
            "infgbit",
            "nangbit",
            "1e400gbit",
            "1e305gbit",
            "fast",
        ] {
            assert!(wrong.parse::<LinkRate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn bounds_leave_something_of_the_values() {
        for right in ["rel:1e-3", "rel:1", "abs:2", "abs:1e30", "psnr:60", "psnr:0.1"] {
            assert!(bound(right).is_ok(), "{right}");
        }
        for wrong in ["rel:1.001", "rel:2", "rel:1e300"] {
            let message = bound(wrong).unwrap_err().to_string();
            assert!(message.contains("range") && message.contains("rel:1e-3"), "{message}");
        }
        assert!(bound("rel:nan").is_err() && bound("1e-3").is_err());
    }

    #[test]
    fn times_have_a_unit() {
        assert_eq!(
            ["2us", "1.5ms", "0s", "3ns"].map(time),
            [Ok(2e-6), Ok(1.5e-3), Ok(0.0), Ok(3.0 * 1e-9)]
        );
        for wrong in ["", "2", "us", "-1us", "nans", "2h", "3601s"] {
            assert!(time(wrong).unwrap_err().to_string().contains("no time"), "{wrong}");
        }
    }

    #[test]
    fn counts_have_limits() {
        assert_eq!(ranks("8"), Ok(8));
        assert!(ranks("0").is_err() && ranks("-1").is_err() && ranks("4000").is_err());
        assert_eq!((repeat("1"), warmup("0"), warmup("3")), (Ok(1), Ok(0), Ok(3)));
        assert!(repeat("0").is_err() && warmup("-1").is_err() && warmup("99999999").is_err());
        assert_eq!(tolerance("0.15"), Ok(0.15));
        assert!(["-1", "nan", "inf", "x"].into_iter().all(|text| tolerance(text).is_err()));
    }
}
