//! Codecs into vectors, with what every caller must be able to rely on asserted on the way.

use foldwire::codec::{Codec, CodecError, CodecExt, FzLight, Values};
use foldwire::{Float, Op};

/// Encodes `values` into a destination of exactly the size that the codec asks for.
///
/// # Panics
/// If the codec refuses.
pub fn encode<T: Float>(codec: &FzLight<T>, values: &[T]) -> Vec<u8> {
    let mut bytes = vec![0xAA; codec.max_encoded_len(values.len()).expect("short enough")];
    let written = codec.encode(values, &mut bytes).expect("the destination is large enough");
    bytes.truncate(written.n_bytes);
    bytes
}

/// Decodes `n_values`.
///
/// # Panics
/// If `bytes` are no valid encoding of that many.
pub fn decode<T: Float>(codec: &FzLight<T>, bytes: &[u8], n_values: usize) -> Vec<T> {
    let mut values = vec![T::from_f64(-77.0); n_values];
    codec.decode(bytes, 1, &mut values).expect("a valid encoding");
    values
}

/// Frame ⊕ floats.
///
/// # Errors
/// The codec's.
pub fn fold<T: Float>(
    codec: &FzLight<T>,
    op: &Op<'_, T>,
    frame: &[u8],
    local: &[T],
) -> Result<Vec<u8>, CodecError> {
    let mut bytes = vec![0x55; codec.max_encoded_len(local.len()).expect("short enough")];
    let written = codec.fold(op, frame, local, &mut bytes)?;
    bytes.truncate(written.n_bytes);
    Ok(bytes)
}

/// Frame ⊕ floats, and the values stored.
///
/// # Errors
/// The codec's.
pub fn fold_store<T: Float>(
    codec: &FzLight<T>,
    op: &Op<'_, T>,
    frame: &[u8],
    local: &[T],
) -> Result<(Vec<u8>, Vec<T>), CodecError> {
    let mut bytes = vec![0x55; codec.max_encoded_len(local.len()).expect("short enough")];
    let mut output = vec![T::from_f64(-77.0); local.len()];
    let values = Values::Apart { local, output: &mut output };
    let written = codec.fold_store(op, frame, values, 1, &mut bytes)?;
    bytes.truncate(written.n_bytes);
    Ok((bytes, output))
}

/// Frame ⊕ frame, with room for `n_values`.
///
/// # Errors
/// The codec's.
pub fn combine<T: Float>(
    codec: &FzLight<T>,
    op: &Op<'_, T>,
    [a, b]: [&[u8]; 2],
    n_values: usize,
) -> Result<Vec<u8>, CodecError> {
    let mut bytes = vec![0x33; codec.max_encoded_len(n_values).expect("short enough")];
    let written = codec.combine(op, a, b, &mut bytes)?;
    bytes.truncate(written.n_bytes);
    Ok(bytes)
}
