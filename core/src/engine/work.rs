//! What a lane computes: the codec applied to the caller's buffers and to frames.
//!
//! Nothing here waits or sends. The caller's values are read through [`Buffers::own`] and written,
//! final results only, through [`Buffers::output`]; partial results live in frames. That is why
//! in-place calls need no copy, and why ranks without a receive buffer can still take part in a
//! reduction.

use super::frames::{Frame, Frames, Place};
use super::lane::misuse;
use crate::Element;
use crate::codec::{Codec, DecodeError, Values, Written};
use crate::error::Error;
use crate::frame::HEADER_BYTES;
use crate::kernel::stores::{self, Fence, Stores};
use crate::op::{Op, divide, divisor_of_sums, weigh};
use crate::report::Report;
use core::ops::Range;

/// Outputs of more bytes are written past the caches. Smaller ones may be there when the caller
/// reads them.
const CACHED_BYTES: usize = 16 << 20;

/// An encoded segment in a frame, behind the room for its header.
#[derive(Clone, Copy)]
pub(super) struct Payload {
    /// The frame.
    pub(super) at: Place,
    pub(super) n_bytes: usize,
    /// How many ranks' values are combined in it.
    pub(super) operands: u32,
    /// The frame already has the header of this very message (it was received).
    pub(super) has_header: bool,
}

impl Payload {
    fn new(at: Place, written: Written, operands: u32, report: &mut Report) -> Self {
        report.blocks += written.blocks;
        Self { at, n_bytes: written.n_bytes, operands, has_header: false }
    }

    /// The payload in its frame's bytes.
    fn of<'f>(&self, frame: &'f [u8]) -> Result<&'f [u8], Error> {
        frame.get(HEADER_BYTES..HEADER_BYTES + self.n_bytes).ok_or(misuse())
    }

    fn of_mut<'f>(&self, frame: &'f mut [u8]) -> Result<&'f mut [u8], Error> {
        frame.get_mut(HEADER_BYTES..HEADER_BYTES + self.n_bytes).ok_or(misuse())
    }

    /// The same message in another frame.
    pub(super) fn copy<F: Frame>(&self, frames: &mut Frames<F>, to: Place) -> Result<Self, Error> {
        let [src, dst] = frames.bytes_mut([self.at, to])?;
        let n = HEADER_BYTES + self.n_bytes;
        let (src, dst) = (src.get(..n).ok_or(misuse())?, dst.get_mut(..n).ok_or(misuse())?);
        dst.copy_from_slice(src);
        Ok(Self { at: to, ..*self })
    }
}

/// A segment as floats, in a frame's payload.
#[derive(Clone, Copy)]
pub(super) struct Floats {
    /// The frame.
    pub(super) at: Place,
    /// How many ranks' values are combined in it.
    pub(super) operands: u32,
}

/// Room for an encoding in a frame's bytes.
fn room(frame: &mut [u8]) -> Result<&mut [u8], Error> {
    frame.get_mut(HEADER_BYTES..).ok_or(misuse())
}

/// `n` floats in a frame's payload.
fn floats<T: Element>(frame: &[u8], n: usize) -> Result<&[T], Error> {
    let bytes = frame.get(HEADER_BYTES..HEADER_BYTES + n * T::BYTES).ok_or(misuse())?;
    bytemuck::try_cast_slice(bytes).map_err(|_| misuse())
}

fn floats_mut<T: Element>(frame: &mut [u8], n: usize) -> Result<&mut [T], Error> {
    let bytes = frame.get_mut(HEADER_BYTES..HEADER_BYTES + n * T::BYTES).ok_or(misuse())?;
    bytemuck::try_cast_slice_mut(bytes).map_err(|_| misuse())
}

/// The caller's values: windows into the logical array of `count` values.
pub(crate) enum Buffers<'b, T> {
    /// One window for both.
    InPlace {
        /// First value of the window.
        start: usize,
        /// Own values, overwritten by results.
        data: &'b mut [T],
    },
    /// Windows of their own.
    Split {
        /// First value of `send`.
        send_start: usize,
        /// Own values.
        send: &'b [T],
        /// First value of `recv`.
        recv_start: usize,
        /// Room for results.
        recv: &'b mut [T],
    },
}

/// Where a segment lies in the window that begins at `start`. Empty segments may lie outside.
fn within(start: usize, segment: &Range<usize>) -> Range<usize> {
    if segment.is_empty() { 0..0 } else { segment.start - start..segment.end - start }
}

