//! A collective that runs while the rank computes something else.
//!
//!     cargo run --release -p foldwire-examples --example overlap
//!
//! `start` returns an operation. Each `poll` moves it as far as possible and never waits. (`wait`
//! waits; `.await` is for executors.)

use foldwire as fw;
use foldwire::Call;
use foldwire_threads::World;
use std::task::Poll;

fn main() -> Result<(), fw::Error> {
    let plan = fw::Plan::foldwire(fw::Bound::Absolute(1e-3));
    // A network of 1 Gbit/s, so that there is something to wait for.
    let world = World::new(4).link_rate(125e6);
    let outcomes = world.run(|mut comm| -> Result<_, fw::Error> {
        let mut gradient: Vec<f32> = (0..4_000_000).map(|i| (i as f32 * 1e-5).cos()).collect();
        let mut pi = 0.0;
        let mut n_terms = 0;

        let mut operation = comm.start(Call::all_reduce(&mut gradient, fw::Op::Avg), &plan)?;
        let report = loop {
            if let Poll::Ready(outcome) = operation.poll() {
                break outcome?;
            }
            // Some other work. The network moves only during `poll`, so keep this short.
            for _ in 0..10_000 {
                let sign = if n_terms % 2 == 0 { 4.0 } else { -4.0 };
                pi += sign / (2 * n_terms + 1) as f64;
                n_terms += 1;
            }
        };
        Ok((report, pi, n_terms))
    });
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        let (report, pi, n_terms) = outcome?;
        println!("rank {rank}: {n_terms} terms meanwhile, π = {pi:.6}; {report}");
    }
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
