//! Any bytes as an encoding that is reduced into values: the same as decoding it and reducing value
//! by value.

use foldwire::codec::{Codec, CodecExt};
use foldwire::kernel::CHUNK;
use foldwire_tests::with_type;

use crate::setting::{FuzzSetting, canonical, n_values};
use crate::values::{FuzzValue, UNDIVIDED, operate};

/// Runs the target on an input.
pub fn check(input: &[u8]) {
    let Some(setting) = FuzzSetting::read(input) else { return };
    with_type!(setting.dtype, T => {
        setting.at_every_level(|codec| reduce::<T>(&setting, codec));
    });
}

fn reduce<T: FuzzValue>(
    setting: &FuzzSetting<'_>,
    codec: &dyn Codec<T>,
) -> Result<Vec<u64>, String> {
    let src = setting.source();
    let (src, op) = (src.bytes(), setting.op());
    let n_values = n_values(codec, src).inspect_err(|_| {
        assert!(codec.reduce(&op, src, &mut [T::ZERO; 40]).is_err());
    })?;
    let local = setting.local::<T>(n_values);
    assert!(codec.reduce(&op, src, &mut setting.local::<T>(n_values + CHUNK)).is_err());

    let mut decoded = vec![T::ZERO; n_values];
    let decodes = codec.decode(src, UNDIVIDED, &mut decoded);
    let mut acc = local.clone();
    let reduces = codec.reduce(&op, src, &mut acc);
    assert_eq!(reduces, decodes);
    reduces.map_err(|error| error.to_string())?;
    let expected: Vec<T> = local.iter().zip(&decoded).map(|(&a, &b)| operate(&op, a, b)).collect();
    assert_eq!(canonical(&acc), canonical(&expected), "{op:?}");
    Ok(canonical(&acc))
}
