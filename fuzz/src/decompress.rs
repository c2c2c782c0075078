//! Any bytes as a compressed array: a typed error, or as many values as the head says. The values
//! survive another compression.
//!
//! Bits 0 and 2 of the first byte are the type of the values. Bit 1 means that the checksums are
//! corrected first, so that the bytes behind them are read. The rest is the array.

use foldwire::compress::{Info, Layout, compress_with, decompress};
use foldwire::{Plan, bf16, f16};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::values::FuzzValue;

/// Runs the target on an input.
pub fn check(input: &[u8]) {
    let Some((&choice, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if choice & 2 != 0 {
        correct(&mut bytes);
    }
    match (choice & 1, choice >> 2 & 1) {
        (0, 0) => read::<f32, f64>(&bytes),
        (0, _) => read::<f16, bf16>(&bytes),
        (_, 0) => read::<f64, f32>(&bytes),
        (..) => read::<bf16, f16>(&bytes),
    }
}

/// Corrects the checksums of the head and of all segments that are there.
pub fn correct(bytes: &mut [u8]) {
    let Some(&[flags, n_dims]) = bytes.get(6..8) else { return };
    let head = 24 + 8 * (usize::from(n_dims) + usize::from(flags & 8 != 0));
    let mut rest = bytes;
    let mut checksum = rest.get(..head).map_or(0, xxh3_64);
    let put = |at: usize, checksum: u64, rest: &mut [u8]| {
        if let Some(place) = rest.get_mut(at..at + 8) {
            place.copy_from_slice(&checksum.to_le_bytes());
        }
    };
    put(head, checksum, rest);
    rest = rest.get_mut(head + 8..).unwrap_or_default();
    while rest.len() >= 24 {
        let n_bytes = u32::from_le_bytes([rest[4], rest[5], rest[6], rest[7]]) as usize;
        let Some(payload) = rest[24..].get(..n_bytes) else { return };
        checksum = xxh3_64_with_seed(payload, xxh3_64_with_seed(&rest[..16], checksum));
        put(16, checksum, rest);
        rest = &mut rest[24 + n_bytes..];
    }
}

fn read<T: FuzzValue, U: FuzzValue>(bytes: &[u8]) {
    let values = match decompress::<T>(bytes) {
        Ok(values) => values,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let info = Info::read(bytes).expect("it has been read");
    assert!(info.n_values() == values.len() as u64 && info.dtype == T::DTYPE);
    assert!(decompress::<U>(bytes).is_err(), "of another type");
    let layout = Layout::line(values.len());
    let again = compress_with(&values, &layout, &Plan::lossless()).expect("no bound");
    let again = decompress::<T>(&again).expect("our own output");
    let bits = |values: &[T]| values.iter().map(|x| x.raw()).collect::<Vec<_>>();
    assert_eq!(bits(&values), bits(&again));
}
