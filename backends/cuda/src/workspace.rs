//! A rank's share of a device: streams and memory for the lanes of its calls, made once.
//!
//! For each operation a lane copies the payloads it needs to the device, enqueues kernels, and
//! copies what they wrote back: everything in order on the lane's own stream, so lanes overlap
//! copies with kernels (MPC-OPT's partitions on several streams). The engine asks again until the
//! last copy is done. Frames are not touched meanwhile: bytes pass through pinned memory of the
//! workspace, one copy of *compressed* bytes each way.
//!
//! The length of a payload is known only when the kernels are done. Copying back as many bytes as
//! the lane's previous payload had, and an eighth more, mostly saves a second copy.

use crate::driver::{Driver, EventId, OwnedMemory, Staging, Stream, StreamId};
use crate::{DeviceBytes, DeviceCodec, DeviceError, DevicePtr, Outcome, Task, range, self_check};
use foldwire::codec::{CodecId, Written};
use foldwire::device::{Device, DeviceCall, DeviceOp, DeviceSource, DeviceTarget, Region};
use foldwire::op::OpCode;
use foldwire::transport::Transport;
use foldwire::{Communicator, DType, Error, Quantum, codec::CodecParams};
use std::sync::Arc;
use std::task::Poll;

/// Bytes that are copied back with the outcome at least, because more copies cost more.
const MIN_GUESS: usize = 64 << 10;

/// Sizes of a [`Workspace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkspaceConfig {
    /// Number of lanes: the most operations under way at a time.
    pub n_lanes: usize,
    /// Bytes of a frame of the transport.
    pub frame_bytes: usize,
}

/// Streams and memory on a device for the calls of one communicator. Implements [`Device`].
///
/// A lane takes about 12 times `frame_bytes` of device memory and 5 times of pinned memory. All of
/// it is allocated when the workspace is made.
#[derive(Debug)]
pub struct Workspace {
    driver: Arc<dyn Driver>,
    lanes: Vec<Lane>,
    /// The stream on which the caller uses the buffers, if it told one.
    caller: Option<StreamId>,
    /// For waits between the caller's stream and those of lanes.
    event: EventId,
    last_error: Option<DeviceError>,
    /// True if an operation of the call has failed. What it had enqueued may still run.
    has_failed: bool,
    /// Kernels whose bytes equal the host's.
    checked: Vec<(CodecId, DType)>,
}

#[derive(Debug)]
struct Lane {
    stream: Stream,
    /// Payloads, or floats, that an operation reads.
    sent: [Staging; 2],
    on_device: [OwnedMemory; 2],
    /// Output of an operation.
    written: OwnedMemory,
    /// Values between the tasks of an operation.
    values: OwnedMemory,
    scratch: OwnedMemory,
    outcome: OwnedMemory,
    received: Staging,
    reported: Staging,
    state: LaneState,
    /// Bytes of the last payload.
    last: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum LaneState {
    #[default]
    Idle,
    /// The operation's kernels and copies are enqueued. `n_received` bytes of what it writes to the
    /// host, from this address on, are among the copies.
    Running { from: DevicePtr, n_received: usize, output: Output },
    /// The rest of the payload is on the way.
    Receiving(Written),
}

/// Result of an operation in host memory.
#[derive(Clone, Copy, Debug)]
enum Output {
    /// Nothing.
    Nothing,
    /// A payload, as long as the outcome says.
    Payload,
    /// This many bytes of floats.
    Floats(usize),
}

/// Codecs of a call: its own, and raw.
struct Codecs {
    own: DeviceCodec,
    raw: DeviceCodec,
}

impl Codecs {
    fn new(call: &DeviceCall) -> Result<Self, DeviceError> {
        let codec = |id| {
            DeviceCodec::new(call.dtype, id, &call.params)
                .ok_or(DeviceError::Unsupported { what: "the codec, for values of this type" })
        };
        Ok(Self { own: codec(call.params.codec())?, raw: codec(CodecId::Raw)? })
    }

