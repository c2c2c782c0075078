//! Check of a device's kernels against the host's codecs, before a workspace first uses them.
//!
//! Another compiler, driver or device could round or flush differently. Ranks of one call would
//! then hold other bits, which nothing else notices. So a few thousand values of every kind are
//! encoded, decoded, folded and combined on the device and on the host, and all bytes compared.

use crate::{DeviceBuffer, DeviceBytes, DeviceCodec, DeviceError, Driver, Outcome, Stream, Task};
use bytemuck::Pod;
use foldwire::codec::{CodecExt, CodecId, CodecParams};
use foldwire::op::OpCode;
use foldwire::{DType, Float, Op, Quantum, with_float};
use std::sync::Arc;

/// Values of each check: a chunk and a part of one.
const N_VALUES: usize = 5000;
/// Operands for whose sums the codec has room.
const MAX_OPERANDS: u32 = 4;

/// Checks the kernels of a codec for a type.
pub(crate) fn check(
    driver: &Arc<dyn Driver>,
    codec: CodecId,
    dtype: DType,
) -> Result<(), DeviceError> {
    // Integers are exact on any device.
    with_float!(dtype, T => check_type::<T>(driver, codec), else Ok(()))
}

/// Returns values of every kind: smooth, constant, rough, subnormal, huge, and no numbers.
fn values<T: Float>(shift: usize) -> Vec<T> {
    let value = |i: usize| match i / 500 {
        0 => 1.5,
        1 => 1e-40 * i as f64,
        2 if i.is_multiple_of(7) => f64::NAN,
        3 if i.is_multiple_of(50) => f64::INFINITY,
        4 => 1e4 * ((i * i) as f64).sin(),
        5 => -0.0,
        6 => T::MAX.to_f64() * (i as f64).cos(),
        _ => (i as f64 * 0.01).sin(),
    };
    (0..N_VALUES).map(|i| T::from_f64(value((i + shift) % N_VALUES))).collect()
}

fn check_type<T: Float>(driver: &Arc<dyn Driver>, id: CodecId) -> Result<(), DeviceError> {
    let differs = || DeviceError::Differs { codec: id.name(), dtype: T::DTYPE };
    let quantum = Quantum::new::<T>(1e-3).unwrap_or(Quantum::LOSSLESS);
    for params in [
        CodecParams::new(quantum).for_sums_of(MAX_OPERANDS),
        CodecParams::new(quantum).for_averages_of(MAX_OPERANDS),
    ] {
        let Some(on_device) = DeviceCodec::new(T::DTYPE, id, &params) else { return Ok(()) };
        let on_host = id.instance::<T>(&params);
        let codec = on_host.as_dyn();
        let (own, other) = (values::<T>(0), values::<T>(137));
        let space = codec.max_encoded_len(N_VALUES).ok_or_else(differs)?;
        let mut run = TaskRun::new(driver, on_device, space)?;
        let encoded = |values: &[T]| {
            let mut payload = vec![0; space];
            let written = codec.encode(values, &mut payload).map_err(|_| differs())?;
            payload.truncate(written.n_bytes);
            Ok(payload)
        };
        let (a, b) = (encoded(&own)?, encoded(&other)?);
        let on = |values: &[T]| DeviceBuffer::from_values(driver, values);
        let (values, result) = (on(&own)?, on(&other)?);
        let [src_a, src_b] = [&a, &b].map(|bytes| DeviceBuffer::from_values(driver, bytes));
        let (src_a, src_b) = (src_a?, src_b?);
        let [src_a, src_b] = [&src_a, &src_b].map(bytes_of);
        let dst = bytes_of(&run.written);
        let encode = Task::Encode { own: values.ptr(), weighted: false, dst };
        let mut is_same = run.payload(&encode)? == Some(a.clone());

        let mut decoded = vec![T::ZERO; N_VALUES];
        codec.decode(&a, MAX_OPERANDS, &mut decoded).map_err(|_| differs())?;
        let decode = Task::Decode { src: src_a, divisor: MAX_OPERANDS, dst: result.ptr() };
        is_same &= run.payload(&decode)?.is_some();
        let found = result.to_vec(driver)?;
        is_same &= bytes(&found) == bytes(&decoded);

        let mut folded = vec![0; space];
        let written = codec.fold(&Op::Sum, &b, &own, &mut folded).map_err(|_| differs())?;
        folded.truncate(written.n_bytes);
        let fold = Task::Fold { src: src_b, own: values.ptr(), dst, store: None };
        is_same &= run.payload(&fold)? == Some(folded.clone());
        if codec.homomorphic().is_some() {
            is_same &= run.payload(&Task::Combine { a: src_b, b: src_a, dst })? == Some(folded);
        }
        if !is_same {
            return Err(differs());
        }
    }
    Ok(())
}

fn bytes<T: Pod>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

const fn bytes_of<T: Pod>(buffer: &DeviceBuffer<T>) -> DeviceBytes {
    DeviceBytes { ptr: buffer.ptr(), n_bytes: buffer.len() * size_of::<T>() }
}

/// Runs tasks on [`N_VALUES`] values, one after the other.
struct TaskRun<'d> {
    driver: &'d Arc<dyn Driver>,
    codec: DeviceCodec,
    stream: Stream,
    written: DeviceBuffer<u8>,
    scratch: DeviceBuffer<u8>,
    outcome: DeviceBuffer<Outcome>,
}

impl<'d> TaskRun<'d> {
    fn new(
        driver: &'d Arc<dyn Driver>,
        codec: DeviceCodec,
        space: usize,
    ) -> Result<Self, DeviceError> {
        Ok(Self {
            stream: Stream::new(driver)?,
            written: DeviceBuffer::new(driver, space)?,
            scratch: DeviceBuffer::new(driver, codec.scratch_bytes(N_VALUES))?,
            outcome: DeviceBuffer::new(driver, 1)?,
            driver,
            codec,
        })
    }

    /// Returns the payload that a task wrote; `None` if it reports an error.
    fn payload(&mut self, task: &Task) -> Result<Option<Vec<u8>>, DeviceError> {
        let (scratch, outcome) = (bytes_of(&self.scratch), self.outcome.ptr());
        self.stream.clear(outcome, size_of::<Outcome>())?;
        self.codec.enqueue(&mut self.stream, OpCode::Sum, task, N_VALUES, scratch, outcome)?;
        self.stream.finish()?;
        let outcome = self.outcome.to_vec(self.driver)?[0];
        let Ok(done) = outcome.result(self.codec.dtype()) else { return Ok(None) };
        Ok(Some(self.written.front(self.driver, done.n_bytes)?))
    }
}
