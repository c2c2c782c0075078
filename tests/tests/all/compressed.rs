//! `compress` and `decompress`: arrays of any length and any values come back within the bound, and
//! bytes with another origin are refused with a typed error.

use foldwire::bound::{BoundError, ValueRange};
use foldwire::codec::DecodeError;
use foldwire::compress::{DecompressError, HEAD_BYTES, Info, compress_with};
use foldwire::{Bound, DType, Float, Quantum, Spacing, bf16, compress, decompress, f16};
use foldwire_tests::data::{self, Random};
use proptest::prelude::*;

/// Number of values in a segment of the format.
const SEGMENT: usize = 1 << 20;

/// Returns whether each value is within the bound, or has the same bits (NaN, infinity).
fn is_within<T: Float>(bound: f64, x: &[T], y: &[T]) -> bool {
    let is_close = |(x, y): (&T, &T)| {
        (x.to_f64() - y.to_f64()).abs() <= bound || data::bytes(&[*x]) == data::bytes(&[*y])
    };
    x.len() == y.len() && x.iter().zip(y).all(is_close)
}

fn every_length<T: Float>() {
    for count in [0, 1, 31, 33, 4095, 4097, 100_003, SEGMENT, SEGMENT + 1, 2 * SEGMENT + 7] {
        for values in [data::smooth::<T>(1, count), data::rough(2, count)] {
            for bound in [Bound::Absolute(1e-3), Bound::Relative(1e-4), Bound::Psnr(70.0)] {
                let bytes = compress(&values, bound).expect("a good bound");
                let absolute = bound.absolute(ValueRange::of(&values)).expect("positive");
                let info = Info::read(&bytes).expect("a header");
                assert_eq!((info.dtype, info.n_values), (T::DTYPE, count as u64));
                assert!(info.bound <= absolute, "{info:?}");
                let restored: Vec<T> = decompress(&bytes).expect("undamaged");
                assert!(is_within(info.bound, &values, &restored), "{count} values, {bound:?}");
            }
            let bytes = compress_with(&values, Quantum::LOSSLESS);
            let restored: Vec<T> = decompress(&bytes).expect("undamaged");
            assert!(data::bytes(&restored) == data::bytes(&values), "{count} values, no bound");
        }
    }
}

#[test]
fn arrays_of_every_length_come_back_within_the_bound() {
    every_length::<f32>();
    every_length::<f64>();
    every_length::<f16>();
    every_length::<bf16>();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_bits_come_back_within_any_bound(
        bits in prop::collection::vec(any::<u64>(), 0..200), exponent in -300.0..300.0f64
    ) {
        let bound = Bound::Absolute(10f64.powf(exponent));
        let single: Vec<f32> = bits.iter().map(|&bits| data::from_bits(bits)).collect();
        let double: Vec<f64> = bits.iter().map(|&bits| data::from_bits(bits)).collect();
        let limit = bound.absolute(None).expect("positive");
        let bytes = compress(&single, bound).expect("positive");
        prop_assert!(is_within(limit, &single, &decompress(&bytes).expect("undamaged")));
        let bytes = compress(&double, bound).expect("positive");
        prop_assert!(is_within(limit, &double, &decompress(&bytes).expect("undamaged")));
    }

    #[test]
    fn any_bytes_are_a_typed_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(decompress::<f32>(&bytes).is_err());
        // With a valid start of the header: magic, version 1, f64.
        let bytes = [&b"FWZ1\x01\x02\0\0"[..], &bytes].concat();
        prop_assert!(decompress::<f64>(&bytes).is_err());
    }
}

#[test]
fn a_relative_bound_refers_to_the_range_of_the_slice_alone() {
    let values: Vec<f64> = (0..5000).map(|i| 100.0 + f64::from(i) / 5000.0).collect();
    let info = Info::read(&compress(&values, Bound::Relative(0.01)).expect("good"))
        .expect("our own output");
    assert!((info.bound - 0.01 * 4999.0 / 5000.0).abs() < 1e-12, "{info:?}");
    // Without a value range (constant values, or no finite ones), every bit is kept.
    for values in [vec![7.25; 100], vec![f64::NAN; 100], vec![f64::INFINITY, f64::NAN], vec![]] {
        let bytes = compress(&values, Bound::Relative(0.01)).expect("good");
        assert_eq!(Info::read(&bytes).map(|info| (info.step, info.bound)), Ok((0.0, 0.0)));
        let restored: Vec<f64> = decompress(&bytes).expect("undamaged");
        assert_eq!(data::bytes(&restored), data::bytes(&values));
    }
}

