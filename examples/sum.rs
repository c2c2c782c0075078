//! A first program: four ranks, which are threads of this process, average an array and sum a
//! number.
//!
//!     cargo run --release -p foldwire-examples --example sum

use foldwire as fw;
use foldwire_threads::World;

fn main() -> Result<(), fw::Error> {
    // Foldwire chooses the faster of two ways: exact values, or values that are compressed within
    // 1/10000 of the value range of all ranks' data.
    let plan = fw::Plan::auto(fw::Bound::Relative(1e-4));
    // Four ranks. Each has an emulated link of 125 MB/s (1 Gbit/s).
    let ranks = World::new(4).link_rate(125e6).run(|mut comm| {
        let offset = comm.rank().0 as f32;
        let mut data: Vec<f32> = (0..1_000_000).map(|i| (i as f32 * 1e-4).sin() + offset).collect();
        let report = comm.all_reduce(&mut data, fw::Op::Avg, &plan)?;

        // A number is an array of length one. The raw plan sends it uncompressed.
        let mut energy = [data.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>()];
        comm.all_reduce(&mut energy, fw::Op::Sum, &fw::Plan::raw())?;
        println!("rank {}: {:.4}, {:.1}; {report}", comm.rank(), data[0], energy[0]);
        Ok(())
    });
    ranks.into_iter().collect()
}

#[test]
fn runs() {
    main().unwrap();
}
