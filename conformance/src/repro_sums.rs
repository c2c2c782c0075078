//! Reproducible sums: one list of values and the bits of their sums, the same for every backend,
//! number of ranks, schedule and distribution of the values.

use crate::Backend;
use crate::data::{self, Random};
use crate::suite::{Make, PATIENT};
use foldwire::schedule::{self, Schedule};
use foldwire::{Collective, Communicator, Error, Plan, Summands, Transport};

/// Digest of the bits of all sums in [`inputs`].
const DIGEST: u64 = 9_867_696_135_828_247_956;

/// The values of a sum, and its bits.
pub type Input = (Vec<f64>, u64);

/// Returns the values of each sum. Most are integers times 2⁻⁶⁰, whose sum 128 bits hold. The
/// others cancel, overflow on the way or at the end, span the whole range, or are special.
#[must_use]
pub fn inputs() -> Vec<Input> {
    let mut random = Random(22);
    let unit = 2f64.powi(-60);
    // Sizes from 2⁻⁶⁰ to 2⁻⁷.
    let integers = |n| (0..n).map(|_| random.bits() as i64 >> (11 + random.bits() % 53)).collect();
    let known = [0, 1, 2, 7, 40, 150, 150, 700].map(integers).map(|integers: Vec<i64>| {
        let sum: i128 = integers.iter().map(|&k| i128::from(k)).sum();
        (integers.iter().map(|&k| k as f64 * unit).collect(), sum as f64 * unit)
    });
    let [tiny, half_ulp] = [5e-324, f64::EPSILON / 2.0];
    let special = [
        (vec![1e308, 1e308, 0.5, -1e308, -1e308, tiny, -tiny], 0.5),
        (vec![1e308, -tiny, 1e308], f64::INFINITY),
        (vec![1e308, tiny, -1e308], tiny),
        (vec![tiny; 300], 300.0 * tiny),
        (vec![1.0, half_ulp, tiny], 1.0 + f64::EPSILON),
        (vec![1.0, half_ulp], 1.0),
        (vec![-0.0; 9], -0.0),
        (vec![-0.0, 0.0, -0.0], 0.0),
        (vec![1.5, -1.5], 0.0),
        (vec![f64::NEG_INFINITY, 1e308], f64::NEG_INFINITY),
        (vec![f64::INFINITY, 1.0, f64::NEG_INFINITY], f64::NAN),
        (vec![f64::NAN, 1.0], f64::NAN),
    ];
    let all = known.into_iter().chain(special);
    all.map(|(values, sum)| (values, sum.to_bits())).collect()
}

/// Deals values to ranks: to each rank as many, to any rank, or to one rank alone. The order is
/// random.
///
/// # Panics
/// If there are no ranks.
#[must_use]
pub fn deal(random: &mut Random, values: &[f64], size: usize) -> Vec<Vec<f64>> {
    let mut shuffled = values.to_vec();
    random.shuffle(&mut shuffled);
    let (way, one) = (random.below(3), random.below(size));
    let mut dealt = vec![Vec::new(); size];
    for (i, value) in shuffled.into_iter().enumerate() {
        let rank = [i % size, random.below(size), one][way];
        dealt[rank].push(value);
    }
    dealt
}

/// Computes the sums by each of the schedules, where this rank has these values of each, and
/// compares the bits: all at once, a few at once, and one.
///
/// # Panics
/// If a bit differs.
///
/// # Errors
/// As [`Communicator::repro_sums`].
pub fn check<X: Transport>(
    comm: &mut Communicator<X>,
    own: &[Vec<f64>],
    bits: &[u64],
    schedules: &[&'static dyn Schedule],
) -> Result<(), Error> {
    let arrays: Vec<&[f64]> = own.iter().map(Vec::as_slice).collect();
    for schedule in schedules {
        let plan = Plan::raw().with_schedule(*schedule);
        for n in [bits.len(), 3] {
            let mut sums = vec![7.5; n];
            comm.repro_sums(Summands::Arrays(&arrays[..n]), &mut sums, &plan)?;
            let (size, name) = (comm.size(), schedule.name());
            assert_eq!(data::bits(&sums), bits[..n], "{size} ranks, {name}: {sums:?}");
        }
    }
    for (values, &bits) in arrays.iter().zip(bits).step_by(5) {
        assert_eq!(comm.repro_sum(values)?.to_bits(), bits, "{} ranks", comm.size());
    }
    Ok(())
}

/// Returns the schedules of all-reduces.
#[must_use]
pub fn schedules() -> Vec<&'static dyn Schedule> {
    let all = schedule::ALL.iter().copied();
    all.filter(|schedule| schedule.supports(Collective::AllReduce)).collect()
}

/// Computes the sums over a backend. They are the same on all backends.
pub(crate) fn repro_sums(make: &Make<'_>, size: usize) {
    let (values, bits): (Vec<Vec<f64>>, Vec<u64>) = inputs().into_iter().unzip();
    assert_eq!(data::digest(&bits), DIGEST, "{bits:x?}");
    let schedules = schedules();
    let backend = make(None);
    let outcomes = backend.run(size, |mut comm| -> Result<(), Error> {
        comm.config_mut().timeout = PATIENT;
        // All ranks deal in the same way.
        let mut random = Random(size as u64);
        for _ in 0..3 {
            let dealt = values.iter().map(|of_sum| deal(&mut random, of_sum, size));
            let rank = comm.rank().index();
            let own: Vec<Vec<f64>> = dealt.map(|mut dealt| dealt.swap_remove(rank)).collect();
            check(&mut comm, &own, &bits, &schedules)?;
        }
        Ok(())
    });
    for (rank, outcome) in backend.ranks(size).zip(outcomes) {
        assert_eq!(outcome, Ok(()), "{size} ranks: rank {rank}");
    }
}
