//! A call's buffers in a device's memory.

use super::call_spec::CallSpec;
use super::operands::Operands;
use super::{Call, Request, value_range};
use crate::bound::{FillSearch, Quantum, ValueRange};
use crate::codec::{CodecId, CodecParams, Pace};
use crate::device::{Device, DeviceCall, DeviceOp, DeviceSource, DeviceTarget, OnDevice, Region};
use crate::element::{Element, Float, with_float};
use crate::engine::{Coding, Compute, Payloads};
use crate::error::{Error, FillError};
use crate::fill::Fill;
use crate::handle::Progress;
use crate::kernel::{Level, sample};
use crate::layout::{Segment, Window};
use crate::plan::Plan;
use crate::primitive::{Primitive, Slot};
use crate::report::Report;
use crate::rounding::RoundingPass;
use crate::select::automatic::N_LOSSY;
use crate::transport::Rank;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use core::task::Poll;

/// Number of pieces of this rank's input that the host reads as a sample.
const N_SAMPLES: usize = 16;
/// Values in each of these pieces.
const SAMPLE: usize = 4096;

/// A call's buffers in a device's memory, and the device.
pub struct DeviceOperands<'d> {
    device: HeldDevice<'d>,
    window: Window,
    send: Region,
    recv: Region,
    call: DeviceCall,
    /// True if a computation of the last poll is pending.
    is_computing: bool,
    has_ended: bool,
    /// Error of the device before or between polls of the engine. The next poll ends the call with
    /// it, and tells the other ranks. Until then the call goes on with values that mean nothing.
    failure: Option<Error>,
    /// Buffers that the call owns, if nobody else keeps them.
    _kept: Option<Box<dyn Kept + 'd>>,
}

