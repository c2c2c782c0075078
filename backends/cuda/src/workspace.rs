//! A rank's share of a device: streams and memory for the lanes of its calls, made once.
//!
//! For each operation a lane copies the payloads it needs to the device, enqueues kernels, and
//! copies what they wrote back: everything in order on the lane's own stream, so lanes overlap
//! copies with kernels. A lane has more streams for encodes: those of a message's parts and of the
//! next messages run at the same time ([`Device::encode_ahead`], gZCCL's scatter), and so do the
//! partitions of a long one (MPC-OPT, ZFP-OPT). The engine asks again until the last copy is done.
//! The device itself copies from frames and to frames whose pages are locked
//! ([`lock_frames_for`](crate::driver::lock_frames_for)). Bytes of other frames pass through pinned
//! memory of the workspace: one more copy of *compressed* bytes each way.
//!
//! The length of a payload is known only when the kernels are done. Copying back as many bytes as
//! the lane's previous payload had, and an eighth more, mostly saves a second copy.

mod lane;
mod streams;

use crate::driver::{Driver, EventId, StreamId};
use crate::{DeviceBytes, DeviceCodec, DeviceError, DevicePtr, range, self_check};
use foldwire::codec::{CodecId, Written};
use foldwire::device::{Device, DeviceCall, DeviceOp, Region};
use foldwire::op::OpCode;
use foldwire::transport::Transport;
use foldwire::{Communicator, DType, Error, Quantum, codec::CodecParams};
use lane::{AheadMemory, ComputeError, Lane, ahead_bytes, at};
use std::sync::Arc;
use std::task::Poll;

/// Sizes of a [`Workspace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkspaceConfig {
    /// Number of lanes: the most operations under way at a time.
    pub n_lanes: usize,
    /// Bytes of a frame of the transport.
    pub frame_bytes: usize,
    /// Streams of each lane, at least 1: the most encodes, or partitions of one encode, at the same
    /// time.
    pub n_streams: usize,
    /// Memory for encodes that are begun ahead, in frames. All lanes share it. With 0, a lane has
    /// one encode under way at a time.
    pub ahead_frames: usize,
    /// Fewest values of a partition. Codecs `mpc` and `zfp-rate` encode a message that has two or
    /// more times this many values in partitions.
    pub partition_values: usize,
}

impl WorkspaceConfig {
    /// Streams of each lane, unless set: the blocks that the root of a scatter among nine ranks
    /// encodes.
    pub const N_STREAMS: usize = 8;
    /// Values of a partition, unless set: 4 MiB of `f32`.
    pub const PARTITION_VALUES: usize = 1 << 20;
    /// Bytes of the frames that are encoded ahead, unless set. Longer frames fill a device with
    /// fewer of them.
    const AHEAD_BYTES: usize = 32 << 20;

    /// Sizes of a workspace with this many lanes, for frames of this many bytes. The lanes have
    /// memory to encode a frame ahead on each stream but one, or fewer frames if they are longer
    /// than 4.5 MiB; one at least, which holds all parts of a message.
    #[must_use]
    pub const fn new(n_lanes: usize, frame_bytes: usize) -> Self {
        let (n_streams, partition_values) = (Self::N_STREAMS, Self::PARTITION_VALUES);
        let ahead_frames = match Self::AHEAD_BYTES.checked_div(frame_bytes) {
            Some(0) => 1,
            Some(n) if n < n_streams => n,
            _ => n_streams - 1,
        };
        Self { n_lanes, frame_bytes, n_streams, ahead_frames, partition_values }
    }
}

