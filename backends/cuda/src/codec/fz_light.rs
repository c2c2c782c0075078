//! Kernels of codec `fz-light`. Encoded chunks go to slots of scratch memory; then one block finds
//! their places, and each is moved to its place.

use foldwire::Float;
use foldwire::codec::CodecParams;
use foldwire::codec::fz_light::{FzLight, HEADER_BYTES, LatticeNumbers};

use super::job::{Combining, Job, Space, padded};
use super::{CodecKernels, FoldOperands, Payload};
use crate::kernel::KernelFile;
use crate::{DeviceBytes, DeviceError, DevicePtr, KernelArg};

/// Values of a chunk.
const CHUNK: usize = 4096;
/// Threads of a chunk, one for each block of 32 values.
const THREADS: u32 = 128;
/// Most threads of the block that finds the places of chunks.
const FINISHERS: usize = 1024;
/// Fewest, one for each byte of the pad.
const FEWEST_FINISHERS: usize = 64;
/// Bytes that a chunk's kernel reports.
const REPORT: usize = size_of::<u64>();
/// Length that says that the outcome has it.
const JUST_WRITTEN: u64 = u64::MAX;
/// Spacing that says that any will do.
const ANY_STEP: f64 = -1.0;

/// Kernels for one lattice and one communicator size.
#[derive(Clone, Copy, Debug)]
pub(super) struct FzLightKernels {
    local: LatticeNumbers,
    partial: LatticeNumbers,
    /// Spacing that payloads name.
    step: f64,
    max_operands: u32,
    is_static: bool,
    /// Bytes of a chunk's slot.
    slot: usize,
}

impl FzLightKernels {
    pub(super) fn new<T: Float>(params: &CodecParams, is_static: bool) -> Self {
        let codec = FzLight::<T>::from_params(params);
        // A code has as many bits as the type that computes, which is at least 32.
        let code_bytes = T::BYTES.max(4);
        // The kernels' `slot_bytes` computes the same.
        let blocks = 128 * (5 + 31 * code_bytes + T::BYTES + 1);
        let slot = padded(3 + 1 + blocks + 16 + 8) + 16;
        Self {
            local: codec.lattice_numbers(false),
            partial: codec.lattice_numbers(true),
            step: codec.quantum().step(),
            max_operands: codec.max_operands(),
            is_static,
            slot,
        }
    }

    /// Takes memory for chunks: their reports, and their slots.
    fn chunks(&self, job: &Job<'_>, space: Space) -> (usize, DevicePtr, DevicePtr) {
        let n_chunks = job.n_values.div_ceil(CHUNK);
        let (reports, rest) = space.take(n_chunks * REPORT);
        (n_chunks, reports, rest.take(n_chunks * self.slot).0)
    }

    /// Moves encoded chunks to their places. `sources` are the payloads whose operands are part of
    /// the result, and `own` counts local operands.
    fn finish(
        &self,
        job: &mut Job<'_>,
        space: Space,
        [a, b]: [DevicePtr; 2],
        own: u32,
        dst: DeviceBytes,
    ) -> Result<(), DeviceError> {
        let (n_chunks, reports, slots) = self.chunks(job, space);
        let (dst, n_values, outcome) = (dst.ptr.into(), job.n_values.into(), job.outcome.into());
        let step = self.step.into();
        let args = [dst, n_values, reports.into(), outcome, step, a.into(), b.into(), own.into()];
        let n_threads = n_chunks.next_multiple_of(32).clamp(FEWEST_FINISHERS, FINISHERS) as u32;
        job.launch(KernelFile::FzLight, "fz_light_finish", 1, n_threads, &args)?;
        if n_chunks == 0 {
            return Ok(());
        }
        let args = [dst, n_values, slots.into(), outcome];
        job.launch(KernelFile::FzLight, "fz_light_gather", n_chunks, THREADS, &args)
    }
}

/// Arguments that name a lattice.
fn arguments(lattice: &LatticeNumbers) -> [KernelArg; 5] {
    let LatticeNumbers { step, inverse, limit, bound, weight } = *lattice;
    [step, inverse, limit, bound, weight].map(KernelArg::from)
}