/// The device of a call.
pub(crate) enum HeldDevice<'d> {
    Lent(&'d mut dyn Device),
    Owned(Box<dyn Device + 'd>),
}

impl<'d> HeldDevice<'d> {
    fn get(&mut self) -> &mut (dyn Device + 'd) {
        match self {
            Self::Lent(device) => *device,
            Self::Owned(device) => &mut **device,
        }
    }
}

/// Anything, of an erased type.
trait Kept {}

impl<B> Kept for B {}

impl<'d> DeviceOperands<'d> {
    /// Lends the buffers of a call to it, and begins it on the device. Also returns the request
    /// that this rank makes, the plan that it follows (an automatic plan compresses with fz-light),
    /// and the buffers, which must live until the device has ended the call.
    pub(crate) fn of<'s, T, S, R>(
        call: Call<'s, T, S, R>,
        mut device: HeldDevice<'d>,
        rank: Rank,
        plan: &Plan,
    ) -> Result<(Request<'s>, Self, Plan, (S, R)), Error>
    where
        T: Element,
        S: OnDevice<T>,
        R: OnDevice<T>,
    {
        let (request, [send, recv], buffers) = call.into_regions(rank)?;
        let plan = match request.op {
            // No bound can be kept for these.
            op if plan.is_auto && op.needs_values() => plan.exactly(),
            _ => Plan { is_auto: false, ..*plan },
        };
        let Request { window, dtype, op, .. } = request;
        let send = if matches!(window, Window::Whole) { recv } else { send };
        let call = DeviceCall { dtype, op, params: CodecParams::new(Quantum::LOSSLESS) };
        let (is_computing, has_ended) = (false, false);
        let failure = device.get().begin().err();
        let work = Self {
            device,
            window,
            send,
            recv,
            call,
            is_computing,
            has_ended,
            failure,
            _kept: None,
        };
        let request = Request { lengths: work.lengths(), ..request };
        Ok((request, work, plan, buffers))
    }

    /// Keeps the buffers until the device has ended the call.
    pub(crate) fn keep<B: 'd>(&mut self, buffers: B) {
        self._kept = Some(Box::new(buffers));
    }

    /// Returns the numbers of values to send and of values in the buffer for results.
    const fn lengths(&self) -> [usize; 2] {
        let n_received = if matches!(self.window, Window::Input) { 0 } else { self.recv.n_values };
        [self.send.n_values, n_received]
    }

    /// Returns a range of a buffer. An empty range may lie outside it.
    fn within(&self, buffer: Region, range: Range<usize>) -> Result<Region, Error> {
        if range.is_empty() {
            return Ok(Region { n_values: 0, ..buffer });
        }
        if range.end > buffer.n_values {
            return Err(Error::Internal);
        }
        let address = buffer.address + (range.start * self.call.dtype.n_bytes()) as u64;
        Ok(Region { address, n_values: range.len() })
    }

    /// Returns what a pass found. If it failed, or the device failed before, keeps the error and
    /// returns `neutral`.
    fn unless_failed<V>(
        &mut self,
        neutral: V,
        pass: impl FnOnce(&mut Self) -> Result<V, Error>,
    ) -> V {
        if self.failure.is_some() {
            return neutral;
        }
        match pass(self) {
            Ok(found) => found,
            Err(error) => {
                self.failure = Some(error);
                neutral
            }
        }
    }

    fn own(&self, segment: &Segment) -> Result<Region, Error> {
        // In place both positions are the same wherever a step needs both.
        self.within(self.send, segment.in_input())
    }

    fn output(&self, segment: &Segment) -> Result<Region, Error> {
        match self.window {
            Window::Input if segment.len > 0 => Err(Error::Internal),
            _ => self.within(self.recv, segment.in_output()),
        }
    }

    /// Returns where a segment's local input and its result are.
    fn both(&self, segment: &Segment) -> Result<[Region; 2], Error> {
        let output = self.output(segment)?;
        let own = match self.window {
            Window::Whole => output,
            _ => self.own(segment)?,
        };
        Ok([own, output])
    }

    /// Returns the operation that carries out a primitive.
    fn op<'p>(
        &self,
        primitive: Primitive,
        payloads: &'p mut Payloads<'_>,
        segment: &Segment,
        divisor: u32,
    ) -> Result<DeviceOp<'p>, Error> {
        Ok(match primitive {
            Primitive::EncodeOwn { to, codec } => DeviceOp::Encode {
                values: DeviceSource::Own(self.own(segment)?),
                codec,
                to: payloads.buffer(to),
            },
            Primitive::EncodeStored { to, codec } => DeviceOp::Encode {
                values: DeviceSource::Partial(self.output(segment)?),
                codec,
                to: payloads.buffer(to),
            },
            Primitive::Transcode { from, to, codecs } => {
                let (payload, to) = payloads.to(from, to)?;
                match codecs {
                    [CodecId::Raw, codec] => {
                        DeviceOp::Encode { values: DeviceSource::Floats(payload), codec, to }
                    }
                    [codec, CodecId::Raw] => {
                        let to = DeviceTarget::Floats(to);
                        DeviceOp::Decode { payload, codec, divisor: 1, to }
                    }
                    _ => DeviceOp::Recode { payload, own: None, to },
                }
            }
            Primitive::Fold => {
                let (payload, to) = payloads.to(Slot::In, Slot::Out)?;
                DeviceOp::Fold { payload, own: self.own(segment)?, store: None, to }
            }
            Primitive::FoldStore => {
                let (payload, to) = payloads.to(Slot::In, Slot::Out)?;
                let [own, output] = self.both(segment)?;
                DeviceOp::Fold { payload, own, store: Some((output, divisor)), to }
            }
            Primitive::FoldInPlace => {
                DeviceOp::FoldFloats { floats: payloads.of_mut(Slot::In)?, own: self.own(segment)? }
            }
            Primitive::Refold => {
                let (payload, to) = payloads.to(Slot::In, Slot::Out)?;
                DeviceOp::Recode { payload, own: Some(self.own(segment)?), to }
            }
            Primitive::Combine { with } => {
                let (payloads, to) = payloads.both_to([Slot::In, with], Slot::Out)?;
                DeviceOp::Combine { payloads, to }
            }
            Primitive::CombineInPlace { with } => {
                let (payload, floats) = payloads.into(with, Slot::In)?;
                DeviceOp::Reduce { payload, codec: CodecId::Raw, floats }
            }
            Primitive::Reduce { into } => {
                let (payload, floats) = payloads.to(Slot::In, into)?;
                // The rest of the frame is of no use to the device.
                let n_bytes = segment.len * self.call.dtype.n_bytes();
                let floats = floats.get_mut(..n_bytes).ok_or(Error::Internal)?;
                let codec = self.call.params.codec;
                DeviceOp::Reduce { payload, codec, floats }
            }
            Primitive::ReduceStore { codec } => {
                let [own, to] = self.both(segment)?;
                let payload = payloads.of(Slot::In)?;
                DeviceOp::ReduceStore { payload, codec, own, divisor, to }
            }
            Primitive::Store { from, codec, .. } => {
                let to = DeviceTarget::Values(self.output(segment)?);
                DeviceOp::Decode { payload: payloads.of(from)?, codec, divisor, to }
            }
            Primitive::StoreWhole { from, codec, .. } => {
                let to = DeviceTarget::Values(self.output(segment)?);
                DeviceOp::Decode { payload: payloads.of(from)?, codec, divisor: 1, to }
            }
            Primitive::Divide => DeviceOp::Divide { values: self.output(segment)?, divisor },
            Primitive::StoreOwn => {
                let [from, to] = self.both(segment)?;
                DeviceOp::Copy { from, to }
            }
            // The lane itself carries these out.
            Primitive::Copy { .. }
            | Primitive::Move { .. }
            | Primitive::Join { .. }
            | Primitive::Replace { .. } => return Err(Error::Internal),
        })
    }

    /// Ends the call on the device. Calls `meanwhile` before each time that it asks.
    fn end(&mut self, meanwhile: &mut dyn FnMut()) -> Result<(), Error> {
        loop {
            meanwhile();
            if let Poll::Ready(ended) = self.device.get().poll_end() {
                return ended;
            }
        }
    }

    /// Copies a sample of a range of this rank's input to the host.
    fn sample<T: Element>(&mut self, own: Range<usize>) -> Result<Vec<T>, Error> {
        let own = self.within(self.send, own)?;
        let n = own.n_values.min(N_SAMPLES * SAMPLE);
        let mut values = alloc::vec![T::ZERO; n];
        let stride = own.n_values / N_SAMPLES;
        for (i, piece) in values.chunks_mut(SAMPLE).enumerate() {
            let start = if n < own.n_values { i * stride } else { i * SAMPLE };
            let from = self.within(own, start..start + piece.len())?;
            self.device.get().read(from, T::DTYPE, bytemuck::cast_slice_mut(piece))?;
        }
        Ok(values)
    }

    /// Searches a sample, and then all values if it looks suspicious and they are to be refused.
    fn search_fill<T: Float>(
        &mut self,
        own: Range<usize>,
        search: FillSearch,
        refuses: bool,
    ) -> Result<Option<f64>, Error> {
        let mut sampled = search;
        sampled.add(&self.sample::<T>(own.clone())?);
        if !refuses || !sampled.may_find() {
            return Ok(sampled.found());
        }
        let mut search = search;
        let mut values = alloc::vec![T::ZERO; own.len().min(N_SAMPLES * SAMPLE)];
        let own = self.within(self.send, own)?;
        for start in (0..own.n_values).step_by(values.len().max(1)) {
            let n = values.len().min(own.n_values - start);
            let piece = &mut values[..n];
            let from = self.within(own, start..start + n)?;
            self.device.get().read(from, T::DTYPE, bytemuck::cast_slice_mut(piece))?;
            search.add(piece);
        }
        Ok(search.found())
    }

    fn scan_floats<T: Float>(
        &mut self,
        own: Range<usize>,
    ) -> Result<[f64; value_range::N_VALUES], Error> {
        let values = self.within(self.send, own.clone())?;
        let [min, max] = self.device.get().value_range(values, T::DTYPE)?;
        let [grid, increment] = sample::grids(&self.sample::<T>(own)?);
        Ok([-min, max, -min, max, -grid, -increment])
    }
}

