//! Codecs on devices, beside the scalar codecs of core. Each task runs on the simulated device, and
//! on the machine's GPU, if it has one.

use bytemuck::Zeroable;
use foldwire::codec::{
    AnyCodec, Codec, CodecError, CodecExt, CodecId, CodecParams, Values, Written,
};
use foldwire::{DType, Element, Float, Op};
use foldwire_cuda::{
    DeviceBuffer, DeviceBytes, DeviceCodec, DeviceError, DevicePtr, Driver, Outcome, Stream, Task,
    Transfer,
};
use foldwire_cuda_host::drivers;
use std::fmt::Debug;
use std::sync::Arc;

/// A device on which kernels run.
struct Place {
    driver: Arc<dyn Driver>,
    stream: Stream,
    transfer: Transfer,
    /// Most bytes of a transfer.
    n_bytes: usize,
}

impl Place {
    fn new(driver: Arc<dyn Driver>) -> Result<Self, DeviceError> {
        let (stream, n_bytes) = (Stream::new(&driver)?, 1 << 10);
        Ok(Self { transfer: Transfer::new(&driver, n_bytes)?, driver, stream, n_bytes })
    }

    fn transfer(&mut self, n_bytes: usize) -> Result<&mut Transfer, DeviceError> {
        if n_bytes > self.n_bytes {
            (self.transfer, self.n_bytes) = (Transfer::new(&self.driver, n_bytes)?, n_bytes);
        }
        Ok(&mut self.transfer)
    }

    /// Allocates memory that ends where the bytes end, so that an access behind them is found.
    fn upload(&mut self, bytes: &[u8]) -> Result<DeviceBuffer<u8>, DeviceError> {
        if bytes.is_empty() {
            // No memory of the device.
            return DeviceBuffer::adopt(DevicePtr(1 << 12), 0);
        }
        let mut buffer = DeviceBuffer::new(&self.driver, bytes.len())?;
        self.transfer(bytes.len())?.upload(bytes, &mut buffer)?;
        Ok(buffer)
    }

    fn download(
        &mut self,
        from: &DeviceBuffer<u8>,
        n_bytes: usize,
    ) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; n_bytes];
        if n_bytes > 0 {
            self.transfer(n_bytes)?.download(from, &mut bytes)?;
        }
        Ok(bytes)
    }
}

/// Names bytes in a device's memory.
fn all(buffer: &DeviceBuffer<u8>) -> DeviceBytes {
    DeviceBytes { ptr: buffer.ptr(), n_bytes: buffer.len() }
}

/// A codec of both kinds.
pub(crate) struct Pair<T: Element> {
    places: Vec<Place>,
    kernels: DeviceCodec,
    scalar: AnyCodec<T>,
    context: String,
}

/// Output of a task: its report, a payload and values.
type Made<T> = (Result<Written, CodecError>, Vec<u8>, Vec<T>);

impl<T: Float> Pair<T> {
    pub(crate) fn new(id: CodecId, params: &CodecParams, context: &str) -> Self {
        let scalar = params.at(foldwire::kernel::Level::Scalar);
        Self {
            places: drivers().map(|driver| Place::new(driver).expect("there is memory")).collect(),
            kernels: DeviceCodec::new(T::DTYPE, id, params).expect("kernels of the codec"),
            scalar: id.instance::<T>(&scalar),
            context: format!("{} of {}, {params:?}, {context}", id.name(), T::DTYPE),
        }
    }

    fn scalar(&self) -> &dyn Codec<T> {
        self.scalar.as_dyn()
    }

    fn most(&self, n_values: usize) -> usize {
        let most = self.scalar().max_encoded_len(n_values).unwrap();
        assert_eq!(self.kernels.max_encoded_len(n_values), Some(most));
        most
    }

    /// Runs a task that `make` makes of its payloads, its values, its destination and its output.
    /// The output is at first a copy of the values. All devices give the same.
    fn run(
        &mut self,
        op: &Op<'_, T>,
        payloads: &[&[u8]],
        values: &[T],
        n_values: usize,
        make: impl Fn(&[DeviceBytes], DevicePtr, DeviceBytes, DevicePtr) -> Task,
    ) -> Made<T> {
        let most = self.most(n_values);
        let Self { places, kernels, context, .. } = self;
        let mut made = places.iter_mut().map(|place| {
            let run = run_on(place, kernels, op, (payloads, values, most), n_values, &make);
            run.unwrap_or_else(|error| panic!("{context}: {error}"))
        });
        let first = made.next().expect("a simulated device");
        for (report, bytes, values) in made {
            assert!(report == first.0, "{context}: a GPU reports {report:?}, not {:?}", first.0);
            let is_same = bytes == first.1 && bits(&values) == bits(&first.2);
            assert!(report.is_err() || is_same, "{context}: other bytes on a GPU");
        }
        first
    }

