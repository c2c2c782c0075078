//! Codecs as sequences of launches. Bytes and values equal those of the codecs in core.

mod chunks;
mod coded;
mod fz_light;
mod job;
mod raw;

use foldwire::codec::{CodecId, CodecParams};
use foldwire::op::OpCode;
use foldwire::{DType, Float, with_float};

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
    /// Values → payload.
    fn encode(&self, job: &mut Job<'_>, operands: EncodeOperands) -> Result<(), DeviceError>;

    /// Payload → values.
    fn decode(&self, job: &mut Job<'_>, operands: DecodeOperands) -> Result<(), DeviceError>;

    /// Returns the bytes of scratch memory that `encode` and `decode` need.
    fn scratch_bytes(&self, n_values: usize) -> usize;

    /// Payload ⊕ local values → payload; `None` if the codec decodes for this operation.
    fn fold(&self, job: &mut Job<'_>, operands: FoldOperands) -> Option<Result<(), DeviceError>> {
        let _ = (job, operands);
        None
    }

    /// Payload ⊕ payload → payload; `None` if the codec decodes for this operation.
    fn combine(
        &self,
        job: &mut Job<'_>,
        operands: CombineOperands,
    ) -> Option<Result<(), DeviceError>> {
        let _ = (job, operands);
        None
    }
}

/// Operands of [`Task::Encode`].
#[derive(Clone, Copy)]
struct EncodeOperands {
    own: DevicePtr,
    weighted: bool,
    dst: DeviceBytes,
}

/// Operands of [`Task::Decode`].
#[derive(Clone, Copy)]
struct DecodeOperands {
    src: Payload,
    divisor: u32,
    dst: DevicePtr,
    /// True if the payload is an operand of a reduction, which must suit this codec.
    is_operand: bool,
}

/// Operands of [`Task::Combine`].
#[derive(Clone, Copy)]
struct CombineOperands {
    op: Combining,
    a: DeviceBytes,
    b: DeviceBytes,
    dst: DeviceBytes,
}

/// Operands of [`Task::Fold`].
#[derive(Clone, Copy)]
struct FoldOperands {
    op: Combining,
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
        let (dtype, weight, space) = (self.dtype, self.weight, Space::new(scratch, need)?);
        let job = &mut Job { on, dtype, n_values, outcome, weight, space };
        self.check(task, n_values)?;
        let kernels = self.kernels.as_dyn();
        match *task {
            Task::Encode { own, weighted, dst } => {
                kernels.encode(job, EncodeOperands { own, weighted, dst })
            }
            Task::Decode { src, divisor, dst } => {
                let src = Payload::Given(src);
                kernels.decode(job, DecodeOperands { src, divisor, dst, is_operand: false })
            }
            Task::Fold { src, own, dst, store } => {
                let op = Combining::new(op)?;
                if let Some(done) = kernels.fold(job, FoldOperands { op, src, own, dst, store }) {
                    return done;
                }
                self.recode(job, src, Some((op, own)), dst, true)?;
                let Some((values, divisor)) = store else { return Ok(()) };
                let (src, dst, is_operand) = (Payload::JustWritten(dst.ptr), values, false);
                kernels.decode(job, DecodeOperands { src, divisor, dst, is_operand })
            }
            Task::Recode { src, own, dst } => {
                let own = own.map(|own| Ok((Combining::new(op)?, own))).transpose()?;
                self.recode(job, src, own, dst, false)
            }
            Task::Combine { a, b, dst } => {
                let op = Combining::new(op)?;
                if let Some(done) = kernels.combine(job, CombineOperands { op, a, b, dst }) {
                    return done;
                }
                let (left, right) = (self.decoded(job, a, true)?, self.decoded(job, b, true)?);
                job.reduce(op, left, right, 1.0)?;
                kernels.encode(job, EncodeOperands { own: left, weighted: true, dst })
            }
            Task::Reduce { src, acc } => {
                let op = Combining::new(op)?;
                if self.id == CodecId::Raw {
                    return raw::reduce(job, op, src, acc);
                }
                let decoded = self.decoded(job, src, false)?;
                job.reduce(op, acc, decoded, 1.0)
            }
            Task::Divide { acc, divisor } => job.divide(acc, divisor),
        }
    }

    /// Decodes a payload to scratch memory.
    fn decoded(
        &self,
        job: &mut Job<'_>,
        src: DeviceBytes,
        is_operand: bool,
    ) -> Result<DevicePtr, DeviceError> {
        let dst = job.take_values();
        let src = Payload::Given(src);
        self.kernels.as_dyn().decode(job, DecodeOperands { src, divisor: 1, dst, is_operand })?;
        Ok(dst)
    }

    /// Decodes, perhaps reduces with local values, and encodes again.
    fn recode(
        &self,
        job: &mut Job<'_>,
        src: DeviceBytes,
        own: Option<(Combining, DevicePtr)>,
        dst: DeviceBytes,
        is_operand: bool,
    ) -> Result<(), DeviceError> {
        let values = self.decoded(job, src, is_operand)?;
        if let Some((op, own)) = own {
            job.reduce(op, values, own, self.weight)?;
        }
        self.kernels.as_dyn().encode(job, EncodeOperands { own: values, weighted: true, dst })
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