impl Drop for DeviceOperands<'_> {
    fn drop(&mut self) {
        // The device must end its work before its memory is freed.
        self.stop(&mut core::hint::spin_loop);
    }
}

impl Compute for DeviceOperands<'_> {
    fn compute(
        &mut self,
        lane: usize,
        primitive: Primitive,
        payloads: &mut Payloads<'_>,
        segment: &Segment,
        (coding, _): (&Coding, &dyn Pace),
        report: &mut Report,
    ) -> Poll<Result<(), Error>> {
        let op = self.op(primitive, payloads, segment, coding.divisor())?;
        let done = self.device.get().compute(lane, op, segment.len, &self.call);
        self.is_computing |= done.is_pending();
        let written = core::task::ready!(done)?;
        payloads.note(primitive, written, report);
        Poll::Ready(Ok(()))
    }

    fn begin_ahead(
        &mut self,
        lane: usize,
        encode: Primitive,
        segment: &Segment,
    ) -> Result<bool, Error> {
        let Primitive::EncodeOwn { codec, .. } = encode else { return Ok(false) };
        let own = self.own(segment)?;
        self.device.get().encode_ahead(lane, own, codec, &self.call)
    }
}

impl Operands for DeviceOperands<'_> {
    fn check(&mut self, spec: &CallSpec<'_>) -> Result<(), Error> {
        if spec.plan.fill.is_some() {
            return Err(FillError::Device.into());
        }
        let (codec, dtype, op) = (spec.plan.codec, spec.dtype, spec.op);
        let is_supported =
            self.unless_failed(true, |work| work.device.get().supports(codec, dtype, op));
        if is_supported && !spec.rounds_first {
            Ok(())
        } else {
            Err(Error::NotOnDevice { codec, dtype, op })
        }
    }

    fn may_replay(&self) -> bool {
        false
    }

    fn learn(&mut self, params: &CodecParams) {
        self.call.params = *params;
    }

    fn scan_values(
        &mut self,
        own: Range<usize>,
        _: Level,
        _: bool,
        _: Option<Fill>,
    ) -> Result<[f64; value_range::N_VALUES], Error> {
        // A device reads its memory so fast that a sample would save nothing.
        let unknown = [value_range::UNKNOWN; value_range::N_VALUES];
        Ok(with_float!(
            self.call.dtype, T => self.unless_failed(unknown, |work| work.scan_floats::<T>(own)),
            else unknown
        ))
    }

    fn estimate_bits(
        &mut self,
        own: Range<usize>,
        spec: &CallSpec<'_>,
        value_range: Option<ValueRange>,
        _: Option<Level>,
    ) -> Result<([f64; N_LOSSY], [u32; 2]), Error> {
        let unknown = ([value_range::UNKNOWN; N_LOSSY], [0; 2]);
        Ok(with_float!(
            self.call.dtype,
            T => self.unless_failed(unknown, |work| {
                let sample = work.sample::<T>(own)?;
                Ok(value_range::estimate_bits(spec, &sample, value_range, None))
            }),
            else unknown
        ))
    }

    fn suspect_fill(
        &mut self,
        own: Range<usize>,
        value_range: Option<ValueRange>,
        bound: f64,
        refuses: bool,
    ) -> Result<Option<f64>, Error> {
        let Some(range) = value_range.filter(|_| bound > 0.0) else { return Ok(None) };
        Ok(with_float!(
            self.call.dtype,
            T => self.unless_failed(None, |work| {
                work.search_fill::<T>(own, FillSearch::new(range, bound), refuses)
            }),
            else None
        ))
    }

    fn find_shape(&self, _: Range<usize>, params: CodecParams) -> CodecParams {
        params
    }

    fn round(&mut self, _: Range<usize>, _: &RoundingPass, _: Level) {
        // `check` refuses calls that begin with rounding.
    }

    fn move_to_front(&mut self, result: Range<usize>) -> Result<(), Error> {
        let from = self.within(self.recv, result)?;
        let to = Region { n_values: from.n_values, ..self.recv };
        let op = || DeviceOp::Copy { from, to };
        while self.device.get().compute(0, op(), from.n_values, &self.call)?.is_pending() {
            core::hint::spin_loop();
        }
        Ok(())
    }

    fn failure(&self) -> Option<Error> {
        self.failure
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.has_ended = true;
        self.end(&mut core::hint::spin_loop)
    }

    /// Asks for another poll at once if this one left a computation pending: no frame arrives when
    /// the device is done.
    fn after_poll(&mut self, progress: Progress) -> Result<Progress, Error> {
        let is_computing = core::mem::replace(&mut self.is_computing, false);
        Ok(match progress {
            Progress::Waiting if is_computing => Progress::Moved,
            progress => progress,
        })
    }

    fn stop(&mut self, meanwhile: &mut dyn FnMut()) {
        if !core::mem::replace(&mut self.has_ended, true) {
            // The call has failed already.
            let _ = self.end(meanwhile);
        }
    }
}
