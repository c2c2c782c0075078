//! Encodes that a lane begins ahead, each on a stream beside the lane's own.
//!
//! They share the lane's memory with the operation under way: a message holds the payloads of all
//! its parts, so the memory for one message does, too.

use super::{Codecs, Lane, LaneState, Output, Running, at};
use crate::driver::OwnedMemory;
use crate::{DeviceBytes, DeviceCodec, DeviceError, DevicePtr, Outcome, Task};
use foldwire::codec::CodecId;
use foldwire::device::{DeviceCall, DeviceOp, DeviceSource, Region};
use foldwire::transport::FRAME_ALIGN;

/// An encode that was begun ahead, on a stream beside the lane's own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    stream: usize,
    values: Region,
    codec: CodecId,
    /// Address of its future payload.
    from: DevicePtr,
}

/// Bytes at the front of a lane's memory that encodes under way use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) written: usize,
    pub(super) scratch: usize,
}

impl Used {
    /// All of it.
    pub(super) const ALL: Self = Self { written: usize::MAX, scratch: usize::MAX };

    /// The same, and what an encode of `n_values` needs; `None` if a frame cannot hold its payload.
    pub(super) fn and(self, codec: &DeviceCodec, n_values: usize) -> Option<Self> {
        let after = |used: usize, n_bytes: usize| {
            used.checked_add(n_bytes)?.checked_next_multiple_of(FRAME_ALIGN)
        };
        let written = after(self.written, codec.max_encoded_len(n_values)?)?;
        let scratch = after(self.scratch, codec.encode_scratch_bytes(n_values))?;
        Some(Self { written, scratch })
    }
}

impl Lane {
    /// Begins an encode ahead, as [`Device::encode_ahead`](foldwire::device::Device::encode_ahead)
    /// says.
    pub(in crate::workspace) fn encode_ahead(
        &mut self,
        nth: usize,
        values: Region,
        codec: CodecId,
        call: &DeviceCall,
    ) -> Result<bool, DeviceError> {
        if nth < self.ahead.len() {
            return Ok(true);
        }
        let runs_on = if let LaneState::Running(_, stream) = self.state { stream } else { 0 };
        let is_free = |stream: &usize| {
            *stream != runs_on && self.ahead.iter().all(|begun| begun.stream != *stream)
        };
        let Some(stream) = (1..self.streams.len()).find(is_free) else { return Ok(false) };
        let codecs = Codecs::new(call)?;
        let (on_device, n, before) = (codecs.of(codec), values.n_values, self.used);
        let Some(used) = before.and(on_device, n) else { return Ok(false) };
        if used.written > self.written.n_bytes || used.scratch > self.scratch.n_bytes {
            return Ok(false);
        }
        let rest = |memory: &OwnedMemory, start: usize, end: usize| {
            let ptr = memory.ptr.offset(start);
            DeviceBytes { ptr, n_bytes: end - start }
        };
        let dst = rest(&self.written, before.written, used.written);
        let scratch = rest(&self.scratch, before.scratch, used.scratch);
        let task = Task::Encode { own: at(values, call.dtype)?, weighted: false, dst };
        let (outcome, on) = (self.outcome(stream), self.streams.at(stream));
        on.clear(outcome, size_of::<Outcome>())?;
        on_device.enqueue(on, call.op, &task, n, scratch, outcome)?;
        self.report(stream)?;
        self.used = used;
        self.ahead.push_back(Ahead { stream, values, codec, from: dst.ptr });
        Ok(true)
    }

    /// Makes the next encode that was begun ahead the operation under way. Returns false if this is
    /// another operation, which comes after all that were begun ahead, and they count no more.
    pub(super) fn claim(&mut self, op: &mut DeviceOp<'_>) -> Result<bool, DeviceError> {
        let Some(&next) = self.ahead.front() else { return Ok(false) };
        if let DeviceOp::Encode { values: DeviceSource::Own(values), codec, to } = op
            && (*values, *codec) == (next.values, next.codec)
        {
            let (to, _) = self.landing(to);
            let running = Running { from: next.from, n_received: 0, output: Output::Payload, to };
            self.state = LaneState::Running(running, next.stream);
            self.ahead.pop_front();
            return Ok(true);
        }
        for begun in &self.ahead {
            let event = self.streams.at(begun.stream).event();
            self.stream().wait_for(event)?;
        }
        Ok(false)
    }
}
