//! Check of a device's kernels against the host's codecs, before a workspace first uses them.
//!
//! Another compiler, driver or device could round or flush differently. Ranks of one call would
//! then hold other bits, which nothing else notices. So a few thousand values of every kind are
//! encoded, decoded, folded and combined on the device and on the host, and all bytes compared. So
//! are sums of integers, and the range of floats.

use crate::{
    DeviceBuffer, DeviceBytes, DeviceCodec, DeviceError, DevicePtr, Driver, Outcome, Stream, Task,
    range,
};
use bytemuck::Pod;
use foldwire::codec::{CodecError, CodecExt, CodecId, CodecParams, Written};
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
    with_float!(dtype, T => check_floats::<T>(driver, codec), else check_integers(driver, dtype))
}

/// Tasks on values, and the bytes that the host makes.
struct Check {
    codec: DeviceCodec,
    /// Most bytes of a payload.
    space: usize,
    values: Vec<u8>,
    /// Payload of the values, and of others.
    payloads: [Vec<u8>; 2],
    /// The first payload, decoded and divided.
    decoded: Vec<u8>,
    divisor: u32,
    /// Payload of the sum.
    sum: Vec<u8>,
    /// True if the codec adds payloads, too.
    combines: bool,
    /// Smallest and largest finite value, if kernels find them.
    range: Option<[f64; 2]>,
}

impl Check {
    /// Carries the tasks out on the device. Fails if a byte differs.
    fn run(self, driver: &Arc<dyn Driver>) -> Result<(), DeviceError> {
        let Self { codec, payloads: [payload, other], divisor, .. } = &self;
        let mut run = TaskRun::new(driver, *codec, self.space)?;
        let on = |bytes: &[u8]| DeviceBuffer::from_values(driver, bytes);
        let (values, result) = (on(&self.values)?, on(&self.values)?);
        let (src, other) = (on(payload)?, on(other)?);
        let (own, dst) = (values.ptr(), bytes_of(&run.written));
        let [a, b] = [&other, &src].map(bytes_of);

        let encoded = run.payload(&Task::Encode { own, weighted: false, dst })?;
        let mut is_same = encoded.as_ref() == Some(payload);
        let decode = Task::Decode { src: b, divisor: *divisor, dst: result.ptr() };
        is_same &= run.payload(&decode)?.is_some() && result.to_vec(driver)? == self.decoded;
        let folded = run.payload(&Task::Fold { src: a, own, dst, store: None })?;
        is_same &= folded.as_ref() == Some(&self.sum);
        if self.combines {
            let combined = run.payload(&Task::Combine { a, b, dst })?;
            is_same &= combined.as_ref() == Some(&self.sum);
        }
        if let Some(range) = self.range {
            is_same &= run.range(own)? == range;
        }
        let (codec, dtype) = (codec.id().name(), codec.dtype());
        if is_same { Ok(()) } else { Err(DeviceError::Differs { codec, dtype }) }
    }
}

/// Sums of integers wrap.
fn check_integers(driver: &Arc<dyn Driver>, dtype: DType) -> Result<(), DeviceError> {
    let (id, params) = (CodecId::Raw, CodecParams::new(Quantum::LOSSLESS));
    let Some(codec) = DeviceCodec::new(dtype, id, &params) else { return Ok(()) };
    let n = dtype.n_bytes();
    let bytes = |factor: u32| -> Vec<u8> {
        (0..(N_VALUES * n) as u32).map(|i| (i.wrapping_mul(factor) >> 24) as u8).collect()
    };
    let [values, others] = [0x9e37_79b9, 0x85eb_ca6b].map(bytes);
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let sums = values.chunks(n).zip(others.chunks(n));
    let sums = sums.map(|(a, b)| number(a).wrapping_add(number(b)).to_le_bytes());
    let check = Check {
        codec,
        space: values.len(),
        decoded: values.clone(),
        divisor: 1,
        sum: sums.flat_map(|sum| sum.into_iter().take(n)).collect(),
        combines: false,
        range: None,
        payloads: [values.clone(), others],
        values,
    };
    check.run(driver)
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

fn check_floats<T: Float>(driver: &Arc<dyn Driver>, id: CodecId) -> Result<(), DeviceError> {
    let differs = |_| DeviceError::Differs { codec: id.name(), dtype: T::DTYPE };
    let quantum = Quantum::new::<T>(1e-3).unwrap_or(Quantum::LOSSLESS);
    let (own, other) = (values::<T>(0), values::<T>(137));
    for params in [
        CodecParams::new(quantum).for_sums_of(MAX_OPERANDS),
        CodecParams::new(quantum).for_averages_of(MAX_OPERANDS),
    ] {
        let Some(on_device) = DeviceCodec::new(T::DTYPE, id, &params) else { return Ok(()) };
        let on_host = id.instance::<T>(&params);
        let codec = on_host.as_dyn();
        let space = codec.max_encoded_len(N_VALUES).ok_or(()).map_err(differs)?;
        let payload = |write: &dyn Fn(&mut [u8]) -> Result<Written, CodecError>| {
            let mut payload = vec![0; space];
            let written = write(&mut payload).map_err(|_| differs(()))?;
            payload.truncate(written.n_bytes);
            Ok(payload)
        };
        let a = payload(&|to| codec.encode(&own, to))?;
        let b = payload(&|to| codec.encode(&other, to))?;
        let mut decoded = vec![T::ZERO; N_VALUES];
        codec.decode(&a, MAX_OPERANDS, &mut decoded).map_err(|_| differs(()))?;
        let finite = own.iter().map(|value| value.to_f64()).filter(|value| value.is_finite());
        let check = Check {
            codec: on_device,
            space,
            values: bytes(&own).to_vec(),
            sum: payload(&|to| codec.fold(&Op::Sum, &b, &own, to))?,
            payloads: [a, b],
            decoded: bytes(&decoded).to_vec(),
            divisor: MAX_OPERANDS,
            combines: codec.homomorphic().is_some(),
            // Every call uses raw's kernels, and so checks the range once.
            range: (id == CodecId::Raw).then(|| range::of_parts(finite.map(|value| [value; 2]))),
        };
        check.run(driver)?;
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

    /// Returns the range of values on the device.
    fn range(&mut self, values: DevicePtr) -> Result<[f64; 2], DeviceError> {
        let (dtype, parts) = (self.codec.dtype(), bytes_of(&self.written));
        let n_parts = range::enqueue(&mut self.stream, dtype, values, N_VALUES, parts)?;
        self.stream.finish()?;
        let mut extremes = vec![[0_f64; 2]; n_parts];
        let found = self.written.front(self.driver, bytes(&extremes).len())?;
        bytemuck::cast_slice_mut(&mut extremes).copy_from_slice(&found);
        Ok(range::of_parts(extremes.into_iter()))
    }
}
