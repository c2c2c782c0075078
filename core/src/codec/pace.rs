//! Progress reports of codecs, which let a rank poll its network between chunks.
//!
//! Source: ZCCL's PIPE-fZ-light (2025), whose compressor polls between chunks of 5120 values.

/// Receives the number of values that a codec has read or written, chunk by chunk.
///
/// `()` ignores the reports. If several [threads](crate::threads) share the values, the codec
/// reports them when all threads are done.
pub trait Pace {
    /// Reports that `n_values` more values have been encoded, decoded or combined.
    fn passed(&self, n_values: usize);
}

impl Pace for () {
    fn passed(&self, _: usize) {}
}
