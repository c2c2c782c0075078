//! Any bytes as a sequence of calls, faults and delays on a simulated network: every rank gets the
//! right result or a typed error, in time, and survivors form a group (`foldwire_tests::soak` says
//! what must hold).

use foldwire_tests::soak::{Scenario, run_scenario};

/// Runs what the bytes describe.
///
/// # Panics
/// If a promise is broken, with the scenario.
pub fn check(input: &[u8]) {
    let verdict = run_scenario(&Scenario::of_bytes(input), false);
    if let Some(failure) = verdict.failure {
        panic!("{failure}");
    }
}
