//! A forked child of a rank is not a rank: its calls fail, and the transport that it drops harms no
//! rank.

mod common;
#[path = "../../tcp/tests/sockets/ffi/mod.rs"]
mod ffi;

use std::thread;
use std::time::Duration;

use common::Test;
use foldwire::transport::TransportErrorKind;
use foldwire::{Communicator, Error, Op, Plan};

fn forked(name: &'static str, provider: &'static str) {
    Test { name, provider }.run_transport(2, |endpoint| {
        let mut comm = Communicator::new(endpoint).unwrap();
        let plan = Plan::raw();
        let sum = |comm: &mut Communicator<_>| {
            let mut data = [1.0f32; 1000];
            comm.all_reduce(&mut data, Op::Sum, &plan).map(|_| assert_eq!(data, [2.0; 1000]))
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
        // By now any message of the child would have arrived.
        thread::sleep(Duration::from_millis(50));
        for _ in 0..20 {
            sum(&mut comm).unwrap();
        }
    });
}

#[test]
fn a_forked_process_disturbs_nobody_over_tcp() {
    forked("a_forked_process_disturbs_nobody_over_tcp", "tcp");
}

#[test]
fn a_forked_process_disturbs_nobody_over_shm() {
    forked("a_forked_process_disturbs_nobody_over_shm", "shm");
}
