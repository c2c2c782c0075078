//! Launches that all codecs with chunks share: chunks lie in slots of scratch memory, one block
//! finds their places, and each is moved to its place.

use foldwire::codec::fz_light::HEADER_BYTES;

use super::Payload;
use super::job::{Job, padded};
use crate::kernel::{KernelFile, args};
use crate::{DeviceBytes, DeviceError, DevicePtr, KernelArg};
use std::ops::Range;

/// Values of a chunk.
pub(super) const CHUNK: usize = 4096;
/// Threads of a chunk, one for each block of 32 values.
pub(super) const THREADS: u32 = 128;
/// Most threads of the block that finds the places of chunks.
const FINISHERS: usize = 1024;
/// Fewest, one for each byte of the pad.
const FEWEST_FINISHERS: usize = 64;
/// Bytes that a chunk's kernel reports.
const REPORT: usize = size_of::<u64>();
/// Length that says that the outcome has it.
const JUST_WRITTEN: usize = usize::MAX;
/// No payload.
pub(super) const NULL: DevicePtr = DevicePtr(0);

/// Range of a payload, as kernels that decode it take it.
pub(super) fn range(src: Payload) -> DeviceBytes {
    match src {
        Payload::Given(src) => src,
        Payload::JustWritten(ptr) => DeviceBytes { ptr, n_bytes: JUST_WRITTEN },
    }
}

/// Scratch memory of chunks.
#[derive(Clone, Copy)]
pub(super) struct Chunks {
    pub(super) n_chunks: usize,
    pub(super) reports: DevicePtr,
    pub(super) slots: DevicePtr,
    /// Bytes of a slot.
    pub(super) slot: usize,
    /// Bytes of a slot before its chunk.
    pub(super) shift: usize,
}

impl Chunks {
    pub(super) fn new(job: &Job<'_>, slot: usize, shift: usize) -> Self {
        let n_chunks = job.n_values.div_ceil(CHUNK);
        let (reports, rest) = job.space.take(n_chunks * REPORT);
        Self { n_chunks, reports, slots: rest.take(n_chunks * slot).0, slot, shift }
    }

    /// Arguments that name the memory of chunks.
    pub(super) fn args(&self) -> [KernelArg; 3] {
        args![self.reports, self.slots, self.slot]
    }

    /// Bytes of scratch memory for the chunks of `n_values`.
    pub(super) const fn scratch_bytes(n_values: usize, slot: usize) -> usize {
        let n_chunks = n_values.div_ceil(CHUNK);
        padded(n_chunks * REPORT) + n_chunks * slot
    }

    /// Divides the chunks of `n_values` into at most `n_partitions` in order, and at least one.
    /// Returns the values of each, and its chunks.
    pub(super) fn partitions(
        self,
        n_values: usize,
        n_partitions: usize,
    ) -> impl Iterator<Item = (Range<usize>, Self)> {
        let n_each = self.n_chunks.div_ceil(n_partitions).max(1);
        (0..self.n_chunks.max(1)).step_by(n_each).map(move |first| {
            let n_chunks = n_each.min(self.n_chunks - first);
            let (reports, slots) =
                (self.reports.offset(first * REPORT), self.slots.offset(first * self.slot));
            let values = first * CHUNK..n_values.min((first + n_chunks) * CHUNK);
            (values, Self { n_chunks, reports, slots, ..self })
        })
    }

    /// Writes a payload of the chunks with this step or parameter. `sources` are the payloads whose
    /// operands are part of the result, and `own` counts local operands.
    pub(super) fn finish(
        &self,
        job: &mut Job<'_>,
        step: f64,
        [a, b]: [DevicePtr; 2],
        own: u32,
        dst: DeviceBytes,
    ) -> Result<(), DeviceError> {
        let (n_chunks, n_values, outcome) = (self.n_chunks, job.n_values, job.outcome);
        let args = args![dst.ptr, n_values, self.reports, outcome, step, a, b, own];
        let n_threads = n_chunks.next_multiple_of(32).clamp(FEWEST_FINISHERS, FINISHERS) as u32;
        job.launch(KernelFile::Payload, "payload_finish", 1, n_threads, &args)?;
        if n_chunks == 0 {
            return Ok(());
        }
        let args = args![dst.ptr, n_values, self.slots, self.slot, self.shift, outcome];
        job.launch(KernelFile::Payload, "payload_gather", n_chunks, THREADS, &args)
    }
}

/// Bytes before the index, which the kernels know as a number of their own.
const _: () = assert!(HEADER_BYTES == 24);
