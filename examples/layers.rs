//! Averages the gradients of layers while the next gradients are computed.
//!
//!     cargo run --release -p foldwire-examples --example layers
//!
//! A backward pass computes one layer's gradient after the other. A communicator runs one call for
//! each layer, and `progress` moves all of them forward.

use foldwire as fw;
use foldwire::Call;
use foldwire_threads::World;
use std::time::{Duration, Instant};

const N_LAYERS: usize = 20;
/// Time to compute a layer's gradient.
const BACKWARD: Duration = Duration::from_millis(6);

fn gradient(rank: usize, layer: usize) -> Vec<f32> {
    (0..200_000).map(|i| ((i + 1000 * rank) as f32 * 1e-3 * (layer + 1) as f32).sin()).collect()
}

/// Represents a computation, such as one on an accelerator. The rank may do other work meanwhile.
fn backward(mut meanwhile: impl FnMut()) {
    let start = Instant::now();
    while start.elapsed() < BACKWARD {
        meanwhile();
    }
}

fn main() -> Result<(), fw::Error> {
    let plan = fw::Plan::foldwire(fw::Bound::Relative(1e-3));
    // A network of 200 Mbit/s, on which a layer takes about as long as its computation.
    let outcomes =
        World::new(2).link_rate(25e6).run_endpoints(|endpoint| -> Result<_, fw::Error> {
            // Up to `N_LAYERS` calls run at once.
            let comm = fw::SharedCommunicator::new(endpoint, N_LAYERS)?;
            let rank = comm.rank().index();
            let layers =
                || (0..N_LAYERS).rev().map(|layer| gradient(rank, layer)).collect::<Vec<_>>();
            let gradients = [layers(), layers()];
            let [mut first, second] = gradients;

            let start = Instant::now();
            for gradient in &mut first {
                backward(std::thread::yield_now);
                comm.all_reduce(gradient, fw::Op::Avg, &plan)?;
            }
            let one_by_one = start.elapsed();

            let start = Instant::now();
            let mut calls = Vec::new();
            for gradient in second {
                backward(|| {
                    if !comm.progress() {
                        std::thread::yield_now();
                    }
                });
                calls.push(comm.start(Call::all_reduce(gradient, fw::Op::Avg), &plan)?);
            }
            for (call, expected) in calls.into_iter().zip(&first) {
                let (average, _) = call.wait().into_result()?;
                assert!(average == *expected, "both ways give the same bits");
            }
            Ok((one_by_one, start.elapsed()))
        });
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        let (one_by_one, at_once) = outcome?;
        let gain = one_by_one.as_secs_f64() / at_once.as_secs_f64();
        let [one_by_one, at_once] = [one_by_one, at_once].map(|time| time.as_millis());
        println!("rank {rank}: one by one {one_by_one} ms, at once {at_once} ms, {gain:.2} times");
    }
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
