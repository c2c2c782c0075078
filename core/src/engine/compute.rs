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

use super::lane::misuse;
use super::work::Coding;
use crate::codec::{Pace, Written};
use crate::error::Error;
use crate::layout::Segment;
use crate::primitive::{Primitive, Slot};
use crate::report::Report;
use core::task::Poll;

/// Computes for lanes.
pub(crate) trait Compute {
    /// Carries out a primitive on a segment of the array.
    ///
    /// `Pending` means that it is not done yet; the lane calls again with the same arguments. After
    /// an error the target slot may contain anything. While the primitive runs, it reports progress
    /// to the [`Pace`]. `lane` is the lane's number.
    fn compute(
        &mut self,
        lane: usize,
        primitive: Primitive,
        payloads: &mut Payloads<'_>,
        segment: &Segment,
        how: (&Coding, &dyn Pace),
    ) -> Poll<Result<Written, Error>>;
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

/// Payloads of a lane's frames, and the buffers that hold them, without the space for headers.
pub(crate) struct Payloads<'f> {
    buffers: [&'f mut [u8]; Slot::COUNT],
    n_bytes: [usize; Slot::COUNT],
}

impl<'f> Payloads<'f> {
    pub(super) const fn new(
        buffers: [&'f mut [u8]; Slot::COUNT],
        n_bytes: [usize; Slot::COUNT],
    ) -> Self {
        Self { buffers, n_bytes }
    }

    /// Returns the number of payload bytes in each slot.
    pub(super) const fn n_bytes(&self) -> [usize; Slot::COUNT] {
        self.n_bytes
    }

    /// Carries out a primitive.
    #[inline(always)]
    pub(super) fn compute(
        &mut self,
        primitive: Primitive,
        compute: &mut Computing<'_>,
        segment: &Segment,
        report: &mut Report,
        pace: &dyn Pace,
    ) -> Poll<Result<(), Error>> {
        let Computing { work, coding, lane } = compute;
        let done = work.compute(*lane, primitive, self, segment, (*coding, pace));
        let written = core::task::ready!(done)?;
        report.blocks += written.blocks;
        if let Some(to) = primitive.target() {
            self.n_bytes[to.index()] = written.n_bytes;
        }
        Poll::Ready(Ok(()))
    }

    /// Returns the payload in a slot.
    pub(crate) fn of(&self, slot: Slot) -> Result<&[u8], Error> {
        self.buffers[slot.index()].get(..self.n_bytes[slot.index()]).ok_or(misuse())
    }

    pub(crate) fn of_mut(&mut self, slot: Slot) -> Result<&mut [u8], Error> {
        self.buffers[slot.index()].get_mut(..self.n_bytes[slot.index()]).ok_or(misuse())
    }

    /// Returns the whole buffer of a slot.
    pub(crate) fn buffer(&mut self, slot: Slot) -> &mut [u8] {
        self.buffers[slot.index()]
    }

    /// Returns the payload in one slot, and the whole buffer of another.
    pub(crate) fn to(&mut self, from: Slot, to: Slot) -> Result<(&[u8], &mut [u8]), Error> {
        let n_bytes = self.n_bytes[from.index()];
        let [src, dst] = self.disjoint([from, to])?;
        Ok((src.get(..n_bytes).ok_or(misuse())?, dst))
    }

    /// Returns the payloads in two slots, the second one mutable.
    pub(crate) fn into(&mut self, from: Slot, into: Slot) -> Result<(&[u8], &mut [u8]), Error> {
        let n_bytes = self.n_bytes[into.index()];
        let (src, dst) = self.to(from, into)?;
        Ok((src, dst.get_mut(..n_bytes).ok_or(misuse())?))
    }

    /// Returns the payloads in two slots, and the whole buffer of a third.
    pub(crate) fn both_to(
        &mut self,
        [a, b]: [Slot; 2],
        to: Slot,
    ) -> Result<([&[u8]; 2], &mut [u8]), Error> {
        let [n_a, n_b] = [a, b].map(|slot| self.n_bytes[slot.index()]);
        let [a, b, dst] = self.disjoint([a, b, to])?;
        Ok(([a.get(..n_a).ok_or(misuse())?, b.get(..n_b).ok_or(misuse())?], dst))
    }

    fn disjoint<const N: usize>(&mut self, slots: [Slot; N]) -> Result<[&mut [u8]; N], Error> {
        let buffers =
            self.buffers.get_disjoint_mut(slots.map(Slot::index)).map_err(|_| Error::Internal)?;
        Ok(buffers.map(|buffer| &mut **buffer))
    }
}