const NULL: DevicePtr = DevicePtr(0);

impl CodecKernels for FzLightKernels {
    fn encode(
        &self,
        job: &mut Job<'_>,
        space: Space,
        own: DevicePtr,
        weighted: bool,
        dst: DeviceBytes,
    ) -> Result<(), DeviceError> {
        let (n_chunks, reports, slots) = self.chunks(job, space);
        let [s, i, l, b, w] = arguments(if weighted { &self.partial } else { &self.local });
        let args = [own.into(), job.n_values.into(), reports.into(), slots.into(), s, i, l, b, w];
        job.launch(KernelFile::FzLight, "fz_light_encode", n_chunks, THREADS, &args)?;
        self.finish(job, space, [NULL, NULL], 1, dst)
    }

    fn decode(
        &self,
        job: &mut Job<'_>,
        _: Space,
        src: Payload,
        divisor: u32,
        dst: DevicePtr,
        is_operand: bool,
    ) -> Result<(), DeviceError> {
        let (src, n_bytes) = match src {
            Payload::Given(src) => (src.ptr, src.n_bytes as u64),
            Payload::JustWritten(src) => (src, JUST_WRITTEN),
        };
        let args = [
            src.into(),
            n_bytes.into(),
            dst.into(),
            job.n_values.into(),
            job.outcome.into(),
            self.local.weight.into(),
            divisor.into(),
            if is_operand { self.step } else { ANY_STEP }.into(),
        ];
        let n_chunks = job.n_values.div_ceil(CHUNK);
        job.launch(KernelFile::FzLight, "fz_light_decode", n_chunks, THREADS, &args)
    }

    fn scratch_bytes(&self, n_values: usize) -> usize {
        let n_chunks = n_values.div_ceil(CHUNK);
        padded(n_chunks * REPORT) + n_chunks * self.slot
    }

    fn fold(
        &self,
        job: &mut Job<'_>,
        space: Space,
        op: Combining,
        operands: &FoldOperands,
    ) -> Option<Result<(), DeviceError>> {
        let FoldOperands { src, own, dst, store } = *operands;
        if op == Combining::Product {
            return None;
        }
        let (n_chunks, reports, slots) = self.chunks(job, space);
        let (output, divisor) = store.unwrap_or((NULL, 1));
        let [s, i, l, b, w] = arguments(&self.local);
        let args = [
            src.ptr.into(),
            src.n_bytes.into(),
            own.into(),
            job.n_values.into(),
            reports.into(),
            slots.into(),
            job.outcome.into(),
            s,
            i,
            l,
            b,
            w,
            self.step.into(),
            self.max_operands.into(),
            op.into(),
            output.into(),
            divisor.into(),
        ];
        let file = KernelFile::FzLight;
        let folded = job.launch(file, "fz_light_fold", n_chunks, THREADS, &args);
        Some(folded.and_then(|()| self.finish(job, space, [src.ptr, NULL], 1, dst)))
    }

    fn combine(
        &self,
        job: &mut Job<'_>,
        space: Space,
        op: Combining,
        [a, b]: [DeviceBytes; 2],
        dst: DeviceBytes,
    ) -> Option<Result<(), DeviceError>> {
        if op == Combining::Product {
            return None;
        }
        let (n_chunks, reports, slots) = self.chunks(job, space);
        let [s, i, l, bound, w] = arguments(&self.local);
        let args = [
            a.ptr.into(),
            a.n_bytes.into(),
            b.ptr.into(),
            b.n_bytes.into(),
            job.n_values.into(),
            reports.into(),
            slots.into(),
            job.outcome.into(),
            s,
            i,
            l,
            bound,
            w,
            self.step.into(),
            self.max_operands.into(),
            op.into(),
            u64::from(self.is_static).into(),
        ];
        let file = KernelFile::FzLight;
        let combined = job.launch(file, "fz_light_combine", n_chunks, THREADS, &args);
        Some(combined.and_then(|()| self.finish(job, space, [a.ptr, b.ptr], 0, dst)))
    }
}

/// Bytes before the index, which the kernels know as a number of their own.
const _: () = assert!(HEADER_BYTES == 24);
