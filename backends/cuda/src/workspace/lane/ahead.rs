//! Encodes that a lane begins ahead, each on a stream beside the lane's own.
//!
//! They are those of the message's other parts, and of the lane's next messages. Each has a piece
//! of the memory that the lanes share for this purpose. The lane asks for them in order, but other
//! operations may come between, and encodes that nobody named. An encode that the lane has passed
//! over keeps its memory until the device has done it.

use super::{Codecs, Lane, LaneState, Output, Running, at};
use crate::driver::{Driver, OwnedMemory};
use crate::{DeviceBytes, DeviceCodec, DeviceError, Outcome, Task};
use foldwire::codec::CodecId;
use foldwire::device::{DeviceCall, DeviceOp, DeviceSource, Region};
use foldwire::transport::FRAME_ALIGN;
use std::ops::Range;
use std::sync::Arc;

/// Memory for encodes that lanes begin ahead, divided among those under way.
#[derive(Debug)]
pub(in crate::workspace) struct AheadMemory {
    memory: OwnedMemory,
    /// Pieces in use, in order.
    pieces: Vec<Range<usize>>,
}

impl AheadMemory {
    pub(in crate::workspace) fn new(
        driver: &Arc<dyn Driver>,
        n_bytes: usize,
    ) -> Result<Self, DeviceError> {
        Ok(Self { memory: OwnedMemory::new(driver, n_bytes)?, pieces: Vec::new() })
    }

    /// Takes the first free piece of this length; `None` if there is none.
    fn take(&mut self, n_bytes: usize) -> Option<Range<usize>> {
        // An empty piece would have the place of another.
        let n_bytes = n_bytes.max(1).checked_next_multiple_of(FRAME_ALIGN)?;
        let (mut start, mut at) = (0, 0);
        while let Some(piece) = self.pieces.get(at)
            && piece.start - start < n_bytes
        {
            (start, at) = (piece.end, at + 1);
        }
        let end = start.checked_add(n_bytes).filter(|end| *end <= self.memory.n_bytes)?;
        self.pieces.insert(at, start..end);
        Some(start..end)
    }

    fn give_back(&mut self, piece: &Range<usize>) {
        self.pieces.retain(|other| other != piece);
    }

    /// Gives all pieces back: nothing is under way.
    pub(in crate::workspace) fn clear(&mut self) {
        self.pieces.clear();
    }
}

/// An encode that was begun ahead, on a stream beside the lane's own.
#[derive(Clone, Debug)]
pub(super) struct Ahead {
    stream: usize,
    values: Region,
    codec: CodecId,
    /// Memory of its future payload, and of what the kernels need.
    piece: Range<usize>,
    /// True if the lane will not ask for it any more.
    is_passed: bool,
}

/// Bytes of the payload and of scratch memory that an encode needs; `None` if a frame cannot hold
/// the payload.
fn needed(codec: &DeviceCodec, n_values: usize) -> Option<[usize; 2]> {
    let n_payload = codec.max_encoded_len(n_values)?.checked_next_multiple_of(FRAME_ALIGN)?;
    Some([n_payload, codec.encode_scratch_bytes(n_values)])
}

impl Lane {
    /// Begins an encode ahead, as [`Device::encode_ahead`](foldwire::device::Device::encode_ahead)
    /// says.
    pub(in crate::workspace) fn encode_ahead(
        &mut self,
        values: Region,
        codec: CodecId,
        call: &DeviceCall,
        memory: &mut AheadMemory,
    ) -> Result<bool, DeviceError> {
        let is_this = |begun: &Ahead| (begun.values, begun.codec) == (values, codec);
        if self.ahead.iter().any(|begun| !begun.is_passed && is_this(begun)) {
            return Ok(true);
        }
        self.drop_passed(memory)?;
        let runs_on =
            if let LaneState::Running(running) = &self.state { running.stream } else { 0 };
        let is_free = |stream: &usize| {
            *stream != runs_on && self.ahead.iter().all(|begun| begun.stream != *stream)
        };
        let Some(stream) = (1..self.streams.len()).find(is_free) else { return Ok(false) };
        let (codecs, n_values) = (Codecs::new(call)?, values.n_values);
        let on_device = codecs.of(codec);
        let Some([n_payload, n_scratch]) = needed(on_device, n_values) else { return Ok(false) };
        let own = at(values, call.dtype)?;
        let Some(piece) = memory.take(n_payload.saturating_add(n_scratch)) else {
            return Ok(false);
        };
        let dst = DeviceBytes { ptr: memory.memory.ptr.offset(piece.start), n_bytes: n_payload };
        let scratch = DeviceBytes { ptr: dst.ptr.offset(n_payload), n_bytes: n_scratch };
        let task = Task::Encode { own, weighted: false, dst };
        let (outcome, on) = (self.outcome(stream), self.streams.at(stream));
        on.clear(outcome, size_of::<Outcome>())?;
        on_device.enqueue(on, call.op, &task, n_values, scratch, outcome)?;
        self.report(stream)?;
        self.ahead.push_back(Ahead { stream, values, codec, piece, is_passed: false });
        Ok(true)
    }

    /// Forgets encodes that the lane has passed over, and that the device has done.
    fn drop_passed(&mut self, memory: &mut AheadMemory) -> Result<(), DeviceError> {
        let mut nth = 0;
        while let Some(begun) = self.ahead.get(nth) {
            if begun.is_passed && self.streams.at(begun.stream).is_done()? {
                memory.give_back(&begun.piece);
                self.ahead.remove(nth);
            } else {
                nth += 1;
            }
        }
        Ok(())
    }

    /// Makes an encode that was begun ahead the operation under way, if this is one, and returns
    /// true. The lane will not ask for those that were named before it.
    pub(super) fn claim(&mut self, op: &mut DeviceOp<'_>, memory: &AheadMemory) -> bool {
        let DeviceOp::Encode { values: DeviceSource::Own(values), codec, to } = op else {
            return false;
        };
        let is_this =
            |begun: &Ahead| !begun.is_passed && (begun.values, begun.codec) == (*values, *codec);
        let Some(nth) = self.ahead.iter().position(is_this) else { return false };
        self.ahead.range_mut(..nth).for_each(|begun| begun.is_passed = true);
        let Some(Ahead { stream, piece, .. }) = self.ahead.remove(nth) else { return false };
        let (from, (to, _)) = (memory.memory.ptr.offset(piece.start), self.landing(to));
        let (n_received, output) = (0, Output::Payload);
        self.state = LaneState::Running(Running {
            stream,
            from,
            n_received,
            output,
            to,
            piece: Some(piece),
        });
        true
    }

    /// Gives back the memory of an encode that was begun ahead and has ended.
    pub(super) fn end_ahead(piece: Option<Range<usize>>, memory: &mut AheadMemory) {
        if let Some(piece) = piece {
            memory.give_back(&piece);
        }
    }
}
