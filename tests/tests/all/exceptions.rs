//! Values beyond the lattice cost little more than their own bytes: a mask of NaN leaves the values
//! beside it compressed as before. All fields of a frame that describe exceptions are checked.

use foldwire::bound::ValueRange;
use foldwire::codec::{CodecError, CodecExt, DecodeError, FzLight, fz_light};
use foldwire::kernel::Level;
use foldwire::{Bound, Float, Op, Plan, Quantum, bf16, f16};
use foldwire_tests::data::Random;
use foldwire_tests::{coding, data};

use super::real_fields::fields;
use proptest::prelude::*;

/// Replaces one value in twenty, on average, by NaN, at random places.
fn masked<T: Float>(values: &[T]) -> Vec<T> {
    let mut random = Random(5);
    let mut mask =
        |&x: &T| if random.bits().is_multiple_of(20) { T::from_f64(f64::NAN) } else { x };
    values.iter().map(&mut mask).collect()
}

fn n_bytes<T: Float>(values: &[T]) -> usize {
    let bound = Bound::Relative(1e-3).absolute(ValueRange::of(values)).expect("a range");
    let codec = FzLight::new(Quantum::new::<T>(bound).expect("a bound"), 2);
    coding::encode(&codec, values).len()
}

fn a_mask_costs_at_most_30_percent<T: Float>(name: &str, values: &[T]) {
    let masked = masked(values);
    let n_masked = masked.iter().filter(|x| x.to_f64().is_nan()).count();
    assert!(n_masked * 25 > values.len() && n_masked * 16 < values.len());
    let kept = n_bytes(values) as f64 / n_bytes(&masked) as f64;
    println!("{name} keeps {kept:.3} of its ratio");
    assert!(kept >= 0.7, "{name} keeps {kept} of its ratio");
}

/// With NaN as 5 percent of the values, four of five blocks have a NaN.
#[test]
fn scattered_nan_in_5_percent_of_a_field_cost_at_most_30_percent_of_its_ratio() {
    a_mask_costs_at_most_30_percent("smooth f32", &data::smooth::<f32>(0, 100_000));
    a_mask_costs_at_most_30_percent("smooth f64", &data::smooth::<f64>(0, 100_000));
    // A mask costs a number of bytes for each block. So it costs most where the ratio is high, such
    // as 12 for egm96_geoid.
    for (name, values) in fields::<f32>() {
        a_mask_costs_at_most_30_percent(&name, &values);
    }
}

/// A land mask: long stretches of NaN, which end anywhere.
#[test]
fn a_region_of_nan_costs_a_byte_a_block() {
    let mut x = data::smooth::<f32>(0, 65_536);
    let whole = n_bytes(&x);
    x[10_005..50_111].fill(f32::NAN);
    let masked = n_bytes(&x);
    let left = whole as f64 * (65_536.0 - 40_106.0) / 65_536.0;
    let mask = 40_106.0 / 32.0;
    assert!((masked as f64) < 1.02 * (left + mask), "{masked} bytes of {whole}");
}

/// Returns any bits, or an ordinary value.
fn value<T: Float>((pick, bits): (u8, u64)) -> T {
    match pick {
        0..50 => data::from_bits(bits),
        50..70 => T::from_f64(f64::NAN),
        _ => T::from_f64(f64::from(bits as i16) * 1e-3),
    }
}

