//! Kernels of codec `raw`: payloads are the values themselves.

use super::job::{Combining, Job, Operands};
use super::{CodecKernels, CombineOperands, DecodeOperands, EncodeOperands, FoldOperands, Payload};
use crate::kernel::{ErrorCode, KernelFile, args};
use crate::{DeviceBytes, DeviceError, DevicePtr};

/// Kernels of codec `raw`, for any parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawKernels;

/// Checks the length of a payload. Reports an error as kernels do, and returns false.
fn is_payload(job: &mut Job<'_>, src: DeviceBytes) -> Result<bool, DeviceError> {
    let size = job.dtype.n_bytes();
    let (found, is_whole) = (src.n_bytes / size, src.n_bytes.is_multiple_of(size));
    if is_whole && found == job.n_values {
        return Ok(true);
    }
    let code = if is_whole { ErrorCode::Count } else { ErrorCode::Damaged };
    let args = args![job.outcome, code as u64, found, job.n_values];
    job.launch(KernelFile::Raw, "raw_report", 1, 32, &args).map(|()| false)
}

/// acc ← acc ⊕ payload.
pub(super) fn reduce(
    job: &mut Job<'_>,
    op: Combining,
    src: DeviceBytes,
    acc: DevicePtr,
) -> Result<(), DeviceError> {
    if is_payload(job, src)? { job.reduce(op, acc, src.ptr, 1.0) } else { Ok(()) }
}

impl CodecKernels for RawKernels {
    fn encode(&self, job: &mut Job<'_>, operands: EncodeOperands) -> Result<(), DeviceError> {
        let EncodeOperands { own, weighted, dst } = operands;
        let weight = if weighted { 1.0 } else { job.weight };
        let n_bytes = job.n_value_bytes();
        job.operate(Some(dst.ptr), Operands { weight, n_bytes, ..Operands::of(own) })
    }

    fn decode(&self, job: &mut Job<'_>, operands: DecodeOperands) -> Result<(), DeviceError> {
        let DecodeOperands { src, divisor, dst, .. } = operands;
        let src = match src {
            Payload::Given(src) if !is_payload(job, src)? => return Ok(()),
            Payload::Given(src) => src.ptr,
            Payload::JustWritten(src) => src,
        };
        job.operate(None, Operands { output: Some((dst, divisor)), ..Operands::of(src) })
    }

    fn scratch_bytes(&self, _: usize) -> usize {
        0
    }

    fn fold(&self, job: &mut Job<'_>, operands: FoldOperands) -> Option<Result<(), DeviceError>> {
        let FoldOperands { op, src, own, dst, store } = operands;
        Some((|| {
            if !is_payload(job, src)? {
                return Ok(());
            }
            let (op, weight, n_bytes) = (Some((op, own)), job.weight, job.n_value_bytes());
            job.operate(Some(dst.ptr), Operands { a: src.ptr, op, weight, output: store, n_bytes })
        })())
    }

    fn combine(
        &self,
        job: &mut Job<'_>,
        operands: CombineOperands,
    ) -> Option<Result<(), DeviceError>> {
        let CombineOperands { op, a, b, dst } = operands;
        Some((|| {
            if !is_payload(job, a)? || !is_payload(job, b)? {
                return Ok(());
            }
            let n_bytes = job.n_value_bytes();
            let op = Some((op, b.ptr));
            job.operate(Some(dst.ptr), Operands { op, n_bytes, ..Operands::of(a.ptr) })
        })())
    }
}
