//! Sums an array, and a single number, over all MPI ranks: `mpirun -n 4 target/debug/examples/sum`.

use foldwire as fw; // `use foldwire::Communicator` would shadow rsmpi's trait of that name
use mpi::traits::Communicator as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (universe, _) = mpi::initialize_with_threading(mpi::Threading::Funneled)
        .ok_or("MPI is initialised already")?;
    let world = universe.world();
    let mut data: Vec<f32> = (0..1 << 20).map(|i| (i as f32 * 1e-4).sin()).collect();

    let mut comm = fw::Communicator::new(foldwire_mpi::join(&world)?)?;
    let plan = fw::Plan::foldwire(fw::Bound::Relative(1e-4));
    let report = comm.all_reduce(&mut data, fw::Op::Sum, &plan)?;

    // A number is an array of one. The raw plan moves it exactly.
    let mut ranks = [1.0f64];
    comm.all_reduce(&mut ranks, fw::Op::Sum, &fw::Plan::raw())?;

    println!("rank {} of {}: {}; {report}", world.rank(), ranks[0], data[1000]);
    Ok(())
}