    fn of(&self, id: CodecId) -> &DeviceCodec {
        if id == self.own.id() { &self.own } else { &self.raw }
    }
}

impl Workspace {
    /// Makes the workspace for the calls of a communicator.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], or if the device fails.
    pub fn new<X: Transport>(
        driver: &Arc<dyn Driver>,
        comm: &Communicator<X>,
    ) -> Result<Self, DeviceError> {
        let (n_lanes, frame_bytes) = (comm.n_lanes(), comm.transport().frame_capacity());
        Self::with_config(driver, WorkspaceConfig { n_lanes, frame_bytes })
    }

    /// Makes a workspace of these sizes.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], or if the device fails.
    pub fn with_config(
        driver: &Arc<dyn Driver>,
        config: WorkspaceConfig,
    ) -> Result<Self, DeviceError> {
        let lane = |_| {
            let lane = Lane::new(driver, config.frame_bytes)?;
            // Guesses may copy back more than kernels wrote.
            lane.stream.clear(lane.written.ptr, lane.written.n_bytes)?;
            lane.stream.finish().map(|()| lane)
        };
        let lanes = (0..config.n_lanes).map(lane).collect::<Result<_, _>>()?;
        let event = driver.new_event()?;
        Ok(Self {
            driver: Arc::clone(driver),
            lanes,
            caller: None,
            event,
            last_error: None,
            has_failed: false,
            checked: Vec::new(),
        })
    }

    /// Sets the stream on which the caller uses the buffers of calls, such as torch's current
    /// stream. A call then waits for what this stream has to do when the call begins, and the
    /// stream waits for the call's kernels. Without it, buffers must be ready when a call begins.
    pub fn set_stream(&mut self, stream: Option<StreamId>) {
        self.caller = stream;
    }

    /// Copies bytes within the device before a call, in the order of the caller's stream. The
    /// ranges do not overlap.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails.
    pub fn copy(&self, from: DevicePtr, to: DevicePtr, n_bytes: usize) -> Result<(), DeviceError> {
        match (self.caller, self.lanes.first()) {
            (Some(caller), _) => self.driver.copy_within(caller, from, to, n_bytes),
            (None, Some(lane)) => {
                lane.copy(from, to, n_bytes)?;
                lane.stream.finish()
            }
            (None, None) => Err(DeviceError::Capacity { need: 1, have: 0 }),
        }
    }

    /// Returns the error behind the latest [`Error::Device`], with the driver's words.
    #[must_use]
    pub fn last_error(&self) -> Option<&DeviceError> {
        self.last_error.as_ref()
    }

    /// Keeps an error's details, and returns it as a call reports it.
    fn report(&mut self, error: DeviceError) -> Error {
        let kind = error.kind();
        (self.last_error, self.has_failed) = (Some(error), true);
        Error::Device { kind }
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.lanes.iter().try_for_each(|lane| lane.stream.finish())
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // Running operations use the lanes' memory. An error leaves none running.
        let _ = self.synchronize();
        self.driver.end_event(self.event);
    }
}

impl Lane {
    fn new(driver: &Arc<dyn Driver>, frame_bytes: usize) -> Result<Self, DeviceError> {
        let memory = |n_bytes| OwnedMemory::new(driver, n_bytes);
        let staging = |n_bytes| Staging::new(driver, n_bytes);
        // A segment's uncompressed values fit a frame, too.
        let scratch = most_scratch_bytes(frame_bytes);
        Ok(Self {
            stream: Stream::new(driver)?,
            sent: [staging(frame_bytes)?, staging(frame_bytes)?],
            on_device: [memory(frame_bytes)?, memory(frame_bytes)?],
            written: memory(frame_bytes)?,
            values: memory(frame_bytes)?,
            scratch: memory(scratch)?,
            outcome: memory(size_of::<Outcome>())?,
            received: staging(frame_bytes)?,
            reported: staging(size_of::<Outcome>())?,
            state: LaneState::Idle,
            last: 0,
        })
    }

