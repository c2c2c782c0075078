//! A rank leaves during an iteration, and the other ranks continue without it.
//!
//!     cargo run --release -p foldwire-examples --example survivors
//!
//! Success is local: when a rank is lost, some ranks may have finished a step that other ranks have
//! not. So each rank keeps the state before its last step, and the survivors agree on the step from
//! which they continue.

use foldwire as fw;
use foldwire_threads::World;
use std::time::Duration;

const STEPS: usize = 10;
/// Time after which a silent rank is left out.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns a communicator of the surviving ranks, and the number of steps that all of them have
/// done.
fn recover<X: fw::Transport>(
    mut comm: fw::Communicator<X>,
    n_done: usize,
) -> Result<(fw::Communicator<X>, usize), fw::Error> {
    loop {
        comm = comm.shrink(PATIENCE)?;
        let mut least = [n_done as f64];
        // Another rank may be lost in this call too.
        if comm.all_reduce(&mut least, fw::Op::Min, &fw::Plan::raw()).is_ok() {
            return Ok((comm, least[0] as usize));
        }
    }
}

/// Program of each rank: ten steps, each an average over all ranks.
fn iterate<X: fw::Transport>(mut comm: fw::Communicator<X>) -> Result<String, fw::Error> {
    let plan = fw::Plan::foldwire(fw::Bound::Relative(1e-4));
    let name = comm.rank();
    let mut state = vec![name.0 as f32; 10_000];
    let mut before = state.clone();
    let mut n_done = 0;
    while n_done < STEPS {
        if n_done == 4 && name == fw::Rank(2) {
            return Ok("leaves after 4 steps".to_owned()); // and drops its communicator
        }
        let mut next = vec![0.0; state.len()];
        match comm.all_reduce_into(&state, &mut next, fw::Op::Avg, &plan) {
            Ok(_) => {
                before = std::mem::replace(&mut state, next);
                n_done += 1;
            }
            Err(error) if error.is_usage() => return Err(error),
            Err(error) => {
                let least;
                (comm, least) = recover(comm, n_done)?;
                println!("rank {name}: {error}; {} are left", comm.size());
                if least < n_done {
                    // Steps are collective, so no rank is ahead by more than one.
                    state.clone_from(&before);
                    n_done = least;
                }
            }
        }
    }
    Ok(format!("{n_done} steps, with {} ranks at the end: {}", comm.size(), state[0]))
}

fn main() -> Result<(), fw::Error> {
    for (rank, outcome) in World::new(4).run(iterate).into_iter().enumerate() {
        println!("rank {rank}: {}", outcome?);
    }
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
