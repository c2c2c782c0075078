//! Any bytes as a sequence of calls, faults and delays on a simulated network. Every rank gets the
//! right result or a typed error in time, and survivors form a group. `foldwire_tests::soak` lists
//! the guarantees.

use foldwire_tests::soak::{Scenario, run_scenario};

/// Runs the scenario that the bytes describe.
///
/// # Panics
/// If a guarantee is broken; the message has the scenario.
pub fn check(input: &[u8]) {
    let verdict = run_scenario(&Scenario::of_bytes(input), false);
    if let Some(failure) = verdict.failure {
        panic!("{failure}");
    }
}
