//! The caller's own choice of schedules: rows of ranges, of which the first that fits is taken.
//!
//! In text, a row is `COLLECTIVE:RANKS:BYTES:SCHEDULE`, and rows are separated by commas. Ranks and
//! bytes are a number or a range `FIRST-LAST`, either of which may be left out; bytes are those of
//! the whole array and may end in `K`, `M` or `G` (2¹⁰, 2²⁰, 2³⁰).
//!
//! Source: UCC's score strings (`UCC_TL_…_TUNE`); tuned collectives of Open MPI.

use crate::schedule::{Call, Collective, Schedule};
use core::ops::RangeInclusive;

/// Which calls take a schedule.
#[derive(Clone)]
pub struct Row {
    /// Of this collective,
    pub collective: Collective,
    /// between so many ranks,
    pub ranks: RangeInclusive<usize>,
    /// on an array of so many bytes in all.
    pub n_bytes: RangeInclusive<usize>,
    /// The schedule.
    pub schedule: &'static dyn Schedule,
}

impl Row {
    /// All calls of a collective.
    #[must_use]
    pub const fn new(collective: Collective, schedule: &'static dyn Schedule) -> Self {
        Self { collective, ranks: 0..=usize::MAX, n_bytes: 0..=usize::MAX, schedule }
    }

    /// Of those, the calls between so many ranks.
    #[must_use]
    pub fn with_ranks(self, ranks: RangeInclusive<usize>) -> Self {
        Self { ranks, ..self }
    }

    /// Of those, the calls on an array of so many bytes.
    #[must_use]
    pub fn with_bytes(self, n_bytes: RangeInclusive<usize>) -> Self {
        Self { n_bytes, ..self }
    }

    fn is_for(&self, call: Call, n_bytes: usize) -> bool {
        self.collective == call.collective
            && self.ranks.contains(&call.size)
            && self.n_bytes.contains(&n_bytes)
    }
}

impl core::fmt::Debug for Row {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { collective, ranks, n_bytes, schedule } = self;
        write!(f, "{} {ranks:?} ranks {n_bytes:?} bytes: ", collective.name())?;
        f.write_str(schedule.name())
    }
}

/// The schedule of the first row that is for a call on an array of `n_bytes`.
#[must_use]
pub fn first_of(rows: &[Row], call: Call, n_bytes: usize) -> Option<&'static dyn Schedule> {
    rows.iter().find(|row| row.is_for(call, n_bytes)).map(|row| row.schedule)
}

#[cfg(feature = "alloc")]
pub use text::{ParseRowsError, parse};

#[cfg(feature = "std")]
pub use environment::{VARIABLE, from_env};

#[cfg(feature = "alloc")]
mod text {
    use super::Row;
    use crate::schedule::{self, Collective, Schedule};
    use alloc::string::String;
    use alloc::vec::Vec;
    use core::ops::RangeInclusive;

