//! A forked child of a rank is not a rank: its calls fail, and dropping its transport does not
//! touch MPI. `FOLDWIRE_MPIRUN` names the launcher with its options (default: `mpirun`).
#![cfg(unix)]

#[path = "../../tcp/tests/ffi/mod.rs"]
mod ffi;

use std::env;
use std::process::Command;

use foldwire::transport::TransportErrorKind;
use foldwire::{Communicator, Error, Op, Plan};

const AS_A_RANK: &str = "FOLDWIRE_TEST_AS_A_RANK";

/// Body of each of the two ranks, which the test below starts from this program.
#[test]
fn as_a_rank() {
    if env::var_os(AS_A_RANK).is_none() {
        return;
    }
    let universe = mpi::initialize().expect("MPI starts");
    let world = universe.world();
    let mut comm = Communicator::new(foldwire_mpi::join(&world).unwrap()).unwrap();
    let sum = |comm: &mut Communicator<_>| {
        let mut data = [1.0f32; 1000];
        comm.all_reduce(&mut data, Op::Sum, &Plan::raw()).map(|_| assert_eq!(data, [2.0; 1000]))
    };
    sum(&mut comm).unwrap();
    if let Some(child) = ffi::fork() {
        assert_eq!(ffi::wait(child), 0, "the child's call was not refused");
    } else {
        // Nothing here may panic: the test harness belongs to the parent.
        let refused = comm.all_reduce(&mut [1.0f32; 9], Op::Sum, &Plan::raw());
        drop(comm);
        let kind = TransportErrorKind::OtherProcess;
        let is_refused =
            matches!(refused, Err(Error::Transport { kind: found, .. }) if found == kind);
        ffi::exit_now(i32::from(!is_refused));
    }
    for _ in 0..20 {
        sum(&mut comm).unwrap();
    }
    drop(comm);
    println!("went on");
}

#[test]
fn a_forked_process_disturbs_nobody() {
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
    assert_eq!(said.matches("went on").count(), 2, "{said}\n{errors}");
    assert!(output.status.success(), "{said}\n{errors}");
}