impl<T: Element> Buffers<'_, T> {
    /// Own values of a segment.
    pub(crate) fn own(&self, segment: &Range<usize>) -> &[T] {
        match self {
            Self::InPlace { start, data } => &data[within(*start, segment)],
            Self::Split { send_start, send, .. } => &send[within(*send_start, segment)],
        }
    }

    fn output(&mut self, segment: &Range<usize>) -> &mut [T] {
        match self {
            Self::InPlace { start, data } => &mut data[within(*start, segment)],
            Self::Split { recv_start, recv, .. } => &mut recv[within(*recv_start, segment)],
        }
    }

    /// How results are written: past the caches if they would not stay there anyway. In place,
    /// results that overwrite own values, read a moment ago, find their lines in the caches.
    fn stores(&self, over_own: bool) -> Stores {
        let (output, in_place) = match self {
            Self::InPlace { data, .. } => (data, true),
            Self::Split { recv, .. } => (recv, false),
        };
        if output.len() * T::BYTES > CACHED_BYTES && !(in_place && over_own) {
            Stores::PastCaches
        } else {
            Stores::Cached
        }
    }

    /// Own values and output of a segment.
    fn values(&mut self, segment: &Range<usize>) -> Values<'_, T> {
        match self {
            Self::InPlace { start, data } => Values::InPlace(&mut data[within(*start, segment)]),
            Self::Split { send_start, send, recv_start, recv } => Values::Apart {
                local: &send[within(*send_start, segment)],
                output: &mut recv[within(*recv_start, segment)],
            },
        }
    }

    /// Own values of a segment into the output.
    fn copy_own(&mut self, segment: &Range<usize>, stores: Stores) -> &mut [T] {
        match self.values(segment) {
            Values::InPlace(values) => values,
            Values::Apart { local, output } => {
                match stores {
                    Stores::Cached => output.copy_from_slice(local),
                    Stores::PastCaches => {
                        let (from, to) =
                            (bytemuck::cast_slice(local), bytemuck::cast_slice_mut(output));
                        stores::copy(from, to, &Fence::at_end());
                    }
                }
                output
            }
        }
    }
}

/// Codec, operation and buffers of a call.
pub(crate) struct Work<'w, 'b, T: Element> {
    pub(crate) codec: &'w dyn Codec<T>,
    pub(crate) op: Op<'w, T>,
    pub(crate) buffers: &'w mut Buffers<'b, T>,
}

/// What frames are written to is named `to`. It may hold anything after an error.
impl<T: Element> Work<'_, '_, T> {
    /// An error unless a payload of `n_bytes` says that it holds `n_values`: a frame that is only
    /// passed on is not decoded here.
    pub(super) fn check_length<F: Frame>(
        &self,
        frames: &Frames<F>,
        at: Place,
        n_bytes: usize,
        n_values: usize,
    ) -> Result<(), Error> {
        let payload = frames.bytes(at)?.get(HEADER_BYTES..HEADER_BYTES + n_bytes).ok_or(misuse())?;
        match self.codec.n_values(payload)? {
            found if found == n_values => Ok(()),
            found => Err(DecodeError::Count { found, expected: n_values }.into()),
        }
    }

    pub(super) fn encode_own<F: Frame>(
        &self,
        frames: &mut Frames<F>,
        segment: &Range<usize>,
        to: Place,
        report: &mut Report,
    ) -> Result<Payload, Error> {
        let [dst] = frames.bytes_mut([to])?;
        let written = self.codec.encode(self.buffers.own(segment), room(dst)?)?;
        Ok(Payload::new(to, written, 1, report))
    }

    pub(super) fn encode<F: Frame>(
        &self,
        frames: &mut Frames<F>,
        from: &Floats,
        n: usize,
        to: Place,
        report: &mut Report,
    ) -> Result<Payload, Error> {
        let [src, dst] = frames.bytes_mut([from.at, to])?;
        let written = self.codec.encode_partial(floats(src, n)?, room(dst)?)?;
        Ok(Payload::new(to, written, from.operands, report))
    }

    pub(super) fn recode<F: Frame>(
        &self,
        frames: &mut Frames<F>,
        from: &Payload,
        n: usize,
        to: Place,
        report: &mut Report,
    ) -> Result<Payload, Error> {
        let [src, dst] = frames.bytes_mut([from.at, to])?;
        let written = self.codec.recode(from.of(src)?, n, room(dst)?)?;
        Ok(Payload::new(to, written, from.operands, report))
    }

    pub(super) fn decode<F: Frame>(
        &self,
        frames: &mut Frames<F>,
        from: &Payload,
        n: usize,
        to: Place,
    ) -> Result<Floats, Error> {
        let [src, dst] = frames.bytes_mut([from.at, to])?;
        self.codec.decode(from.of(src)?, 1, floats_mut(dst, n)?)?;
        Ok(Floats { at: to, operands: from.operands })
    }

    pub(super) fn store<F: Frame>(
        &mut self,
        frames: &Frames<F>,
        segment: &Range<usize>,
        from: &Payload,
        divisor: u32,
        over_own: bool,
    ) -> Result<(), Error> {
        let src = from.of(frames.bytes(from.at)?)?;
        let stores = self.buffers.stores(over_own);
        Ok(self.codec.store(src, divisor, self.buffers.output(segment), stores)?)
    }

    /// Own values into the output, as they are: of one rank alone, or what only moves.
    pub(super) fn copy_own(&mut self, segment: &Range<usize>) {
        self.buffers.copy_own(segment, self.buffers.stores(true));
    }