    /// Why a text is no list of rows.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    #[non_exhaustive]
    pub enum ParseRowsError {
        /// Not four fields.
        #[error(
            "`{row}` is no row; write COLLECTIVE:RANKS:BYTES:SCHEDULE, as all-reduce:2-16:-64K:ring"
        )]
        Fields {
            /// The row.
            row: String,
        },
        /// No collective has this name.
        #[error("there is no collective `{name}`")]
        Collective {
            /// The name.
            name: String,
        },
        /// No schedule has this name.
        #[error("there is no schedule `{name}`")]
        Schedule {
            /// The name.
            name: String,
        },
        /// The schedule cannot do the collective.
        #[error("the schedule {schedule} has no {}", collective.name())]
        Unsupported {
            /// The schedule's name.
            schedule: &'static str,
            /// The collective.
            collective: Collective,
        },
        /// No number, and no range of numbers.
        #[error("`{range}` is no range; write 8, 2-16, 64K-1M or 1M-")]
        Range {
            /// The text.
            range: String,
        },
    }

    /// Reads rows.
    ///
    /// # Errors
    /// What is wrong with the first row that is none.
    ///
    /// # Examples
    /// ```
    /// use foldwire::select::parse;
    ///
    /// let rows = parse("all-reduce:2-16:-64K:recursive-doubling, all-reduce::1M-:ring")?;
    /// assert_eq!(rows[0].n_bytes, 0..=65536);
    /// # Ok::<(), foldwire::select::ParseRowsError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Vec<Row>, ParseRowsError> {
        let rows = text.split(',').map(str::trim).filter(|row| !row.is_empty());
        rows.map(row).collect()
    }

    fn row(text: &str) -> Result<Row, ParseRowsError> {
        let mut fields = text.split(':').map(str::trim);
        let fields = core::array::from_fn(|_| fields.next()).map(|field| field.ok_or(()));
        let [Ok(collective), Ok(ranks), Ok(n_bytes), Ok(name), Err(())] = fields else {
            return Err(ParseRowsError::Fields { row: text.into() });
        };
        let known = Collective::ALL.into_iter().find(|known| known.name() == collective);
        let no_collective = || ParseRowsError::Collective { name: collective.into() };
        let collective = known.ok_or_else(no_collective)?;
        let schedule: &'static dyn Schedule =
            *(schedule::ALL.iter().find(|known| known.name() == name))
                .ok_or_else(|| ParseRowsError::Schedule { name: name.into() })?;
        if !schedule.supports(collective) {
            let schedule = schedule.name();
            return Err(ParseRowsError::Unsupported { schedule, collective });
        }
        let row = Row::new(collective, schedule);
        Ok(row.with_ranks(range(ranks, plain)?).with_bytes(range(n_bytes, scaled)?))
    }

    fn range(
        text: &str,
        number: fn(&str) -> Option<usize>,
    ) -> Result<RangeInclusive<usize>, ParseRowsError> {
        let wrong = || ParseRowsError::Range { range: text.into() };
        let or = |text: &str, open: usize| match text.trim() {
            "" => Some(open),
            text => number(text),
        };
        let ends = match text.split_once('-') {
            Some((first, last)) => or(first, 0).zip(or(last, usize::MAX)),
            None if text.is_empty() => Some((0, usize::MAX)),
            None => number(text).map(|one| (one, one)),
        };
        let (first, last) = ends.filter(|(first, last)| first <= last).ok_or_else(wrong)?;
        Ok(first..=last)
    }

    fn plain(text: &str) -> Option<usize> {
        // No sign.
        text.parse().ok().filter(|_| text.starts_with(|c: char| c.is_ascii_digit()))
    }

    fn scaled(text: &str) -> Option<usize> {
        let shift = match text.chars().last()?.to_ascii_uppercase() {
            'K' => 10,
            'M' => 20,
            'G' => 30,
            _ => return plain(text),
        };
        plain(&text[..text.len() - 1])?.checked_mul(1 << shift)
    }

    #[cfg(test)]
    mod tests {
        use super::super::first_of;
        use super::*;
        use crate::schedule::Call;
        use crate::transport::Rank;

        #[test]
        fn the_first_row_that_fits_is_taken() {
            let text = "all-reduce:2-8:-64K:recursive-doubling, all-reduce:4::pairwise,\
                        broadcast::1M-:chain,";
            let rows = parse(text).expect("rows");
            let found = |collective, size, n_bytes| {
                let call = Call::new(collective, size, Rank(0));
                first_of(&rows, call, n_bytes).map(Schedule::name)
            };
            use Collective::{AllReduce, Broadcast};
            assert_eq!(found(AllReduce, 4, 65_536), Some("recursive-doubling"));
            assert_eq!(found(AllReduce, 4, 65_537), Some("pairwise"));
            assert_eq!(found(AllReduce, 9, 0), None);
            assert_eq!(found(Broadcast, 4, 1 << 20), Some("chain"));
            assert_eq!(found(Broadcast, 4, (1 << 20) - 1), None);
        }

        #[test]
        fn what_is_no_row_says_why() {
            let wrong = |text: &str| parse(text).expect_err("it is wrong");
            assert!(matches!(wrong("all-reduce:ring"), ParseRowsError::Fields { .. }));
            assert!(matches!(wrong("all-reduce:::ring:5"), ParseRowsError::Fields { .. }));
            assert!(matches!(wrong("allreduce:::ring"), ParseRowsError::Collective { .. }));
            assert!(matches!(wrong("all-reduce:::rign"), ParseRowsError::Schedule { .. }));
            assert!(matches!(wrong("broadcast:::ring"), ParseRowsError::Unsupported { .. }));
            for range in ["x", "8-2", "1K-1", "+1", "-1-2", "K", "99999999999999999999", "1Z"] {
                let error = wrong(&std::format!("all-reduce::{range}:ring"));
                assert!(matches!(error, ParseRowsError::Range { .. }), "{range}: {error}");
            }
            assert!(matches!(wrong("all-reduce:2K::ring"), ParseRowsError::Range { .. }));
        }
    }
}

#[cfg(feature = "std")]
mod environment {
    use super::{ParseRowsError, Row, parse};
    use std::sync::OnceLock;

    /// The variable of the environment that [`from_env`] reads.
    pub const VARIABLE: &str = "FOLDWIRE_SELECT";

    /// The rows of the variable `FOLDWIRE_SELECT`; none where it is not set. It is read once.
    ///
    /// # Errors
    /// As [`parse`].
    pub fn from_env() -> Result<&'static [Row], ParseRowsError> {
        static ROWS: OnceLock<Result<std::vec::Vec<Row>, ParseRowsError>> = OnceLock::new();
        let text = || std::env::var_os(VARIABLE).unwrap_or_default();
        let rows = ROWS.get_or_init(|| parse(&text().to_string_lossy()));
        rows.as_deref().map_err(Clone::clone)
    }
}
