//! Any bytes as two encodings that are combined: with each other, with themselves, and with a valid
//! encoding.
//!
//! The order of the two does not matter. Combining in place gives the same bytes.

use foldwire::codec::{Codec, CodecError, CodecExt, EncodeError, Written};
use foldwire_tests::with_type;

use crate::setting::{FuzzSetting, PlacedBytes, n_values};
use crate::values::{FuzzValue, MAX_VALUES, UNDIVIDED, encode};

/// Runs the target on an input.
pub fn check(input: &[u8]) {
    let Some(setting) = FuzzSetting::read(input) else { return };
    with_type!(setting.dtype, T => {
        setting.at_every_level(|codec| pairs::<T>(&setting, codec));
    });
}

/// Result that all levels must agree on.
type CombineOutcome = Result<(Written, Vec<u8>), String>;

/// Combines pairs of encodings. The setting's number is the start of the second encoding; 0 means
/// that there is only one.
fn pairs<T: FuzzValue>(setting: &FuzzSetting<'_>, codec: &dyn Codec<T>) -> Vec<CombineOutcome> {
    let (left, right) = match setting.number {
        0 => (setting.bytes, setting.bytes),
        at => setting.bytes.split_at(at.min(setting.bytes.len())),
    };
    let n_values = n_values(codec, left).unwrap_or(0);
    let honest = encode(codec, &setting.local::<T>(n_values));
    [(left, right), (left, left), (left, &honest), (&honest, right)]
        .into_iter()
        .filter_map(|(a, b)| combine(setting, codec, a, b))
        .collect()
}

fn combine<T: FuzzValue>(
    setting: &FuzzSetting<'_>,
    codec: &dyn Codec<T>,
    a: &[u8],
    b: &[u8],
) -> Option<CombineOutcome> {
    let homomorphic = codec.homomorphic()?;
    let (op, shift) = (setting.op(), setting.misaligned);
    let (mut a, b) = (PlacedBytes::new(a, shift), PlacedBytes::new(b, shift / 2));
    // An encoding that claims more values needs more space, and must be refused.
    let n_values = n_values(codec, a.bytes()).unwrap_or(MAX_VALUES);
    let both = |a: &[u8], b: &[u8]| {
        let mut dst = vec![0xa5; codec.max_encoded_len(n_values).unwrap_or(0)];
        let written = homomorphic.combine(&op, a, b, &mut dst)?;
        dst.truncate(written.n_bytes);
        Ok::<_, CodecError>((written, dst))
    };
    let combined = both(a.bytes(), b.bytes());
    let swapped = both(b.bytes(), a.bytes());
    match (&combined, &swapped) {
        (Ok((_, bytes)), Ok((_, other))) => {
            assert!(bytes == other, "{op:?}: the order matters");
            assert_eq!(codec.n_values(bytes), Ok(n_values));
            let mut values = vec![T::ZERO; n_values];
            codec.decode(bytes, UNDIVIDED, &mut values).expect("what we write, we can read");
        }
        (Err(_), Err(_)) => {}
        _ => panic!("{op:?}: {combined:?} one way, {swapped:?} the other"),
    }
    match homomorphic.combine_in_place(&op, a.bytes_mut(), b.bytes()) {
        None => {}
        Some(result) => match &combined {
            Ok((_, bytes)) => {
                result.expect("they can be combined");
                assert_eq!(a.bytes(), bytes, "{op:?} in place");
            }
            // In place, there is space for any number of values.
            Err(CodecError::Encode(EncodeError::Capacity { .. })) => {}
            Err(_) => assert!(result.is_err(), "{op:?} in place"),
        },
    }
    Some(combined.map_err(|error| error.to_string()))
}
