//! Compares all-reduces on two levels, which compress only between nodes, with all-reduces among
//! all ranks in one call.
//!
//!     cargo build --release -p foldwire-libfabric --example two_levels
//!     cargo xtask cluster up -n 2 --rate 1gbit
//!     cargo xtask cluster run -n 4 --per-node 2 --node-counters -- \
//!         target/release/examples/two_levels field.f32
//!
//! The first argument is a file of little-endian `f32`, repeated to 64 MiB. Without it, or with
//! `-`, the values are a sine. A second argument, `flat`, `ring` or `levels`, runs only that
//! variant, so that the counters show its traffic.

use foldwire as fw;
use foldwire::schedule::Ring;
use foldwire_bootstrap::Rendezvous;
use foldwire_libfabric::{Settings, join};
use std::time::{Duration, Instant};

const N_VALUES: usize = 16 << 20;
const N_ROUNDS: usize = 9;
/// One call with the automatic schedule, one with a ring, and two levels.
const VARIANTS: [&str; 3] = ["flat", "ring", "levels"];

fn values(rank: usize) -> Result<Vec<f32>, std::io::Error> {
    let pattern: Vec<f32> = match std::env::args().nth(1).filter(|path| path != "-") {
        None => (0..1 << 20).map(|i| (i as f32 * 1e-3).sin()).collect(),
        Some(path) => {
            let bytes = std::fs::read(path)?;
            bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
        }
    };
    // Each rank starts at another part of the field.
    let start = rank * pattern.len() / 7;
    Ok(pattern.iter().cycle().skip(start).take(N_VALUES).copied().collect())
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let transport = join(&Settings::from_env()?, Rendezvous::from_env()?.join()?)?;
    let world = fw::SharedCommunicator::new(transport, 1)?;
    let levels = world.two_levels(1)?;
    let plan = fw::Plan::foldwire(fw::Bound::Relative(1e-3));
    let input = values(world.rank().index())?;
    let which = std::env::args().nth(2);
    let (mut data, mut times) = (input.clone(), [const { Vec::new() }; 3]);
    for _ in 0..N_ROUNDS {
        for (variant, times) in VARIANTS.iter().zip(&mut times) {
            if which.as_deref().is_some_and(|only| only != *variant) {
                continue;
            }
            data.copy_from_slice(&input);
            // All ranks start at the same time.
            world.all_reduce(&mut [0.0f32], fw::Op::Max, &fw::Plan::raw())?;
            let start = Instant::now();
            match *variant {
                "flat" => world.all_reduce(&mut data, fw::Op::Sum, &plan)?,
                "ring" => world.all_reduce(&mut data, fw::Op::Sum, &plan.with_schedule(&Ring))?,
                _ => levels.all_reduce(&mut data, fw::Op::Sum, &plan)?,
            };
            times.push(start.elapsed());
        }
    }
    if world.rank() == fw::Rank(0) {
        for (variant, times) in VARIANTS.iter().zip(times).filter(|(_, t)| !t.is_empty()) {
            println!("{variant}: {:.1} ms, median of {N_ROUNDS}", median(times));
        }
    }
    Ok(())
}
