//! What the header has besides functions: codes, handles, and the structs that callers fill in.
//!
//! Codes are integers, not enumerations of Rust's: a caller may pass any number, and one that means
//! nothing is answered by `FW_INVALID_ARGUMENT`. The structs begin with their size, so that a later
//! version can add members: what an older caller does not know is 0, the default.

use std::ffi::c_char;

/// What became of a call: FW_SUCCESS, or why not. fwGetLastError says it in words.
pub type fwResult = i32;
/// All is well.
pub const FW_SUCCESS: fwResult = 0;
/// A null pointer, a misaligned or overlapping buffer, an unknown code, a length that overflows, a
/// bound or root that cannot be. No values were sent; correct the call and repeat it.
pub const FW_INVALID_ARGUMENT: fwResult = 1;
/// A communicator or request that does not exist, or no longer, or not in this process.
pub const FW_INVALID_HANDLE: fwResult = 2;
/// A call that may not be made here and now, as too many calls at once. Nothing was sent.
pub const FW_INVALID_USAGE: fwResult = 3;
/// Another thread is inside a call on this communicator, or on one that it was split from or into.
pub const FW_IN_USE: fwResult = 4;
/// There is no such thing, as an average of integers.
pub const FW_UNSUPPORTED: fwResult = 5;
/// Frames, channels or room in a buffer do not suffice.
pub const FW_NO_ROOM: fwResult = 6;
/// Ranks disagree on what they call.
pub const FW_MISMATCH: fwResult = 7;
/// Nothing moved for longer than the time limit, or the deadline passed.
pub const FW_TIMEOUT: fwResult = 8;
/// A rank is gone.
pub const FW_PEER_LOST: fwResult = 9;
/// Another rank gave the call up, or fwCommAbort of another thread did.
pub const FW_ABORTED: fwResult = 10;
/// An earlier call failed; shrink the communicator, or make a new one.
pub const FW_POISONED: fwResult = 11;
/// The survivors went on without this rank.
pub const FW_EXCLUDED: fwResult = 12;
/// Bytes that are damaged, or were never made by this library.
pub const FW_DAMAGED: fwResult = 13;
/// The network failed.
pub const FW_TRANSPORT_ERROR: fwResult = 14;
/// A defect of Foldwire. Please report it.
pub const FW_INTERNAL_ERROR: fwResult = 15;

/// The type of an array's values.
pub type fwDataType = i32;
/// float
pub const FW_FLOAT32: fwDataType = 1;
/// double
pub const FW_FLOAT64: fwDataType = 2;
/// IEEE 754 binary16
pub const FW_FLOAT16: fwDataType = 3;
/// bfloat16
pub const FW_BFLOAT16: fwDataType = 4;
/// int8_t
pub const FW_INT8: fwDataType = 5;
/// uint8_t
pub const FW_UINT8: fwDataType = 6;
/// int16_t
pub const FW_INT16: fwDataType = 7;
/// uint16_t
pub const FW_UINT16: fwDataType = 8;
/// int32_t
pub const FW_INT32: fwDataType = 9;
/// uint32_t
pub const FW_UINT32: fwDataType = 10;
/// int64_t
pub const FW_INT64: fwDataType = 11;
/// uint64_t
pub const FW_UINT64: fwDataType = 12;

/// How the values of different ranks are combined.
pub type fwRedOp = i32;
/// Sum; of integers modulo 2^bits.
pub const FW_SUM: fwRedOp = 1;
/// Sum divided by the number of ranks; not of integers.
pub const FW_AVG: fwRedOp = 2;
/// The smallest value; NaN if any is NaN.
pub const FW_MIN: fwRedOp = 3;
/// The largest value; NaN if any is NaN.
pub const FW_MAX: fwRedOp = 4;
/// Product; of integers modulo 2^bits.
pub const FW_PROD: fwRedOp = 5;

/// Whether a plan may lose anything, and who chooses.
pub type fwMode = i32;
/// Values travel as they are.
pub const FW_EXACT: fwMode = 0;
/// Values travel compressed, and every bit arrives.
pub const FW_LOSSLESS: fwMode = 1;
/// Values travel compressed within the bound.
pub const FW_COMPRESS: fwMode = 2;
/// Exactly or within the bound, whatever is sooner; chosen for each call.
pub const FW_AUTO: fwMode = 3;

/// The kind of a bound.
pub type fwBoundKind = i32;
/// No bound.
pub const FW_NO_BOUND: fwBoundKind = 0;
/// In the unit of the data.
pub const FW_ABSOLUTE: fwBoundKind = 1;
/// A fraction of the range of all ranks' values.
pub const FW_RELATIVE: fwBoundKind = 2;
/// A peak signal-to-noise ratio, in dB.
pub const FW_PSNR: fwBoundKind = 3;

/// What a bound bounds.
pub type fwScope = i32;
/// Each rank's values: a sum of n ranks may be off by n times the bound, an average by the bound.
pub const FW_EACH_OPERAND: fwScope = 0;
/// The result.
pub const FW_RESULT: fwScope = 1;

