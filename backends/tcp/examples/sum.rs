//! Sums an array over all ranks within an error bound:
//! `foldwire launch -n 4 -- target/release/examples/sum [VALUES]`.

use foldwire::{Bound, Communicator, Op, Plan};
use foldwire_bootstrap::Rendezvous;
use foldwire_tcp::Settings;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = std::env::args().nth(1).map_or(Ok(1 << 20), |count| count.parse())?;
    let mut data: Vec<f32> = (0..count).map(|i| (i as f32 * 1e-4).sin()).collect();

    let mut session = Rendezvous::from_env()?.join()?;
    let mut comm = Communicator::new(foldwire_tcp::join(&Settings::from_env()?, &mut session)?)?;
    let report = comm.all_reduce(&mut data, Op::Sum, &Plan::foldwire(Bound::Relative(1e-4)))?;

    println!("rank {} of {}: {report}", comm.rank(), comm.size());
    Ok(())
}