#[test]
fn a_bad_bound_is_refused() {
    for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let refused = compress(&[1.0f32], Bound::Absolute(value));
        assert!(matches!(refused, Err(BoundError::NotPositive { .. })), "{value}");
    }
    let refused = compress(&[1.0f32], Bound::Relative(2.0));
    assert!(matches!(refused, Err(BoundError::BeyondRange { value: 2.0 })));
}

#[test]
fn whole_numbers_on_a_lattice_of_a_power_of_two_are_exact() {
    let values: Vec<f32> = (0..10_000).map(|i| (i * i % 5000) as f32).collect();
    let quantum = Quantum::with_spacing::<f32>(0.5, Spacing::PowerOfTwo).expect("positive");
    let bytes = compress_with(&values, quantum);
    assert_eq!(decompress(&bytes), Ok(values.clone()));
    assert!(bytes.len() < 3 * values.len());
}

/// Compresses two full chunks and a short one. One block has an exception.
fn example() -> Vec<u8> {
    let mut values: Vec<f32> = data::smooth(3, 2 * 4096 + 40);
    values[5000] = f32::NAN;
    compress(&values, Bound::Absolute(0.01)).expect("a good bound")
}

#[test]
fn prefixes_and_extra_bytes_are_refused() {
    let bytes = example();
    for n in 0..bytes.len() {
        let refused = decompress::<f32>(&bytes[..n]);
        let is_typed =
            matches!(refused, Err(DecompressError::Decode(DecodeError::Truncated { .. })));
        assert!(is_typed, "{n} bytes: {refused:?}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(decompress::<f32>(&longer), Err(DecodeError::Damaged.into()));
}

#[test]
fn every_changed_byte_is_noticed() {
    let bytes = example();
    let mut random = Random(3);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << random.below(8);
        assert!(decompress::<f32>(&damaged).is_err(), "byte {at}");
    }
}

#[test]
fn the_error_names_what_is_wrong_with_a_header() {
    let bytes = example();
    // Header: magic at 0, version at 4, type at 5, count at 8, step at 16. A segment follows at 40.
    let changed = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        decompress::<f32>(&bytes).map(|values| values.len())
    };
    assert_eq!(changed(0, b'G'), Err(DecompressError::NotCompressed));
    assert_eq!(decompress::<f32>(b"PK"), Err(DecompressError::NotCompressed));
    assert_eq!(changed(4, 2), Err(DecodeError::Version { version: 2 }.into()));
    assert_eq!(changed(5, 9), Err(DecompressError::UnknownType { code: 9 }));
    let other = DecodeError::Type { found: 1, expected: DType::F64 };
    assert_eq!(decompress::<f64>(&bytes), Err(other.into()));
    assert_eq!(changed(16, 1), Err(DecompressError::Checksum));
    assert_eq!(changed(bytes.len() - 100, 1), Err(DecompressError::Checksum));
}

/// The count is checked against the bytes first, so a wrong count never causes a memory error.
#[test]
fn a_wrong_count_is_refused_before_memory_is_allocated() {
    for count in [1u64 << 40, u64::MAX, SEGMENT as u64 + 1, 2 * 4096 + 41, 2 * 4096 + 39, 0] {
        let mut bytes = example();
        bytes[8..16].copy_from_slice(&count.to_le_bytes());
        let refused = decompress::<f32>(&bytes);
        assert!(matches!(
            refused,
            Err(ref error) if *error != DecompressError::Memory { n_values: count }
        ));
    }
    let header = compress_with::<f64>(&[], Quantum::LOSSLESS);
    assert_eq!(header.len(), HEAD_BYTES);
    assert_eq!(decompress::<f64>(&header), Ok(vec![]));
}