/// Whether messages carry checksums.
pub type fwChecksum = i32;
/// If the network can damage them.
pub const FW_CHECKSUM_AS_NEEDED: fwChecksum = 0;
/// Always.
pub const FW_CHECKSUM_ALWAYS: fwChecksum = 1;
/// Never.
pub const FW_CHECKSUM_NEVER: fwChecksum = 2;

/// Bytes of an fwUniqueId.
pub const FW_UNIQUE_ID_BYTES: usize = 128;
/// The color of a rank that is to be in no communicator of an fwCommSplit.
pub const FW_SPLIT_NOCOLOR: i32 = -1;
/// Version of the library that this header is of; fwGetVersion has that of the library in use.
pub const FW_VERSION_MAJOR: u32 = 0;
/// See FW_VERSION_MAJOR.
pub const FW_VERSION_MINOR: u32 = 1;
/// See FW_VERSION_MAJOR.
pub const FW_VERSION_PATCH: u32 = 0;
/// Room for the name of a codec or a schedule, its end included.
pub const FW_NAME_BYTES: usize = 32;

/// What is behind an fwComm_t.
pub enum fwComm {}
/// A rank of a communicator. Not an address: it may be passed to any function after it was
/// destroyed, which then returns FW_INVALID_HANDLE.
pub type fwComm_t = *mut fwComm;

/// What is behind an fwRequest_t.
pub enum fwRequest {}
/// A call under way. Not an address, as an fwComm_t.
pub type fwRequest_t = *mut fwRequest;

/// What ranks that belong together have in common. One rank's process makes it, the program carries
/// its bytes to the others, and each gives it to fwCommInitRank.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fwUniqueId {
    /// Of no meaning to the caller.
    pub internal: [u8; FW_UNIQUE_ID_BYTES],
}

/// Settings of a communicator, and of those that are split from it. Begin with FW_CONFIG_INIT; 0 is
/// each member's default. All ranks give the same; calls between ranks that differ in lanes fail
/// with FW_MISMATCH.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fwConfig {
    /// sizeof(fwConfig)
    pub size: usize,
    /// How many calls may be under way at once, up to 256; 0: 8. With 256 no message has a request.
    pub calls: u32,
    /// The most messages of a call that a rank has under way side by side, up to 8; 0: 4. Calls on
    /// short arrays have fewer, and those of automatic plans as many as are soonest.
    pub lanes: u32,
    /// Seconds without any progress after which a call fails; 0: 300.
    pub timeout: f64,
    /// Seconds that a call may take; 0: as long as it moves.
    pub deadline: f64,
    /// Bytes per second of a rank's link, each way, if the network does not know it; 0: it does.
    pub link_rate: f64,
    /// FW_CHECKSUM_…
    pub checksum: fwChecksum,
    /// 0
    pub reserved: u32,
}

/// How a call is carried out. Begin with FW_PLAN_INIT, which is exact, or with fwPlanParse; 0 is
/// each member's default. All ranks of a call give the same. NULL in place of a plan is exact.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct fwPlan {
    /// sizeof(fwPlan)
    pub size: usize,
    /// FW_EXACT, FW_LOSSLESS, FW_COMPRESS or FW_AUTO
    pub mode: fwMode,
    /// FW_NO_BOUND, FW_ABSOLUTE, FW_RELATIVE or FW_PSNR
    pub bound_kind: fwBoundKind,
    /// The bound, if there is one: finite and above 0.
    pub bound: f64,
    /// FW_EACH_OPERAND or FW_RESULT
    pub scope: fwScope,
    /// The codec's own number, as the rate of zfp-rate; 0: its default.
    pub setting: u32,
    /// Name of the codec, with FW_LOSSLESS or FW_COMPRESS; empty: the mode's own.
    pub codec: [c_char; FW_NAME_BYTES],
    /// Name of the schedule; empty: the one that suits the call.
    pub schedule: [c_char; FW_NAME_BYTES],
    /// The array's last three dimensions, slowest first, for codecs that look along them; the first
    /// ones of fewer are 1. All 0: not known.
    pub shape: [usize; 3],
    /// Arrays of fewer bytes in all travel as they are.
    pub exact_below: usize,
    /// Not 0: own values are rounded without bias, by random numbers from the seed.
    pub is_unbiased: u64,
    /// See is_unbiased.
    pub seed: u64,
}

/// What a finished call did.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fwReport {
    /// sizeof(fwReport)
    pub size: usize,
    /// From start to finish.
    pub seconds: f64,
    /// The absolute bound on each operand; 0: exact.
    pub bound: f64,
    /// The most that a value of the result can be off, rounding of its type aside; 0: exact,
    /// negative: not known.
    pub worst_case: f64,
    /// Bytes of the values that this rank sent, uncompressed.
    pub raw_bytes: u64,
    /// Bytes of the messages that this rank sent.
    pub wire_bytes: u64,
    /// Messages sent.
    pub n_messages: u64,
    /// Name of the codec.
    pub codec: [c_char; FW_NAME_BYTES],
    /// Name of the schedule; empty of messages between two ranks.
    pub schedule: [c_char; FW_NAME_BYTES],
}