/// Streams and memory on a device for the calls of one communicator. Implements [`Device`].
///
/// A lane takes about 12 times `frame_bytes` of device memory and 3 times of pinned memory. Each
/// frame to encode ahead takes about 3 times. All of it is allocated when the workspace is made.
#[derive(Debug)]
pub struct Workspace {
    driver: Arc<dyn Driver>,
    lanes: Vec<Lane>,
    ahead: AheadMemory,
    /// The stream on which the caller uses the buffers, if it told one.
    caller: Option<StreamId>,
    /// For waits between the caller's stream and those of lanes.
    event: EventId,
    last_error: Option<DeviceError>,
    /// True if an operation of the call has failed. Others that were enqueued may still run.
    has_failed: bool,
    /// First error of the device since a call began to end.
    end_error: Option<DeviceError>,
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
        let frame_bytes = comm.transport().frame_capacity();
        Self::with_config(driver, WorkspaceConfig::new(comm.n_lanes(), frame_bytes))
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
            let lane = Lane::new(driver, config)?;
            // Guesses may copy back more than kernels wrote.
            lane.stream().clear(lane.written.ptr, lane.written.n_bytes)?;
            lane.stream().finish().map(|()| lane)
        };
        let lanes = (0..config.n_lanes).map(lane).collect::<Result<_, _>>()?;
        let ahead = AheadMemory::new(driver, ahead_bytes(config))?;
        let event = driver.new_event()?;
        Ok(Self {
            driver: Arc::clone(driver),
            lanes,
            ahead,
            caller: None,
            event,
            last_error: None,
            has_failed: false,
            end_error: None,
        })
    }

    /// Sets the stream on which the caller uses the buffers of calls, such as torch's current
    /// stream. A call then waits on the device for what this stream has to do when the call begins.
    /// Without it, buffers must be ready when a call begins. Nothing is enqueued on the stream
    /// after a call: when the call returns, the host has waited for all its results. A call ends
    /// with [`Error::Device`] if the stream is being captured into a graph.
    pub fn set_stream(&mut self, stream: Option<StreamId>) {
        self.caller = stream;
    }

    /// Copies bytes within the device before a call, in the order of the caller's stream. The
    /// ranges do not overlap.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails.
    pub fn copy(&self, from: DevicePtr, to: DevicePtr, n_bytes: usize) -> Result<(), DeviceError> {
        if n_bytes == 0 {
            // An empty array may be anywhere.
            return Ok(());
        }
        match (self.caller, self.lanes.first()) {
            (Some(caller), _) => {
                self.check_stream(caller)?;
                self.driver.copy_within(caller, from, to, n_bytes)
            }
            (None, Some(lane)) => {
                lane.copy(from, to, n_bytes)?;
                lane.stream().finish()
            }
            (None, None) => Err(DeviceError::Capacity { need: 1, have: 0 }),
        }
    }

    /// Refuses a stream that is being captured: the call would wait for ever.
    fn check_stream(&self, caller: StreamId) -> Result<(), DeviceError> {
        if self.driver.is_captured(caller)? {
            let what = "a call in the order of a stream that is being captured into a graph";
            return Err(DeviceError::Unsupported { what });
        }
        Ok(())
    }

    /// Returns the error behind the latest [`Error::Device`], with the driver's words.
    #[must_use]
    pub fn last_error(&self) -> Option<&DeviceError> {
        self.last_error.as_ref()
    }

    fn lane(&mut self, lane: usize) -> Result<(&mut Lane, &mut AheadMemory), DeviceError> {
        let (have, ahead) = (self.lanes.len(), &mut self.ahead);
        let lane =
            self.lanes.get_mut(lane).ok_or(DeviceError::Capacity { need: lane + 1, have })?;
        Ok((lane, ahead))
    }

    /// Keeps an error's details, and returns it as a call reports it.
    fn report(&mut self, error: DeviceError) -> Error {
        let kind = error.kind();
        (self.last_error, self.has_failed) = (Some(error), true);
        Error::Device { kind }
    }

    /// Returns whether the streams have done everything that was enqueued when this was first
    /// asked. A device that failed does nothing more. Keeps the first error.
    fn poll_streams(&mut self) -> bool {
        let mut has_ended = true;
        for stream in self.lanes.iter_mut().flat_map(|lane| lane.streams.all_mut()) {
            match stream.poll_end() {
                Ok(is_done) => has_ended &= is_done,
                Err(error) => {
                    has_ended &= !matches!(error, DeviceError::Unanswered { .. });
                    self.end_error.get_or_insert(error);
                }
            }
        }
        has_ended
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // Running operations use the lanes' memory.
        while !self.poll_streams() {
            std::thread::yield_now();
        }
        self.driver.end_event(self.event);
    }
}

