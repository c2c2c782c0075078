//! Programs and steps as text, for people who debug a schedule.
//!
//! One line for each step, numbered from 0: `3: reduce-send part 2 from 1 to 3`.

use core::fmt;

use super::{Part, ProgramSpec, Schedule, Step};
use crate::transport::Rank;

/// The program of `rank` as text, one line for each step.
///
/// # Examples
/// ```
/// use foldwire::schedule::{ProgramSpec, Collective, Ring, program};
/// use foldwire::transport::Rank;
///
/// let call = ProgramSpec::new(Collective::ReduceScatter, 3, Rank(0));
/// assert_eq!(
///     program(&Ring, call, Rank(1)).to_string(),
///     "0: send part 0 to 2\n\
///      1: reduce-send part 2 from 0 to 2\n\
///      2: reduce-store part 1 from 0\n",
/// );
/// ```
pub fn program(schedule: &dyn Schedule, call: ProgramSpec, rank: Rank) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        for index in 0..schedule.n_steps(call, rank) {
            writeln!(f, "{index}: {}", schedule.step(call, rank, index))?;
        }
        Ok(())
    })
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, n_parts, from, to, .. } = *self;
        write!(f, "{} part {part}", self.name())?;
        if n_parts > 1 {
            write!(f, " and {} more", n_parts - 1)?;
            if let Some(rows) = self.rows.filter(|rows| rows.len < n_parts) {
                write!(f, " in rows of {}", rows.len)?;
            }
        }
        if let Some(from) = from {
            write!(f, " from {from}")?;
        }
        if let Some(to) = to {
            write!(f, " to {to}")?;
        }
        // A step that keeps its value and neither sends nor stores it has a name that says so.
        if self.keep && (to.is_some() || self.store) {
            f.write_str(", keep")?;
        }
        Ok(())
    }
}

impl Step {
    /// Name of the step in words, from the table at [`Step`].
    #[must_use]
    pub const fn name(&self) -> &'static str {
        let Self { own, store, before, as_sent, .. } = *self;
        match (self.from.is_some(), own, store, self.to.is_some()) {
            (false, _, false, false) => "take",
            (false, _, false, true) => "send",
            (false, _, true, true) => "send-store",
            (false, _, true, false) if as_sent => "finish-as-sent",
            (false, _, true, false) => "finish",
            (true, false, false, false) => "hold",
            (true, false, true, false) => "store",
            (true, false, false, true) => "forward",
            (true, false, true, true) => "store-forward",
            (true, true, false, false) => "reduce",
            (true, true, false, true) => "reduce-send",
            (true, true, true, false) => "reduce-store",
            (true, true, true, true) if before => "store-reduce-send",
            (true, true, true, true) => "reduce-store-send",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
