//! All-reduces that are exact inside a node and compressed between nodes.
//!
//!     cargo run --release -p foldwire-examples --example two_levels
//!
//! There are two nodes of two ranks. Within a node frames travel through memory, between nodes over
//! links of 200 Mbit/s, one for each rank.

use foldwire as fw;
use foldwire_threads::World;
use std::time::Instant;

/// The test checks the sums of fewer values, as it compares no times.
const N_VALUES: usize = if cfg!(test) { 1 << 18 } else { 4 << 20 };
const N_ROUNDS: usize = 5;

fn main() -> Result<(), fw::Error> {
    let plan = fw::Plan::foldwire(fw::Bound::Relative(1e-4));
    let world = World::new(4).ranks_per_node(2).link_rate(25e6);
    let outcomes = world.run_endpoints(|endpoint| -> Result<_, fw::Error> {
        let world = fw::SharedCommunicator::new(endpoint, 1)?;
        let levels = world.two_levels(1)?;
        let offset = world.rank().0 as f32;
        let input: Vec<f32> = (0..N_VALUES).map(|i| (i as f32 * 1e-3).sin() + offset).collect();
        let mut times = [const { Vec::new() }; 2];
        let mut worst = 0.0;
        for round in 0..2 * N_ROUNDS {
            let mut data = input.clone();
            world.all_reduce(&mut [0.0f32], fw::Op::Max, &fw::Plan::raw())?;
            let start = Instant::now();
            let report = match round % 2 {
                0 => world.all_reduce(&mut data, fw::Op::Sum, &plan)?,
                _ => levels.all_reduce(&mut data, fw::Op::Sum, &plan)?,
            };
            times[round % 2].push(start.elapsed().as_secs_f64() * 1e3);
            let off = |(i, sum): (usize, &f32)| {
                let wave = f64::from((i as f32 * 1e-3).sin());
                (f64::from(*sum) - 4.0 * wave - 6.0).abs()
            };
            worst = data.iter().enumerate().map(off).fold(worst, f64::max);
            assert!(worst <= report.worst_case.unwrap_or(0.0) + 1e-5, "{worst} of {report}");
        }
        times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
        Ok(times.map(|times| times[N_ROUNDS / 2]))
    });
    let [flat, two_levels] = outcomes.into_iter().next().expect("there are ranks")?;
    println!("one call among all ranks {flat:.0} ms, two levels {two_levels:.0} ms");
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
