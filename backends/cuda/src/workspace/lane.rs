//! One lane of a workspace: its streams and memory, and the operation under way.

mod ahead;

use super::WorkspaceConfig;
use super::streams::Streams;
use crate::driver::{Driver, OwnedMemory, PinnedPtr, Staging, Stream};
use crate::{DeviceBytes, DeviceCodec, DeviceError, DevicePtr, Outcome, Task};
use ahead::Ahead;
pub(super) use ahead::AheadMemory;
use foldwire::codec::{CodecId, CodecParams, Written};
use foldwire::device::{DeviceCall, DeviceOp, DeviceSource, DeviceTarget, Region};
use foldwire::op::OpCode;
use foldwire::transport::FRAME_ALIGN;
use foldwire::{DType, Error, Quantum};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are copied back with the outcome at least, because more copies cost more.
const MIN_GUESS: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) streams: Streams,
    /// Payloads, or floats, that an operation reads, from frames that are not locked.
    sent: [Staging; 2],
    on_device: [OwnedMemory; 2],
    /// Output of an operation.
    pub(super) written: OwnedMemory,
    /// Values between the tasks of an operation.
    values: OwnedMemory,
    pub(super) scratch: OwnedMemory,
    /// An outcome for each stream.
    outcomes: OwnedMemory,
    pub(super) received: Staging,
    /// The outcomes in host memory.
    reported: Staging,
    state: LaneState,
    /// Encodes that were begun ahead, in the order in which the lane will ask for them.
    ahead: VecDeque<Ahead>,
    /// Bytes of the last payload.
    last: usize,
}

#[derive(Clone, Debug, Default)]
enum LaneState {
    #[default]
    Idle,
    /// The operation's kernels and copies are enqueued.
    Running(Running),
    /// The rest of the payload is on the way.
    Receiving(Written, Landing, Option<Range<usize>>),
}

/// An operation under way. Copies of `n_received` bytes of what it writes to the host, from address
/// `from` on, are enqueued, too.
#[derive(Clone, Debug)]
struct Running {
    stream: usize,
    from: DevicePtr,
    n_received: usize,
    output: Output,
    to: Landing,
    /// Piece of the memory for encodes that are begun ahead, if this is one.
    piece: Option<Range<usize>>,
}

/// Where the host's part of a result is copied.
#[derive(Clone, Copy, Debug)]
enum Landing {
    /// To the lane's pinned memory, and from there to the frame.
    Staging,
    /// To the frame at once, because its pages are locked.
    Frame(PinnedPtr),
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

impl Lane {
    pub(super) fn new(
        driver: &Arc<dyn Driver>,
        config: WorkspaceConfig,
    ) -> Result<Self, DeviceError> {
        let frame_bytes = config.frame_bytes;
        let memory = |n_bytes| OwnedMemory::new(driver, n_bytes);
        let staging = |n_bytes| Staging::new(driver, n_bytes);
        // A segment's uncompressed values fit a frame, too.
        let scratch = most_scratch_bytes(frame_bytes, DeviceCodec::scratch_bytes);
        let streams = Streams::new(driver, config)?;
        let outcome_bytes = streams.len() * size_of::<Outcome>();
        Ok(Self {
            streams,
            sent: [staging(frame_bytes)?, staging(frame_bytes)?],
            on_device: [memory(frame_bytes)?, memory(frame_bytes)?],
            written: memory(frame_bytes)?,
            values: memory(frame_bytes)?,
            scratch: memory(scratch)?,
            outcomes: memory(outcome_bytes)?,
            received: staging(frame_bytes)?,
            reported: staging(outcome_bytes)?,
            state: LaneState::Idle,
            ahead: VecDeque::new(),
            last: 0,
        })
    }

    /// The stream on which operations run in order.
    pub(super) const fn stream(&self) -> &Stream {
        self.streams.own()
    }

    /// Copies bytes of a frame to the device. An operation reads at most two.
    fn send(&mut self, place: usize, bytes: &[u8]) -> Result<DeviceBytes, DeviceError> {
        let ptr = self.on_device[place].ptr;
        self.sent[place].send_kept(bytes, self.streams.own(), ptr)?;
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
        let outcome = self.outcome(0);
        codec.enqueue(&mut self.streams, op, task, n_values, scratch, outcome)
    }

    /// Address of a stream's outcome.
    fn outcome(&self, stream: usize) -> DevicePtr {
        self.outcomes.ptr.offset(stream * size_of::<Outcome>())
    }

