//! Programs and steps in words, for people who debug a schedule.
//!
//! One line for each step, numbered from 0: `3: reduce-send part 2 from 1 to 3`.

use core::fmt;

use super::{Action, Call, Part, Schedule, Step};
use crate::transport::Rank;

/// The program of `rank`, one line for each step.
///
/// # Examples
/// ```
/// use foldwire::schedule::{Call, Collective, Ring, program};
/// use foldwire::transport::Rank;
///
/// let call = Call { collective: Collective::ReduceScatter, size: 3, root: Rank(0) };
/// assert_eq!(
///     program(&Ring, call, Rank(1)).to_string(),
///     "0: send part 0 to 2\n\
///      1: reduce-send part 2 from 0 to 2\n\
///      2: reduce-store part 1 from 0\n",
/// );
/// ```
pub fn program(schedule: &dyn Schedule, call: Call, rank: Rank) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        for index in 0..schedule.n_steps(call, rank) {
            writeln!(f, "{index}: {}", schedule.step(call, rank, index))?;
        }
        Ok(())
    })
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} part {}", self.action, self.part)?;
        if let Some(from) = self.from {
            write!(f, " from {from}")?;
        }
        if let Some(to) = self.to {
            write!(f, " to {to}")?;
        }
        if self.keep {
            f.write_str(", keep")?;
        }
        Ok(())
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "send",
            Self::SendStore => "send-store",
            Self::Hold => "hold",
            Self::Finish => "finish",
            Self::FinishAsSent => "finish-as-sent",
            Self::Store => "store",
            Self::Forward => "forward",
            Self::StoreForward => "store-forward",
            Self::Reduce => "reduce",
            Self::ReduceSend => "reduce-send",
            Self::ReduceStore => "reduce-store",
            Self::ReduceStoreSend => "reduce-store-send",
        })
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