    /// Copies bytes of a frame to the device. An operation reads at most two.
    fn send(&mut self, place: usize, bytes: &[u8]) -> Result<DeviceBytes, DeviceError> {
        let ptr = self.on_device[place].ptr;
        self.sent[place].send(bytes, &self.stream, ptr)?;
        Ok(DeviceBytes { ptr, n_bytes: bytes.len() })
    }

    fn written(&self) -> DeviceBytes {
        DeviceBytes { ptr: self.written.ptr, n_bytes: self.written.n_bytes }
    }

    fn enqueue(
        &mut self,
        codec: &DeviceCodec,
        op: OpCode,
        task: &Task,
        n_values: usize,
    ) -> Result<(), DeviceError> {
        let scratch = DeviceBytes { ptr: self.scratch.ptr, n_bytes: self.scratch.n_bytes };
        codec.enqueue(&mut self.stream, op, task, n_values, scratch, self.outcome.ptr)
    }

    fn copy(&self, from: DevicePtr, to: DevicePtr, n_bytes: usize) -> Result<(), DeviceError> {
        self.stream.copy(from, to, n_bytes)
    }

    /// Enqueues an operation on `n` values. Returns where on the device its output for the host is.
    fn begin(
        &mut self,
        op: &DeviceOp<'_>,
        n: usize,
        call: &DeviceCall,
    ) -> Result<(DevicePtr, Output), DeviceError> {
        let (codecs, reduction, dtype) = (Codecs::new(call)?, call.op, call.dtype);
        let n_bytes = n * dtype.n_bytes();
        let (values, dst) = (self.values.ptr, self.written());
        let floats = Output::Floats(n_bytes);
        if n_bytes > self.values.n_bytes {
            return Err(DeviceError::Capacity { need: n_bytes, have: self.values.n_bytes });
        }
        self.stream.clear(self.outcome.ptr, size_of::<Outcome>())?;
        Ok(match op {
            DeviceOp::Encode { values, codec, .. } => {
                let (own, weighted) = match values {
                    DeviceSource::Own(own) => (at(*own, dtype)?, false),
                    DeviceSource::Partial(values) => (at(*values, dtype)?, true),
                    DeviceSource::Floats(bytes) => (self.send(0, bytes)?.ptr, true),
                };
                let task = Task::Encode { own, weighted, dst };
                self.enqueue(codecs.of(*codec), reduction, &task, n)?;
                (dst.ptr, Output::Payload)
            }
            DeviceOp::Decode { payload, codec, divisor, to } => {
                let src = self.send(0, payload)?;
                let (dst, output) = match to {
                    DeviceTarget::Values(to) => (at(*to, dtype)?, Output::Nothing),
                    DeviceTarget::Floats(_) => (values, floats),
                };
                let task = Task::Decode { src, divisor: *divisor, dst };
                self.enqueue(codecs.of(*codec), reduction, &task, n)?;
                (dst, output)
            }
            DeviceOp::Fold { payload, own, store, .. } => {
                let src = self.send(0, payload)?;
                let store = match store {
                    Some((to, divisor)) => Some((at(*to, dtype)?, *divisor)),
                    None => None,
                };
                let task = Task::Fold { src, own: at(*own, dtype)?, dst, store };
                self.enqueue(&codecs.own, reduction, &task, n)?;
                (dst.ptr, Output::Payload)
            }
            DeviceOp::Recode { payload, own, .. } => {
                let src = self.send(0, payload)?;
                let own = own.map(|own| at(own, dtype)).transpose()?;
                self.enqueue(&codecs.own, reduction, &Task::Recode { src, own, dst }, n)?;
                (dst.ptr, Output::Payload)
            }
            DeviceOp::Combine { payloads: [a, b], .. } => {
                let (a, b) = (self.send(0, a)?, self.send(1, b)?);
                self.enqueue(&codecs.own, reduction, &Task::Combine { a, b, dst }, n)?;
                (dst.ptr, Output::Payload)
            }
            DeviceOp::FoldFloats { floats: src, own } => {
                let src = self.send(0, src)?;
                let task = Task::Fold { src, own: at(*own, dtype)?, dst, store: None };
                self.enqueue(&codecs.raw, reduction, &task, n)?;
                (dst.ptr, floats)
            }
            DeviceOp::Reduce { payload, codec, floats: acc } => {
                let (src, acc) = (self.send(0, payload)?, self.send(1, acc)?.ptr);
                let task = Task::Reduce { src, acc };
                self.enqueue(codecs.of(*codec), reduction, &task, n)?;
                (acc, floats)
            }
            DeviceOp::ReduceStore { payload, codec, own, divisor, to } => {
                let src = self.send(0, payload)?;
                let (own, to) = (at(*own, dtype)?, at(*to, dtype)?);
                let acc = DeviceBytes { ptr: values, n_bytes: self.values.n_bytes };
                let weighted = Task::Encode { own, weighted: false, dst: acc };
                self.enqueue(&codecs.raw, reduction, &weighted, n)?;
                let reduced = Task::Reduce { src, acc: values };
                self.enqueue(codecs.of(*codec), reduction, &reduced, n)?;
                let divided = Task::Divide { acc: values, divisor: *divisor };
                self.enqueue(&codecs.raw, reduction, &divided, n)?;
                self.copy(values, to, n_bytes)?;
                (to, Output::Nothing)
            }
            DeviceOp::Divide { values, divisor } => {
                let acc = at(*values, dtype)?;
                let task = Task::Divide { acc, divisor: *divisor };
                self.enqueue(&codecs.raw, reduction, &task, n)?;
                (acc, Output::Nothing)
            }
            DeviceOp::Copy { from, to } => {
                let (from, to) = (at(*from, dtype)?, at(*to, dtype)?);
                self.move_values(from, to, n_bytes)?;
                (to, Output::Nothing)
            }
        })
    }

