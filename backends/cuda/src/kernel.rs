//! Kernels as the host sees them: where their source is, how they are launched, what they report.

use foldwire::DType;
use foldwire::codec::{BlockStats, CodecError, DecodeError, Written};

use crate::DeviceError;

/// Address in device memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct DevicePtr(pub u64);

impl DevicePtr {
    /// Returns the address `n_bytes` further on.
    #[must_use]
    pub const fn offset(self, n_bytes: usize) -> Self {
        Self(self.0 + n_bytes as u64)
    }
}

/// A range of device memory. Payloads and scratch memory must begin at a multiple of 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DeviceBytes {
    /// Address of the first byte.
    pub ptr: DevicePtr,
    /// Number of bytes.
    pub n_bytes: usize,
}

impl DeviceBytes {
    /// Arguments that name the range.
    pub(crate) fn args(self) -> [KernelArg; 2] {
        [self.ptr.into(), self.n_bytes.into()]
    }
}

/// Argument of a kernel. All have 8 bytes: addresses, numbers, and the bits of an `f64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct KernelArg(pub u64);

impl From<DevicePtr> for KernelArg {
    fn from(ptr: DevicePtr) -> Self {
        Self(ptr.0)
    }
}

impl From<usize> for KernelArg {
    fn from(n: usize) -> Self {
        Self(n as u64)
    }
}

impl From<u32> for KernelArg {
    fn from(n: u32) -> Self {
        Self(n.into())
    }
}

impl From<u64> for KernelArg {
    fn from(n: u64) -> Self {
        Self(n)
    }
}

impl From<f64> for KernelArg {
    fn from(x: f64) -> Self {
        Self(x.to_bits())
    }
}

/// Arguments of a kernel, from values of any type that is an argument.
macro_rules! args {
    ($($arg:expr),*) => {
        [$($crate::KernelArg::from($arg)),*]
    };
}
pub(crate) use args;

/// Source file of kernels, in `kernels/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KernelFile {
    /// Codec `fz-light`.
    FzLight,
    /// Codec `raw`, and sums of values.
    Raw,
    /// Places of the chunks of a payload, for all codecs but `raw`.
    Payload,
    /// Codec `cuszp`.
    CuSzp,
    /// Codec `mpc`.
    Mpc,
    /// Codec `zfp-rate`.
    ZfpRate,
    /// Value ranges.
    Range,
}

impl KernelFile {
    /// All files.
    pub const ALL: &[Self] = &[
        Self::FzLight,
        Self::Raw,
        Self::Payload,
        Self::CuSzp,
        Self::Mpc,
        Self::ZfpRate,
        Self::Range,
    ];

    /// Returns whether there are kernels for this type.
    #[must_use]
    pub const fn is_for(self, dtype: DType) -> bool {
        match self {
            Self::Raw => true,
            Self::FzLight | Self::Payload | Self::Range => dtype.is_float(),
            Self::CuSzp | Self::Mpc | Self::ZfpRate => matches!(dtype, DType::F32 | DType::F64),
        }
    }
}

/// Kernels that are compiled together: those of one file for one element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Module {
    /// File of the kernels.
    pub file: KernelFile,
    /// Element type.
    pub dtype: DType,
}

impl Module {
    /// Returns the source text that NVRTC compiles. It includes no other files.
    #[must_use]
    pub fn source(self) -> String {
        let name = self.dtype.name();
        const PAYLOAD: &str = include_str!("../kernels/payload.cuh");
        const CHUNK: &str = include_str!("../kernels/chunk.cuh");
        const CODED: &str = include_str!("../kernels/coded.cuh");
        let (files, macro_name): (&[&str], _) = match self.file {
            KernelFile::FzLight => (
                &[
                    PAYLOAD,
                    CHUNK,
                    include_str!("../kernels/chunk_reader.cuh"),
                    include_str!("../kernels/chunk_writer.cuh"),
                    include_str!("../kernels/fz_light.cuh"),
                ],
                "FZ_LIGHT_KERNELS",
            ),
            KernelFile::Raw => (
                &[include_str!("../kernels/integers.cuh"), include_str!("../kernels/raw.cuh")],
                "RAW_KERNELS",
            ),
            KernelFile::Payload => (&[PAYLOAD], "PAYLOAD_KERNELS"),
            KernelFile::CuSzp => {
                (&[PAYLOAD, CHUNK, CODED, include_str!("../kernels/cuszp.cuh")], "CUSZP_KERNELS")
            }
            KernelFile::Mpc => {
                (&[PAYLOAD, CHUNK, CODED, include_str!("../kernels/mpc.cuh")], "MPC_KERNELS")
            }
            KernelFile::ZfpRate => (
                &[PAYLOAD, CHUNK, CODED, include_str!("../kernels/zfp_rate.cuh")],
                "ZFP_RATE_KERNELS",
            ),
            KernelFile::Range => (&[include_str!("../kernels/range.cuh")], "RANGE_KERNELS"),
        };
        let mut source = String::new();
        source.push_str(include_str!("../kernels/primitives.cuh"));
        source.push_str(include_str!("../kernels/floats.cuh"));
        files.iter().for_each(|file| source.push_str(file));
        let type_name = name.to_uppercase();
        source + &format!("\n{macro_name}({type_name}, {name})\n")
    }
}

