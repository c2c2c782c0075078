//! Computing without knowing the type of the elements: what the engine asks of codec, operation and
//! the caller's buffers, so that it is compiled once for each transport.

use super::lane::misuse;
use super::work::Coding;
use crate::codec::{Pace, Written};
use crate::error::Error;
use crate::layout::Segment;
use crate::primitive::{Primitive, Slot};
use crate::report::Report;
use core::task::Poll;

/// What a lane has computed.
pub(crate) trait Compute {
    /// Carries a primitive out on a segment of the array. `Pending`: not done yet; the same is
    /// asked again. What is written to a slot may be anything after an error. While it works, it
    /// tells how far it has come.
    fn compute(
        &mut self,
        primitive: Primitive,
        payloads: &mut Payloads<'_>,
        segment: &Segment,
        how: (&Coding, &dyn Pace),
    ) -> Poll<Result<Written, Error>>;
}

/// What lanes compute with: a call's values, and how it codes them.
pub(crate) struct Computing<'c> {
    pub(crate) work: &'c mut dyn Compute,
    pub(crate) coding: &'c Coding,
}

/// The frames of a lane behind the room for their headers.
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

    /// How many bytes are in each slot.
    pub(super) const fn n_bytes(&self) -> [usize; Slot::COUNT] {
        self.n_bytes
    }

    /// Carries a primitive out.
    #[inline]
    pub(super) fn compute(
        &mut self,
        primitive: Primitive,
        compute: &mut Computing<'_>,
        segment: &Segment,
        report: &mut Report,
        pace: &dyn Pace,
    ) -> Poll<Result<(), Error>> {
        let done = compute.work.compute(primitive, self, segment, (compute.coding, pace));
        let written = core::task::ready!(done)?;
        report.blocks += written.blocks;
        if let Some(to) = primitive.target() {
            self.n_bytes[to.index()] = written.n_bytes;
        }
        Poll::Ready(Ok(()))
    }

    /// What is in a slot.
    pub(super) fn of(&self, slot: Slot) -> Result<&[u8], Error> {
        self.buffers[slot.index()].get(..self.n_bytes[slot.index()]).ok_or(misuse())
    }

    pub(super) fn of_mut(&mut self, slot: Slot) -> Result<&mut [u8], Error> {
        self.buffers[slot.index()].get_mut(..self.n_bytes[slot.index()]).ok_or(misuse())
    }

    /// All the room in a slot.
    pub(super) fn buffer(&mut self, slot: Slot) -> &mut [u8] {
        self.buffers[slot.index()]
    }

    /// What is in a slot, and all the room in another.
    pub(super) fn to(&mut self, from: Slot, to: Slot) -> Result<(&[u8], &mut [u8]), Error> {
        let n_bytes = self.n_bytes[from.index()];
        let [src, dst] = self.disjoint([from, to])?;
        Ok((src.get(..n_bytes).ok_or(misuse())?, dst))
    }

    /// What is in two slots, the second to be changed.
    pub(super) fn into(&mut self, from: Slot, into: Slot) -> Result<(&[u8], &mut [u8]), Error> {
        let n_bytes = self.n_bytes[into.index()];
        let (src, dst) = self.to(from, into)?;
        Ok((src, dst.get_mut(..n_bytes).ok_or(misuse())?))
    }

    /// What is in two slots, and all the room in a third.
    pub(super) fn both_to(
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