    /// Copies values within the device. The ranges may overlap.
    fn move_values(
        &self,
        from: DevicePtr,
        to: DevicePtr,
        n_bytes: usize,
    ) -> Result<(), DeviceError> {
        if from == to || n_bytes == 0 {
            return Ok(());
        }
        if from.0.abs_diff(to.0) >= n_bytes as u64 {
            return self.copy(from, to, n_bytes);
        }
        // Through other memory, piece by piece, in the order in which nothing is lost.
        let piece = self.values.n_bytes;
        let starts: Vec<usize> = (0..n_bytes).step_by(piece).collect();
        let through = |&start: &usize| {
            let n = piece.min(n_bytes - start);
            self.copy(from.offset(start), self.values.ptr, n)?;
            self.copy(self.values.ptr, to.offset(start), n)
        };
        if to.0 < from.0 {
            starts.iter().try_for_each(through)
        } else {
            starts.iter().rev().try_for_each(through)
        }
    }

    /// Starts an operation and the copies of what it writes.
    fn start(
        &mut self,
        op: &DeviceOp<'_>,
        n_values: usize,
        call: &DeviceCall,
    ) -> Result<(), DeviceError> {
        let (from, output) = self.begin(op, n_values, call)?;
        let n_received = match output {
            Output::Nothing => 0,
            Output::Floats(n_bytes) => n_bytes,
            Output::Payload => {
                let guess = (self.last + self.last / 8).max(MIN_GUESS);
                guess.min(self.received.n_bytes()).min(self.written.n_bytes)
            }
        };
        self.received.receive(&self.stream, from, 0, n_received)?;
        let outcome = self.outcome.ptr;
        self.reported.receive(&self.stream, outcome, 0, size_of::<Outcome>())?;
        self.stream.mark()?;
        self.state = LaneState::Running { from, n_received, output };
        Ok(())
    }