/// Asserts that the result for a value, or for two combined values, does not depend on other
/// values.
fn nobody_looks_beside<T: Float>(picks: &[[(u8, u64); 2]], bound: f64) {
    let quantum = Quantum::new::<T>(bound).expect("a bound");
    let codec = FzLight::<T>::new(quantum, 2);
    let [x, y] = [0, 1].map(|k| picks.iter().map(|pick| value(pick[k])).collect::<Vec<T>>());
    let frame = coding::encode(&codec, &x);
    let decoded = coding::decode(&codec, &frame, x.len());
    for (i, &x) in x.iter().enumerate() {
        let alone = coding::decode(&codec, &coding::encode(&codec, &[x]), 1);
        assert_eq!(data::bytes(&alone), data::bytes(&decoded[i..=i]), "value {i}, {x:?}");
    }
    for op in [Op::Sum, Op::Min, Op::Max] {
        let fold = coding::fold(&codec, &op, &frame, &y).expect("two operands");
        let folded = coding::decode(&codec, &fold, x.len());
        for (i, (&x, &y)) in x.iter().zip(&y).enumerate() {
            let frame = coding::encode(&codec, &[x]);
            let fold = coding::fold(&codec, &op, &frame, &[y]).expect("two operands");
            let alone = coding::decode(&codec, &fold, 1);
            assert_eq!(data::bytes(&alone), data::bytes(&folded[i..=i]), "{op:?} {x:?}, {y:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_becomes_of_a_value_depends_on_no_other(
        picks in prop::collection::vec(any::<[(u8, u64); 2]>(), 1..100), exponent in -12..8i32
    ) {
        let bound = 10f64.powi(exponent);
        nobody_looks_beside::<f32>(&picks, bound);
        nobody_looks_beside::<f64>(&picks, bound);
        nobody_looks_beside::<f16>(&picks, bound);
        nobody_looks_beside::<bf16>(&picks, bound);
    }
}

#[test]
fn payloads_of_other_versions_are_refused() {
    let x = data::smooth::<f32>(0, 1000);
    let codec = FzLight::<f32>::new(Quantum::new::<f32>(1e-3).expect("a bound"), 2);
    for version in (0..=u8::MAX).filter(|&version| version != fz_light::VERSION) {
        let mut frame = coding::encode(&codec, &x);
        frame[0] = version;
        let refused = DecodeError::Version { version };
        assert_eq!(codec.decode(&frame, 1, &mut [0.0; 1000]), Err(refused));
        let folded = coding::fold(&codec, &Op::Sum, &frame, &x);
        assert_eq!(folded, Err(CodecError::Decode(refused)));
    }
}

/// Replaces every byte of a frame full of exceptions by every other value. The frame is refused or
/// decoded, with the same result at each level, and never read beyond its end.
fn any_byte_may_be_another<T: Float>() {
    let kinds = [f64::NAN, 1e30, -0.25, 0.5, 0.25, f64::INFINITY, 0.125, 0.0];
    let mut random = Random(3);
    let x: Vec<T> = (0..107).map(|_| T::from_f64(kinds[random.bits() as usize % 8])).collect();
    let quantum = Quantum::new::<T>(0.05).expect("a bound");
    let codecs: Vec<_> =
        Level::available().map(|level| FzLight::<T>::with_level(quantum, 3, level)).collect();
    let frame = coding::encode(&codecs[0], &x);
    let (mut n_refused, mut n_decoded) = (0, 0);
    for at in 24..frame.len() - 64 {
        for byte in 0..=u8::MAX {
            let mut other = frame.clone();
            other[at] = byte;
            let outcomes = codecs.iter().map(|codec| {
                let mut values = vec![T::from_f64(7.0); x.len()];
                codec.decode(&other, 1, &mut values)?;
                let sum = coding::fold(codec, &Op::Sum, &other, &x)?;
                let least = coding::combine(codec, &Op::Min, [&frame, &other], x.len())?;
                // The output can be decoded.
                coding::decode(codec, &sum, x.len());
                coding::decode(codec, &least, x.len());
                Ok::<_, CodecError>((data::bytes(&values), sum, least))
            });
            let outcomes: Vec<_> = outcomes.collect();
            assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{at}: {byte:02x}");
            *(if outcomes[0].is_ok() { &mut n_decoded } else { &mut n_refused }) += 1;
        }
    }
    assert!(n_refused > 1000 && n_decoded > 1000, "{n_refused} refused, {n_decoded} decoded");
}

#[test]
fn any_byte_of_a_frame_with_exceptions_may_be_another() {
    any_byte_may_be_another::<f32>();
    any_byte_may_be_another::<bf16>();
}

mod long {
    use super::*;

    #[test]
    fn any_byte_of_a_frame_with_other_exceptions_may_be_another() {
        any_byte_may_be_another::<f64>();
        any_byte_may_be_another::<f16>();
    }
}

/// Such a NaN is the first rank's result of a scan, and the second rank's of an exclusive scan.
#[test]
fn a_nan_that_is_combined_with_no_other_value_keeps_its_bits() {
    let (nan, canonical) = (f32::from_bits(0xffc0_1234), 0x7fc0_0000);
    let bound = Plan::foldwire(Bound::Absolute(1e-3)).with_exact_below(0);
    for plan in [Plan::raw(), bound] {
        for op in [Op::Sum, Op::Min, Op::Max, Op::Prod] {
            let bits = foldwire_threads::World::new(3).run(|mut comm| {
                let [mut all, mut scan, mut exclusive] = [(); 3].map(|()| vec![nan; 100]);
                comm.all_reduce(&mut all, op, &plan).expect("nothing is wrong");
                comm.scan(&mut scan, op, &plan).expect("nothing is wrong");
                comm.exclusive_scan(&mut exclusive, op, &plan).expect("nothing is wrong");
                [all[7], scan[7], exclusive[7]].map(f32::to_bits)
            });
            assert_eq!(bits[0][..2], [canonical, nan.to_bits()], "{op:?} by {plan:?}");
            assert_eq!(bits[1], [canonical, canonical, nan.to_bits()], "{op:?} by {plan:?}");
            assert_eq!(bits[2], [canonical; 3], "{op:?} by {plan:?}");
        }
    }
}
