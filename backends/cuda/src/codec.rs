//! Codecs as sequences of launches. Bytes and values equal those of the codecs in core.

mod chunks;
mod coded;
mod fz_light;
mod job;
mod raw;

use foldwire::codec::{CodecId, CodecParams};
use foldwire::op::OpCode;
use foldwire::{DType, Float, bf16, f16};

use crate::{DeviceBytes, DeviceError, DevicePtr, Launcher};
use coded::CodedKernels;
use fz_light::FzLightKernels;
use job::{Combining, Job, Space};
use raw::RawKernels;

/// A computation on a segment of values in device memory.
#[derive(Clone, Copy, Debug)]
pub enum Task {
    /// Values → payload.
    Encode {
        /// The values.
        own: DevicePtr,
        /// True if they are partial results, which have been multiplied by the codec's weight.
        weighted: bool,
        /// Where the payload goes.
        dst: DeviceBytes,
    },
    /// Payload → values, each divided by `divisor`.
    Decode {
        /// The payload.
        src: DeviceBytes,
        /// Number of operands of an average, otherwise 1.
        divisor: u32,
        /// Where the values go.
        dst: DevicePtr,
    },
    /// Payload ⊕ local values → payload, which may also be stored.
    Fold {
        /// The payload.
        src: DeviceBytes,
        /// Local values.
        own: DevicePtr,
        /// Where the payload goes.
        dst: DeviceBytes,
        /// Where the decoded result goes, which may be `own`, and its divisor.
        store: Option<(DevicePtr, u32)>,
    },
    /// Payload → values, perhaps ⊕ local values → payload.
    Recode {
        /// The payload.
        src: DeviceBytes,
        /// Local values.
        own: Option<DevicePtr>,
        /// Where the payload goes.
        dst: DeviceBytes,
    },
    /// Payload ⊕ payload → payload.
    Combine {
        /// Left operand.
        a: DeviceBytes,
        /// Right operand.
        b: DeviceBytes,
        /// Where the result goes.
        dst: DeviceBytes,
    },
    /// acc ← acc ⊕ decoded payload, in floats.
    Reduce {
        /// The payload.
        src: DeviceBytes,
        /// Partial results.
        acc: DevicePtr,
    },
    /// Sums of weighted operands → averages, in place.
    Divide {
        /// The sums.
        acc: DevicePtr,
        /// Number of operands.
        divisor: u32,
    },
}

/// Kernels of a codec. Bytes and values equal those of core's codec.
trait CodecKernels {
    /// Values → payload in `dst`.
    fn encode(
        &self,
        job: &mut Job<'_>,
        space: Space,
        own: DevicePtr,
        weighted: bool,
        dst: DeviceBytes,
    ) -> Result<(), DeviceError>;

    /// Payload → values. `is_operand` says that the payload is an operand of a reduction, which
    /// must suit this codec.
    fn decode(
        &self,
        job: &mut Job<'_>,
        space: Space,
        src: Payload,
        divisor: u32,
        dst: DevicePtr,
        is_operand: bool,
    ) -> Result<(), DeviceError>;

    /// Returns the bytes of scratch memory that `encode` and `decode` need.
    fn scratch_bytes(&self, n_values: usize) -> usize;

    /// Payload ⊕ local values → payload; `None` if the codec decodes for this operation.
    fn fold(
        &self,
        job: &mut Job<'_>,
        space: Space,
        op: Combining,
        operands: &FoldOperands,
    ) -> Option<Result<(), DeviceError>> {
        let _ = (job, space, op, operands);
        None
    }

    /// Payload ⊕ payload → payload; `None` if the codec decodes for this operation.
    fn combine(
        &self,
        job: &mut Job<'_>,
        space: Space,
        op: Combining,
        [a, b]: [DeviceBytes; 2],
        dst: DeviceBytes,
    ) -> Option<Result<(), DeviceError>> {
        let _ = (job, space, op, a, b, dst);
        None
    }
}

/// Buffers of [`Task::Fold`].
struct FoldOperands {
    src: DeviceBytes,
    own: DevicePtr,
    dst: DeviceBytes,
    store: Option<(DevicePtr, u32)>,
}

/// A payload to decode.
#[derive(Clone, Copy)]
enum Payload {
    /// Its length is known.
    Given(DeviceBytes),
    /// A kernel before this one has written it.
    JustWritten(DevicePtr),
}

