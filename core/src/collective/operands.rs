//! A call's values behind a trait, without their type: operations on them besides those that lanes
//! need.

use super::call_spec::CallSpec;
use super::value_range;
use crate::bound::ValueRange;
use crate::codec::CodecParams;
use crate::element::Element;
use crate::engine::{Buffers, Compute, Work};
use crate::kernel::Level;
use crate::rounding::RoundingPass;
use crate::select::automatic::N_LOSSY;
use core::ops::Range;

/// A call's operation and buffers, without their element type. The owner lends them at each poll.
///
/// All other code of a call is therefore compiled once for each transport, and not for each element
/// type. Ranges refer to the values to send.
pub(crate) trait Operands: Compute {
    /// Scans this rank's input or a sample of it ([`value_range::scan_values`]).
    fn scan_values(
        &self,
        own: Range<usize>,
        level: Level,
        sampled: bool,
    ) -> [f64; value_range::N_VALUES];

    /// Estimates how many bits codecs need for this rank's input ([`value_range::estimate_bits`]).
    fn estimate_bits(
        &self,
        own: Range<usize>,
        spec: &CallSpec<'_>,
        value_range: Option<ValueRange>,
        search_level: Option<Level>,
    ) -> ([f64; N_LOSSY], [u32; 2]);

    /// Adds the array shape that is found in this rank's input to a codec's parameters.
    fn find_shape(&self, own: Range<usize>, params: CodecParams) -> CodecParams;

    /// Rounds this rank's input into the place of the results.
    fn round(&mut self, own: Range<usize>, pass: &RoundingPass, level: Level);

    /// Moves the result of a call in place to the front of its buffer.
    fn move_to_front(&mut self, result: Range<usize>);
}

/// Returns the values in a range, or none if the range exceeds the slice.
fn at<T>(values: &[T], range: Range<usize>) -> &[T] {
    values.get(range).unwrap_or_default()
}

impl<T: Element> Operands for Work<'_, '_, T> {
    #[inline(never)]
    fn scan_values(
        &self,
        own: Range<usize>,
        level: Level,
        sampled: bool,
    ) -> [f64; value_range::N_VALUES] {
        value_range::scan_values(at(self.buffers.all_own(), own), level, sampled)
    }

    #[inline(never)]
    fn estimate_bits(
        &self,
        own: Range<usize>,
        spec: &CallSpec<'_>,
        value_range: Option<ValueRange>,
        search_level: Option<Level>,
    ) -> ([f64; N_LOSSY], [u32; 2]) {
        value_range::estimate_bits(spec, at(self.buffers.all_own(), own), value_range, search_level)
    }

    #[inline(never)]
    fn find_shape(&self, own: Range<usize>, params: CodecParams) -> CodecParams {
        params.with_shape_of(at(self.buffers.all_own(), own))
    }

    #[inline(never)]
    fn round(&mut self, own: Range<usize>, pass: &RoundingPass, level: Level) {
        let (from, data) = match &mut self.buffers {
            Buffers::InPlace(data) => (None, &mut **data),
            Buffers::Split { send, recv } => (Some(*send), &mut **recv),
            Buffers::ReadOnly(_) => return,
        };
        if let Some(values) = data.get_mut(own) {
            pass.run(from, values, self.residues.as_deref_mut(), level);
        }
    }

    #[inline(never)]
    fn move_to_front(&mut self, result: Range<usize>) {
        if let Buffers::InPlace(data) = &mut self.buffers {
            data.copy_within(result, 0);
        }
    }
}
