//! Frames of a lane, one per [`Slot`], their contents, and the payloads that computations borrow.
//!
//! A frame stays here until it is sent or recycled. Computations only borrow frames. So no frame is
//! lost if a computation fails: all frames are still here, and the lane recycles them.

use super::compute::Computing;
use super::lane::misuse;
use crate::bundle;
use crate::codec::{Pace, Written};
use crate::error::Error;
use crate::frame::HEADER_BYTES;
use crate::layout::Run;
#[cfg(feature = "alloc")]
use crate::layout::Segment;
use crate::primitive::{Primitive, Slot, SlotContent, SlotContents, held_after};
use crate::report::Report;
use crate::schedule::Step;
use core::task::{Poll, ready};

/// A transport's frame.
pub(crate) trait FrameBuffer: AsRef<[u8]> + AsMut<[u8]> {}

impl<F: AsRef<[u8]> + AsMut<[u8]>> FrameBuffer for F {}

/// Slots of one lane. A frame without content is empty. There is no content without a frame.
pub(super) struct Slots<F> {
    frames: [Option<F>; Slot::COUNT],
    contents: SlotContents,
    /// Bytes of the contents, without the header. While a content is written, the bytes so far.
    n_bytes: [usize; Slot::COUNT],
}

impl<F: FrameBuffer> Slots<F> {
    pub(super) const fn new() -> Self {
        let frames = [const { None }; Slot::COUNT];
        Self { frames, contents: [None; Slot::COUNT], n_bytes: [0; Slot::COUNT] }
    }

    /// Returns the number of frames.
    pub(super) fn n_frames(&self) -> usize {
        self.frames.iter().flatten().count()
    }

    pub(super) const fn has_frame(&self, slot: Slot) -> bool {
        self.frames[slot.index()].is_some()
    }

    pub(super) const fn content(&self, slot: Slot) -> Option<SlotContent> {
        self.contents[slot.index()]
    }

    pub(super) const fn contents(&self) -> SlotContents {
        self.contents
    }

    /// Records these contents, of the slots that have a frame.
    #[cfg(feature = "alloc")]
    pub(super) fn hold(&mut self, contents: SlotContents) {
        for ((frame, content), place) in self.frames.iter().zip(contents).zip(&mut self.contents) {
            *place = content.filter(|_| frame.is_some());
        }
    }

    /// Records that a slot's frame is empty.
    #[cfg(feature = "alloc")]
    pub(super) const fn forget(&mut self, slot: Slot) {
        self.contents[slot.index()] = None;
    }

    /// Sets the number of bytes behind the header in a slot's frame.
    #[cfg(feature = "alloc")]
    pub(super) const fn set_n_bytes(&mut self, slot: Slot, n_bytes: usize) {
        self.n_bytes[slot.index()] = n_bytes;
    }

    /// Puts an empty frame into a slot. Returns the frame if the slot already has one.
    pub(super) fn put(&mut self, slot: Slot, frame: F) -> Result<(), F> {
        match &mut self.frames[slot.index()] {
            Some(_) => Err(frame),
            place => {
                *place = Some(frame);
                Ok(())
            }
        }
    }

    /// Sets the content of a slot's frame: this many bytes behind the header.
    pub(super) const fn fill(&mut self, slot: Slot, content: SlotContent, n_bytes: usize) {
        self.contents[slot.index()] = Some(content);
        self.n_bytes[slot.index()] = n_bytes;
    }

    /// Returns the bytes of a frame, header included.
    pub(super) fn bytes(&self, slot: Slot) -> Result<&[u8], Error> {
        self.frames[slot.index()].as_ref().map(AsRef::as_ref).ok_or(Error::Internal)
    }

    /// Returns the message to send, and what it contains.
    pub(super) fn message(&mut self) -> Result<(&mut [u8], SlotContent), Error> {
        let content = self.content(Slot::Out).ok_or(Error::Internal)?;
        Ok((self.message_bytes()?, content))
    }

    /// Returns the message to send: header and payload in `Out`.
    #[inline]
    pub(super) fn message_bytes(&mut self) -> Result<&mut [u8], Error> {
        let out = Slot::Out.index();
        let bytes = self.frames[out].as_mut().ok_or(Error::Internal)?.as_mut();
        bytes.get_mut(..HEADER_BYTES + self.n_bytes[out]).ok_or(misuse())
    }

    /// Takes the frame in `Out`, to send it.
    pub(super) fn take_message(&mut self) -> Result<F, Error> {
        self.contents[Slot::Out.index()] = None;
        self.frames[Slot::Out.index()].take().ok_or(Error::Internal)
    }

