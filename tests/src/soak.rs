//! The soak test: whatever fails, every rank gets the right result or a typed error, in time.
//!
//! A seed draws a [`Scenario`]: a group, a network, calls, messages, and troubles (what goes
//! wrong). The calls come from the suite's tables. They divide arrays evenly, or by counts that
//! are often 0. They run one after the other, at once, or as arrays of one group call. The first
//! call is often made four times. Neighbors exchange messages before the calls or at the same
//! time. The scenario runs on the simulator, and a judge checks every rank against the library's
//! guarantees:
//!
//! - A rank returns a result that the oracle accepts, or a typed error that names another rank. The
//!   results have the same bits on all ranks where the collective guarantees it. The error comes no
//!   later than the time limit after the rank's last frame.
//! - No rank returns a result that lacks a contribution.
//! - Every error has a cause. Every call succeeds if there are no faults, if delays are shorter
//!   than the time limit, or if a rank differs only in what the others cannot detect. A rank
//!   reports damaged frames, a disagreement, a lost peer or an aborted call only where there is
//!   one. It does not report a stall if another rank aborted the call and nothing else happened.
//! - If ranks made different calls and nothing else happened, each call that fails reports the
//!   difference. If two ranks disagree on the number of values that one sends the other, the
//!   receiver has no result.
//! - If a call was aborted and nothing else happened, all ranks form one group again.
//! - After an error, every call returns the error for an unusable communicator.
//! - No rank panics, no rank hangs, and all frames return to the pool.
//!
//! If frames are damaged and no rank has checksums, there is no guarantee about results
//! (docs/guarantees.md). The other guarantees hold.
//!
//! The same seed gives the same run. New entries in the suite's tables (collectives, schedules,
//! codecs, …) are drawn without a change here.

mod draw;
mod execute;
mod judge;
mod tally;

pub use draw::{Scenario, Trouble};
pub use tally::SoakTally;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Result of one seed.
#[derive(Clone, Debug)]
pub struct SoakVerdict {
    /// Counts of the run.
    pub tally: SoakTally,
    /// A digest of every event of the run.
    pub digest: u64,
    /// The scenario and the guarantee that it broke; `None` if all were kept.
    pub failure: Option<String>,
    /// The trace of all events, if requested.
    pub trace: String,
}

/// Runs the scenario that `seed` draws.
#[must_use]
pub fn run(seed: u64) -> SoakVerdict {
    run_scenario(&Scenario::draw(seed), false)
}

/// Same as [`run`], with the trace.
#[must_use]
pub fn replay(seed: u64) -> SoakVerdict {
    run_scenario(&Scenario::draw(seed), true)
}

/// Runs a scenario.
#[must_use]
pub fn run_scenario(scenario: &Scenario, keep_trace: bool) -> SoakVerdict {
    let judged = catch_unwind(AssertUnwindSafe(|| {
        let record = execute::execute(scenario, keep_trace);
        let judgement = judge::judge(scenario, &record);
        let mut tally = SoakTally::of(&record);
        tally.n_failures = u64::from(judgement.is_err());
        let failure = judgement.err().map(|broken| format!("{broken}\n{scenario}"));
        let (digest, trace) = (record.trace.digest, record.trace.to_string());
        SoakVerdict { tally, digest, failure, trace }
    }));
    judged.unwrap_or_else(|_| SoakVerdict {
        tally: SoakTally { n_seeds: 1, n_failures: 1, ..SoakTally::default() },
        digest: 0,
        failure: Some(format!("a panic outside the ranks' programs (see above)\n{scenario}")),
        trace: String::new(),
    })
}
