//! Speeds of primitives, and sizes of encoded values on the wire.
//!
//! A *primitive* is an operation of the codec on one segment. Its speed is given in bytes of
//! uncompressed values per second. A segment of n values of b bytes therefore takes n·b / speed,
//! whatever its compressed size.

use foldwire::bundle;
use foldwire::frame::HEADER_BYTES;

/// Speeds in bytes of uncompressed values per second. An operation of speed `f64::INFINITY` is
/// free.
pub type PrimitiveSpeeds = PerPrimitive;

/// A number for each primitive. Below, ⊕ is the operation of the reduction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerPrimitive {
    /// Values → frame.
    pub encode: f64,
    /// Frame → values.
    pub decode: f64,
    /// Frame ⊕ local values → frame, as in the fused pipeline. The raw codec writes into the
    /// received frame.
    pub fold: f64,
    /// As `fold`, and also stores the result in the output.
    pub fold_store: f64,
    /// Frame ⊕ frame → frame.
    pub combine: f64,
    /// Values ⊕ frame → values: decodes and adds.
    pub reduce: f64,
    /// Frame ⊕ local values → frame through floats, chunk by chunk: decompresses, operates,
    /// compresses.
    pub refold: f64,
    /// Frame → frame through floats: decodes and encodes.
    pub recode: f64,
    /// Memory copy of values or of a frame's bytes.
    pub copy: f64,
    /// Checksum of a frame, for bytes *on the wire*.
    pub checksum: f64,
}

impl PerPrimitive {
    /// All primitives are free, so that only the network takes time.
    pub const FREE: Self = Self::uniform(f64::INFINITY);

    /// All primitives have the same number.
    #[must_use]
    pub const fn uniform(number: f64) -> Self {
        Self {
            encode: number,
            decode: number,
            fold: number,
            fold_store: number,
            combine: number,
            reduce: number,
            refold: number,
            recode: number,
            copy: number,
            checksum: number,
        }
    }

    /// Computes each primitive's number from its numbers here and in `other`.
    #[must_use]
    pub fn zip(self, other: Self, of: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            encode: of(self.encode, other.encode),
            decode: of(self.decode, other.decode),
            fold: of(self.fold, other.fold),
            fold_store: of(self.fold_store, other.fold_store),
            combine: of(self.combine, other.combine),
            reduce: of(self.reduce, other.reduce),
            refold: of(self.refold, other.refold),
            recode: of(self.recode, other.recode),
            copy: of(self.copy, other.copy),
            checksum: of(self.checksum, other.checksum),
        }
    }

    /// Computes each primitive's number from its number here.
    #[must_use]
    pub fn map(self, of: impl Fn(f64) -> f64) -> Self {
        self.zip(self, |number, _| of(number))
    }

    /// Derives all speeds from those of encoding, decoding, combining, adding floats and copying.
    /// Operations that run one after the other take the sum of their times. Checksums are free.
    ///
    /// | primitive | sum of |
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

    /// Multiplies all speeds by `factor`, for example to model several cores.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        self.map(|speed| speed * factor)
    }
}

/// Returns the speed of operations that run one after the other on the same values.
fn in_turn(speeds: &[f64]) -> f64 {
    speeds.iter().map(|speed| speed.recip()).sum::<f64>().recip()
}

/// Sizes of encoded segments on the wire, as a function of the number of operands in their sum.
///
/// A payload of n values that are sums of k operands takes `fixed + n·w(k)` bytes. The width w is
/// given for some numbers k. Between two of these, w is linear in log₂ k, because each doubling of
/// the operands widens residuals by about the same number of bits. Below the smallest and above the
/// largest, w is constant.
#[derive(Clone, Debug, PartialEq)]
pub struct WireSizes {
    fixed: f64,
    /// (k, w(k)), ascending in k, never empty.
    widths: Vec<(u32, f64)>,
}

impl WireSizes {
    /// Sizes of the raw codec: `bytes_per_value` for each value.
    #[must_use]
    pub fn exact(bytes_per_value: usize) -> Self {
        Self { fixed: 0.0, widths: vec![(1, bytes_per_value as f64)] }
    }

    /// Sizes at a fixed compression ratio, whatever the number of operands.
    ///
    /// # Panics
    /// If `ratio` is not positive.
    #[must_use]
    pub fn with_ratio(bytes_per_value: usize, ratio: f64) -> Self {
        assert!(ratio > 0.0, "a ratio is positive");
        Self { fixed: 0.0, widths: vec![(1, bytes_per_value as f64 / ratio)] }
    }

    /// Measured sizes: `fixed` bytes per payload, and (operands, bytes per value), ascending in
    /// operands.
    ///
    /// # Panics
    /// If `widths` is empty or not ascending.
    #[must_use]
    pub fn measured(fixed: usize, widths: Vec<(u32, f64)>) -> Self {
        assert!(!widths.is_empty() && widths.is_sorted_by(|a, b| a.0 < b.0), "widths ascend");
        Self { fixed: fixed as f64, widths }
    }

    /// Returns the bytes per value of a sum of `operands` operands.
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

    /// Precomputes the widths for sums of 0…`max_operands` operands.
    pub(super) fn table(&self, max_operands: usize) -> WireSizeTable {
        let widths = (0..=max_operands).map(|k| self.width((k as u32).max(1))).collect();
        WireSizeTable { fixed: self.fixed, widths }
    }
}

/// [`WireSizes`] as a lookup table.
#[derive(Debug)]
pub(super) struct WireSizeTable {
    fixed: f64,
    widths: Vec<f64>,
}

impl WireSizeTable {
    /// Returns the bytes of a message, header included. Its segments, which form a [`bundle`], have
    /// `n_values` values each. These are sums of `operands` operands.
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
        // The header, three segments that are padded to 64 bytes each, and an index.
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