    /// Takes the result of an operation, once it has happened. `None` if a copy is still missing.
    fn finish(
        &mut self,
        (from, n_received, output): (DevicePtr, usize, Output),
        to: Option<&mut [u8]>,
        dtype: DType,
    ) -> Result<Option<Written>, ComputeError> {
        let mut outcome = Outcome::default();
        self.reported.read(bytemuck::bytes_of_mut(&mut outcome))?;
        let mut written =
            outcome.result(dtype).map_err(|error| ComputeError::Call(error.into()))?;
        match output {
            Output::Nothing => written.n_bytes = 0,
            Output::Floats(n_bytes) => written.n_bytes = n_bytes,
            Output::Payload => {
                self.last = written.n_bytes;
                if written.n_bytes > n_received {
                    let rest = written.n_bytes - n_received;
                    let from = from.offset(n_received);
                    self.received.receive(&self.stream, from, n_received, rest)?;
                    self.stream.mark()?;
                    self.state = LaneState::Receiving(written);
                    return Ok(None);
                }
            }
        }
        self.take(to, written)?;
        Ok(Some(written))
    }

    /// Copies what was received into a frame.
    fn take(&self, to: Option<&mut [u8]>, written: Written) -> Result<(), ComputeError> {
        let Some(to) = to else { return Ok(()) };
        let have = to.len();
        let need = written.n_bytes;
        let to = to.get_mut(..need).ok_or(DeviceError::Capacity { need, have })?;
        Ok(self.received.read(to)?)
    }

    fn poll(
        &mut self,
        op: DeviceOp<'_>,
        n_values: usize,
        call: &DeviceCall,
    ) -> Result<Option<Written>, ComputeError> {
        if matches!(self.state, LaneState::Idle) {
            self.start(&op, n_values, call)?;
            return Ok(None);
        }
        if !self.stream.is_done()? {
            return Ok(None);
        }
        let to = output_of(op);
        match std::mem::take(&mut self.state) {
            LaneState::Running { from, n_received, output } => {
                self.finish((from, n_received, output), to, call.dtype)
            }
            LaneState::Receiving(written) => self.take(to, written).map(|()| Some(written)),
            LaneState::Idle => Ok(None),
        }
    }
}

/// Error of an operation: of its payloads, or of the device.
enum ComputeError {
    Call(Error),
    Device(DeviceError),
}

impl From<DeviceError> for ComputeError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// Returns the part of a frame to which an operation writes.
fn output_of(op: DeviceOp<'_>) -> Option<&mut [u8]> {
    match op {
        DeviceOp::Encode { to, .. }
        | DeviceOp::Fold { to, .. }
        | DeviceOp::Recode { to, .. }
        | DeviceOp::Combine { to, .. }
        | DeviceOp::Decode { to: DeviceTarget::Floats(to), .. }
        | DeviceOp::FoldFloats { floats: to, .. }
        | DeviceOp::Reduce { floats: to, .. } => Some(to),
        _ => None,
    }
}

/// Returns the most scratch memory that any codec needs for values that fit a frame.
fn most_scratch_bytes(frame_bytes: usize) -> usize {
    let params = CodecParams::new(Quantum::LOSSLESS);
    let floats = [DType::F32, DType::F64, DType::F16, DType::Bf16];
    let codecs =
        floats.into_iter().flat_map(|dtype| CodecId::ALL.iter().map(move |id| (dtype, *id)));
    let scratch = codecs.filter_map(|(dtype, id)| {
        let codec = DeviceCodec::new(dtype, id, &params)?;
        Some(codec.scratch_bytes(frame_bytes / dtype.n_bytes()))
    });
    scratch.max().unwrap_or(0)
}

/// Returns the address of values, which must be a multiple of their size.
fn at(values: Region, dtype: DType) -> Result<DevicePtr, DeviceError> {
    let (address, alignment) = (values.address, dtype.n_bytes() as u64);
    if values.n_values > 0 && !address.is_multiple_of(alignment) {
        return Err(DeviceError::Misaligned { address, alignment });
    }
    Ok(DevicePtr(address))
}

impl Device for Workspace {
    fn supports(&mut self, codec: CodecId, dtype: DType, op: OpCode) -> Result<bool, Error> {
        let params = CodecParams::new(Quantum::LOSSLESS);
        if op == OpCode::User || DeviceCodec::new(dtype, codec, &params).is_none() {
            return Ok(false);
        }
        for kernels in [(codec, dtype), (CodecId::Raw, dtype)] {
            if !self.checked.contains(&kernels) {
                self_check::check(&self.driver, kernels.0, dtype)
                    .map_err(|error| self.report(error))?;
                self.checked.push(kernels);
            }
        }
        Ok(true)
    }