/// Kernels of any codec.
#[derive(Clone, Copy, Debug)]
enum AnyKernels {
    FzLight(FzLightKernels),
    Coded(CodedKernels),
    Raw(RawKernels),
}

impl AnyKernels {
    fn of<T: Float>(id: CodecId, params: &CodecParams) -> Option<Self> {
        Some(match id {
            CodecId::FzLight | CodecId::FzStatic => {
                Self::FzLight(FzLightKernels::new::<T>(params, id == CodecId::FzStatic))
            }
            CodecId::Raw => Self::Raw(RawKernels),
            _ => Self::Coded(CodedKernels::new::<T>(id, params)?),
        })
    }

    fn as_dyn(&self) -> &dyn CodecKernels {
        match self {
            Self::FzLight(kernels) => kernels,
            Self::Coded(kernels) => kernels,
            Self::Raw(kernels) => kernels,
        }
    }
}

/// A codec of core, as kernels.
#[derive(Clone, Copy, Debug)]
pub struct DeviceCodec {
    dtype: DType,
    id: CodecId,
    params: CodecParams,
    /// Factor by which local values are multiplied.
    weight: f64,
    kernels: AnyKernels,
}

/// Evaluates `$body` with `$T` as the float that `$dtype` names.
macro_rules! with_float {
    ($dtype:expr, $T:ident => $body:expr, else $none:expr) => {
        match $dtype {
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F64 => {
                type $T = f64;
                $body
            }
            DType::F16 => {
                type $T = f16;
                $body
            }
            DType::Bf16 => {
                type $T = bf16;
                $body
            }
            _ => $none,
        }
    };
}

impl DeviceCodec {
    /// Makes the codec for values of this type; `None` if there are no kernels for it.
    #[must_use]
    pub fn new(dtype: DType, id: CodecId, params: &CodecParams) -> Option<Self> {
        if !id.is_for(dtype) {
            return None;
        }
        if !dtype.is_float() {
            let (kernels, weight) = (AnyKernels::Raw(RawKernels), 1.0);
            let params = *params;
            return (id == CodecId::Raw).then_some(Self { dtype, id, params, weight, kernels });
        }
        let (kernels, weight) = with_float!(dtype, T => {
            let weight = id.instance::<T>(params).as_dyn().weight().to_f64();
            (AnyKernels::of::<T>(id, params)?, weight)
        }, else return None);
        Some(Self { dtype, id, params: *params, weight, kernels })
    }

    /// Returns the codec's identifier.
    #[must_use]
    pub const fn id(&self) -> CodecId {
        self.id
    }

    /// Returns the element type.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the most bytes of a payload of `n_values`; `None` if a frame cannot hold it.
    #[must_use]
    pub fn max_encoded_len(&self, n_values: usize) -> Option<usize> {
        with_float!(self.dtype, T => {
            self.id.instance::<T>(&self.params).as_dyn().max_encoded_len(n_values)
        }, else n_values.checked_mul(self.dtype.n_bytes()))
    }

    /// Returns the bytes of scratch memory that any task on at most `n_values` values needs.
    #[must_use]
    pub fn scratch_bytes(&self, n_values: usize) -> usize {
        let kernels = self.kernels.as_dyn().scratch_bytes(n_values);
        // Two operands decoded, if the codec cannot reduce payloads.
        kernels + 2 * job::padded(n_values * self.dtype.n_bytes())
    }

    /// Returns the bytes of scratch memory that an encode of at most `n_values` values needs.
    #[must_use]
    pub fn encode_scratch_bytes(&self, n_values: usize) -> usize {
        self.kernels.as_dyn().scratch_bytes(n_values)
    }