    /// Compares a report and a payload with what the scalar codec wrote.
    fn same<E: Debug + Into<CodecError>>(
        &self,
        what: &str,
        (report, bytes, _): &Made<T>,
        expected: Result<Written, E>,
        scalar: &[u8],
    ) {
        let expected = expected.map_err(Into::into);
        assert!(*report == expected, "{}: {what}: {report:?} {expected:?}", self.context);
        if let Ok(written) = expected {
            let differs = bytes.iter().zip(scalar).position(|(a, b)| a != b);
            let n_bytes = written.n_bytes;
            assert!(differs.is_none(), "{}: {what}: byte {differs:?} of {n_bytes}", self.context);
        }
    }

    fn same_values(&self, what: &str, found: &[T], expected: &[T]) {
        let (found, expected) = (bits(found), bits(expected));
        let differs = found.iter().zip(expected).position(|(a, b)| a != b);
        if let Some(at) = differs {
            let at = at / T::BYTES * T::BYTES;
            let (a, b) = (&found[at..at + T::BYTES], &expected[at..at + T::BYTES]);
            panic!("{}: {what}: value {}: {a:02x?} {b:02x?}", self.context, at / T::BYTES);
        }
    }

    /// Checks that both encode values alike; returns the payload.
    pub(crate) fn encode(&mut self, values: &[T], weighted: bool) -> Vec<u8> {
        let n_values = values.len();
        let mut bytes = vec![0; self.most(n_values)];
        let written = match weighted {
            true => self.scalar().encode_partial(values, &mut bytes),
            false => self.scalar().encode(values, &mut bytes),
        };
        let made = self.run(&Op::Sum, &[], values, n_values, |_, own, dst, _| Task::Encode {
            own,
            weighted,
            dst,
        });
        bytes.truncate(written.as_ref().map_or(0, |written| written.n_bytes));
        self.same("encode", &made, written, &bytes);
        bytes
    }

    /// Checks that both decode a payload alike, or refuse it alike.
    pub(crate) fn decode(&mut self, payload: &[u8], n_values: usize, divisor: u32) {
        let start = vec![T::from_f64(7.0); n_values];
        let mut values = start.clone();
        let expected = self.scalar().decode(payload, divisor, &mut values);
        let (report, _, found) =
            self.run(&Op::Sum, &[payload], &start, n_values, |src, _, _, dst| Task::Decode {
                src: src[0],
                divisor,
                dst,
            });
        let report = report.map(drop);
        let expected = expected.map_err(CodecError::from);
        assert!(report == expected, "{}: decode: {report:?} {expected:?}", self.context);
        if expected.is_ok() {
            self.same_values("decode", &found, &values);
        }
    }

    /// Checks that both fold alike; returns the payload.
    pub(crate) fn fold(
        &mut self,
        op: &Op<'_, T>,
        payload: &[u8],
        local: &[T],
        divisor: Option<u32>,
    ) -> Vec<u8> {
        let n_values = local.len();
        let (mut bytes, mut output) = (vec![0; self.most(n_values)], local.to_vec());
        let written = match divisor {
            None => self.scalar().fold(op, payload, local, &mut bytes),
            Some(divisor) => {
                let values = Values::InPlace(&mut output);
                self.scalar().fold_store(op, payload, values, divisor, &mut bytes)
            }
        };
        let made = self.run(op, &[payload], local, n_values, |src, own, dst, output| {
            // In place, as the scalar codec did.
            let own = if divisor.is_some() { output } else { own };
            let store = divisor.map(|divisor| (output, divisor));
            Task::Fold { src: src[0], own, dst, store }
        });
        let is_ok = written.is_ok();
        bytes.truncate(written.as_ref().map_or(0, |written| written.n_bytes));
        self.same(&format!("fold {op:?} {divisor:?}"), &made, written, &bytes);
        if is_ok {
            self.same_values(&format!("fold {op:?}"), &made.2, &output);
        }
        bytes
    }

    /// Checks that both decode, reduce and encode alike.
    pub(crate) fn recode(&mut self, op: Option<&Op<'_, T>>, payload: &[u8], local: &[T]) {
        let n_values = local.len();
        let mut bytes = vec![0; self.most(n_values)];
        let written = match op {
            Some(op) => self.scalar().refold(op, payload, local, &mut bytes),
            None => self.scalar().recode(payload, n_values, &mut bytes),
        };
        let code = op.unwrap_or(&Op::Sum);
        let made = self.run(code, &[payload], local, n_values, |src, own, dst, _| Task::Recode {
            src: src[0],
            own: op.map(|_| own),
            dst,
        });
        bytes.truncate(written.as_ref().map_or(0, |written| written.n_bytes));
        self.same(&format!("recode {op:?}"), &made, written, &bytes);
    }

    /// Checks that both combine payloads alike, if the codec does so at all.
    pub(crate) fn combine(&mut self, op: &Op<'_, T>, a: &[u8], b: &[u8], n_values: usize) {
        let mut bytes = vec![0; self.most(n_values)];
        let Some(scalar) = self.scalar().homomorphic() else { return };
        let written = scalar.combine_paced(op, a, b, &mut bytes, &());
        let made = self.run(op, &[a, b], &[], n_values, |src, _, dst, _| Task::Combine {
            a: src[0],
            b: src[1],
            dst,
        });
        bytes.truncate(written.as_ref().map_or(0, |written| written.n_bytes));
        self.same(&format!("combine {op:?}"), &made, written, &bytes);
    }

