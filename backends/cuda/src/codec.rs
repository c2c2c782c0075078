//! Codecs as sequences of launches. Bytes and values equal those of the codecs in core.

use foldwire::DType;
use foldwire::codec::{CodecId, CodecParams};
use foldwire::op::OpCode;

use crate::{DeviceBytes, DeviceError, DevicePtr, Launcher};

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

/// A codec of core, as kernels.
#[derive(Clone, Copy, Debug)]
pub struct DeviceCodec {
    dtype: DType,
    id: CodecId,
}

impl DeviceCodec {
    /// Makes the codec for values of this type; `None` if there are no kernels for it.
    #[must_use]
    pub fn new(dtype: DType, id: CodecId, params: &CodecParams) -> Option<Self> {
        let _ = params;
        (dtype.is_float() && id.is_for(dtype)).then_some(Self { dtype, id })
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
        n_values.checked_mul(self.dtype.n_bytes())
    }

    /// Returns the bytes of scratch memory that any task on at most `n_values` values needs.
    #[must_use]
    pub fn scratch_bytes(&self, n_values: usize) -> usize {
        let _ = n_values;
        0
    }

    /// Enqueues all launches of a task on `n_values` values. `scratch` has at least
    /// [`scratch_bytes`](Self::scratch_bytes), with any content. `outcome` is the address of an
    /// [`Outcome`](crate::Outcome) of zeros. `op` matters only to tasks that reduce.
    ///
    /// # Errors
    /// [`DeviceError`] if a buffer does not suit the task, or the device refuses a launch. Errors in
    /// payloads are reported in the outcome.
    pub fn enqueue(
        &self,
        on: &mut dyn Launcher,
        op: OpCode,
        task: &Task,
        n_values: usize,
        scratch: DeviceBytes,
        outcome: DevicePtr,
    ) -> Result<(), DeviceError> {
        let _ = (on, op, task, n_values, scratch, outcome);
        Err(DeviceError::Unsupported { what: "any task yet" })
    }
}
