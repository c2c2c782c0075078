//! A transport from scratch: ranks that communicate over channels of the standard library.
//!
//!     cargo run --release -p foldwire-examples --example transport
//!
//! `wire.rs` is the transport: put your network in the place of the channels. It must deliver what
//! it accepts, in order for each sender, receiver and tag, and report when it can accept more. The
//! documentation of `foldwire::transport` has the contract. `conformance.rs` tests it.

#[cfg(test)]
mod conformance;
mod wire;

use foldwire::{Bound, Communicator, Error, Op, Plan};
use std::thread;
use wire::{Wire, connect};

fn main() -> Result<(), Error> {
    let plan = Plan::foldwire(Bound::Relative(1e-4));
    let outcomes = run(connect(4, 65_536), |wire| -> Result<_, Error> {
        let mut comm = Communicator::new(wire)?;
        let mut data: Vec<f32> = (0..1_000_000).map(|i| (i as f32 * 1e-4).sin()).collect();
        let report = comm.all_reduce(&mut data, Op::Sum, &plan)?;
        Ok((data[5000], report))
    });
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        let (value, report) = outcome?;
        println!("rank {rank}: {value:.4}, {report}");
    }
    Ok(())
}

/// Runs `body` for each rank on a thread of its own.
fn run<R: Send>(wires: Vec<Wire>, body: impl Fn(Wire) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let body = &body;
        let spawn = |wire| scope.spawn(move || body(wire));
        let threads: Vec<_> = wires.into_iter().map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank panicked")).collect()
    })
}