impl Device for Workspace {
    fn supports(&mut self, codec: CodecId, dtype: DType, op: OpCode) -> Result<bool, Error> {
        let params = CodecParams::new(Quantum::LOSSLESS);
        if op == OpCode::User
            || op.is_on_bits()
            || DeviceCodec::new(dtype, codec, &params).is_none()
        {
            return Ok(false);
        }
        for codec in [codec, CodecId::Raw] {
            if !self.driver.checked().contains(codec, dtype) {
                self_check::check(&self.driver, codec, dtype)
                    .map_err(|error| self.report(error))?;
                self.driver.checked().insert(codec, dtype);
            }
        }
        Ok(true)
    }

    fn begin(&mut self) -> Result<(), Error> {
        // A call whose caller forgot it (`mem::forget`) leaves operations under way, on frames that
        // the next call recycles.
        loop {
            match self.poll_end() {
                Poll::Ready(ended) => break ended?,
                Poll::Pending => std::thread::yield_now(),
            }
        }
        let Some(caller) = self.caller else { return Ok(()) };
        let recorded =
            self.check_stream(caller).and_then(|()| self.driver.record(caller, self.event));
        let begun = recorded.and_then(|()| {
            let mut streams = self.lanes.iter().flat_map(|lane| lane.streams.all());
            streams.try_for_each(|stream| stream.wait_for(self.event))
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
        let polled = match self.lane(lane) {
            Ok((lane, ahead)) => lane.poll(op, n_values, call, ahead),
            Err(error) => Err(error.into()),
        };
        match polled {
            Ok(Some(written)) => Poll::Ready(Ok(written)),
            Ok(None) => Poll::Pending,
            Err(ComputeError::Call(error)) => Poll::Ready(Err(error)),
            Err(ComputeError::Device(error)) => Poll::Ready(Err(self.report(error))),
        }
    }

    fn encode_ahead(
        &mut self,
        lane: usize,
        values: Region,
        codec: CodecId,
        call: &DeviceCall,
    ) -> Result<bool, Error> {
        let begun =
            self.lane(lane).and_then(|(lane, ahead)| lane.encode_ahead(values, codec, call, ahead));
        begun.map_err(|error| self.report(error))
    }

    fn read(&mut self, values: Region, dtype: DType, to: &mut [u8]) -> Result<(), Error> {
        let read = at(values, dtype).and_then(|from| {
            let lane = self.lanes.first_mut().ok_or(DeviceError::Capacity { need: 1, have: 0 })?;
            let mut start = 0;
            for piece in to.chunks_mut(lane.received.n_bytes()) {
                let stream = lane.streams.own();
                lane.received.receive(stream, from.offset(start), 0, piece.len())?;
                stream.finish()?;
                lane.received.read(0, piece)?;
                start += piece.len();
            }
            Ok(())
        });
        read.map_err(|error| self.report(error))
    }

    fn value_range(&mut self, values: Region, dtype: DType) -> Result<[f64; 2], Error> {
        let found = at(values, dtype).and_then(|from| {
            let lane = self.lanes.first_mut().ok_or(DeviceError::Capacity { need: 1, have: 0 })?;
            // The host receives the parts of all blocks at once.
            let n_bytes = lane.scratch.n_bytes.min(lane.received.n_bytes());
            let parts = DeviceBytes { ptr: lane.scratch.ptr, n_bytes };
            let n_parts = range::enqueue(&mut lane.streams, dtype, from, values.n_values, parts)?;
            let mut extremes = vec![[0_f64; 2]; n_parts];
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut extremes);
            let stream = lane.streams.own();
            lane.received.receive(stream, parts.ptr, 0, bytes.len())?;
            stream.finish()?;
            lane.received.read(0, bytes)?;
            Ok(range::of_parts(extremes.into_iter()))
        });
        found.map_err(|error| self.report(error))
    }

    fn poll_end(&mut self) -> Poll<Result<(), Error>> {
        // Only a call that failed leaves operations under way.
        if !self.has_failed && !self.lanes.iter().any(Lane::is_busy) {
            self.ahead.clear();
            return Poll::Ready(Ok(()));
        }
        if !self.poll_streams() {
            return Poll::Pending;
        }
        self.lanes.iter_mut().for_each(Lane::forget);
        self.ahead.clear();
        let had_failed = self.has_failed;
        let ended = match self.end_error.take() {
            None => Ok(()),
            // The words about the call's first error stay.
            Some(error) if had_failed => Err(Error::Device { kind: error.kind() }),
            Some(error) => Err(self.report(error)),
        };
        self.has_failed = false;
        Poll::Ready(ended)
    }
}
