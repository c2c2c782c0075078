//! A forked child of a rank is not a rank: its calls fail, and dropping its transport does not
//! touch MPI.
#![cfg(unix)]

#[path = "../../tcp/tests/sockets/ffi/mod.rs"]
mod ffi;
mod ranks;

use foldwire::transport::TransportErrorKind;
use foldwire::{Communicator, Error, Op, Plan};

/// Body of each of the two ranks, which the test below starts from this program.
#[test]
fn as_a_rank() {
    if !ranks::is_here() {
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
    ranks::run_two("went on");
}
