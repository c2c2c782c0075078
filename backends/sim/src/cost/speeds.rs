//! How fast a rank computes, and what its values become on the wire.
//!
//! A *primitive* is what the engine asks of a codec for one segment. Its speed is given in bytes of
//! uncompressed values per second, so that a segment of n values of b bytes takes n·b / speed
//! whatever it compresses to.

use foldwire::bundle;
use foldwire::frame::HEADER_BYTES;

/// Speeds in bytes of uncompressed values per second. `f64::INFINITY` takes no time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrimitiveSpeeds {
    /// Values → frame.
    pub encode: f64,
    /// Frame → values.
    pub decode: f64,
    /// Frame ⊕ own values → frame, as the fused pipeline does (raw: in the received frame itself).
    pub fold: f64,
    /// As `fold`, and the result into the output.
    pub fold_store: f64,
    /// Frame ⊕ frame → frame.
    pub combine: f64,
    /// Values ⊕ frame → values: decode and add.
    pub reduce: f64,
    /// Frame ⊕ own values → frame through floats, chunk by chunk: decompress, operate, compress.
    pub refold: f64,
    /// Frame → frame through floats: decode and encode.
    pub recode: f64,
    /// Values → values, and bytes of frames → frames: memcpy.
    pub copy: f64,
    /// Checksum of a frame, per byte *on the wire*.
    pub checksum: f64,
}

impl PrimitiveSpeeds {
    /// Everything takes no time: what remains is the network.
    pub const FREE: Self = Self::uniform(f64::INFINITY);

    /// The same speed for everything.
    #[must_use]
    pub const fn uniform(speed: f64) -> Self {
        Self {
            encode: speed,
            decode: speed,
            fold: speed,
            fold_store: speed,
            combine: speed,
            reduce: speed,
            refold: speed,
            recode: speed,
            copy: speed,
            checksum: speed,
        }
    }

    /// What follows if only encoding, decoding, combining, adding floats and copying are known:
    /// work done one after the other takes the sum of the times.
    ///
    /// | primitive | taken as |
    /// |---|---|
    /// | fold | encode, combine |
    /// | fold and store | encode, combine, decode |
    /// | reduce | decode, add |
    /// | refold | decode, add, encode |
    /// | recode | decode, encode |
    #[must_use]
    pub fn of_parts(encode: f64, decode: f64, combine: f64, add: f64, copy: f64) -> Self {
        Self {
            encode,
            decode,
            fold: in_turn(&[encode, combine]),
            fold_store: in_turn(&[encode, combine, decode]),
            combine,
            reduce: in_turn(&[decode, add]),
            refold: in_turn(&[decode, add, encode]),
            recode: in_turn(&[decode, encode]),
            copy,
            checksum: f64::INFINITY,
        }
    }

    /// As if `factor` times as fast, as several cores might be.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self {
            encode: self.encode * factor,
            decode: self.decode * factor,
            fold: self.fold * factor,
            fold_store: self.fold_store * factor,
            combine: self.combine * factor,
            reduce: self.reduce * factor,
            refold: self.refold * factor,
            recode: self.recode * factor,
            copy: self.copy * factor,
            checksum: self.checksum * factor,
        }
    }
}

/// The speed of works done one after the other on the same values.
fn in_turn(speeds: &[f64]) -> f64 {
    speeds.iter().map(|speed| speed.recip()).sum::<f64>().recip()
}

/// What segments become on the wire: bytes of a segment that holds a sum of k operands.
///
/// A payload of n values takes `fixed + n·w(k)` bytes. w is known at some k and linear in log₂ k
/// between them, because each doubling of operands makes residuals wider by about as many bits;
/// before the first and after the last it is constant.
#[derive(Clone, Debug, PartialEq)]
pub struct WireSizes {
    fixed: f64,
    /// (k, w), ascending in k, at least one.
    widths: Vec<(u32, f64)>,
}

impl WireSizes {
    /// Values of `bytes_per_value` each, as they are: the raw codec.
    #[must_use]
    pub fn exact(bytes_per_value: usize) -> Self {
        Self { fixed: 0.0, widths: vec![(1, bytes_per_value as f64)] }
    }

