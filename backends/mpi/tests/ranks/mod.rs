//! Runs a test of its program as the ranks of an MPI job. `FOLDWIRE_MPIRUN` names the launcher with
//! its options (default: `mpirun`).

use std::env;
use std::process::Command;

const AS_A_RANK: &str = "FOLDWIRE_TEST_AS_A_RANK";

/// Returns whether this process is a rank, started by [`run_two`].
pub(crate) fn is_here() -> bool {
    env::var_os(AS_A_RANK).is_some()
}

/// Runs the test `as_a_rank` of this program as two ranks, and checks that both print `last` and
/// end without an error.
pub(crate) fn run_two(last: &str) {
    let launcher = env::var("FOLDWIRE_MPIRUN").unwrap_or_else(|_| "mpirun".to_owned());
    let mut launcher = launcher.split_whitespace();
    let mut command = Command::new(launcher.next().expect("a launcher"));
    command.args(launcher).args(["-n", "2"]).arg(env::current_exe().unwrap());
    command.args(["--exact", "as_a_rank", "--nocapture", "--test-threads=1"]).env(AS_A_RANK, "1");
    // Containers run tests as root, which Open MPI refuses by default.
    let root = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];
    command.envs(root.map(|name| (name, "1"))).env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches(last).count(), 2, "{said}\n{errors}");
    assert!(output.status.success(), "{said}\n{errors}");
}