    /// Enqueues the copy of a stream's outcome, and marks the end of its work so far.
    fn report(&mut self, stream: usize) -> Result<(), DeviceError> {
        let (from, start) = (self.outcome(stream), stream * size_of::<Outcome>());
        let on = self.streams.at(stream);
        self.reported.receive(on, from, start, size_of::<Outcome>())?;
        on.mark()
    }

    pub(super) fn copy(
        &self,
        from: DevicePtr,
        to: DevicePtr,
        n_bytes: usize,
    ) -> Result<(), DeviceError> {
        self.stream().copy(from, to, n_bytes)
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
        // Only a copy within the device may be longer than a frame.
        if n_bytes > self.values.n_bytes && !matches!(op, DeviceOp::Copy { .. }) {
            return Err(DeviceError::Capacity { need: n_bytes, have: self.values.n_bytes });
        }
        self.stream().clear(self.outcome(0), size_of::<Outcome>())?;
        Ok(match op {
            DeviceOp::Encode { values, codec, .. } => {
                let (own, weighted) = match values {
                    DeviceSource::Own(own) => (at(*own, dtype)?, false),
                    DeviceSource::Partial(values) => (at(*values, dtype)?, true),
                    DeviceSource::Floats(bytes) => (self.send(0, bytes)?.ptr, true),
                };
                let codec = codecs.of(*codec);
                let task = Task::Encode { own, weighted, dst };
                self.enqueue(codec, reduction, &task, n)?;
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
        op: &mut DeviceOp<'_>,
        n_values: usize,
        call: &DeviceCall,
    ) -> Result<(), DeviceError> {
        let (from, output) = self.begin(op, n_values, call)?;
        let (to, have) = match output_of(op) {
            Some(frame) => self.landing(frame),
            None => (Landing::Staging, self.received.n_bytes()),
        };
        let n_received = match output {
            Output::Nothing => 0,
            Output::Floats(n_bytes) => n_bytes,
            Output::Payload => {
                let guess = (self.last + self.last / 8).max(MIN_GUESS);
                guess.min(have).min(self.written.n_bytes)
            }
        };
        self.receive(from, to, 0, n_received)?;
        self.report(0)?;
        let (stream, piece) = (0, None);
        self.state = LaneState::Running(Running { stream, from, n_received, output, to, piece });
        Ok(())
    }

    /// Returns where a result for this part of a frame is copied, and how much fits there.
    fn landing(&self, frame: &mut [u8]) -> (Landing, usize) {
        let place = PinnedPtr(frame.as_mut_ptr().expose_provenance() as u64);
        if self.stream().driver().is_locked(place, frame.len()) {
            (Landing::Frame(place), frame.len())
        } else {
            (Landing::Staging, self.received.n_bytes())
        }
    }

    /// Enqueues a copy of a result to the bytes from number `start` on.
    fn receive(
        &mut self,
        from: DevicePtr,
        to: Landing,
        start: usize,
        n_bytes: usize,
    ) -> Result<(), DeviceError> {
        if n_bytes == 0 {
            // An empty array may be anywhere.
            return Ok(());
        }
        match to {
            Landing::Staging => self.received.receive(self.streams.own(), from, start, n_bytes),
            Landing::Frame(to) => self.stream().copy_out(from, to.offset(start), n_bytes),
        }
    }

    /// Takes the result of an operation, once it has happened. `None` if a copy is still missing.
    fn finish(
        &mut self,
        running: Running,
        frame: Option<&mut [u8]>,
        dtype: DType,
        memory: &mut AheadMemory,
    ) -> Result<Option<Written>, ComputeError> {
        let Running { stream, from, n_received, output, to, piece } = running;
        let (mut outcome, place) = (Outcome::default(), stream * size_of::<Outcome>());
        self.reported.read(place, bytemuck::bytes_of_mut(&mut outcome))?;
        let mut written =
            outcome.result(dtype).map_err(|error| ComputeError::Call(error.into()))?;
        match output {
            Output::Nothing => written.n_bytes = 0,
            Output::Floats(n_bytes) => written.n_bytes = n_bytes,
            Output::Payload => {
                self.last = written.n_bytes;
                check_room(frame.as_deref(), written)?;
                if written.n_bytes > n_received {
                    let rest = written.n_bytes - n_received;
                    self.receive(from.offset(n_received), to, n_received, rest)?;
                    self.stream().mark()?;
                    self.state = LaneState::Receiving(written, to, piece);
                    return Ok(None);
                }
            }
        }
        Self::end_ahead(piece, memory);
        self.take(frame, written, to)?;
        Ok(Some(written))
    }

    /// Copies what was received into a frame, unless it is there.
    fn take(
        &self,
        frame: Option<&mut [u8]>,
        written: Written,
        to: Landing,
    ) -> Result<(), ComputeError> {
        match (frame, to) {
            (Some(frame), Landing::Staging) => {
                check_room(Some(frame), written)?;
                Ok(self.received.read(0, &mut frame[..written.n_bytes])?)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn poll(
        &mut self,
        mut op: DeviceOp<'_>,
        n_values: usize,
        call: &DeviceCall,
        memory: &mut AheadMemory,
    ) -> Result<Option<Written>, ComputeError> {
        if matches!(self.state, LaneState::Idle) && !self.claim(&mut op, memory) {
            self.start(&mut op, n_values, call)?;
            return Ok(None);
        }
        let stream = if let LaneState::Running(running) = &self.state { running.stream } else { 0 };
        if !self.streams.at(stream).is_done()? {
            return Ok(None);
        }
        let frame = output_of(&mut op);
        match std::mem::take(&mut self.state) {
            LaneState::Running(running) => self.finish(running, frame, call.dtype, memory),
            LaneState::Receiving(written, to, piece) => {
                Self::end_ahead(piece, memory);
                self.take(frame, written, to).map(|()| Some(written))
            }
            LaneState::Idle => Ok(None),
        }
    }

    /// Returns whether something is under way that nobody has waited for.
    pub(super) fn is_busy(&self) -> bool {
        !matches!(self.state, LaneState::Idle) || !self.ahead.is_empty()
    }

    /// Forgets what is under way, which has ended.
    pub(super) fn forget(&mut self) {
        self.state = LaneState::Idle;
        self.ahead.clear();
        self.streams.all_mut().for_each(Stream::forget_end);
    }
}

/// Checks that what was written fits its part of a frame.
fn check_room(frame: Option<&[u8]>, written: Written) -> Result<(), DeviceError> {
    let (need, have) = (written.n_bytes, frame.map_or(usize::MAX, <[u8]>::len));
    if need > have { Err(DeviceError::Capacity { need, have }) } else { Ok(()) }
}

/// Error of an operation: of its payloads, or of the device.
pub(super) enum ComputeError {
    Call(Error),
    Device(DeviceError),
}

impl From<DeviceError> for ComputeError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// Returns the part of a frame to which an operation writes.
fn output_of<'p>(op: &'p mut DeviceOp<'_>) -> Option<&'p mut [u8]> {
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

/// Returns the bytes of memory for encodes that lanes begin ahead: the payloads of as many frames
/// as `config` says, and what their kernels need.
pub(super) fn ahead_bytes(config: WorkspaceConfig) -> usize {
    let WorkspaceConfig { frame_bytes, ahead_frames, n_streams, .. } = config;
    if ahead_frames == 0 || n_streams < 2 {
        return 0;
    }
    let scratch = |n_bytes| most_scratch_bytes(n_bytes, DeviceCodec::encode_scratch_bytes);
    // A short part of a message takes a whole chunk, and both of its pieces begin at multiples.
    let n_each = scratch(size_of::<f64>()) + 2 * FRAME_ALIGN;
    ahead_frames * (frame_bytes + scratch(frame_bytes)) + n_streams * n_each
}

/// Returns the most scratch memory that any codec needs for values that fit this many bytes.
fn most_scratch_bytes(n_bytes: usize, of: impl Fn(&DeviceCodec, usize) -> usize) -> usize {
    let params = CodecParams::new(Quantum::LOSSLESS);
    let floats = [DType::F32, DType::F64, DType::F16, DType::Bf16];
    let codecs =
        floats.into_iter().flat_map(|dtype| CodecId::ALL.iter().map(move |id| (dtype, *id)));
    let scratch = codecs.filter_map(|(dtype, id)| {
        let codec = DeviceCodec::new(dtype, id, &params)?;
        Some(of(&codec, n_bytes / dtype.n_bytes()))
    });
    scratch.max().unwrap_or(0)
}

/// Returns the address of values, which must be a multiple of their size.
pub(super) fn at(values: Region, dtype: DType) -> Result<DevicePtr, DeviceError> {
    let (address, alignment) = (values.address, dtype.n_bytes() as u64);
    if values.n_values > 0 && !address.is_multiple_of(alignment) {
        return Err(DeviceError::Misaligned { address, alignment });
    }
    Ok(DevicePtr(address))
}