    /// Takes the frame out of a slot.
    pub(super) fn take(&mut self, slot: Slot) -> Option<F> {
        self.contents[slot.index()] = None;
        self.frames[slot.index()].take()
    }

    /// Takes all frames out.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = F> {
        self.contents = [None; Slot::COUNT];
        self.frames.iter_mut().filter_map(Option::take)
    }

    /// Returns what stays held after the step, and removes the parts that the step used up.
    pub(super) fn keep_held(&mut self, step: &Step) -> Result<Option<SlotContent>, Error> {
        let held = held_after(step, &self.contents);
        if let (Some(before), Some(held)) = (self.content(Slot::Held), held)
            && held.n_parts < before.n_parts
        {
            self.take_out(step)?;
        }
        Ok(held)
    }

    /// Removes the step's parts from the held ones. Returns how many are left.
    fn take_out(&mut self, step: &Step) -> Result<usize, Error> {
        let n_held = self.n_parts(Slot::Held);
        let places = step.places(n_held).ok_or(Error::Internal)?;
        let payload = self.payload_mut(Slot::Held)?;
        let n_bytes = bundle::take_out(payload, n_held, places).ok_or(misuse())?;
        self.n_bytes[Slot::Held.index()] = n_bytes;
        Ok(n_held - places.n_parts())
    }

    /// Drops all contents except `held`. Moves emptied frames of `In` and `Held` to `Out` and
    /// `Spare` for the next step, and recycles those that do not fit there.
    pub(super) fn end_step(&mut self, held: Option<SlotContent>, recycle: impl FnMut(F)) {
        self.contents = [None; Slot::COUNT];
        self.contents[Slot::Held.index()] = held;
        self.reuse_frames(held.is_some(), recycle);
    }

    /// Moves the frames of `In`, and of `Held` unless it `holds` something, to `Out` and `Spare`.
    /// Recycles those that do not fit there.
    #[inline]
    pub(super) fn reuse_frames(&mut self, holds: bool, mut recycle: impl FnMut(F)) {
        let [received, held, out, spare] = &mut self.frames;
        for slot in [Some(received), if holds { None } else { Some(held) }].into_iter().flatten() {
            let Some(frame) = slot.take() else { continue };
            if out.is_none() {
                *out = Some(frame);
            } else if spare.is_none() {
                *spare = Some(frame);
            } else {
                recycle(frame);
            }
        }
    }

    /// Carries out a primitive of a step on its run. `n_done` is the number of parts on which it
    /// has been carried out so far. After an error the frames may contain anything.
    pub(super) fn carry_out(
        &mut self,
        primitive: Primitive,
        compute: &mut Computing<'_>,
        (run, step): (&Run<'_>, &Step),
        n_done: &mut u16,
        report: &mut Report,
        pace: &dyn Pace,
    ) -> Poll<Result<(), Error>> {
        let Some(after) = primitive.after(self.contents, run.n_parts()) else {
            return Poll::Ready(Err(Error::Internal));
        };
        match primitive {
            Primitive::Move { from, to } => self.swap(from, to),
            Primitive::Copy { from, to } => self.copy(from, to, step)?,
            Primitive::Join { from } => self.join(from, self.n_parts(Slot::Held), step)?,
            Primitive::Replace { from } => {
                let n_others = self.take_out(step)?;
                self.join(from, n_others, step)?;
            }
            _ if run.n_parts() == 1 && !self.holds_run() => {
                let segment = run.segment(0);
                let (mut payloads, how) = (self.payloads(), (compute.coding, pace));
                let (on, lane) = (&mut payloads, compute.lane);
                ready!(compute.work.compute(lane, primitive, on, &segment, how, report))?;
                self.n_bytes = payloads.n_bytes();
            }
            _ => {
                while *n_done < run.n_parts() {
                    let place = (run, step);
                    ready!(self.compute_part(primitive, compute, place, *n_done, report, pace))?;
                    *n_done += 1;
                }
                *n_done = 0;
            }
        }
        self.contents = after;
        Poll::Ready(Ok(()))
    }

    /// Replays the primitives of a short exact step. Returns those that are left, from the first
    /// one on that [`Compute::compute_raw`](super::Compute::compute_raw) does not carry out.
    #[cfg(feature = "alloc")]
    #[inline(always)]
    pub(super) fn again_raw<'p>(
        &mut self,
        to_do: &'p [Primitive],
        compute: &mut Computing<'_>,
        segment: &Segment,
    ) -> &'p [Primitive] {
        let mut left = to_do;
        while let Some((&first, rest)) = left.split_first() {
            match first {
                Primitive::Move { from, to } => self.swap(from, to),
                Primitive::Copy { from, to } if self.copy_whole(from, to).is_ok() => {}
                _ if self.compute_raw(first, compute, segment).is_some() => {}
                _ => break,
            }
            left = rest;
        }
        left
    }

    #[cfg(feature = "alloc")]
    #[inline(always)]
    fn compute_raw(
        &mut self,
        primitive: Primitive,
        compute: &mut Computing<'_>,
        segment: &Segment,
    ) -> Option<()> {
        fn buffer<F: FrameBuffer>(frame: &mut Option<F>) -> Option<&mut [u8]> {
            frame.as_mut()?.as_mut().get_mut(HEADER_BYTES..)
        }
        let (slot, with) = primitive.raw_slots()?;
        let (buffer, other): (_, &[u8]) = match with {
            None => (buffer(&mut self.frames[slot.index()])?, &[]),
            Some(with) => {
                let frames = self.frames.get_disjoint_mut([slot.index(), with.index()]);
                let [frame, other] = frames.ok()?;
                (buffer(frame)?, buffer(other)?.get(..self.n_bytes[with.index()])?)
            }
        };
        let n_bytes = &mut self.n_bytes[slot.index()];
        *n_bytes = compute.work.compute_raw(primitive, (buffer, *n_bytes), other, segment)?;
        Some(())
    }

    /// Replays primitives on frames of one segment, without a record of the contents. `compute`
    /// carries out those that compute. Returns those that are left because one is pending.
    #[cfg(feature = "alloc")]
    #[inline]
    pub(super) fn again<'p>(
        &mut self,
        to_do: &'p [Primitive],
        mut compute: impl FnMut(Primitive, &mut Payloads<'_>) -> Poll<Result<(), Error>>,
    ) -> Result<&'p [Primitive], Error> {
        let mut left = to_do;
        while let Some((&first, rest)) = left.split_first() {
            match first {
                Primitive::Move { from, to } => self.swap(from, to),
                Primitive::Copy { from, to } => self.copy_whole(from, to)?,
                _ => {
                    let mut payloads = self.payloads();
                    if compute(first, &mut payloads)?.is_pending() {
                        break;
                    }
                    self.n_bytes = payloads.n_bytes();
                }
            }
            left = rest;
        }
        Ok(left)
    }

    fn swap(&mut self, one: Slot, other: Slot) {
        self.frames.swap(one.index(), other.index());
        self.n_bytes.swap(one.index(), other.index());
    }

    /// Returns whether segments of several parts are held.
    fn holds_run(&self) -> bool {
        self.n_parts(Slot::Held) > 1
    }

    /// Returns the payloads of the frames, without the space for headers.
    #[inline]
    fn payloads(&mut self) -> Payloads<'_> {
        let mut buffers: [&mut [u8]; Slot::COUNT] = Default::default();
        for (buffer, frame) in buffers.iter_mut().zip(&mut self.frames) {
            if let Some(bytes) =
                frame.as_mut().and_then(|frame| frame.as_mut().get_mut(HEADER_BYTES..))
            {
                *buffer = bytes;
            }
        }
        Payloads::new(buffers, self.n_bytes)
    }

    /// Carries out a primitive on one segment of a run, after the segments before it.
    fn compute_part(
        &mut self,
        primitive: Primitive,
        compute: &mut Computing<'_>,
        (run, step): (&Run<'_>, &Step),
        place: u16,
        report: &mut Report,
        pace: &dyn Pace,
    ) -> Poll<Result<(), Error>> {
        let (n_parts, place) = (usize::from(run.n_parts()), usize::from(place));
        let written = primitive.target().filter(|_| !primitive.is_in_place());
        let mut begin = 0;
        let mut n_bytes = [0; Slot::COUNT];
        let mut buffers: [&mut [u8]; Slot::COUNT] = Default::default();
        let frames = self.frames.iter_mut().zip(self.contents).zip(self.n_bytes);
        for (slot, ((frame, content), n_used)) in frames.enumerate() {
            let Some(frame) = frame else { continue };
            let buffer = frame.as_mut().get_mut(HEADER_BYTES..).unwrap_or_default();
            // A slot that is written gets the space behind the segments written so far. Any other
            // slot gives the step's segment number `place`.
            let range = if written.is_some_and(|written| written.index() == slot) {
                begin = if place == 0 { 0 } else { n_used };
                bundle::free(buffer, n_parts, begin)
            } else if let Some(content) = content.filter(|content| content.n_parts >= run.n_parts())
            {
                let n_there = usize::from(content.n_parts);
                let bundle = buffer.get(..n_used).ok_or(misuse())?;
                let index = if n_there == n_parts {
                    place
                } else if step.uses_held() {
                    step.places(n_there).ok_or(Error::Internal)?.nth(place)
                } else {
                    continue;
                };
                bundle::segment(bundle, n_there, index)
            } else {
                continue;
            };
            let range = range.ok_or(misuse())?;
            n_bytes[slot] = range.len();
            buffers[slot] = buffer.get_mut(range).ok_or(misuse())?;
        }
        let (mut payloads, segment) = (Payloads::new(buffers, n_bytes), run.segment(place));
        let (on, how) = (&mut payloads, (compute.coding, pace));
        ready!(compute.work.compute(compute.lane, primitive, on, &segment, how, report))?;
        let n_bytes = payloads.n_bytes();
        if let Some(to) = written {
            let buffer = self.buffer(to)?;
            let range = begin..begin + n_bytes[to.index()];
            let end = bundle::end_segment(buffer, n_parts, place, range);
            self.n_bytes[to.index()] = end.ok_or(misuse())?;
        }
        Poll::Ready(Ok(()))
    }

    /// Returns the buffer of a frame behind the space for its header.
    fn buffer(&mut self, slot: Slot) -> Result<&mut [u8], Error> {
        let frame = self.frames[slot.index()].as_mut().ok_or(Error::Internal)?;
        frame.as_mut().get_mut(HEADER_BYTES..).ok_or(misuse())
    }

    fn payload_mut(&mut self, slot: Slot) -> Result<&mut [u8], Error> {
        let n_bytes = self.n_bytes[slot.index()];
        self.buffer(slot)?.get_mut(..n_bytes).ok_or(misuse())
    }

    /// Returns the payload in a slot, and the whole buffer of another.
    fn payload_and_buffer(&mut self, from: Slot, to: Slot) -> Result<(&[u8], &mut [u8]), Error> {
        let n_bytes = self.n_bytes[from.index()];
        let frames = self.frames.get_disjoint_mut([from.index(), to.index()]);
        let [Some(src), Some(dst)] = frames.map_err(|_| Error::Internal)? else {
            return Err(Error::Internal);
        };
        let src: &F = src;
        let src = src.as_ref().get(HEADER_BYTES..HEADER_BYTES + n_bytes).ok_or(misuse())?;
        Ok((src, dst.as_mut().get_mut(HEADER_BYTES..).ok_or(misuse())?))
    }

    /// Copies a message to another frame. If it has more parts than the step, copies only the
    /// step's.
    fn copy(&mut self, from: Slot, to: Slot, step: &Step) -> Result<(), Error> {
        let content = self.content(from).ok_or(Error::Internal)?;
        if content.n_parts > step.n_parts {
            let n_there = usize::from(content.n_parts);
            let places = step.places(n_there).ok_or(Error::Internal)?;
            let (src, dst) = self.payload_and_buffer(from, to)?;
            let n_bytes = bundle::copy(src, n_there, places, dst);
            self.n_bytes[to.index()] = n_bytes.ok_or(misuse())?;
            return Ok(());
        }
        self.copy_whole(from, to)
    }

    fn copy_whole(&mut self, from: Slot, to: Slot) -> Result<(), Error> {
        let n_bytes = self.n_bytes[from.index()];
        let frames = self.frames.get_disjoint_mut([from.index(), to.index()]);
        let [Some(src), Some(dst)] = frames.map_err(|_| Error::Internal)? else {
            return Err(Error::Internal);
        };
        let src = src.as_ref().get(..HEADER_BYTES + n_bytes).ok_or(misuse())?;
        dst.as_mut().get_mut(..src.len()).ok_or(misuse())?.copy_from_slice(src);
        self.n_bytes[to.index()] = n_bytes;
        Ok(())
    }

    fn n_parts(&self, slot: Slot) -> usize {
        self.content(slot).map_or(0, |content| content.n_parts.into())
    }

    /// Inserts the segments in a slot among the `n_held` held ones, where the step puts them.
    fn join(&mut self, from: Slot, n_held: usize, step: &Step) -> Result<(), Error> {
        let n_parts = self.n_parts(from);
        let places = step.places(n_held + n_parts).ok_or(Error::Internal)?;
        let held = (self.n_bytes[Slot::Held.index()], n_held);
        let (src, buffer) = self.payload_and_buffer(from, Slot::Held)?;
        let n_bytes = bundle::join(buffer, held, (src, n_parts), places);
        self.n_bytes[Slot::Held.index()] = n_bytes.ok_or(misuse())?;
        Ok(())
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

    /// Records what a primitive has written.
    pub(crate) fn note(&mut self, primitive: Primitive, written: Written, report: &mut Report) {
        if let Some(to) = primitive.target() {
            self.n_bytes[to.index()] = written.n_bytes;
        }
        report.blocks += written.blocks;
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
