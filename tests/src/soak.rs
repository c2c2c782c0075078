//! The soak: whatever goes wrong, every rank gets the right result or a typed error, in time.
//!
//! A seed draws a [`Scenario`]: a group, a network, some calls of the suite's tables, evenly dealt
//! or by counts of which many are 0, one after the other, at once, or as arrays of one group call,
//! the first of them often four times, messages between neighbours before them or beside them, and
//! what goes wrong. The scenario runs on the simulator, and a judge decides whether every rank did
//! what the library promises:
//!
//! - a rank returns a result that the oracle accepts, the same bits on all ranks where the
//!   collective promises it; or a typed error that names another rank, no later than the time limit
//!   after its last frame;
//! - no rank returns a result to which a contribution is missing;
//! - errors have a cause: without faults, with delays shorter than the time limit, and where a rank
//!   differs in nothing that others can tell, every call succeeds; nobody complains of damaged
//!   frames or of disagreement where there are none, of a lost peer where none left, of a rank that
//!   gave up where it did not, or of a silent one where one gave up and nothing else happened;
//! - where ranks made different calls, and that is all, each that fails says on what; where they
//!   differ in how many values one has for another, that one has no result;
//! - after a call was given up, and nothing else, all ranks come back in one group;
//! - after an error every call says that the communicator is unusable;
//! - nobody panics, nobody hangs, and all frames come back.
//!
//! Where frames are damaged and no rank has checksums, nothing is promised of results
//! (docs/guarantees.md); the rest holds.
//!
//! Same seed, same run. What the suite's tables gain (collectives, schedules, codecs, …) is drawn
//! without a change here.

mod draw;
mod execute;
mod judge;
mod tally;

pub use draw::{Scenario, Trouble};
pub use tally::SoakTally;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a seed showed.
#[derive(Clone, Debug)]
pub struct SoakVerdict {
    /// What happened, in numbers.
    pub tally: SoakTally,
    /// A digest of every event of the run.
    pub digest: u64,
    /// What the scenario was, and which promise was broken in it; `None` if all were kept.
    pub failure: Option<String>,
    /// What happened, event by event, if asked for.
    pub trace: String,
}

/// Runs what `seed` draws.
#[must_use]
pub fn run(seed: u64) -> SoakVerdict {
    run_scenario(&Scenario::draw(seed), false)
}

/// As [`run`], with the trace.
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
        failure: Some(format!("a panic outside of the ranks' programs (see above)\n{scenario}")),
        trace: String::new(),
    })
}
