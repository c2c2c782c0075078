//! The frames that a lane has, one to a [`Slot`], and what is in them.
//!
//! A frame stays here until it is sent or given back. What is computed borrows the frames, so
//! whatever fails, none is lost: they are all still here, and the lane gives them back.

use super::compute::{Compute, Payloads};
use super::lane::misuse;
use crate::error::Error;
use crate::frame::HEADER_BYTES;
use crate::layout::Segment;
use crate::primitive::{Content, Contents, Primitive, Slot};
use crate::report::Report;
use core::task::Poll;

/// A transport's frame.
pub(crate) trait Frame: AsRef<[u8]> + AsMut<[u8]> {}

impl<F: AsRef<[u8]> + AsMut<[u8]>> Frame for F {}

/// The slots of one lane. A frame without content is empty; content without a frame there is not.
pub(super) struct Slots<F> {
    frames: [Option<F>; Slot::COUNT],
    contents: Contents,
    /// Bytes of the contents, without the header.
    n_bytes: [usize; Slot::COUNT],
}

impl<F: Frame> Slots<F> {
    pub(super) const fn new() -> Self {
        let frames = [const { None }; Slot::COUNT];
        Self { frames, contents: [None; Slot::COUNT], n_bytes: [0; Slot::COUNT] }
    }

    /// How many frames there are.
    pub(super) fn n_frames(&self) -> usize {
        self.frames.iter().flatten().count()
    }

    pub(super) const fn has_frame(&self, slot: Slot) -> bool {
        self.frames[slot.index()].is_some()
    }

    pub(super) const fn content(&self, slot: Slot) -> Option<Content> {
        self.contents[slot.index()]
    }

    /// Puts an empty frame into a slot; returns it if there is one.
    pub(super) fn put(&mut self, slot: Slot, frame: F) -> Result<(), F> {
        match &mut self.frames[slot.index()] {
            Some(_) => Err(frame),
            place => {
                *place = Some(frame);
                Ok(())
            }
        }
    }

    /// Says what is in the frame of a slot, in so many bytes behind the header.
    pub(super) const fn fill(&mut self, slot: Slot, content: Content, n_bytes: usize) {
        self.contents[slot.index()] = Some(content);
        self.n_bytes[slot.index()] = n_bytes;
    }

    /// A frame's bytes, header and all.
    pub(super) fn bytes(&self, slot: Slot) -> Result<&[u8], Error> {
        self.frames[slot.index()].as_ref().map(AsRef::as_ref).ok_or(Error::Internal)
    }

    /// What is to be sent: header and payload in `Out`.
    pub(super) fn message(&mut self) -> Result<(&mut [u8], Content), Error> {
        let out = Slot::Out.index();
        let content = self.contents[out].ok_or(Error::Internal)?;
        let bytes = self.frames[out].as_mut().ok_or(Error::Internal)?.as_mut();
        let bytes = bytes.get_mut(..HEADER_BYTES + self.n_bytes[out]).ok_or(misuse())?;
        Ok((bytes, content))
    }

    /// Takes the frame in `Out`, to send it.
    pub(super) fn take_message(&mut self) -> Result<F, Error> {
        self.contents[Slot::Out.index()] = None;
        self.frames[Slot::Out.index()].take().ok_or(Error::Internal)
    }

    /// Takes any frame out; `None` if there is none left.
    pub(super) fn take_any(&mut self) -> Option<F> {
        self.contents = [None; Slot::COUNT];
        self.frames.iter_mut().find_map(Option::take)
    }

    /// Forgets what the step leaves nothing of, and makes empty frames the next step's spares.
    /// Returns the frames that are too many.
    pub(super) fn end_step(&mut self, keep: bool) -> impl Iterator<Item = F> {
        let held = self.contents[Slot::Held.index()].filter(|_| keep);
        self.contents = [None; Slot::COUNT];
        self.contents[Slot::Held.index()] = held;
        let mut surplus = [None, None];
        for (slot, surplus) in [Slot::In, Slot::Held].into_iter().zip(&mut surplus) {
            if self.contents[slot.index()].is_some() {
                continue;
            }
            let frame = self.frames[slot.index()].take();
            let spares = [Slot::Out, Slot::Spare].map(Slot::index);
            match spares.into_iter().find(|&spare| self.frames[spare].is_none()) {
                Some(spare) => self.frames[spare] = frame,
                None => *surplus = frame,
            }
        }
        surplus.into_iter().flatten()
    }

    /// Carries a primitive out on a segment. An error leaves anything in the frames.
    pub(super) fn carry_out(
        &mut self,
        primitive: Primitive,
        compute: &mut dyn Compute,
        segment: &Segment,
        report: &mut Report,
    ) -> Poll<Result<(), Error>> {
        let Some(after) = primitive.after(self.contents) else {
            return Poll::Ready(Err(Error::Internal));
        };
        match primitive {
            Primitive::Move { from, to } => {
                self.frames.swap(from.index(), to.index());
                self.n_bytes.swap(from.index(), to.index());
            }
            Primitive::Copy { from, to } => self.copy(from, to)?,
            _ => {
                let bytes = self.frames.each_mut().map(|frame| {
                    let bytes = frame.as_mut().map(AsMut::as_mut);
                    bytes.and_then(|bytes| bytes.get_mut(HEADER_BYTES..)).unwrap_or_default()
                });
                let mut payloads = Payloads::new(bytes, self.n_bytes);
                let Poll::Ready(written) = compute.compute(primitive, &mut payloads, segment)?
                else {
                    return Poll::Pending;
                };
                report.blocks += written.blocks;
                if let Some(to) = primitive.target() {
                    self.n_bytes[to.index()] = written.n_bytes;
                }
            }
        }
        self.contents = after;
        Poll::Ready(Ok(()))
    }

    /// The same message in another frame.
    fn copy(&mut self, from: Slot, to: Slot) -> Result<(), Error> {
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
}
