//! Differences from the previous step, sent by messages and by collectives that move them.

use foldwire::codec::CodecId;
use foldwire::{Error, Incoming, InterStep, Outgoing, Plan, Preset, Rank};
use foldwire_threads::World;

/// Returns values of a rank: a field that moves slowly, with unusual bit patterns.
fn field(rank: usize, step: usize, n_values: usize) -> Vec<f64> {
    let value = |i: usize| match (i + step) % 97 {
        0 => f64::NAN,
        1 => f64::from_bits(0x7ff0_0000_dead_beef),
        2 => f64::NEG_INFINITY,
        3 => -0.0,
        4 => f64::from_bits(3),
        _ => 280.0 + (i as f64 * 0.01 + step as f64 * 1e-4 + rank as f64).sin(),
    };
    (0..n_values).map(value).collect()
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// Returns the bits that remain after dropping `n_bits`. All NaNs become 0.
fn dropped(values: &[f64], n_bits: u32) -> Vec<u64> {
    let left = |x: &f64| if x.is_nan() { 0 } else { x.to_bits() >> n_bits << n_bits };
    values.iter().map(left).collect()
}

/// The preset is exact, and never uses its bound.
fn plan() -> Plan {
    Preset::CamInter.plan(foldwire::Collective::AllGather, foldwire::Bound::Absolute(1.0))
}

/// Longer than a frame, so that a message has several segments.
const N_VALUES: usize = 30_011;

#[test]
fn two_ranks_exchange_differences_and_have_the_values() {
    for (n_dropped, plan) in [(0, plan()), (32, plan()), (0, Plan::raw())] {
        let wire = World::new(2).run(|mut comm| -> Result<_, Error> {
            let (own, other) = (comm.rank().index(), 1 - comm.rank().index());
            let [mut sent, mut received] = [vec![0.0; N_VALUES], vec![0.0; N_VALUES]];
            let mut sender = InterStep::new(&mut sent).dropping(n_dropped)?;
            let mut receiver = InterStep::new(&mut received).dropping(n_dropped)?;
            let [mut message, mut values] = [vec![0.0; N_VALUES], vec![0.0; N_VALUES]];
            let mut wire = Vec::new();
            for step in 0..6 {
                sender.difference(&field(own, step, N_VALUES), &mut message)?;
                let mut sends = [Outgoing::new(Rank::new(other), 0, &message)];
                let mut recvs = [Incoming::new(Rank::new(other), 0, &mut values)];
                wire.push(comm.exchange(&mut sends, &mut recvs, &plan)?.wire_bytes);
                receiver.restore(&mut values)?;
                let theirs = field(other, step, N_VALUES);
                if n_dropped == 0 {
                    assert_eq!(bits(&values), bits(&theirs));
                } else {
                    assert_eq!(dropped(&values, n_dropped), dropped(&theirs, n_dropped));
                    let is_nan = |x: &f64| x.is_nan();
                    assert!(values.iter().map(is_nan).eq(theirs.iter().map(is_nan)));
                }
            }
            Ok(wire)
        });
        for wire in wire {
            let wire = wire.unwrap();
            if plan.codec == CodecId::Lz {
                // The first step has no previous one. In later steps, most digits are the same.
                let share = wire[5] as f64 / (8 * N_VALUES) as f64;
                assert!(share < if n_dropped == 0 { 0.85 } else { 0.4 }, "{wire:?}");
                assert!(wire[5] < wire[0], "{wire:?}");
            }
        }
    }
}

/// Each rank has a sender for its share, and a receiver for all shares.
#[test]
fn an_all_gather_of_differences_gives_every_rank_all_values() {
    for size in [1, 2, 5] {
        for n_values in [0, 1, 5_003] {
            let ends = World::new(size).run(|mut comm| -> Result<(), Error> {
                let own = comm.rank().index();
                let [mut sent, mut received] = [vec![0.0; n_values], vec![0.0; size * n_values]];
                let mut sender = InterStep::new(&mut sent);
                let mut receiver = InterStep::new(&mut received);
                let [mut part, mut all] = [vec![0.0; n_values], vec![0.0; size * n_values]];
                for step in 0..4 {
                    sender.difference(&field(own, step, n_values), &mut part)?;
                    comm.all_gather(&part, &mut all, &plan())?;
                    receiver.restore(&mut all)?;
                    let want: Vec<f64> =
                        (0..size).flat_map(|rank| field(rank, step, n_values)).collect();
                    assert_eq!(bits(&all), bits(&want));
                }
                Ok(())
            });
            ends.into_iter().for_each(|end| end.unwrap());
        }
    }
}
