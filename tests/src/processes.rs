//! Backends whose ranks are processes of the same program (features `mpi`, `libfabric`, `tcp`).

#[cfg(feature = "libfabric")]
pub mod libfabric;
#[cfg(feature = "mpi")]
pub mod mpi;
#[cfg(any(feature = "libfabric", feature = "tcp"))]
pub mod session;
#[cfg(feature = "tcp")]
pub mod tcp;

use crate::suite::SIZES;
use crate::{Backend, data};
use foldwire::schedule::Ring;
use foldwire::transport::TransportErrorKind;
use foldwire::{Bound, Call, Error, Op, Plan};
use std::process::Command;
use std::time::{Duration, Instant};

/// Returns the numbers of processes that the suites run with: the sizes in `FOLDWIRE_SUITE_SIZES`,
/// or all sizes of the suite if it is not set. Each size has its own cases.
///
/// # Panics
/// If the variable lists anything else.
#[must_use]
pub fn sizes() -> Vec<usize> {
    let Ok(list) = std::env::var("FOLDWIRE_SUITE_SIZES") else { return SIZES.to_vec() };
    let sizes: Vec<_> = list.split(',').map_while(|size| size.parse().ok()).collect();
    let are_known = sizes.iter().all(|size| SIZES.contains(size)) && !sizes.is_empty();
    assert!(are_known, "FOLDWIRE_SUITE_SIZES={list}: sizes of the suite are {SIZES:?}");
    sizes
}

/// Kills the last rank in the middle of an all-reduce. The other ranks print the error that they
/// get, shrink, and print the size of their new group. The process's own group is broken
/// afterwards, so the caller must exit.
///
/// # Panics
/// If a survivor sees another error than a lost peer or a stall, or sees it late, or if the
/// survivors' result is wrong.
pub fn lose_a_rank(backend: &impl Backend, size: usize) {
    let timeout = Duration::from_secs(3);
    let plan = Plan::foldwire(Bound::Absolute(1e-3)).with_schedule(&Ring);
    backend.run(size, |mut comm| {
        comm.config_mut().timeout = timeout;
        let rank = comm.rank().index();
        let mut values: Vec<f32> = data::smooth(rank, 2_000_000);
        if rank + 1 == size {
            let mut operation =
                comm.start(Call::all_reduce(&mut values, Op::Sum), &plan).expect("a valid call");
            for _ in 0..20 {
                let _ = operation.poll();
            }
            let id = std::process::id().to_string();
            let _ = Command::new("kill").args(["-KILL", &id]).status();
            unreachable!("killed");
        }
        let start = Instant::now();
        let outcome = comm.all_reduce(&mut values, Op::Sum, &plan);
        let took = start.elapsed();
        let verdict = match outcome {
            Err(Error::Transport { kind: TransportErrorKind::PeerLost, .. }) => "PeerLost",
            Err(Error::Stalled { .. }) => "Stalled",
            // Another survivor detected it first.
            Err(Error::Aborted { .. }) => "Aborted",
            other => panic!("rank {rank}: {other:?}"),
        };
        assert!(took < timeout + Duration::from_secs(2), "rank {rank} took {took:?}");
        println!("survivor {rank}: {verdict} after {:.2} s", took.as_secs_f64());
        let mut comm = match comm.shrink(timeout) {
            Ok(comm) => comm,
            Err(error) => return println!("stuck {rank}: {error}"),
        };
        let mut values = vec![rank as f32; 50_000];
        match comm.all_reduce(&mut values, Op::Max, &plan) {
            Ok(_) => {
                let greatest = values.iter().all(|&x| (x - (size - 2) as f32).abs() <= 1e-3);
                assert!(greatest && comm.size() == size - 1, "rank {rank} of {}", comm.size());
                println!("goes on {rank}: {} ranks", comm.size());
            }
            Err(error) => println!("stuck {rank}: {error}"),
        }
        // A launcher may end the whole job when the first survivor exits.
        std::thread::sleep(timeout / 2);
    });
}
