//! Any bytes as an encoding that values are folded into.
//!
//! Plain folding, folding in place, and folding with a stored result (in place or apart) fail alike
//! or give the same values. The stored result is what the bytes decode to. For encodings from an
//! encoder, folding with a stored result also gives the same bytes: `roundtrip` asserts that.

use foldwire::codec::{Codec, CodecError, CodecExt, Values, Written};
use foldwire_tests::with_type;

use crate::setting::{FuzzSetting, PlacedBytes, canonical, n_values};
use crate::values::{FuzzValue, UNDIVIDED};

/// Runs the target on an input.
pub fn check(input: &[u8]) {
    let Some(setting) = FuzzSetting::read(input) else { return };
    with_type!(setting.dtype, T => {
        setting.at_every_level(|codec| fold::<T>(&setting, codec));
    });
}

/// Results that all levels must agree on: folding; and decoding, reducing and encoding.
type FoldOutcome = Result<[Result<(Written, Vec<u8>), String>; 2], String>;

fn fold<T: FuzzValue>(setting: &FuzzSetting<'_>, codec: &dyn Codec<T>) -> FoldOutcome {
    let placed = setting.source();
    let (src, op, divisor) = (placed.bytes(), setting.op(), setting.divisor);
    let n_values = n_values(codec, src).inspect_err(|_| {
        assert!(codec.fold(&op, src, &[T::ZERO; 40], &mut [0; 4096]).is_err());
    })?;
    let local = setting.local::<T>(n_values);
    let room = setting.room(codec, n_values);
    let written = |result: Result<Written, CodecError>, mut dst: Vec<u8>| {
        dst.truncate(result?.n_bytes);
        Ok::<_, CodecError>((result?, dst))
    };
    let mut dst = vec![0xa5; room];
    let folded = written(codec.fold(&op, src, &local, &mut dst), dst);

    let mut values = vec![T::ZERO; n_values];
    if let Ok((_, bytes)) = &folded {
        assert_eq!(codec.n_values(bytes), Ok(n_values));
        codec.decode(bytes, divisor, &mut values).expect("what we write, we can read");
    }
    let mut output = vec![T::ZERO; n_values];
    let mut in_place = local.clone();
    for apart in [true, false] {
        let own = if apart {
            Values::Apart { local: &local, output: &mut output }
        } else {
            Values::InPlace(&mut in_place)
        };
        let mut dst = vec![0x5a; room];
        let stored = written(codec.fold_store(&op, src, own, divisor, &mut dst), dst);
        match stored {
            Ok((_, bytes)) => {
                assert!(folded.is_ok(), "{op:?}, apart: {apart}: {folded:?}");
                let output = if apart { &output } else { &in_place };
                assert_eq!(canonical(output), canonical(&values), "{op:?}, apart: {apart}");
                let mut decoded = vec![T::ZERO; n_values];
                codec.decode(&bytes, divisor, &mut decoded).expect("what we write, we can read");
                assert_eq!(canonical(&decoded), canonical(&values), "{op:?}, apart: {apart}");
            }
            Err(error) => assert_eq!(folded, Err(error), "{op:?}, apart: {apart}"),
        }
    }

    let mut frame = PlacedBytes::new(src, setting.misaligned);
    let homomorphic = codec.homomorphic();
    match homomorphic.and_then(|codec| codec.fold_in_place(&op, frame.bytes_mut(), &local)) {
        None => {}
        Some(Ok(())) if setting.number % 4 != 3 => {
            let (_, bytes) = folded.as_ref().expect("it can be folded in place");
            assert_eq!(frame.bytes(), bytes, "{op:?} in place");
        }
        // The destination was too small, or the encoding is invalid.
        Some(_) => assert!(folded.is_err() || setting.number % 4 == 3),
    }

    let mut dst = vec![0xa5; room];
    let refolded = written(codec.refold(&op, src, &local, &mut dst), dst);
    if let Ok((_, bytes)) = &refolded {
        codec.decode(bytes, UNDIVIDED, &mut values).expect("what we write, we can read");
    }
    let text = |result: Result<_, CodecError>| result.map_err(|error| error.to_string());
    Ok([text(folded), text(refolded)])
}
