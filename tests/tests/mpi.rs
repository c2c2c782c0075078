//! The suite over MPI: 1, 2, 3 and 5 processes. `FOLDWIRE_MPIRUN` names the launcher with its
//! options (default: `mpirun`). `cargo xtask` runs this once for each MPI library that it finds.
#![cfg(feature = "mpi")]

use foldwire_tests::processes::sizes;
use foldwire_tests::suite::N_CHECKS;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

/// One job at a time: MPI libraries spin while they wait.
static MACHINE: Mutex<()> = Mutex::new(());

/// Runs `program` with its arguments on `n` ranks.
fn mpirun(n: usize, launcher_words: &[&str], program: &[&str]) -> Output {
    let _turn = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let launcher = std::env::var("FOLDWIRE_MPIRUN").unwrap_or_else(|_| "mpirun".to_owned());
    let mut launcher = launcher.split_whitespace();
    let mut command = Command::new(launcher.next().expect("a launcher"));
    command.args(launcher).args(launcher_words).args(["-n", &n.to_string()]).args(program);
    // Ranks outnumber cores, and containers run as root.
    let root = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];
    command.envs(root.map(|name| (name, "1"))).env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    // MPICH's ranks share cores better if they yield early.
    command.env("MPIR_CVAR_POLLS_BEFORE_YIELD", "1").env("RUST_BACKTRACE", "0");
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; set FOLDWIRE_MPIRUN"))
}

const SUITE: &str = env!("CARGO_BIN_EXE_suite");

fn check_suite(n: usize) {
    let output = mpirun(n, &[], &[SUITE, "mpi"]);
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{n} ranks: {}\n{said}\n{errors}", output.status);
    let n_checks = said.lines().filter(|line| line.starts_with("ok: ")).count();
    assert_eq!(n_checks, N_CHECKS, "{n} ranks\n{said}\n{errors}");
}

#[test]
fn up_to_five_ranks_do_what_every_backend_must() {
    for n in sizes() {
        check_suite(n);
    }
}

#[test]
fn a_killed_rank_ends_every_other_ones_call_and_the_others_go_on() {
    // By default, launchers kill all ranks when one is lost; here the other ranks must continue.
    // MPICH's launcher must not notice the loss, so a shell outlives the rank.
    let version = mpi::environment::library_version().unwrap_or_default();
    let output = if version.contains("Open MPI") {
        mpirun(4, &["--enable-recovery"], &[SUITE, "mpi", "--lose-a-rank"])
    } else {
        let shell = ["sh", "-c", "\"$@\"; sleep 8", "sh"];
        let program = [&shell[..], &[SUITE, "mpi", "--lose-a-rank"]].concat();
        mpirun(4, &["-disable-auto-cleanup"], &program)
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let survivors = said.lines().filter(|line| line.starts_with("survivor ")).count();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(survivors, 3, "{said}\n{errors}");
    let go_on = said.lines().filter(|line| line.starts_with("goes on ")).count();
    assert_eq!(go_on, 3, "{said}\n{errors}");
}