    /// A ratio that does not depend on the operands.
    ///
    /// # Panics
    /// If the ratio is not positive.
    #[must_use]
    pub fn with_ratio(bytes_per_value: usize, ratio: f64) -> Self {
        assert!(ratio > 0.0, "a ratio is positive");
        Self { fixed: 0.0, widths: vec![(1, bytes_per_value as f64 / ratio)] }
    }

    /// Measured: `fixed` bytes of each payload, and (operands, bytes per value), ascending in
    /// operands.
    ///
    /// # Panics
    /// If there are no widths, or they do not ascend.
    #[must_use]
    pub fn measured(fixed: usize, widths: Vec<(u32, f64)>) -> Self {
        assert!(!widths.is_empty() && widths.is_sorted_by(|a, b| a.0 < b.0), "widths ascend");
        Self { fixed: fixed as f64, widths }
    }

    /// Bytes per value of a sum of `operands`.
    #[must_use]
    pub fn width(&self, operands: u32) -> f64 {
        let after = self.widths.partition_point(|&(k, _)| k <= operands);
        let at = |i: usize| self.widths[i];
        if after == 0 {
            return at(0).1;
        }
        if after == self.widths.len() {
            return at(after - 1).1;
        }
        let ((k0, w0), (k1, w1)) = (at(after - 1), at(after));
        let log = |k: u32| f64::from(k).log2();
        let share = (log(operands) - log(k0)) / (log(k1) - log(k0));
        w0 + share * (w1 - w0)
    }

    /// The widths of sums of 0…`most` operands, to look up.
    pub(super) fn table(&self, most: usize) -> WireSizeTable {
        let widths = (0..=most).map(|k| self.width((k as u32).max(1))).collect();
        WireSizeTable { fixed: self.fixed, widths }
    }
}

/// [`WireSizes`] ready to be looked up.
#[derive(Debug)]
pub(super) struct WireSizeTable {
    fixed: f64,
    widths: Vec<f64>,
}

impl WireSizeTable {
    /// Bytes of a message of segments of so many values each that are sums of `operands`, header
    /// included.
    pub(super) fn message(
        &self,
        n_values: impl ExactSizeIterator<Item = usize>,
        operands: u32,
    ) -> u32 {
        let width = self.widths[(operands as usize).min(self.widths.len() - 1)];
        let segment = |n_values| (self.fixed + n_values as f64 * width).round() as usize;
        (HEADER_BYTES + bundle::n_bytes(n_values.map(segment))) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_linear_in_the_logarithm_of_operands() {
        let wire = WireSizes::measured(88, vec![(1, 0.5), (2, 0.6), (8, 0.8)]);
        for (operands, width) in [(0, 0.5), (1, 0.5), (2, 0.6), (4, 0.7), (8, 0.8), (512, 0.8)] {
            assert!((wire.width(operands) - width).abs() < 1e-12, "{operands}");
        }
        let table = wire.table(8);
        let one = |table: &WireSizeTable, operands| table.message([1000].into_iter(), operands);
        assert_eq!(one(&table, 4), 64 + 88 + 700);
        assert_eq!(one(&WireSizes::exact(4).table(1), 7), 64 + 4000);
        assert_eq!(one(&WireSizes::with_ratio(8, 4.0).table(1), 1), 64 + 2000);
        let three = WireSizes::exact(4).table(1).message([16, 1, 17].into_iter(), 1);
        assert_eq!(three, 64 + 64 + 64 + 128 + 16, "each padded, and an index");
    }

    #[test]
    fn works_in_turn_take_the_sum_of_their_times() {
        let speeds = PrimitiveSpeeds::of_parts(2.0, 4.0, 4.0, f64::INFINITY, 8.0);
        assert!((speeds.recode - 4.0 / 3.0).abs() < 1e-12);
        assert!((speeds.fold_store - 1.0).abs() < 1e-12);
        assert_eq!((speeds.reduce, speeds.times(2.0).encode), (4.0, 4.0));
    }
}
