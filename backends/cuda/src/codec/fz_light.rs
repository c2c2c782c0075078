//! Kernels of codec `fz-light`, which also reduce payloads.

use foldwire::Float;
use foldwire::codec::CodecParams;
use foldwire::codec::fz_light::{FzLight, LatticeNumbers};

use super::chunks::{CHUNK, Chunks, JUST_WRITTEN, NULL, THREADS};
use super::job::{Combining, Job, Space, padded};
use super::{CodecKernels, FoldOperands, Payload};
use crate::kernel::KernelFile;
use crate::{DeviceBytes, DeviceError, DevicePtr, KernelArg};

/// Bytes of a slot before its chunk.
const LEAD: usize = 3;
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
        // The kernels' `max_chunk_bytes` is the same without padding.
        let blocks = 128 * (5 + 31 * code_bytes + T::BYTES + 1);
        let slot = padded(LEAD + 1 + blocks + 16 + 8) + 16;
        Self {
            local: codec.lattice_numbers(false),
            partial: codec.lattice_numbers(true),
            step: codec.quantum().step(),
            max_operands: codec.max_operands(),
            is_static,
            slot,
        }
    }

    /// Takes memory for chunks.
    fn chunks(&self, job: &Job<'_>, space: Space) -> Chunks {
        Chunks::new(job, space, self.slot, LEAD)
    }
}

/// Arguments that name a lattice.
fn arguments(lattice: &LatticeNumbers) -> [KernelArg; 5] {
    let LatticeNumbers { step, inverse, limit, bound, weight } = *lattice;
    [step, inverse, limit, bound, weight].map(KernelArg::from)
}

impl CodecKernels for FzLightKernels {
    fn encode(
        &self,
        job: &mut Job<'_>,
        space: Space,
        own: DevicePtr,
        weighted: bool,
        dst: DeviceBytes,
    ) -> Result<(), DeviceError> {
        let chunks = self.chunks(job, space);
        let Chunks { n_chunks, reports, slots, slot, .. } = chunks;
        let [s, i, l, b, w] = arguments(if weighted { &self.partial } else { &self.local });
        let args = [
            own.into(),
            job.n_values.into(),
            reports.into(),
            slots.into(),
            slot.into(),
            s,
            i,
            l,
            b,
            w,
        ];
        job.launch(KernelFile::FzLight, "fz_light_encode", n_chunks, THREADS, &args)?;
        chunks.finish(job, self.step, [NULL, NULL], 1, dst)
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
        Chunks::scratch_bytes(n_values, self.slot)
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
        let chunks = self.chunks(job, space);
        let Chunks { n_chunks, reports, slots, slot, .. } = chunks;
        let (output, divisor) = store.unwrap_or((NULL, 1));
        let [s, i, l, b, w] = arguments(&self.local);
        let args = [
            src.ptr.into(),
            src.n_bytes.into(),
            own.into(),
            job.n_values.into(),
            reports.into(),
            slots.into(),
            slot.into(),
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
        Some(folded.and_then(|()| chunks.finish(job, self.step, [src.ptr, NULL], 1, dst)))
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
        let chunks = self.chunks(job, space);
        let Chunks { n_chunks, reports, slots, slot, .. } = chunks;
        let [s, i, l, bound, w] = arguments(&self.local);
        let args = [
            a.ptr.into(),
            a.n_bytes.into(),
            b.ptr.into(),
            b.n_bytes.into(),
            job.n_values.into(),
            reports.into(),
            slots.into(),
            slot.into(),
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
        Some(combined.and_then(|()| chunks.finish(job, self.step, [a.ptr, b.ptr], 0, dst)))
    }
}
