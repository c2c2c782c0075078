//! Codecs on the device that the host plays, beside the scalar codecs of core.

use bytemuck::Zeroable;
use foldwire::codec::{
    AnyCodec, Codec, CodecError, CodecExt, CodecId, CodecParams, Values, Written,
};
use foldwire::{DType, Element, Float, Op};
use foldwire_cuda::{
    DeviceBytes, DeviceCodec, DeviceError, DevicePtr, Launch, Launcher, Outcome, Task,
};
use foldwire_cuda_host::Device;
use std::fmt::Debug;

/// Runs launches at once.
struct OnHost<'a>(&'a mut Device);

impl Launcher for OnHost<'_> {
    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), DeviceError> {
        let args: Vec<u64> = launch.args.iter().map(|arg| arg.0).collect();
        self.0
            .launch(launch.kernel, launch.n_blocks, launch.n_threads, &args)
            .map_err(|error| DeviceError::Launch { kernel: error.kernel, reason: error.report })
    }
}

/// A codec of both kinds.
pub(crate) struct Pair<T: Element> {
    device: Device,
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
            device: Device::new(),
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

    fn upload(&mut self, bytes: &[u8]) -> DeviceBytes {
        let address = self.device.allocate(bytes.len());
        self.device.write(address, bytes);
        DeviceBytes { ptr: DevicePtr(address), n_bytes: bytes.len() }
    }

    /// Runs a task that `make` makes of its payloads, its values, its destination and its output.
    /// The output is at first a copy of the values.
    fn run(
        &mut self,
        op: &Op<'_, T>,
        payloads: &[&[u8]],
        values: &[T],
        n_values: usize,
        make: impl FnOnce(&[DeviceBytes], DevicePtr, DeviceBytes, DevicePtr) -> Task,
    ) -> Made<T> {
        let payloads: Vec<_> = payloads.iter().map(|bytes| self.upload(bytes)).collect();
        // Odd numbers of values begin at a multiple of their size only.
        let lead = values.len() % 2;
        let padded: Vec<T> =
            vec![T::from_f64(1.0); lead].into_iter().chain(values.to_vec()).collect();
        let own = self.upload(bytemuck::cast_slice(&padded));
        let output = self.upload(bytemuck::cast_slice(&padded));
        let dst = self.upload(&vec![0x5a; self.most(n_values)]);
        let outcome = self.upload(bytemuck::bytes_of(&Outcome::zeroed()));
        let scratch = self.kernels.scratch_bytes(n_values);
        let scratch =
            DeviceBytes { ptr: DevicePtr(self.device.allocate(scratch)), n_bytes: scratch };
        let [first, first_output] = [own, output].map(|at| at.ptr.offset(lead * T::BYTES));
        let task = make(&payloads, first, dst, first_output);
        let on = &mut OnHost(&mut self.device);
        let done = self.kernels.enqueue(on, op.code(), &task, n_values, scratch, outcome.ptr);
        done.unwrap_or_else(|error| panic!("{}: {task:?}: {error}", self.context));
        let mut report = Outcome::zeroed();
        self.device.read(outcome.ptr.0, bytemuck::bytes_of_mut(&mut report));
        let report = report.result(T::DTYPE);
        let n_bytes = report.as_ref().map_or(0, |written| written.n_bytes);
        let mut bytes = vec![0; n_bytes];
        self.device.read(dst.ptr.0, &mut bytes);
        let mut stored = values.to_vec();
        self.device.read(first_output.0, bytemuck::cast_slice_mut(&mut stored));
        for buffer in payloads.into_iter().chain([own, output, dst, outcome, scratch]) {
            self.device.free(buffer.ptr.0);
        }
        (report, bytes, stored)
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
        let (found, expected): (&[u8], &[u8]) =
            (bytemuck::cast_slice(found), bytemuck::cast_slice(expected));
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
