//! Any bytes as a compressed array: a typed error, or as many values as the head says. The values
//! survive another compression.
//!
//! The first byte chooses: with bit 1 set, the checksums are corrected first, so that the bytes
//! behind them are read. The rest is the array. Its head says the type of its values.

use bytemuck::cast_slice;
use foldwire::compress::{Info, Layout, compress_with, decompress};
use foldwire::{DType, Element, Plan, bf16, f16};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Position of the type's code in the head.
const DTYPE_AT: usize = 5;

/// Runs the target on an input.
pub fn check(input: &[u8]) {
    let Some((&choice, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if choice & 2 != 0 {
        correct(&mut bytes);
    }
    let read = match bytes.get(DTYPE_AT).and_then(|&code| DType::from_code(code)) {
        Some(DType::F64) => read::<f64>,
        Some(DType::F16) => read::<f16>,
        Some(DType::Bf16) => read::<bf16>,
        Some(DType::I8) => read::<i8>,
        Some(DType::U8) => read::<u8>,
        Some(DType::I16) => read::<i16>,
        Some(DType::U16) => read::<u16>,
        Some(DType::I32) => read::<i32>,
        Some(DType::U32) => read::<u32>,
        Some(DType::I64) => read::<i64>,
        Some(DType::U64) => read::<u64>,
        _ => read::<f32>,
    };
    read(&bytes);
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

fn read<T: Element>(bytes: &[u8]) {
    let values = match decompress::<T>(bytes) {
        Ok(values) => values,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let info = Info::read(bytes).expect("it has been read");
    assert!(info.n_values() == values.len() as u64 && info.dtype == T::DTYPE);
    let is_refused = match T::DTYPE {
        DType::F32 => decompress::<u32>(bytes).is_err(),
        _ => decompress::<f32>(bytes).is_err(),
    };
    assert!(is_refused, "of another type");
    let layout = Layout::line(values.len());
    let again = compress_with(&values, &layout, &Plan::lossless()).expect("no bound");
    let again = decompress::<T>(&again).expect("our own output");
    assert_eq!(cast_slice::<T, u8>(&values), cast_slice::<T, u8>(&again));
}
