//! What a lane computes: the codec applied to the caller's buffers and to frames.
//!
//! Nothing here waits or sends. The caller's values are read through [`Buffers::own`] and written, final
//! results only, through [`Buffers::output`]; partial results live in frames. That is why in-place calls
//! need no copy, and why ranks without a receive buffer can still take part in a reduction.

use crate::Element;
use crate::codec::{Codec, Values, Written};
use crate::error::Error;
use crate::frame::HEADER_BYTES;
use crate::kernel::stores::{self, Fence, Stores};
use crate::op::Op;
use crate::report::Report;
use crate::transport::TransportErrorKind;
use core::ops::Range;

/// Outputs of more bytes are written past the caches. Smaller ones may be there when the caller reads them.
const CACHED_BYTES: usize = 16 << 20;

/// An encoded segment in a frame, behind the room for its header.
pub(super) struct Payload<F> {
    pub(super) frame: F,
    pub(super) n_bytes: usize,
    /// How many ranks' values are combined in it.
    pub(super) operands: u32,
    /// The frame already has the header of this very message (it was received).
    pub(super) has_header: bool,
}

impl<F: AsRef<[u8]> + AsMut<[u8]>> Payload<F> {
    fn new(frame: F, written: Written, operands: u32, report: &mut Report) -> Self {
        report.blocks += written.blocks;
        Self { frame, n_bytes: written.n_bytes, operands, has_header: false }
    }

    fn bytes(&self) -> &[u8] {
        &self.frame.as_ref()[HEADER_BYTES..HEADER_BYTES + self.n_bytes]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.frame.as_mut()[HEADER_BYTES..HEADER_BYTES + self.n_bytes]
    }

    /// The same message in another frame.
    pub(super) fn copy_into(&self, mut frame: F) -> Self {
        let n = HEADER_BYTES + self.n_bytes;
        frame.as_mut()[..n].copy_from_slice(&self.frame.as_ref()[..n]);
        Self { frame, ..*self }
    }
}

/// A segment as floats, in a frame's payload.
pub(super) struct Floats<F> {
    pub(super) frame: F,
    /// How many ranks' values are combined in it.
    pub(super) operands: u32,
}

/// Room for an encoding.
fn room<F: AsMut<[u8]>>(frame: &mut F) -> &mut [u8] {
    &mut frame.as_mut()[HEADER_BYTES..]
}

const MISUSE: Error = Error::Transport { kind: TransportErrorKind::Misuse, peer: None };

/// `n` floats in a frame's payload.
fn floats<T: Element>(bytes: &[u8], n: usize) -> Result<&[T], Error> {
    let bytes = bytes.get(HEADER_BYTES..HEADER_BYTES + n * T::BYTES).ok_or(MISUSE)?;
    bytemuck::try_cast_slice(bytes).map_err(|_| MISUSE)
}

