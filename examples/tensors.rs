//! All-reduces several tensors with one call for each, and shows why one call for all is worse.
//!
//!     cargo run --release -p foldwire-examples --example tensors
//!
//! A relative bound refers to the value range of the whole array. If several tensors share one flat
//! buffer, the tensor with the largest values determines the error of all. A tensor of small values
//! is then lost.
//!
//! `SharedCommunicator::all_reduce_group` makes all calls at once, and scans all tensors together.

use foldwire as fw;
use foldwire_threads::World;

/// Weights of about 1, and a bias of about 1e-6.
fn tensors(rank: usize) -> [Vec<f32>; 2] {
    let wave = |i: usize| ((i + rank) as f32 * 0.01).sin();
    [(0..10_000).map(wave).collect(), (0..100).map(|i| 1e-6 * wave(10 * i)).collect()]
}

/// Largest error of the averages, relative to the tensor's largest value.
fn error(averages: &[f32], tensor: usize, n_ranks: usize) -> f64 {
    let mut exact = vec![0.0; averages.len()];
    for rank in 0..n_ranks {
        exact.iter_mut().zip(&tensors(rank)[tensor]).for_each(|(sum, &x)| *sum += f64::from(x));
    }
    exact.iter_mut().for_each(|sum| *sum /= n_ranks as f64);
    let largest = exact.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
    let errors = averages.iter().zip(&exact).map(|(&ours, exact)| (f64::from(ours) - exact).abs());
    errors.fold(0.0, f64::max) / largest
}

fn main() -> Result<(), fw::Error> {
    let plan = fw::Plan::foldwire(fw::Bound::Relative(1e-3));
    let outcomes =
        World::new(4).run_with((0..4).map(tensors), |mut comm, own| -> Result<_, fw::Error> {
            let mut flat = own.concat();
            comm.all_reduce(&mut flat, fw::Op::Avg, &plan)?;

            let mut each = own;
            for tensor in &mut each {
                comm.all_reduce(tensor, fw::Op::Avg, &plan)?;
            }
            let n_ranks = comm.size();
            let flat = flat.split_at(each[0].len());
            Ok([
                [error(flat.0, 0, n_ranks), error(flat.1, 1, n_ranks)],
                [error(&each[0], 0, n_ranks), error(&each[1], 1, n_ranks)],
            ])
        });
    let [flat, each] = outcomes.into_iter().next().expect("there are ranks")?;
    println!("largest error / largest value    weights      bias");
    println!("one flat buffer                  {:.1e}   {:.1e}", flat[0], flat[1]);
    println!("a call for each                  {:.1e}   {:.1e}", each[0], each[1]);
    assert!(flat[1] > 0.5 && each[1] < 1e-2, "one buffer loses the bias, two calls keep it");
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
