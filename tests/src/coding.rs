//! Codec calls that return vectors. `encode` and `decode` panic if the codec reports an error.

use foldwire::codec::{Codec, CodecError, CodecExt, FzLight, Values};
use foldwire::{Float, Op};

/// Divisor that leaves decoded values unchanged.
const UNDIVIDED: u32 = 1;

/// Encodes `values` into a destination of exactly the size that the codec requests.
///
/// # Panics
/// If the codec reports an error.
pub fn encode<T: Float>(codec: &FzLight<T>, values: &[T]) -> Vec<u8> {
    let mut bytes = vec![0xAA; codec.max_encoded_len(values.len()).expect("short enough")];
    let written = codec.encode(values, &mut bytes).expect("the destination is large enough");
    bytes.truncate(written.n_bytes);
    bytes
}

/// Decodes `n_values` values.
///
/// # Panics
/// If `bytes` is not a valid encoding of that many values.
pub fn decode<T: Float>(codec: &FzLight<T>, bytes: &[u8], n_values: usize) -> Vec<T> {
    let mut values = vec![T::from_f64(-77.0); n_values];
    codec.decode(bytes, UNDIVIDED, &mut values).expect("a valid encoding");
    values
}

/// Folds `local` into the encoding `frame` by `op`.
///
/// # Errors
/// The codec's error.
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

/// Folds `local` into the encoding `frame` by `op`. Returns the encoding and the decoded result.
///
/// # Errors
/// The codec's error.
pub fn fold_store<T: Float>(
    codec: &FzLight<T>,
    op: &Op<'_, T>,
    frame: &[u8],
    local: &[T],
) -> Result<(Vec<u8>, Vec<T>), CodecError> {
    let mut bytes = vec![0x55; codec.max_encoded_len(local.len()).expect("short enough")];
    let mut output = vec![T::from_f64(-77.0); local.len()];
    let values = Values::Apart { local, output: &mut output };
    let written = codec.fold_store(op, frame, values, UNDIVIDED, &mut bytes)?;
    bytes.truncate(written.n_bytes);
    Ok((bytes, output))
}

/// Combines two encodings by `op`, into a buffer for `n_values`.
///
/// # Errors
/// The codec's error.
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
