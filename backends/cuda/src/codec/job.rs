//! State that the launches of a task share.

use foldwire::DType;
use foldwire::op::OpCode;

use crate::kernel::{KernelFile, args};
use crate::{DeviceBytes, DeviceError, DevicePtr, KernelArg, Launch, Launcher, Module};

/// Payloads and scratch memory begin at multiples of this number of bytes.
pub(super) const ALIGNMENT: usize = 16;
/// Threads of a block that works on values one after the other.
const THREADS: u32 = 256;
/// Bytes that a thread of such a block loads at a time.
const VECTOR: usize = 16;
/// Most blocks of such a kernel; each thread goes on until no value is left.
const MAX_BLOCKS: usize = 1 << 12;

/// Operation that kernels have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Combining {
    Sum = 1,
    Minimum = 3,
    Maximum = 4,
    Product = 5,
}

impl Combining {
    pub(super) fn new(op: OpCode) -> Result<Self, DeviceError> {
        Ok(match op {
            OpCode::Sum | OpCode::Avg => Self::Sum,
            OpCode::Min => Self::Minimum,
            OpCode::Max => Self::Maximum,
            OpCode::Prod => Self::Product,
            _ => return Err(DeviceError::Unsupported { what: "an operation of the user's" }),
        })
    }
}

impl From<Combining> for KernelArg {
    fn from(op: Combining) -> Self {
        Self(op as u64)
    }
}

/// Rounds a length up, so that what follows is aligned.
pub(super) const fn padded(n_bytes: usize) -> usize {
    n_bytes.next_multiple_of(ALIGNMENT)
}

/// Number of blocks of a launch, at least one.
fn blocks(n_blocks: usize) -> u32 {
    u32::try_from(n_blocks.max(1)).unwrap_or(u32::MAX)
}

/// Checks an address.
pub(super) fn aligned(ptr: DevicePtr, alignment: usize) -> Result<(), DeviceError> {
    let alignment = alignment as u64;
    if ptr.0.is_multiple_of(alignment) {
        Ok(())
    } else {
        Err(DeviceError::Misaligned { address: ptr.0, alignment })
    }
}

/// Scratch memory that is still free.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space(DevicePtr);

impl Space {
    pub(super) fn new(scratch: DeviceBytes, need: usize) -> Result<Self, DeviceError> {
        let have = scratch.n_bytes;
        if have < need {
            return Err(DeviceError::Capacity { need, have });
        }
        aligned(scratch.ptr, ALIGNMENT).map(|()| Self(scratch.ptr))
    }

    /// Takes `n_bytes`.
    pub(super) fn take(self, n_bytes: usize) -> (DevicePtr, Self) {
        (self.0, Self(self.0.offset(padded(n_bytes))))
    }
}

/// A task under way.
pub(super) struct Job<'a> {
    pub(super) on: &'a mut dyn Launcher,
    pub(super) dtype: DType,
    pub(super) n_values: usize,
    pub(super) outcome: DevicePtr,
    /// Factor of local values.
    pub(super) weight: f64,
    pub(super) space: Space,
}

impl Job<'_> {
    pub(super) fn n_value_bytes(&self) -> usize {
        self.n_values * self.dtype.n_bytes()
    }

    /// Takes scratch memory for the task's values.
    pub(super) fn take_values(&mut self) -> DevicePtr {
        let (values, rest) = self.space.take(self.n_value_bytes());
        self.space = rest;
        values
    }

    /// Launches kernel `name` of a file, in at least one block.
    pub(super) fn launch(
        &mut self,
        file: KernelFile,
        name: &str,
        n_blocks: usize,
        n_threads: u32,
        args: &[KernelArg],
    ) -> Result<(), DeviceError> {
        let module = Module { file, dtype: self.dtype };
        let (kernel, n_blocks) = (&format!("{name}_{}", self.dtype), blocks(n_blocks));
        self.on.launch(&Launch { module, kernel, n_blocks, n_threads, args })
    }

    /// Launches kernel `name` of a file on several partitions at the same time. Each has its number
    /// of blocks and its arguments.
    pub(super) fn launch_together<'p>(
        &mut self,
        file: KernelFile,
        name: &str,
        n_threads: u32,
        partitions: &'p [(usize, Vec<KernelArg>)],
    ) -> Result<(), DeviceError> {
        let module = Module { file, dtype: self.dtype };
        let kernel = &format!("{name}_{}", self.dtype);
        let launch = |(n_blocks, args): &'p (usize, Vec<KernelArg>)| Launch {
            module,
            kernel,
            n_blocks: blocks(*n_blocks),
            n_threads,
            args,
        };
        let launches: Vec<Launch<'_>> = partitions.iter().map(launch).collect();
        self.on.launch_together(&launches)
    }

    /// acc ← acc ⊕ other · weight, in values.
    pub(super) fn reduce(
        &mut self,
        op: Combining,
        acc: DevicePtr,
        other: DevicePtr,
        weight: f64,
    ) -> Result<(), DeviceError> {
        let all = Operands { op: Some((op, other)), weight, ..Operands::of(acc) };
        self.operate(Some(acc), all)
    }

    /// Divides sums of weighted operands, in place.
    pub(super) fn divide(&mut self, acc: DevicePtr, divisor: u32) -> Result<(), DeviceError> {
        let output = Some((acc, divisor));
        self.operate(None, Operands { output, ..Operands::of(acc) })
    }

    /// Launches the kernel that works on values.
    pub(super) fn operate(
        &mut self,
        dst: Option<DevicePtr>,
        operands: Operands,
    ) -> Result<(), DeviceError> {
        let Operands { a, op, weight, output, n_bytes } = operands;
        let (op, b) = op.map_or((0, DevicePtr(0)), |(op, b)| (op as u64, b));
        let (output, divisor) = output.unwrap_or((DevicePtr(0), 1));
        let (dst, n_values, outcome) = (dst.unwrap_or(DevicePtr(0)), self.n_values, self.outcome);
        let args =
            args![dst, a, b, n_values, op, weight, output, self.weight, divisor, outcome, n_bytes];
        let n_blocks = self.n_value_bytes().div_ceil(VECTOR * THREADS as usize).min(MAX_BLOCKS);
        self.launch(KernelFile::Raw, "raw_operate", n_blocks, THREADS, &args)
    }
}

/// The arithmetic of [`Job::operate`]: a ⊕ b · weight, or a · weight.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    pub(super) a: DevicePtr,
    pub(super) op: Option<(Combining, DevicePtr)>,
    pub(super) weight: f64,
    /// Where the result goes after a division.
    pub(super) output: Option<(DevicePtr, u32)>,
    /// Bytes of a payload, for the outcome; otherwise 0.
    pub(super) n_bytes: usize,
}

impl Operands {
    pub(super) fn of(a: DevicePtr) -> Self {
        Self { a, op: None, weight: 1.0, output: None, n_bytes: 0 }
    }
}
