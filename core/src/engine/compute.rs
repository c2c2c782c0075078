//! Computation without the type of the elements: what the engine needs from the codec, the
//! operation and the caller's buffers. So the engine is compiled once per transport.
//!
//! A computation may be pending: the lane then keeps the rest of its step. Codecs of this crate are
//! never pending, but codecs that compute on other threads or on a device could be.
//!
//! *Not implemented: computing while another thread polls the network.* A lane carries out a whole
//! primitive, and polls the network meanwhile ([`ProgressHook`](super::ProgressHook)). Some
//! transports move only when they are polled. With these, other threads could carry out primitives
//! while one thread polls. [`Compute::compute`] would then return `Pending`.

use super::slots::Payloads;
use super::work::Coding;
use crate::codec::Pace;
use crate::error::Error;
use crate::layout::Segment;
use crate::primitive::Primitive;
use crate::report::Report;
use core::task::Poll;

/// Computes for lanes.
pub(crate) trait Compute {
    /// Carries out a primitive on a segment of the array.
    ///
    /// `Pending` means that it is not done yet; the lane calls again with the same arguments. After
    /// an error the target slot may contain anything. While the primitive runs, it reports progress
    /// to the [`Pace`]. `lane` is the lane's number. [Notes](Payloads::note) what it has written.
    fn compute(
        &mut self,
        lane: usize,
        primitive: Primitive,
        payloads: &mut Payloads<'_>,
        segment: &Segment,
        how: (&Coding, &dyn Pace),
        report: &mut Report,
    ) -> Poll<Result<(), Error>>;

    /// Begins an encode of a segment's local input ahead, for which the lane will ask later. The
    /// lane names such encodes in order, while an encode is pending, and names them again whenever
    /// it is asked. Returns false if this one cannot begin now; the lane then names no more.
    fn begin_ahead(
        &mut self,
        lane: usize,
        encode: Primitive,
        segment: &Segment,
    ) -> Result<bool, Error> {
        let _ = (lane, encode, segment);
        Ok(false)
    }

    /// Carries out a primitive of a short exact call as the raw codec does, in a third of the
    /// instructions. `payload` is the buffer of the slot that the primitive uses, with the number
    /// of bytes in it, and `other` its other payload. Returns the number of bytes in the slot
    /// afterwards. `None` if it has done nothing that counts, because the primitive is another one
    /// or fails.
    #[cfg(feature = "alloc")]
    fn compute_raw(
        &mut self,
        primitive: Primitive,
        payload: (&mut [u8], usize),
        other: &[u8],
        segment: &Segment,
    ) -> Option<usize> {
        let _ = (primitive, payload, other, segment);
        None
    }
}

/// A call's values and its codec, with which lanes compute.
pub(crate) struct Computing<'c> {
    pub(crate) work: &'c mut dyn Compute,
    pub(crate) coding: &'c Coding,
    /// Number of the lane whose turn it is.
    pub(crate) lane: usize,
}

impl<'c> Computing<'c> {
    pub(crate) fn new(work: &'c mut dyn Compute, coding: &'c Coding) -> Self {
        Self { work, coding, lane: 0 }
    }
}