    /// Checks that both reduce into values alike.
    pub(crate) fn reduce(&mut self, op: &Op<'_, T>, payload: &[u8], acc: &[T]) {
        let mut sums = acc.to_vec();
        let expected = self.scalar().reduce(op, payload, &mut sums);
        let (report, _, found) = self.run(op, &[payload], acc, acc.len(), |src, _, _, output| {
            Task::Reduce { src: src[0], acc: output }
        });
        let expected = expected.map_err(CodecError::from);
        let report = report.map(drop);
        assert!(report == expected, "{}: reduce: {report:?} {expected:?}", self.context);
        if expected.is_ok() {
            self.same_values("reduce", &found, &sums);
        }
    }
}

fn bits<T: Element>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// Runs a task on a device. `most` is the length of its destination in bytes.
fn run_on<T: Float>(
    place: &mut Place,
    kernels: &DeviceCodec,
    op: &Op<'_, T>,
    (payloads, values, most): (&[&[u8]], &[T], usize),
    n_values: usize,
    make: impl Fn(&[DeviceBytes], DevicePtr, DeviceBytes, DevicePtr) -> Task,
) -> Result<Made<T>, DeviceError> {
    let payloads: Vec<_> =
        payloads.iter().map(|bytes| place.upload(bytes)).collect::<Result<_, _>>()?;
    // Odd numbers of values begin at a multiple of their size only.
    let lead = values.len() % 2;
    let padded: Vec<T> = vec![T::ONE; lead].into_iter().chain(values.to_vec()).collect();
    let [own, output] = [place.upload(bits(&padded))?, place.upload(bits(&padded))?];
    let dst = place.upload(&vec![0x5a; most])?;
    let outcome = place.upload(bytemuck::bytes_of(&Outcome::zeroed()))?;
    let scratch = DeviceBuffer::new(&place.driver, kernels.scratch_bytes(n_values))?;
    let [first, first_output] = [&own, &output].map(|at| at.ptr().offset(lead * T::BYTES));
    let named: Vec<_> = payloads.iter().map(all).collect();
    let task = make(&named, first, all(&dst), first_output);
    let on = &mut place.stream;
    kernels.enqueue(on, op.code(), &task, n_values, all(&scratch), outcome.ptr())?;
    place.stream.finish()?;
    let report = place.download(&outcome, size_of::<Outcome>())?;
    let report = bytemuck::pod_read_unaligned::<Outcome>(&report).result(T::DTYPE);
    let n_bytes = report.as_ref().map_or(0, |written| written.n_bytes);
    let bytes = place.download(&dst, n_bytes)?;
    let stored = place.download(&output, output.len())?;
    let stored = stored.chunks(T::BYTES).skip(lead).map(bytemuck::pod_read_unaligned);
    Ok((report, bytes, stored.collect()))
}

/// Arrays of different character.
pub(crate) fn arrays<T: Float>(n_values: usize, seed: u64) -> Vec<(&'static str, Vec<T>)> {
    let mut state = 0x2545_f491_4f6c_dd1d ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let unit = |bits: u64| (bits >> 11) as f64 / (1u64 << 53) as f64;
    let mut array = |make: &mut dyn FnMut(usize, u64) -> f64| -> Vec<T> {
        (0..n_values).map(|i| T::from_f64(make(i, random()))).collect()
    };
    let largest = match T::DTYPE {
        DType::F32 => f64::from(f32::MAX),
        DType::F64 => f64::MAX,
        DType::F16 => 65504.0,
        _ => 3.3895313892515355e38,
    };
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, largest, -largest, T::SMALLEST, -0.0];
    let smooth = |i: usize| (i as f64 * 1e-3 + seed as f64).sin();
    vec![
        ("smooth", array(&mut |i, _| smooth(i))),
        ("far from zero", array(&mut |i, _| 1e4 + (i as f64 * 1e-2).cos())),
        ("noise", array(&mut |_, bits| unit(bits) - 0.5)),
        ("constant", array(&mut |_, _| 3.25)),
        ("zeros", array(&mut |_, _| 0.0)),
        ("steps", array(&mut |i, _| ((i + seed as usize) / 100 % 7) as f64)),
        (
            "any magnitude",
            array(&mut |_, bits| {
                let sign = if bits & 1 == 0 { 1.0 } else { -1.0 };
                sign * largest.powf(2.0 * unit(bits) - 1.0)
            }),
        ),
        (
            "dotted",
            array(&mut |i, bits| match bits % 20 {
                0 => odd[(bits >> 32) as usize % odd.len()],
                _ => smooth(i),
            }),
        ),
        (
            "holes",
            array(&mut |i, bits| match (i as u64 / 97 + seed) % 3 {
                0 => f64::NAN,
                1 if bits % 40 == 0 => -9.96e4,
                _ => smooth(i),
            }),
        ),
        ("subnormal", array(&mut |i, _| T::SMALLEST * (i % 1000) as f64)),
        ("sparse", array(&mut |_, bits| if bits % 50 == 0 { unit(bits) } else { 0.0 })),
    ]
}
