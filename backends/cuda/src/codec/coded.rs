//! Kernels of codecs with a coder for each chunk: `cuszp`, `mpc` and `zfp-rate`. They decode,
//! reduce values and encode again.

use foldwire::Float;
use foldwire::codec::{CodecId, CodecParams, CuSzp, Mpc, ZfpRate};

use super::chunks::{CHUNK, Chunks, NULL, THREADS, range};
use super::job::{Job, padded};
use super::{CodecKernels, DecodeOperands, EncodeOperands};
use crate::kernel::{KernelFile, args};
use crate::{DeviceError, KernelArg};
use std::ops::Range;

/// Bytes of a slot before its chunk: the kernels' `FORM_AT`.
const FORM_AT: usize = 7;

/// Input of an encoder beside the values.
#[derive(Clone, Copy, Debug)]
enum Coder {
    /// Spacing, its inverse, limit and bound of the lattice.
    CuSzp([f64; 4]),
    /// Distance of residuals; 0 if each chunk says its own.
    Mpc(u64),
    /// Bits a value.
    ZfpRate(u64),
}

impl Coder {
    fn args(self) -> Vec<KernelArg> {
        match self {
            Self::CuSzp(numbers) => numbers.map(KernelArg::from).into(),
            Self::Mpc(number) | Self::ZfpRate(number) => vec![number.into()],
        }
    }
}

/// Kernels of a codec with these parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodedKernels {
    coder: Coder,
    /// Parameter that payloads name.
    parameter: f64,
    /// Bytes of a chunk's slot.
    slot: usize,
}

impl CodedKernels {
    /// Makes the kernels; `None` if this codec has none.
    pub(super) fn new<T: Float>(id: CodecId, params: &CodecParams) -> Option<Self> {
        let (coder, parameter) = match id {
            CodecId::CuSzp => {
                let codec = CuSzp::<T>::from_params(params);
                // No code is below a negative limit, so no value is on the lattice.
                let numbers = codec.lattice_numbers().map_or([1.0, 1.0, -1.0, 0.0], |lattice| {
                    [lattice.step, lattice.inverse, lattice.limit, lattice.bound]
                });
                (Coder::CuSzp(numbers), codec.parameter())
            }
            CodecId::Mpc => {
                let dim = Mpc::<T>::from_params(params).parameter();
                (Coder::Mpc(dim as u64), dim)
            }
            CodecId::ZfpRate => {
                let rate = ZfpRate::<T>::from_params(params).parameter();
                (Coder::ZfpRate(rate as u64), rate)
            }
            _ => return None,
        };
        Some(Self { coder, parameter, slot: padded(FORM_AT + 1 + CHUNK * T::BYTES) + 16 })
    }

    const fn file(&self) -> (KernelFile, &'static str, &'static str) {
        match self.coder {
            Coder::CuSzp(_) => (KernelFile::CuSzp, "cuszp_encode", "cuszp_decode"),
            Coder::Mpc(_) => (KernelFile::Mpc, "mpc_encode", "mpc_decode"),
            Coder::ZfpRate(_) => (KernelFile::ZfpRate, "zfp_rate_encode", "zfp_rate_decode"),
        }
    }
}

impl CodecKernels for CodedKernels {
    fn encode(&self, job: &mut Job<'_>, operands: EncodeOperands) -> Result<(), DeviceError> {
        let EncodeOperands { own, weighted, dst } = operands;
        // A chunk that says its distance has one byte more before what is aligned.
        let shift = if let Coder::Mpc(0) = self.coder { FORM_AT - 1 } else { FORM_AT };
        let chunks = Chunks::new(job, self.slot, shift);
        let weight = if weighted { 1.0 } else { job.weight };
        let (n_values, n_bytes) = (job.n_values, job.dtype.n_bytes());
        let partition = |(values, part): (Range<usize>, Chunks)| {
            let own = own.offset(values.start * n_bytes);
            let args = [&args![own, values.len()][..], &part.args(), &args![weight]].concat();
            (part.n_chunks, [args, self.coder.args()].concat())
        };
        let n_partitions = match self.coder {
            Coder::CuSzp(_) => 1,
            // As published in MPC-OPT and ZFP-OPT.
            Coder::Mpc(_) | Coder::ZfpRate(_) => job.on.n_partitions(n_values),
        };
        let partitions: Vec<_> = chunks.partitions(n_values, n_partitions).map(partition).collect();
        let (file, encode, _) = self.file();
        job.launch_together(file, encode, THREADS, &partitions)?;
        chunks.finish(job, self.parameter, [NULL, NULL], 1, dst)
    }

    fn decode(&self, job: &mut Job<'_>, operands: DecodeOperands) -> Result<(), DeviceError> {
        let DecodeOperands { src, divisor, dst, .. } = operands;
        let rest = args![dst, job.n_values, job.outcome, job.weight, divisor];
        let args = [&range(src).args()[..], &rest].concat();
        let (file, _, decode) = self.file();
        job.launch(file, decode, job.n_values.div_ceil(CHUNK), THREADS, &args)
    }

    fn scratch_bytes(&self, n_values: usize) -> usize {
        Chunks::scratch_bytes(n_values, self.slot)
    }
}
