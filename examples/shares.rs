//! Each rank works on its share of an array that rank 0 has.
//!
//!     cargo run --release -p foldwire-examples --example shares
//!
//! Shares are blocks whose lengths differ by one value at most: `comm.share(count)`. No rank needs
//! to know the other ranks' counts.

use foldwire as fw;
use foldwire_threads::World;

fn main() -> Result<(), fw::Error> {
    let (n_ranks, count, root) = (3, 1_000_000, fw::Rank(0));
    let plan = fw::Plan::foldwire(fw::Bound::Absolute(1e-4));
    let outcomes = World::new(n_ranks).run(|mut comm| -> Result<_, fw::Error> {
        let is_root = comm.rank() == root;
        let share = comm.share(count);

        // The call ignores the arrays that other ranks pass in place of the root's.
        let field: Vec<f32> =
            if is_root { (0..count).map(|i| (i as f32 * 1e-5).sin()).collect() } else { vec![] };
        let mut own = vec![0.0; share.len()];
        comm.scatter(count, &field, &mut own, root, &plan)?;

        own.iter_mut().for_each(|x| *x *= *x);

        let mut squares = vec![0.0; if is_root { count } else { 0 }];
        let report = comm.gather(count, &own, &mut squares, root, &plan)?;
        let worst = field.iter().zip(&squares).map(|(x, y)| (x * x - y).abs()).fold(0.0, f32::max);
        Ok((share, worst, report))
    });
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        let (share, worst, report) = outcome?;
        println!("rank {rank}: values {share:?}, {report}");
        assert!(worst <= 4e-4, "{worst}");
    }
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
