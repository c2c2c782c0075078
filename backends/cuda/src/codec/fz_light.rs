//! Kernels of codec `fz-light`, which also reduce payloads.

use foldwire::Float;
use foldwire::codec::CodecParams;
use foldwire::codec::fz_light::{FzLight, LatticeNumbers};

use super::chunks::{CHUNK, Chunks, NULL, THREADS, range};
use super::job::{Combining, Job, padded};
use super::{CodecKernels, CombineOperands, DecodeOperands, EncodeOperands, FoldOperands};
use crate::kernel::{KernelFile, args};
use crate::{DeviceError, KernelArg};

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
    fn chunks(&self, job: &Job<'_>) -> Chunks {
        Chunks::new(job, self.slot, LEAD)
    }
}

/// Arguments that name a lattice.
fn arguments(lattice: &LatticeNumbers) -> [KernelArg; 5] {
    let LatticeNumbers { step, inverse, limit, bound, weight } = *lattice;
    [step, inverse, limit, bound, weight].map(KernelArg::from)
}

impl CodecKernels for FzLightKernels {
    fn encode(&self, job: &mut Job<'_>, operands: EncodeOperands) -> Result<(), DeviceError> {
        let EncodeOperands { own, weighted, dst } = operands;
        let chunks = self.chunks(job);
        let lattice = arguments(if weighted { &self.partial } else { &self.local });
        let args = [&args![own, job.n_values][..], &chunks.args(), &lattice].concat();
        job.launch(KernelFile::FzLight, "fz_light_encode", chunks.n_chunks, THREADS, &args)?;
        chunks.finish(job, self.step, [NULL, NULL], 1, dst)
    }

    fn decode(&self, job: &mut Job<'_>, operands: DecodeOperands) -> Result<(), DeviceError> {
        let DecodeOperands { src, divisor, dst, is_operand } = operands;
        let step = if is_operand { self.step } else { ANY_STEP };
        let rest = args![dst, job.n_values, job.outcome, self.local.weight, divisor, step];
        let args = [&range(src).args()[..], &rest].concat();
        let n_chunks = job.n_values.div_ceil(CHUNK);
        job.launch(KernelFile::FzLight, "fz_light_decode", n_chunks, THREADS, &args)
    }

    fn scratch_bytes(&self, n_values: usize) -> usize {
        Chunks::scratch_bytes(n_values, self.slot)
    }

    fn fold(&self, job: &mut Job<'_>, operands: FoldOperands) -> Option<Result<(), DeviceError>> {
        let FoldOperands { op, src, own, dst, store } = operands;
        if op == Combining::Product {
            return None;
        }
        let chunks = self.chunks(job);
        let (output, divisor) = store.unwrap_or((NULL, 1));
        let args = [
            &src.args()[..],
            &args![own, job.n_values],
            &chunks.args(),
            &args![job.outcome],
            &arguments(&self.local),
            &args![self.step, self.max_operands, op, output, divisor],
        ]
        .concat();
        let (file, n_chunks) = (KernelFile::FzLight, chunks.n_chunks);
        let folded = job.launch(file, "fz_light_fold", n_chunks, THREADS, &args);
        Some(folded.and_then(|()| chunks.finish(job, self.step, [src.ptr, NULL], 1, dst)))
    }

    fn combine(
        &self,
        job: &mut Job<'_>,
        operands: CombineOperands,
    ) -> Option<Result<(), DeviceError>> {
        let CombineOperands { op, a, b, dst } = operands;
        if op == Combining::Product {
            return None;
        }
        let chunks = self.chunks(job);
        let args = [
            &[a.args(), b.args()].concat()[..],
            &args![job.n_values],
            &chunks.args(),
            &args![job.outcome],
            &arguments(&self.local),
            &args![self.step, self.max_operands, op, u64::from(self.is_static)],
        ]
        .concat();
        let (file, n_chunks) = (KernelFile::FzLight, chunks.n_chunks);
        let combined = job.launch(file, "fz_light_combine", n_chunks, THREADS, &args);
        Some(combined.and_then(|()| chunks.finish(job, self.step, [a.ptr, b.ptr], 0, dst)))
    }
}
