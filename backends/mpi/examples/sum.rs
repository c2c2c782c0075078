//! Sums an array over all MPI ranks within a bound: `mpirun -n 4 target/debug/examples/sum`.

use foldwire::{Bound, Communicator, Op, Plan};
use mpi::traits::Communicator as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (universe, _) = mpi::initialize_with_threading(mpi::Threading::Funneled)
        .ok_or("MPI is initialised already")?;
    let world = universe.world();
    let mut data: Vec<f32> = (0..1 << 20).map(|i| (i as f32 * 1e-4).sin()).collect();

    let mut comm = Communicator::new(foldwire_mpi::join(&world)?)?;
    let report = comm.all_reduce(&mut data, Op::Sum, &Plan::foldwire(Bound::Relative(1e-4)))?;

    println!("rank {} of {}: {}; {report}", world.rank(), world.size(), data[1000]);
    Ok(())
}
