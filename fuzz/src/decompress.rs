//! Any bytes as a compressed array: a typed error, or as many values as the head says. The values
//! survive another compression.
//!
//! Bits 0 and 2 of the first byte are the type of the values. Bit 1 means that the checksum is
//! corrected first, so that the bytes behind it are read. The rest is the array.

use foldwire::compress::{HEAD_BYTES, Info, compress_with, decompress};
use foldwire::{Quantum, bf16, f16};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::values::FuzzValue;

/// Runs the target on an input.
pub fn check(input: &[u8]) {
    let Some((&choice, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if choice & 2 != 0 && bytes.len() >= HEAD_BYTES {
        let (head, segments) = bytes.split_at(HEAD_BYTES);
        let checksum = xxh3_64_with_seed(segments, xxh3_64(&head[..HEAD_BYTES - 8]));
        bytes[HEAD_BYTES - 8..HEAD_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }
    match (choice & 1, choice >> 2 & 1) {
        (0, 0) => read::<f32, f64>(&bytes),
        (0, _) => read::<f16, bf16>(&bytes),
        (_, 0) => read::<f64, f32>(&bytes),
        (..) => read::<bf16, f16>(&bytes),
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
    assert!(info.n_values == values.len() as u64 && info.dtype == T::DTYPE);
    assert!(decompress::<U>(bytes).is_err(), "of another type");
    let again =
        decompress::<T>(&compress_with(&values, Quantum::LOSSLESS)).expect("our own output");
    let bits = |values: &[T]| values.iter().map(|x| x.raw()).collect::<Vec<_>>();
    assert_eq!(bits(&values), bits(&again));
}
