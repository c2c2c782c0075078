//! Measurement of codecs on a device (`--device`): the host's codec gives the bytes and values to
//! expect, the device's are compared with them, then timed where they are.
//!
//! A time is that of a launch among several, from the first to the end of the last. The copy beside
//! it is one from the device to itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use bytemuck::Zeroable;
use foldwire::codec::{CodecExt, CodecParams};
use foldwire::op::OpCode;
use foldwire::{Float, Op};
use foldwire_arguments::coding::CodecArg;
use foldwire_cuda::{DeviceBuffer, DeviceBytes, DeviceCodec, Driver, Outcome, Stream, Task};
use foldwire_workbench::memory;

use super::measure::{CodecBench, CodecMeasurements, instance, params_of};

/// Launches of a task in one timing.
const N_LAUNCHES: u32 = 8;

/// A field in a device's memory, and space for what tasks write.
struct DeviceBench<'d, T> {
    driver: &'d Arc<dyn Driver>,
    stream: Stream,
    values: DeviceBuffer<T>,
    decoded: DeviceBuffer<T>,
    written: DeviceBuffer<u8>,
    scratch: DeviceBuffer<u8>,
    outcome: DeviceBuffer<Outcome>,
}

const fn bytes<T: bytemuck::Pod>(buffer: &DeviceBuffer<T>) -> DeviceBytes {
    DeviceBytes { ptr: buffer.ptr(), n_bytes: buffer.len() * size_of::<T>() }
}

impl<T: Float> DeviceBench<'_, T> {
    /// Enqueues a task.
    fn enqueue(&mut self, codec: &DeviceCodec, task: &Task) -> anyhow::Result<()> {
        let (scratch, outcome) = (bytes(&self.scratch), self.outcome.ptr());
        self.stream.clear(outcome, size_of::<Outcome>())?;
        codec.enqueue(&mut self.stream, OpCode::Sum, task, self.values.len(), scratch, outcome)?;
        Ok(())
    }

    /// Runs a task. Returns the bytes that it wrote.
    fn run(&mut self, codec: &DeviceCodec, task: &Task) -> anyhow::Result<Vec<u8>> {
        self.enqueue(codec, task)?;
        self.stream.finish()?;
        let outcome = self.outcome.to_vec(self.driver)?[0];
        Ok(self.written.front(self.driver, outcome.result(T::DTYPE)?.n_bytes)?)
    }

    /// Returns the median time of a task, or of a copy of the field.
    fn time(
        &mut self,
        n_rounds: usize,
        timed: Option<(&DeviceCodec, &Task)>,
    ) -> anyhow::Result<f64> {
        let mut times = Vec::new();
        // The first round is not counted.
        for _ in 0..=n_rounds {
            let start = Instant::now();
            for _ in 0..N_LAUNCHES {
                match timed {
                    Some((codec, task)) => self.enqueue(codec, task)?,
                    None => {
                        let n_bytes = self.values.len() * T::BYTES;
                        self.stream.copy(self.values.ptr(), self.decoded.ptr(), n_bytes)?;
                    }
                }
            }
            self.stream.finish()?;
            times.push(start.elapsed() / N_LAUNCHES);
        }
        let median: Duration = memory::median(&times[1..]);
        Ok(memory::gbps(self.values.len() * T::BYTES, median))
    }
}