    pub(super) fn copy_floats<F: Frame>(
        &mut self,
        frames: &Frames<F>,
        segment: &Range<usize>,
        from: &Floats,
        divisor: u32,
    ) -> Result<(), Error> {
        let output = self.buffers.output(segment);
        output.copy_from_slice(floats(frames.bytes(from.at)?, segment.len())?);
        divide(output, divisor_of_sums(divisor, self.codec.weight()));
        Ok(())
    }

    pub(super) fn own_to_floats<F: Frame>(
        &self,
        frames: &mut Frames<F>,
        segment: &Range<usize>,
        to: Place,
    ) -> Result<Floats, Error> {
        let [dst] = frames.bytes_mut([to])?;
        let floats = floats_mut(dst, segment.len())?;
        floats.copy_from_slice(self.buffers.own(segment));
        weigh(floats, self.codec.weight());
        Ok(Floats { at: to, operands: 1 })
    }

    /// Incoming ⊕ floats → floats.
    pub(super) fn reduce<F: Frame>(
        &self,
        frames: &mut Frames<F>,
        incoming: &Payload,
        n: usize,
        to: &mut Floats,
    ) -> Result<(), Error> {
        let [src, dst] = frames.bytes_mut([incoming.at, to.at])?;
        self.codec.reduce(&self.op, incoming.of(src)?, floats_mut(dst, n)?)?;
        to.operands += incoming.operands;
        Ok(())
    }

    /// Own ⊕ incoming → output, in floats.
    pub(super) fn reduce_store<F: Frame>(
        &mut self,
        frames: &Frames<F>,
        segment: &Range<usize>,
        incoming: &Payload,
        divisor: u32,
    ) -> Result<(), Error> {
        let src = incoming.of(frames.bytes(incoming.at)?)?;
        let weight = self.codec.weight();
        let output = self.buffers.copy_own(segment, Stores::Cached);
        weigh(output, weight);
        self.codec.reduce(&self.op, src, output)?;
        divide(output, divisor_of_sums(divisor, weight));
        Ok(())
    }

    pub(super) fn fold<F: Frame>(
        &self,
        frames: &mut Frames<F>,
        segment: &Range<usize>,
        incoming: &Payload,
        to: Place,
        on_codes: bool,
        report: &mut Report,
    ) -> Result<Payload, Error> {
        let [src, dst] = frames.bytes_mut([incoming.at, to])?;
        let (own, src, dst) = (self.buffers.own(segment), incoming.of(src)?, room(dst)?);
        let written = if on_codes {
            self.codec.fold(&self.op, src, own, dst)?
        } else {
            self.codec.refold(&self.op, src, own, dst)?
        };
        Ok(Payload::new(to, written, incoming.operands + 1, report))
    }

    /// As [`fold`](Self::fold) on codes, and the result, divided by `divisor`, into the output.
    pub(super) fn fold_store<F: Frame>(
        &mut self,
        frames: &mut Frames<F>,
        segment: &Range<usize>,
        incoming: &Payload,
        to: Place,
        divisor: u32,
        report: &mut Report,
    ) -> Result<Payload, Error> {
        let [src, dst] = frames.bytes_mut([incoming.at, to])?;
        let values = self.buffers.values(segment);
        let written =
            self.codec.fold_store(&self.op, incoming.of(src)?, values, divisor, room(dst)?)?;
        Ok(Payload::new(to, written, incoming.operands + 1, report))
    }

    /// Folds own values into the incoming frame itself, if the codec can.
    pub(super) fn fold_in_place<F: Frame>(
        &self,
        frames: &mut Frames<F>,
        segment: &Range<usize>,
        incoming: &mut Payload,
    ) -> Result<bool, Error> {
        let [bytes] = frames.bytes_mut([incoming.at])?;
        let own = self.buffers.own(segment);
        let Some(result) = self.codec.fold_in_place(&self.op, incoming.of_mut(bytes)?, own) else {
            return Ok(false);
        };
        incoming.has_header = false;
        incoming.operands += 1;
        result?;
        Ok(true)
    }

    /// Combines `b` into `a` itself, if the codec can.
    pub(super) fn combine_in_place<F: Frame>(
        &self,
        frames: &mut Frames<F>,
        a: &mut Payload,
        b: &Payload,
    ) -> Result<bool, Error> {
        let codec = self.codec.homomorphic().ok_or(misuse())?;
        let [dst, src] = frames.bytes_mut([a.at, b.at])?;
        let Some(result) = codec.combine_in_place(&self.op, a.of_mut(dst)?, b.of(src)?) else {
            return Ok(false);
        };
        a.has_header = false;
        a.operands += b.operands;
        result?;
        Ok(true)
    }

    pub(super) fn combine<F: Frame>(
        &self,
        frames: &mut Frames<F>,
        a: &Payload,
        b: &Payload,
        to: Place,
        report: &mut Report,
    ) -> Result<Payload, Error> {
        let codec = self.codec.homomorphic().ok_or(misuse())?;
        let [left, right, dst] = frames.bytes_mut([a.at, b.at, to])?;
        let written = codec.combine(&self.op, a.of(left)?, b.of(right)?, room(dst)?)?;
        Ok(Payload::new(to, written, a.operands + b.operands, report))
    }
}
