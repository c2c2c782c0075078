//! A call's buffers behind a trait that hides their element type. Lanes use them through
//! [`Compute`]; this trait adds the passes before and after the lanes run.

use super::call_spec::CallSpec;
use super::value_range;
use crate::bound::ValueRange;
use crate::codec::CodecParams;
use crate::element::Element;
use crate::engine::{Buffers, Compute, Work};
use crate::error::Error;
use crate::fill::Fill;
use crate::handle::Progress;
use crate::kernel::Level;
use crate::rounding::RoundingPass;
use crate::select::automatic::N_LOSSY;
use core::ops::Range;

/// A call's operation and buffers, without their element type. A call's state does not contain
/// them; each poll receives them by reference.
///
/// All other code of a call is therefore compiled once for each transport, and not for each element
/// type. `own` is the range of this rank's input in the send buffer.
pub(crate) trait Operands: Compute {
    /// Fails if this call cannot be computed where the buffers are.
    fn check(&mut self, _spec: &CallSpec<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Returns whether the call may be replayed from steps that were compiled in an earlier call.
    #[cfg(feature = "alloc")]
    fn may_replay(&self) -> bool {
        true
    }

    /// Learns the parameters of the call's codec, before the call itself begins.
    fn learn(&mut self, _params: &CodecParams) {}

    /// Scans this rank's input or a sample of it, without fill values
    /// ([`value_range::scan_values`]).
    fn scan_values(
        &mut self,
        own: Range<usize>,
        level: Level,
        sampled: bool,
        fill: Option<Fill>,
    ) -> Result<[f64; value_range::N_VALUES], Error>;

    /// Estimates the bits that each lossy codec needs for a value of this rank's input
    /// ([`value_range::estimate_bits`]). Also returns the strides of rows and planes.
    fn estimate_bits(
        &mut self,
        own: Range<usize>,
        spec: &CallSpec<'_>,
        value_range: Option<ValueRange>,
        search_level: Option<Level>,
    ) -> Result<([f64; N_LOSSY], [u32; 2]), Error>;

    /// Searches this rank's input for a fill value ([`value_range::suspect_fill`]). A sample of it
    /// may do, unless the plan refuses fill values.
    fn suspect_fill(
        &mut self,
        own: Range<usize>,
        value_range: Option<ValueRange>,
        bound: f64,
        refuses: bool,
    ) -> Result<Option<f64>, Error>;

    /// Adds the array shape that is found in this rank's input to a codec's parameters.
    fn find_shape(&self, own: Range<usize>, params: CodecParams) -> CodecParams;

    /// Rounds this rank's input into the result buffer. The rounded values are the input of the
    /// rest of the call. `own` is their range in that buffer.
    fn round(&mut self, own: Range<usize>, pass: &RoundingPass, level: Level);

    /// Moves the result of an in-place call to the front of its buffer.
    fn move_to_front(&mut self, result: Range<usize>) -> Result<(), Error>;

    /// Returns the error of a pass outside the engine. It ends the call on all ranks, as an error
    /// of the engine does.
    fn failure(&self) -> Option<Error> {
        None
    }

    /// Ends the use of the buffers by a call whose lanes have finished.
    fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Follows a poll of the call. Returns what the caller of the poll is told.
    fn after_poll(&mut self, progress: Progress) -> Result<Progress, Error> {
        Ok(progress)
    }

    /// Ends what still runs on frames, because the call ends unfinished and recycles them. Calls
    /// `meanwhile` before and while it waits for it.
    fn stop(&mut self, _meanwhile: &mut dyn FnMut()) {}
}

/// Returns the values in a range, or an empty slice if the range exceeds `values`.
fn at<T>(values: &[T], range: Range<usize>) -> &[T] {
    values.get(range).unwrap_or_default()
}

impl<T: Element> Operands for Work<'_, '_, T> {
    #[inline(never)]
    fn scan_values(
        &mut self,
        own: Range<usize>,
        level: Level,
        sampled: bool,
        fill: Option<Fill>,
    ) -> Result<[f64; value_range::N_VALUES], Error> {
        Ok(value_range::scan_values(at(self.buffers.all_own(), own), level, sampled, fill))
    }

    #[inline(never)]
    fn estimate_bits(
        &mut self,
        own: Range<usize>,
        spec: &CallSpec<'_>,
        value_range: Option<ValueRange>,
        search_level: Option<Level>,
    ) -> Result<([f64; N_LOSSY], [u32; 2]), Error> {
        let own = at(self.buffers.all_own(), own);
        Ok(value_range::estimate_bits(spec, own, value_range, search_level))
    }

    #[inline(never)]
    fn suspect_fill(
        &mut self,
        own: Range<usize>,
        value_range: Option<ValueRange>,
        bound: f64,
        _: bool,
    ) -> Result<Option<f64>, Error> {
        Ok(value_range::suspect_fill([at(self.buffers.all_own(), own)], value_range, bound))
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
    fn move_to_front(&mut self, result: Range<usize>) -> Result<(), Error> {
        if let Buffers::InPlace(data) = &mut self.buffers {
            data.copy_within(result, 0);
        }
        Ok(())
    }
}