    fn begin(&mut self) -> Result<(), Error> {
        let Some(caller) = self.caller else { return Ok(()) };
        let begun = self.driver.record(caller, self.event).and_then(|()| {
            self.lanes
                .iter()
                .try_for_each(|lane| self.driver.wait_for(lane.stream.id(), self.event))
        });
        begun.map_err(|error| self.report(error))
    }

    fn compute(
        &mut self,
        lane: usize,
        op: DeviceOp<'_>,
        n_values: usize,
        call: &DeviceCall,
    ) -> Poll<Result<Written, Error>> {
        let n_lanes = self.lanes.len();
        let Some(lane) = self.lanes.get_mut(lane) else {
            let error = DeviceError::Capacity { need: lane + 1, have: n_lanes };
            return Poll::Ready(Err(self.report(error)));
        };
        match lane.poll(op, n_values, call) {
            Ok(Some(written)) => Poll::Ready(Ok(written)),
            Ok(None) => Poll::Pending,
            Err(ComputeError::Call(error)) => Poll::Ready(Err(error)),
            Err(ComputeError::Device(error)) => Poll::Ready(Err(self.report(error))),
        }
    }

    fn read(&mut self, values: Region, dtype: DType, to: &mut [u8]) -> Result<(), Error> {
        let read = at(values, dtype).and_then(|from| {
            let lane = self.lanes.first_mut().ok_or(DeviceError::Capacity { need: 1, have: 0 })?;
            let mut start = 0;
            for piece in to.chunks_mut(lane.received.n_bytes()) {
                lane.received.receive(&lane.stream, from.offset(start), 0, piece.len())?;
                lane.stream.finish()?;
                lane.received.read(piece)?;
                start += piece.len();
            }
            Ok(())
        });
        read.map_err(|error| self.report(error))
    }

    fn value_range(&mut self, values: Region, dtype: DType) -> Result<[f64; 2], Error> {
        let found = at(values, dtype).and_then(|from| {
            let lane = self.lanes.first_mut().ok_or(DeviceError::Capacity { need: 1, have: 0 })?;
            let parts = DeviceBytes { ptr: lane.scratch.ptr, n_bytes: lane.scratch.n_bytes };
            let n_parts = range::enqueue(&mut lane.stream, dtype, from, values.n_values, parts)?;
            let mut extremes = vec![[0_f64; 2]; n_parts];
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut extremes);
            lane.received.receive(&lane.stream, parts.ptr, 0, bytes.len())?;
            lane.stream.finish()?;
            lane.received.read(bytes)?;
            let none = [f64::INFINITY, f64::NEG_INFINITY];
            Ok(extremes.into_iter().fold(none, |[min, max], [a, b]| [min.min(a), max.max(b)]))
        });
        found.map_err(|error| self.report(error))
    }

    fn end(&mut self) -> Result<(), Error> {
        let is_busy = |lane: &Lane| !matches!(lane.state, LaneState::Idle);
        let mut ended = Ok(());
        // A call that failed left operations under way.
        if std::mem::take(&mut self.has_failed) || self.lanes.iter().any(is_busy) {
            ended = self.synchronize();
            self.lanes.iter_mut().for_each(|lane| lane.state = LaneState::Idle);
        }
        ended.map_err(|error| self.report(error))
    }
}