impl<T: Float + Into<f64>> CodecBench<'_, T> {
    /// Checks and times the codec with these parameters on a device.
    pub(super) fn run_on(
        &mut self,
        driver: &Arc<dyn Driver>,
        coding: CodecArg,
        bound: f64,
        params: CodecParams,
    ) -> anyhow::Result<CodecMeasurements> {
        let codec = instance::<T>(coding, params);
        let codec = codec.as_dyn();
        let [own, other] = self.encoded(codec)?;
        let mut measured = self.check(codec, bound, &own, &other)?;
        let all = params_of(coding, params);
        let Some(on_device) = DeviceCodec::new(T::DTYPE, coding.codec, &all) else {
            bail!("the device has no codec {coding} for {}", T::DTYPE);
        };
        let n = self.values.len();
        let mut bench = DeviceBench {
            driver,
            stream: Stream::new(driver)?,
            values: DeviceBuffer::from_values(driver, self.values)?,
            decoded: DeviceBuffer::new(driver, n)?,
            written: DeviceBuffer::new(driver, self.scratch.len())?,
            scratch: DeviceBuffer::new(driver, on_device.scratch_bytes(n))?,
            outcome: DeviceBuffer::from_values(driver, &[Outcome::zeroed()])?,
        };
        let dst = bytes(&bench.written);
        let encode = Task::Encode { own: bench.values.ptr(), weighted: false, dst };
        ensure!(bench.run(&on_device, &encode)? == own, "the device encodes other bytes");
        let [a, b] = [&own, &other].map(|payload| DeviceBuffer::from_values(driver, payload));
        let (a, b) = (a?, b?);
        let decode = Task::Decode { src: bytes(&a), divisor: 1, dst: bench.decoded.ptr() };
        bench.run(&on_device, &decode)?;
        codec.decode(&own, 1, &mut self.decoded)?;
        let decoded = bench.decoded.to_vec(driver)?;
        let (decoded, expected): (&[u8], &[u8]) =
            (bytemuck::cast_slice(&decoded), bytemuck::cast_slice(&self.decoded));
        ensure!(decoded == expected, "the device decodes other values");
        let fold = Task::Fold { src: bytes(&b), own: bench.values.ptr(), dst, store: None };
        let n_bytes = codec.fold(&Op::Sum, &other, self.values, &mut self.scratch)?.n_bytes;
        let folded = bench.run(&on_device, &fold)?;
        ensure!(folded == self.scratch[..n_bytes], "the device folds to other bytes");
        let combine = Task::Combine { a: bytes(&b), b: bytes(&a), dst };
        let is_homomorphic = codec.homomorphic().is_some();
        if is_homomorphic {
            let combined = bench.run(&on_device, &combine)?;
            ensure!(combined == folded, "the device combines to other bytes");
        }
        let n_rounds = self.n_rounds;
        let mut time = |task: &Task| bench.time(n_rounds, Some((&on_device, task)));
        measured.encode_gbps = time(&encode)?;
        measured.decode_gbps = time(&decode)?;
        measured.fold_gbps = time(&fold)?;
        measured.combine_gbps = is_homomorphic.then(|| time(&combine)).transpose()?;
        measured.memcpy_gbps = bench.time(n_rounds, None)?;
        Ok(measured)
    }
}

#[cfg(all(test, feature = "simulated"))]
mod tests {
    use foldwire::codec::CodecId;
    use foldwire::{Quantum, bf16};
    use foldwire_cuda_host::{Faults, SimulatedDevice};

    use super::*;

    /// Measures a codec on a device with these faults.
    fn measured<T: Float + Into<f64>>(
        codec: CodecId,
        faults: Faults,
    ) -> anyhow::Result<CodecMeasurements> {
        let driver: Arc<dyn Driver> = SimulatedDevice::with_faults(faults);
        // Payloads are long enough to contain the byte that a fault changes.
        let values: Vec<T> = (0..5000).map(|i| T::from_f64((f64::from(i) * 1.7).sin())).collect();
        let coding = CodecArg::from(codec);
        let params = CodecParams::new(Quantum::new::<T>(1e-3)?);
        CodecBench::new(&values, &[coding], 1).run_on(&driver, coding, 1e-3, params)
    }

    #[test]
    fn the_devices_bytes_are_checked_and_every_task_is_timed() {
        for measured in [
            measured::<f32>(CodecId::FzLight, Faults::default()),
            measured::<bf16>(CodecId::FzLight, Faults::default()),
            measured::<f32>(CodecId::CuSzp, Faults::default()),
        ] {
            let measured = measured.expect("the bytes are the same");
            assert!(measured.ratio > 1.0 && measured.values_over_bound == 0, "{measured:?}");
            let speeds = [measured.encode_gbps, measured.decode_gbps, measured.fold_gbps];
            assert!(speeds.iter().all(|speed| *speed > 0.0), "{measured:?}");
            assert!(measured.memcpy_gbps > 0.0);
        }
    }

    #[test]
    fn a_device_that_rounds_differently_fails_the_measurement() {
        for failure in [
            measured::<f32>(CodecId::FzLight, Faults { rounding: Some(0), ..Faults::default() }),
            measured::<bf16>(CodecId::FzLight, Faults { rounding: Some(0), ..Faults::default() }),
        ] {
            let failure = failure.expect_err("the bytes differ").to_string();
            assert!(failure.contains("other bytes"), "{failure}");
        }
    }

    #[test]
    fn a_codec_that_the_device_lacks_is_named() {
        let failure = measured::<f32>(CodecId::Dense, Faults::default()).expect_err("no kernels");
        assert!(failure.to_string().contains("the device has no codec dense"), "{failure}");
    }
}