    /// Enqueues all launches of a task on `n_values` values. `scratch` has at least
    /// [`scratch_bytes`](Self::scratch_bytes), or for an encode
    /// [`encode_scratch_bytes`](Self::encode_scratch_bytes), with any content. `outcome` is the
    /// address of an [`Outcome`](crate::Outcome) of zeros. `op` matters only to tasks that reduce.
    ///
    /// Tasks read all payloads and values before they write to the destination of the same kind.
    ///
    /// # Errors
    /// [`DeviceError`] if a buffer does not suit the task, or the device refuses a launch. The
    /// outcome reports errors in payloads.
    pub fn enqueue(
        &self,
        on: &mut dyn Launcher,
        op: OpCode,
        task: &Task,
        n_values: usize,
        scratch: DeviceBytes,
        outcome: DevicePtr,
    ) -> Result<(), DeviceError> {
        let need = match task {
            Task::Encode { .. } => self.encode_scratch_bytes(n_values),
            _ => self.scratch_bytes(n_values),
        };
        let space = Space::new(scratch, need)?;
        let job = &mut Job { on, dtype: self.dtype, n_values, outcome, weight: self.weight };
        self.check(task, n_values)?;
        let kernels = self.kernels.as_dyn();
        match *task {
            Task::Encode { own, weighted, dst } => kernels.encode(job, space, own, weighted, dst),
            Task::Decode { src, divisor, dst } => {
                kernels.decode(job, space, Payload::Given(src), divisor, dst, false)
            }
            Task::Fold { src, own, dst, store } => {
                let op = Combining::new(op)?;
                let operands = FoldOperands { src, own, dst, store };
                if let Some(done) = kernels.fold(job, space, op, &operands) {
                    return done;
                }
                self.recode(job, space, src, Some((op, own)), dst, true)?;
                match store {
                    Some((values, divisor)) => {
                        let written = Payload::JustWritten(dst.ptr);
                        kernels.decode(job, space, written, divisor, values, false)
                    }
                    None => Ok(()),
                }
            }
            Task::Recode { src, own, dst } => {
                let own = own.map(|own| Ok((Combining::new(op)?, own))).transpose()?;
                self.recode(job, space, src, own, dst, false)
            }
            Task::Combine { a, b, dst } => {
                let op = Combining::new(op)?;
                if let Some(done) = kernels.combine(job, space, op, [a, b], dst) {
                    return done;
                }
                let (left, rest) = space.take(job.n_value_bytes());
                let (right, rest) = rest.take(job.n_value_bytes());
                kernels.decode(job, rest, Payload::Given(a), 1, left, true)?;
                kernels.decode(job, rest, Payload::Given(b), 1, right, true)?;
                job.reduce(op, left, right, 1.0)?;
                kernels.encode(job, rest, left, true, dst)
            }
            Task::Reduce { src, acc } => {
                let op = Combining::new(op)?;
                if self.id == CodecId::Raw {
                    return raw::reduce(job, op, src, acc);
                }
                let (decoded, rest) = space.take(job.n_value_bytes());
                kernels.decode(job, rest, Payload::Given(src), 1, decoded, false)?;
                job.reduce(op, acc, decoded, 1.0)
            }
            Task::Divide { acc, divisor } => job.divide(acc, divisor),
        }
    }

    /// Decodes, perhaps reduces with local values, and encodes again.
    fn recode(
        &self,
        job: &mut Job<'_>,
        space: Space,
        src: DeviceBytes,
        own: Option<(Combining, DevicePtr)>,
        dst: DeviceBytes,
        is_operand: bool,
    ) -> Result<(), DeviceError> {
        let kernels = self.kernels.as_dyn();
        let (values, rest) = space.take(job.n_value_bytes());
        kernels.decode(job, rest, Payload::Given(src), 1, values, is_operand)?;
        if let Some((op, own)) = own {
            job.reduce(op, values, own, self.weight)?;
        }
        kernels.encode(job, rest, values, true, dst)
    }

    /// Checks that buffers are long enough and aligned.
    fn check(&self, task: &Task, n_values: usize) -> Result<(), DeviceError> {
        let need = self.max_encoded_len(n_values).ok_or(DeviceError::TooLong { n_values })?;
        let payload = |bytes: DeviceBytes| job::aligned(bytes.ptr, job::ALIGNMENT);
        let target = |bytes: DeviceBytes| {
            let have = bytes.n_bytes;
            if have < need { Err(DeviceError::Capacity { need, have }) } else { payload(bytes) }
        };
        let values = |values: DevicePtr| match n_values {
            0 => Ok(()),
            _ => job::aligned(values, self.dtype.n_bytes()),
        };
        match *task {
            Task::Encode { own, dst, .. } => values(own).and(target(dst)),
            Task::Decode { src, dst, .. } => payload(src).and(values(dst)),
            Task::Fold { src, own, dst, store } => {
                let output = store.map_or(Ok(()), |(output, _)| values(output));
                payload(src).and(values(own)).and(target(dst)).and(output)
            }
            Task::Recode { src, own, dst } => {
                payload(src).and(own.map_or(Ok(()), values)).and(target(dst))
            }
            Task::Combine { a, b, dst } => payload(a).and(payload(b)).and(target(dst)),
            Task::Reduce { src, acc } => payload(src).and(values(acc)),
            Task::Divide { acc, .. } => values(acc),
        }
    }
}
