//! Puts some of the patterns of `f32` through every codec with a guarantee. `cargo xtask patterns`
//! takes all patterns.

use foldwire::codec::CodecId;
use foldwire::kernel::Level;
use foldwire_tests::patterns::{
    BATCH, N_PATTERNS, PatternCase, PatternOrder, PatternTally, Requirement, Trial,
};

/// Number of binades, of both signs.
const N_BINADES: u32 = 512;

/// Tries batches that begin half a batch before each binade. In consecutive order they cover every
/// exponent, the ends of all binades, zeros, subnormals, infinities and NaN.
fn slice(case: &PatternCase, order: PatternOrder) -> PatternTally {
    let levels: Vec<Level> = Level::available().collect();
    let mut trial = Trial::new(case, &levels);
    let mut tally = PatternTally::default();
    for binade in (0..N_BINADES).step_by(if order == PatternOrder::Consecutive { 1 } else { 4 }) {
        let start = (binade << 23).wrapping_sub(BATCH as u32 / 2);
        match trial.batch(order, start) {
            Ok(seen) => tally += seen,
            Err(failure) => panic!("{failure}"),
        }
    }
    tally
}

/// Tries the slice on all cases of the selected codecs.
fn try_codecs(is_asked: impl Fn(CodecId) -> bool) {
    for case in PatternCase::all().iter().filter(|case| is_asked(case.codec)) {
        let mut all = PatternTally::default();
        for order in PatternOrder::ALL {
            let tally = slice(case, order);
            assert!(tally.n_not_finite > tally.n_values / 600, "{case}, {order:?}: {tally:?}");
            assert!(tally.worst <= 1.0, "{case}, {order:?}: {tally:?}");
            all += tally;
        }
        assert_eq!(all.n_values, u64::from(3 * N_BINADES / 2) * BATCH as u64);
        assert_eq!(all.n_changed == 0, is_exact(case), "{case}: {all:?}");
    }
}

/// Returns whether every value must keep its bits: the case requires it, or the bound has no
/// lattice.
fn is_exact(case: &PatternCase) -> bool {
    matches!(case.requirement, Requirement::Exact)
        || matches!(case.requirement, Requirement::Within(bound, _) if bound < 1e-39)
}

#[test]
fn fz_light_keeps_its_bound_and_is_what_is_written_of_it() {
    try_codecs(|codec| codec == CodecId::FzLight);
}

#[test]
fn other_codecs_keep_their_bound_or_every_bit() {
    try_codecs(|codec| codec != CodecId::FzLight);
}

/// Shows that the orders produce the blocks that they are meant to.
#[test]
fn exceptions_are_alone_in_their_blocks_and_among_others() {
    let case = PatternCase::all().into_iter().find(|case| case.to_string() == "fz-light abs:1e-3");
    let case = case.expect("a case of this name");
    let [consecutive, mixed, scattered] = PatternOrder::ALL.map(|order| slice(&case, order));
    for tally in [consecutive, mixed, scattered] {
        let part = tally.n_exceptions as f64 / tally.n_values as f64;
        assert!((0.3..0.7).contains(&part), "{tally:?}");
    }
    let in_a_block = |tally: PatternTally| tally.n_exceptions as f64 / tally.n_blocks as f64;
    assert!(in_a_block(consecutive) > 30.0 && in_a_block(scattered) < 20.0);
    assert!((20.0..32.0).contains(&in_a_block(mixed)), "{mixed:?}");
    // Differences between distant values take more bits.
    let bytes = |tally: PatternTally| tally.n_bytes as f64 / tally.n_values as f64;
    assert!(bytes(consecutive) < bytes(mixed) && bytes(mixed) < bytes(scattered));
}

/// If a pattern occurred twice, another one would be missing.
#[test]
fn every_order_is_a_permutation() {
    let places = || (0..N_PATTERNS).step_by(65_521).map(|place| place as u32);
    assert!(places().all(|place| PatternOrder::Consecutive.pattern(place) == place));
    // Mixed moves each bit to a position of its own.
    let mixed = |place| PatternOrder::Mixed.pattern(place);
    let of_bits: Vec<u32> = (0..32).map(|bit| mixed(1 << bit)).collect();
    assert!(of_bits.iter().all(|pattern| pattern.is_power_of_two()));
    assert_eq!(of_bits.iter().fold(0, |all, pattern| all | pattern), u32::MAX);
    for place in places() {
        let bits = (0..32).filter(|bit| place >> bit & 1 == 1);
        assert_eq!(bits.fold(0, |all, bit| all | of_bits[bit as usize]), mixed(place));
    }
    // Scattered multiplies by an odd number, which has an inverse modulo 2³².
    let factor = PatternOrder::Scattered.pattern(1);
    assert_eq!(factor % 2, 1);
    assert!(
        places().all(|place| PatternOrder::Scattered.pattern(place) == place.wrapping_mul(factor))
    );
}
