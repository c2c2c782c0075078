//! The smallest and the largest value in device memory.

use crate::kernel::{KernelFile, Module};
use crate::{DeviceBytes, DeviceError, DevicePtr, KernelArg, Launch, Launcher};
use foldwire::DType;

/// Threads of a block.
const N_THREADS: u32 = 256;
/// Most blocks: several for each multiprocessor of any device.
const MAX_BLOCKS: usize = 1024;

/// Enqueues the search. Each block writes its smallest and largest value to `parts`, as two `f64`.
/// Returns the number of blocks.
pub(crate) fn enqueue(
    on: &mut dyn Launcher,
    dtype: DType,
    values: DevicePtr,
    n_values: usize,
    parts: DeviceBytes,
) -> Result<usize, DeviceError> {
    let n_blocks = n_values.div_ceil(N_THREADS as usize).clamp(1, MAX_BLOCKS);
    let n_blocks = n_blocks.min(parts.n_bytes / size_of::<[f64; 2]>()).max(1);
    let name = match dtype {
        DType::F32 => "value_range_f32",
        DType::F64 => "value_range_f64",
        DType::F16 => "value_range_f16",
        DType::Bf16 => "value_range_bf16",
        _ => return Err(DeviceError::Unsupported { what: "value ranges of integers" }),
    };
    on.launch(&Launch {
        module: Module { file: KernelFile::Range, dtype },
        kernel: name,
        n_blocks: n_blocks as u32,
        n_threads: N_THREADS,
        args: &[values.into(), KernelArg(n_values as u64), parts.ptr.into()],
    })?;
    Ok(n_blocks)
}

/// Returns the range of all values from those of parts: [∞, −∞] if there is no part.
pub(crate) fn of_parts(parts: impl Iterator<Item = [f64; 2]>) -> [f64; 2] {
    let none = [f64::INFINITY, f64::NEG_INFINITY];
    parts.fold(none, |[min, max], [a, b]| [min.min(a), max.max(b)])
}