fn floats_mut<T: Element>(bytes: &mut [u8], n: usize) -> Result<&mut [T], Error> {
    let bytes = bytes.get_mut(HEADER_BYTES..HEADER_BYTES + n * T::BYTES).ok_or(MISUSE)?;
    bytemuck::try_cast_slice_mut(bytes).map_err(|_| MISUSE)
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

    /// How results are written: past the caches if they would not stay there anyway. In place, results that overwrite
    /// own values, read a moment ago, find their lines in the caches.
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

fn divide<T: Element>(values: &mut [T], divisor: u32) {
    if divisor != 1 {
        let divisor = T::from_f64(f64::from(divisor));
        values.iter_mut().for_each(|x| *x = *x / divisor);
    }
}

impl<T: Element> Work<'_, '_, T> {
    pub(super) fn encode_own<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        segment: &Range<usize>,
        mut frame: F,
        report: &mut Report,
    ) -> Result<Payload<F>, Error> {
        let written = self.codec.encode(self.buffers.own(segment), room(&mut frame))?;
        Ok(Payload::new(frame, written, 1, report))
    }

    pub(super) fn encode<F: AsRef<[u8]> + AsMut<[u8]>>(
        &self,
        from: &Floats<F>,
        n: usize,
        mut frame: F,
        report: &mut Report,
    ) -> Result<Payload<F>, Error> {
        let values = floats(from.frame.as_ref(), n)?;
        let written = self.codec.encode(values, room(&mut frame))?;
        Ok(Payload::new(frame, written, from.operands, report))
    }

    pub(super) fn recode<F: AsRef<[u8]> + AsMut<[u8]>>(
        &self,
        from: &Payload<F>,
        n: usize,
        mut frame: F,
        report: &mut Report,
    ) -> Result<Payload<F>, Error> {
        let written = self.codec.recode(from.bytes(), n, room(&mut frame))?;
        Ok(Payload::new(frame, written, from.operands, report))
    }

    pub(super) fn decode<F: AsRef<[u8]> + AsMut<[u8]>>(
        &self,
        from: &Payload<F>,
        n: usize,
        mut frame: F,
    ) -> Result<Floats<F>, Error> {
        self.codec.decode(from.bytes(), 1, floats_mut(frame.as_mut(), n)?)?;
        Ok(Floats { frame, operands: from.operands })
    }

    pub(super) fn store<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        segment: &Range<usize>,
        from: &Payload<F>,
        divisor: u32,
        over_own: bool,
    ) -> Result<(), Error> {
        let stores = self.buffers.stores(over_own);
        Ok(self.codec.store(from.bytes(), divisor, self.buffers.output(segment), stores)?)
    }

    pub(super) fn copy_own(&mut self, segment: &Range<usize>, divisor: u32) {
        // What is divided is read again.
        let stores = if divisor == 1 { self.buffers.stores(true) } else { Stores::Cached };
        divide(self.buffers.copy_own(segment, stores), divisor);
    }

    pub(super) fn copy_floats<F: AsRef<[u8]>>(
        &mut self,
        segment: &Range<usize>,
        from: &Floats<F>,
        divisor: u32,
    ) -> Result<(), Error> {
        let output = self.buffers.output(segment);
        output.copy_from_slice(floats(from.frame.as_ref(), segment.len())?);
        divide(output, divisor);
        Ok(())
    }

    pub(super) fn own_to_floats<F: AsMut<[u8]>>(
        &self,
        segment: &Range<usize>,
        mut frame: F,
    ) -> Result<Floats<F>, Error> {
        let own = self.buffers.own(segment);
        floats_mut(frame.as_mut(), segment.len())?.copy_from_slice(own);
        Ok(Floats { frame, operands: 1 })
    }

    pub(super) fn reduce<F: AsRef<[u8]> + AsMut<[u8]>>(
        &self,
        incoming: &Payload<F>,
        n: usize,
        to: &mut Floats<F>,
    ) -> Result<(), Error> {
        let values = floats_mut(to.frame.as_mut(), n)?;
        self.codec.reduce(&self.op, incoming.bytes(), values)?;
        to.operands += incoming.operands;
        Ok(())
    }

    /// Own ⊕ incoming → output, in floats.
    pub(super) fn reduce_store<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        segment: &Range<usize>,
        incoming: &Payload<F>,
        divisor: u32,
    ) -> Result<(), Error> {
        let output = self.buffers.copy_own(segment, Stores::Cached);
        self.codec.reduce(&self.op, incoming.bytes(), output)?;
        divide(output, divisor);
        Ok(())
    }

    pub(super) fn fold<F: AsRef<[u8]> + AsMut<[u8]>>(
        &self,
        segment: &Range<usize>,
        incoming: &Payload<F>,
        mut frame: F,
        on_codes: bool,
        report: &mut Report,
    ) -> Result<Payload<F>, Error> {
        let (own, src, dst) = (self.buffers.own(segment), incoming.bytes(), room(&mut frame));
        let written = if on_codes {
            self.codec.fold(&self.op, src, own, dst)?
        } else {
            self.codec.refold(&self.op, src, own, dst)?
        };
        Ok(Payload::new(frame, written, incoming.operands + 1, report))
    }

    /// As [`fold`](Self::fold) on codes, and the result, divided by `divisor`, into the output.
    pub(super) fn fold_store<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        segment: &Range<usize>,
        incoming: &Payload<F>,
        mut frame: F,
        divisor: u32,
        report: &mut Report,
    ) -> Result<Payload<F>, Error> {
        let values = self.buffers.values(segment);
        let (src, dst) = (incoming.bytes(), room(&mut frame));
        let written = self.codec.fold_store(&self.op, src, values, divisor, dst)?;
        Ok(Payload::new(frame, written, incoming.operands + 1, report))
    }

    /// Folds own values into the incoming frame itself, if the codec can.
    pub(super) fn fold_in_place<F: AsRef<[u8]> + AsMut<[u8]>>(
        &self,
        segment: &Range<usize>,
        incoming: &mut Payload<F>,
    ) -> Result<bool, Error> {
        let own = self.buffers.own(segment);
        let Some(result) = self.codec.fold_in_place(&self.op, incoming.bytes_mut(), own) else {
            return Ok(false);
        };
        incoming.has_header = false;
        incoming.operands += 1;
        result?;
        Ok(true)
    }

    /// Combines `b` into `a` itself, if the codec can.
    pub(super) fn combine_in_place<F: AsRef<[u8]> + AsMut<[u8]>>(
        &self,
        a: &mut Payload<F>,
        b: &Payload<F>,
    ) -> Result<bool, Error> {
        let codec = self.codec.homomorphic().ok_or(MISUSE)?;
        let Some(result) = codec.combine_in_place(&self.op, a.bytes_mut(), b.bytes()) else {
            return Ok(false);
        };
        a.has_header = false;
        a.operands += b.operands;
        result?;
        Ok(true)
    }

    pub(super) fn combine<F: AsRef<[u8]> + AsMut<[u8]>>(
        &self,
        a: &Payload<F>,
        b: &Payload<F>,
        mut frame: F,
        report: &mut Report,
    ) -> Result<Payload<F>, Error> {
        let codec = self.codec.homomorphic().ok_or(MISUSE)?;
        let written = codec.combine(&self.op, a.bytes(), b.bytes(), room(&mut frame))?;
        Ok(Payload::new(frame, written, a.operands + b.operands, report))
    }
}