/// Options that NVRTC must be given. Results must not depend on the compiler: no contraction of
/// products and sums, no flush to zero, divisions as IEEE 754 says.
pub const NVRTC_OPTIONS: [&str; 5] =
    ["--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--std=c++17"];

/// One launch of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Module that has the kernel.
    pub module: Module,
    /// Name of the kernel. No two modules have kernels of the same name.
    pub kernel: &'a str,
    /// Number of thread blocks, at least 1.
    pub n_blocks: u32,
    /// Number of threads in a block.
    pub n_threads: u32,
    /// Arguments, each passed by a pointer to its 8 bytes.
    pub args: &'a [KernelArg],
}

/// Commands that a device executes in order on a stream.
pub trait Launcher {
    /// Enqueues a launch.
    ///
    /// # Errors
    /// [`DeviceError`] if the device refuses it.
    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), DeviceError>;

    /// Returns into how many partitions, at most, a task on `n_values` values is divided that
    /// [`launch_together`](Self::launch_together) then runs at the same time.
    fn n_partitions(&self, n_values: usize) -> usize {
        let _ = n_values;
        1
    }

    /// Enqueues launches that do not depend on each other. All come after what is enqueued before,
    /// and before what is enqueued later.
    ///
    /// # Errors
    /// [`DeviceError`] if the device refuses one.
    fn launch_together(&mut self, launches: &[Launch<'_>]) -> Result<(), DeviceError> {
        launches.iter().try_for_each(|launch| self.launch(launch))
    }
}

/// Error that a kernel reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorCode {
    Truncated = 1,
    Damaged = 2,
    Version = 3,
    Type = 4,
    Count = 5,
    Quantum = 6,
    HeadRoom = 7,
}

impl ErrorCode {
    /// Returns the error with this number, or [`Damaged`](Self::Damaged).
    fn new(code: u64) -> Self {
        use ErrorCode::{Count, Damaged, HeadRoom, Quantum, Truncated, Type, Version};
        let all = [Truncated, Damaged, Version, Type, Count, Quantum, HeadRoom];
        all.into_iter().find(|&error| error as u64 == code).unwrap_or(Damaged)
    }
}

/// Report of a task's kernels, in device memory. The host sets it to zeros before the task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Outcome {
    /// Bytes written to the destination.
    pub n_bytes: u64,
    /// Error code; 0 if there is none.
    pub error: u64,
    /// [`BlockStats::verbatim`].
    pub verbatim: u64,
    /// [`BlockStats::exceptions`].
    pub exceptions: u64,
    /// [`BlockStats::both_constant`].
    pub both_constant: u64,
    /// [`BlockStats::left`].
    pub left: u64,
    /// [`BlockStats::right`].
    pub right: u64,
    /// [`BlockStats::neither_constant`].
    pub neither_constant: u64,
    /// Two numbers that describe the error, in the order of the fields of the core's type.
    pub details: [u64; 2],
    /// Zeros.
    pub reserved: [u64; 6],
}

impl Outcome {
    /// Returns what was written.
    ///
    /// # Errors
    /// The error that the kernels report; `dtype` is the type of the task.
    pub fn result(&self, dtype: DType) -> Result<Written, CodecError> {
        if self.error == 0 {
            return Ok(self.written());
        }
        let [a, b] = self.details;
        let (x, y) = (a as usize, b as usize);
        Err(match ErrorCode::new(self.error) {
            ErrorCode::Truncated => DecodeError::Truncated { need: x, have: y }.into(),
            ErrorCode::Damaged => DecodeError::Damaged.into(),
            ErrorCode::Version => DecodeError::Version { version: a as u8 }.into(),
            ErrorCode::Type => DecodeError::Type { found: a as u8, expected: dtype }.into(),
            ErrorCode::Count => DecodeError::Count { found: x, expected: y }.into(),
            ErrorCode::Quantum => {
                CodecError::Quantum { ours: f64::from_bits(a), theirs: f64::from_bits(b) }
            }
            ErrorCode::HeadRoom => CodecError::HeadRoom { operands: a, limit: b as u32 },
        })
    }

    fn written(&self) -> Written {
        let blocks = BlockStats {
            verbatim: self.verbatim,
            exceptions: self.exceptions,
            both_constant: self.both_constant,
            left: self.left,
            right: self.right,
            neither_constant: self.neither_constant,
        };
        Written { n_bytes: self.n_bytes as usize, blocks }
    }
}
