//! Endpoints that end in good order free their MPI communicators, although their calls waited for
//! long. A process can have only some thousand communicators at a time. An endpoint may also
//! outlive MPI.
#![cfg(unix)]

mod ranks;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use foldwire::{Communicator, Op, Plan};
use mpi::attribute::CommAttribute;
use mpi::topology::{AnyCommunicator as _, Communicator as _};

/// Communicators that were joined and dropped.
const N_CYCLES: usize = 100;
/// Longer than a rank waits before it asks the others which call they make.
const LATE: Duration = Duration::from_millis(3);

static N_MADE: AtomicUsize = AtomicUsize::new(0);
static N_FREED: AtomicUsize = AtomicUsize::new(0);

/// MPI copies it to each duplicate of a communicator, and drops it when it frees one.
struct Counter;

impl Clone for Counter {
    fn clone(&self) -> Self {
        N_MADE.fetch_add(1, Relaxed);
        Self
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        N_FREED.fetch_add(1, Relaxed);
    }
}

impl CommAttribute for Counter {
    const CLONE_ON_DUP: bool = true;
}

/// Body of each of the two ranks, which the test below starts from this program.
#[test]
fn as_a_rank() {
    if !ranks::is_here() {
        return;
    }
    let universe = mpi::initialize().expect("MPI starts");
    let mut world = universe.world();
    world.set_attr(Counter);
    for cycle in 0..N_CYCLES {
        let mut comm = Communicator::new(foldwire_mpi::join(&world).unwrap()).unwrap();
        if cycle % 2 == world.rank() as usize {
            thread::sleep(LATE);
        }
        let mut data = [1.0f32; 100];
        comm.all_reduce(&mut data, Op::Sum, &Plan::raw()).unwrap();
        assert_eq!(data, [2.0; 100]);
    }
    assert_eq!(N_MADE.load(Relaxed), N_CYCLES);
    // A question that arrives after its receiver has ended keeps a communicator. That is rare.
    let n_kept = N_CYCLES - N_FREED.load(Relaxed);
    assert!(n_kept <= N_CYCLES / 5, "{n_kept} of {N_CYCLES} communicators were not freed");
    // rsmpi finalises MPI when the universe is dropped.
    let mut late = Communicator::new(foldwire_mpi::join(&world).unwrap()).unwrap();
    late.all_reduce(&mut [1.0f32; 100], Op::Sum, &Plan::raw()).unwrap();
    drop(world);
    drop(universe);
    // In shared memory it may even succeed.
    let _ = late.all_reduce(&mut [1.0f32; 100], Op::Sum, &Plan::raw());
    drop(late);
    println!("freed them");
}

#[test]
fn communicators_whose_calls_waited_are_freed() {
    ranks::run_two("freed them");
}
