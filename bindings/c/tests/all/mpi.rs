//! Tests of `fwCommInitMpi` with each installed MPI library.

use std::process::Command;

use crate::programs::{compiled, has, succeeds};

#[test]
fn ranks_of_mpi_are_ranks_here() {
    // Named as skipped if there is no compiler.
    let what = "the C interface beside MPI";
    let mut is_any_here = false;
    for library in ["openmpi", "mpich"] {
        let [compiler, launcher] = ["mpicc", "mpirun"].map(|tool| format!("{tool}.{library}"));
        if has(&compiler, what) {
            is_any_here = true;
            run(&compiler, &launcher);
        }
    }
    if !is_any_here && has("mpicc", what) {
        run("mpicc", "mpirun");
    }
}

fn run(compiler: &str, launcher: &str) {
    let is_static = false;
    let program = compiled(compiler, "-std=c11", "tests/c/mpi.c", is_static);
    let mut command = Command::new(launcher);
    // There may be fewer cores than ranks, and containers run as root.
    let root = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];
    command.envs(root.map(|name| (name, "1"))).env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command.env("MPIR_CVAR_POLLS_BEFORE_YIELD", "1");
    let said = succeeds(command.args(["-n", "3"]).arg(program));
    let n_checks = said.trim().strip_suffix(" checks").and_then(|n| n.parse::<u64>().ok());
    assert!(n_checks.is_some_and(|n| n > 30), "{compiler}: {said}");
}
