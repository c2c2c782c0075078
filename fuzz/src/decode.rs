//! Any bytes as an encoding, in every function that only reads.
//!
//! Decoding all values, the values from a chunk on, and the first values must agree. Decoding
//! another number of values is an error. Encoding the decoded values again changes them by at most
//! the bound.

use foldwire::codec::{Codec, CodecExt};
use foldwire::kernel::CHUNK;
use foldwire_tests::with_type;

use crate::setting::{FuzzSetting, canonical, n_values};
use crate::values::{FuzzValue, UNDIVIDED, assert_within};

/// Runs the target on an input.
pub fn check(input: &[u8]) {
    let Some(setting) = FuzzSetting::read(input) else { return };
    with_type!(setting.dtype, T => {
        setting.at_every_level(|codec| read::<T>(&setting, codec));
    });
}

/// Result that all levels must agree on.
type ReadOutcome = Result<(Vec<u64>, Result<Vec<u8>, String>), String>;

fn read<T: FuzzValue>(setting: &FuzzSetting<'_>, codec: &dyn Codec<T>) -> ReadOutcome {
    let (src, divisor) = (setting.source(), setting.divisor);
    let src = src.bytes();
    let n_values = n_values(codec, src).inspect_err(|_| {
        // Every function refuses bytes that one function refuses.
        assert!(codec.decode(src, UNDIVIDED, &mut [T::ZERO; 40]).is_err());
    })?;
    let mut one_more = vec![T::ZERO; n_values + 1];
    assert!(codec.decode(src, divisor, &mut one_more).is_err());
    let most = codec.max_encoded_len(n_values + 1).expect("a few chunks fit a frame");
    assert!(codec.recode(src, n_values + 1, &mut vec![0; most]).is_err());

    let mut whole = vec![T::ZERO; n_values];
    codec.decode(src, divisor, &mut whole).map_err(|error| error.to_string())?;

    let start = (setting.number % (n_values + 1)).next_multiple_of(CHUNK).min(n_values);
    if start % CHUNK == 0 {
        let mut rest = vec![T::ZERO; n_values - start];
        codec.decode_from(src, start, divisor, &mut rest).expect("the whole can be read");
        assert_eq!(canonical(&rest), canonical(&whole[start..]));
    }
    let mut beginning = vec![T::ZERO; setting.number % (n_values + 1)];
    codec.decode_from(src, 0, divisor, &mut beginning).expect("the whole can be read");
    assert_eq!(canonical(&beginning), canonical(&whole[..beginning.len()]));

    Ok((canonical(&whole), recode(setting, codec, src, n_values)))
}

fn recode<T: FuzzValue>(
    setting: &FuzzSetting<'_>,
    codec: &dyn Codec<T>,
    src: &[u8],
    n_values: usize,
) -> Result<Vec<u8>, String> {
    let mut dst = vec![0xa5; setting.room(codec, n_values)];
    let written = codec.recode(src, n_values, &mut dst).map_err(|error| error.to_string())?;
    dst.truncate(written.n_bytes);
    let [mut before, mut after] = [vec![T::ZERO; n_values], vec![T::ZERO; n_values]];
    codec.decode(src, UNDIVIDED, &mut before).expect("it has been read");
    codec.decode(&dst, UNDIVIDED, &mut after).expect("what we write, we can read");
    assert_within(setting.quantum::<T>().bound(), &before, &after);
    Ok(dst)
}
