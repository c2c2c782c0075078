//! Codes, handles, and the structs that callers fill in.
//!
//! Codes are integers, not Rust enumerations, because a caller may pass any number. An unknown
//! number returns `FW_INVALID_ARGUMENT`. Each struct begins with its size, so that a later version
//! can add members. A member that an older caller does not know is 0, its default.

use std::ffi::{c_char, c_void};

/// Result of a function: FW_SUCCESS, or the kind of error. fwGetLastError has the error text.
pub type fwResult = i32;
/// No error.
pub const FW_SUCCESS: fwResult = 0;
/// An argument is invalid: a null pointer, a misaligned or overlapping buffer, an unknown code, a
/// count that overflows, or an invalid bound or root. Nothing was sent. Correct the call and repeat
/// it.
pub const FW_INVALID_ARGUMENT: fwResult = 1;
/// The communicator or request was never created, was freed, or belongs to another process.
pub const FW_INVALID_HANDLE: fwResult = 2;
/// The call is not allowed in this state, for example because too many calls are in progress.
/// Nothing was sent.
pub const FW_INVALID_USAGE: fwResult = 3;
/// Another thread is in a call on this communicator, or on one that it was split from or into.
pub const FW_IN_USE: fwResult = 4;
/// The combination is not supported, for example an average of integers.
pub const FW_UNSUPPORTED: fwResult = 5;
/// A buffer is too small, or the communicator lacks message frames or channels.
pub const FW_NO_ROOM: fwResult = 6;
/// Ranks called different collectives, or passed different counts, types, operations or plans.
pub const FW_MISMATCH: fwResult = 7;
/// A call made no progress for fwConfig.timeout seconds, or fwConfig.deadline passed.
pub const FW_TIMEOUT: fwResult = 8;
/// Another rank ended, or its connection broke.
pub const FW_PEER_LOST: fwResult = 9;
/// Another rank aborted the call, or another thread called fwCommAbort.
pub const FW_ABORTED: fwResult = 10;
/// An earlier call failed. Call fwCommShrink, or create another communicator.
pub const FW_POISONED: fwResult = 11;
/// The other ranks have shrunk the communicator without this rank.
pub const FW_EXCLUDED: fwResult = 12;
/// Received or compressed bytes are damaged, or were not made by this library.
pub const FW_DAMAGED: fwResult = 13;
/// The network failed.
pub const FW_TRANSPORT_ERROR: fwResult = 14;
/// A bug in Foldwire. Please report it.
pub const FW_INTERNAL_ERROR: fwResult = 15;
/// A device failed. fwGetLastError has the words of its driver. The call ends on all ranks, and so
/// does the communicator, except if fwCommSetMemory returns this.
pub const FW_DEVICE_ERROR: fwResult = 16;

/// Type of an array's values.
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
/// float _Complex: pairs of floats. Complex types are for collectives and messages. A bound applies
/// to real and imaginary parts. They have FW_SUM and FW_AVG (other operations: FW_UNSUPPORTED).
pub const FW_COMPLEX64: fwDataType = 33;
/// double _Complex: pairs of doubles.
pub const FW_COMPLEX128: fwDataType = 34;

/// Operation that combines the values of different ranks: one of the constants below, or a number
/// from fwRedOpCreate.
pub type fwRedOp = i32;
/// Sum. Integers wrap around (modulo 2^bits).
pub const FW_SUM: fwRedOp = 1;
/// Sum divided by the number of ranks. Not for integers (FW_UNSUPPORTED).
pub const FW_AVG: fwRedOp = 2;
/// Minimum. NaN if any operand is NaN.
pub const FW_MIN: fwRedOp = 3;
/// Maximum. NaN if any operand is NaN.
pub const FW_MAX: fwRedOp = 4;
/// Product. Integers wrap around (modulo 2^bits).
pub const FW_PROD: fwRedOp = 5;
/// Bitwise and. Integers only, as are the five that follow (FW_UNSUPPORTED), and exact.
pub const FW_BAND: fwRedOp = 16;
/// Bitwise or.
pub const FW_BOR: fwRedOp = 17;
/// Bitwise exclusive or.
pub const FW_BXOR: fwRedOp = 18;
/// Logical and: 1 if no operand is 0, else 0. One operand alone (one rank, or rank 0 in a scan)
/// stays as it is.
pub const FW_LAND: fwRedOp = 19;
/// Logical or: 1 if any operand is not 0, else 0. One operand alone stays as it is.
pub const FW_LOR: fwRedOp = 20;
/// Logical exclusive or: 1 if an odd number of operands is not 0, else 0. One operand alone stays
/// as it is.
pub const FW_LXOR: fwRedOp = 21;

/// Mode of a plan: exact or compressed.
pub type fwMode = i32;
/// Messages carry uncompressed values.
pub const FW_EXACT: fwMode = 0;
/// Messages carry compressed values, and every bit is kept.
pub const FW_LOSSLESS: fwMode = 1;
/// Messages carry values compressed within the error bound, or with the setting of a codec that
/// takes no bound.
pub const FW_COMPRESS: fwMode = 2;
/// Each call is exact or compressed within the bound, whichever is estimated to be faster.
pub const FW_AUTO: fwMode = 3;

/// Kind of an error bound.
pub type fwBoundKind = i32;
/// No error bound.
pub const FW_NO_BOUND: fwBoundKind = 0;
/// Absolute error, in the unit of the data.
pub const FW_ABSOLUTE: fwBoundKind = 1;
/// Error as a fraction of the value range (maximum minus minimum) over all ranks.
pub const FW_RELATIVE: fwBoundKind = 2;
/// Peak signal-to-noise ratio of at least this many dB.
pub const FW_PSNR: fwBoundKind = 3;

/// Meaning of a plan's fill value, which stands for missing data.
pub type fwFillKind = i32;
/// No fill value.
pub const FW_NO_FILL: fwFillKind = 0;
/// A reduction with a missing value is missing.
pub const FW_FILL_MISSING: fwFillKind = 1;
/// Reductions take the fill value as a number. It only does not count in the value range.
pub const FW_FILL_NUMBER: fwFillKind = 2;

/// Values that an error bound applies to.
pub type fwScope = i32;
/// Each rank's input. The error of a sum over n ranks is then at most n times the bound, and of an
/// average at most the bound.
pub const FW_EACH_OPERAND: fwScope = 0;
/// The result of the call.
pub const FW_RESULT: fwScope = 1;

/// Use of checksums in messages.
pub type fwChecksum = i32;
/// Messages carry checksums if the network can damage them.
pub const FW_CHECKSUM_AS_NEEDED: fwChecksum = 0;
/// All messages carry checksums.
pub const FW_CHECKSUM_ALWAYS: fwChecksum = 1;
/// No message carries a checksum.
pub const FW_CHECKSUM_NEVER: fwChecksum = 2;

/// Kind of memory.
pub type fwMemoryKind = i32;
/// Memory that the CPU reads.
pub const FW_MEMORY_HOST: fwMemoryKind = 0;
/// Memory of an NVIDIA GPU.
pub const FW_MEMORY_DEVICE: fwMemoryKind = 1;

/// Size of an fwUniqueId in bytes.
pub const FW_UNIQUE_ID_BYTES: usize = 128;
/// Color that a rank passes to fwCommSplit to get no communicator.
pub const FW_SPLIT_NOCOLOR: i32 = -1;
/// Major version of the library that this header belongs to. fwGetVersion returns the version of
/// the linked library.
pub const FW_VERSION_MAJOR: u32 = 0;
/// Minor version. See FW_VERSION_MAJOR.
pub const FW_VERSION_MINOR: u32 = 1;
/// Patch version. See FW_VERSION_MAJOR.
pub const FW_VERSION_PATCH: u32 = 0;
/// Size of a buffer for the name of a codec or schedule, with the terminating 0.
pub const FW_NAME_BYTES: usize = 32;

/// Target type of an fwComm_t.
pub enum fwComm {}
/// Handle of one rank of a communicator. A handle is a number, not an address: a function that
/// receives a destroyed communicator returns FW_INVALID_HANDLE.
pub type fwComm_t = *mut fwComm;

/// Target type of an fwRequest_t.
pub enum fwRequest {}
/// Handle of a call in progress. A number, not an address, like fwComm_t.
pub type fwRequest_t = *mut fwRequest;

/// Unique id of a communicator. The process of rank 0 creates it with fwGetUniqueId. The program
/// sends its bytes to the other ranks, and every rank passes it to fwCommInitRank.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fwUniqueId {
    /// Opaque bytes.
    pub internal: [u8; FW_UNIQUE_ID_BYTES],
}

/// Settings of a communicator, and of communicators split from it. Initialize with FW_CONFIG_INIT;
/// 0 selects each member's default. All ranks pass the same settings. Calls between ranks that
/// differ in lanes return FW_MISMATCH.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fwConfig {
    /// sizeof(fwConfig).
    pub size: usize,
    /// Largest number of calls in progress at once, up to 256. 0: 8. With 256, messages cannot have
    /// requests.
    pub calls: u32,
    /// Largest number of messages of one call that a rank sends in parallel, up to 8. 0: 4. Calls
    /// on short arrays use fewer lanes. Automatic plans use the number that is estimated to be
    /// fastest.
    pub lanes: u32,
    /// Seconds without progress after which a call fails. 0: 300.
    pub timeout: f64,
    /// Seconds after which a call fails, even while it makes progress. 0: no deadline.
    pub deadline: f64,
    /// Bytes per second of a rank's link in each direction. 0: the rate that the transport reports.
    pub link_rate: f64,
    /// FW_CHECKSUM_AS_NEEDED, FW_CHECKSUM_ALWAYS or FW_CHECKSUM_NEVER.
    pub checksum: fwChecksum,
    /// Must be 0.
    pub reserved: u32,
}

/// Plan of a call: mode, error bound, codec and schedule. Initialize with FW_PLAN_INIT, which is
/// exact, or with fwPlanParse; 0 selects each member's default. All ranks of a call pass the same
/// plan. A NULL plan is exact.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct fwPlan {
    /// sizeof(fwPlan).
    pub size: usize,
    /// FW_EXACT, FW_LOSSLESS, FW_COMPRESS or FW_AUTO.
    pub mode: fwMode,
    /// FW_NO_BOUND, FW_ABSOLUTE, FW_RELATIVE or FW_PSNR.
    pub bound_kind: fwBoundKind,
    /// The error bound: finite and greater than 0. 0 with FW_NO_BOUND.
    pub bound: f64,
    /// FW_EACH_OPERAND or FW_RESULT.
    pub scope: fwScope,
    /// Parameter of the codec, for example the rate of zfp-rate. 0: the codec's default.
    pub setting: u32,
    /// Name of the codec, for FW_LOSSLESS or FW_COMPRESS. Empty: the default codec of the mode.
    pub codec: [c_char; FW_NAME_BYTES],
    /// Name of the schedule. Empty: the library chooses one for each call.
    pub schedule: [c_char; FW_NAME_BYTES],
    /// The last three dimensions of the array, slowest first, for codecs that predict along them.
    /// An array of fewer dimensions has leading 1s. All 0: shape unknown.
    pub shape: [usize; 3],
    /// Arrays of fewer bytes than this are sent uncompressed.
    pub exact_below: usize,
    /// If not 0, each rank rounds its input stochastically, so that the expected error is 0.
    pub is_unbiased: i32,
    /// Largest number of the communicator's lanes that the call uses, up to 8. 0: all.
    pub lanes: u32,
    /// Seed of the random numbers for is_unbiased.
    pub seed: u64,
    /// Value of floats that stands for missing data, such as 1e20 or -9999, if fill_kind is not
    /// FW_NO_FILL. It keeps its bits, and does not count in the range of a bound. With
    /// FW_FILL_MISSING a reduction is the fill value where a rank's value is the fill value or NaN,
    /// or where infinities cancel. All ranks pass a fill value, which may differ.
    pub fill: f64,
    /// FW_NO_FILL, FW_FILL_MISSING or FW_FILL_NUMBER. Calls that cannot have a fill value return
    /// FW_UNSUPPORTED: of integers, by user-defined operations, by codecs that take no bound, with
    /// unbiased rounding, on devices, and messages.
    pub fill_kind: fwFillKind,
    /// If not 0, a call fails with FW_INVALID_ARGUMENT on all ranks if a value of any rank seems to
    /// be a fill value that sets the range of the bound. No data are sent then.
    pub refuses_fill: i32,
}

/// Memory that holds the arrays of collectives. Initialize with FW_MEMORY_INIT.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fwMemory {
    /// sizeof(fwMemory).
    pub size: usize,
    /// FW_MEMORY_HOST or FW_MEMORY_DEVICE.
    pub kind: fwMemoryKind,
    /// Number of the CUDA device.
    pub device: i32,
    /// The cudaStream_t or CUstream on which the program uses the arrays. NULL: the default stream.
    pub stream: *mut c_void,
}

/// Function that sets the value of a key in a store. Returns 0, or another number if the store has
/// failed.
pub type fwStoreSet = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        key: *const c_char,
        value: *const c_void,
        n_bytes: usize,
    ) -> i32,
>;
/// Function that reads the value of a key: writes at most capacity bytes to value and the whole
/// length to n_bytes, and returns 0. Returns 1 if the key was not set, and another number if the
/// store has failed. It does not wait.
pub type fwStoreGet = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        key: *const c_char,
        value: *mut c_void,
        capacity: usize,
        n_bytes: *mut usize,
    ) -> i32,
>;
/// Function that waits until a key is set, and returns 0. Returns 1 if it was not set within limit
/// seconds, and another number if the store has failed.
pub type fwStoreWait =
    Option<unsafe extern "C" fn(context: *mut c_void, key: *const c_char, limit: f64) -> i32>;

/// A store of values by key that all processes of a job share: a folder, a server, a store of a
/// launcher. Initialize with FW_STORE_INIT. The functions are called only during a function that
/// has the store as an argument, on its thread. Keys are at most 200 letters, digits and ".-_/".
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fwStore {
    /// sizeof(fwStore).
    pub size: usize,
    /// First argument of the functions.
    pub context: *mut c_void,
    /// Sets a value.
    pub set: fwStoreSet,
    /// Reads a value.
    pub get: fwStoreGet,
    /// Waits for a value. NULL: get is called every 10 milliseconds.
    pub wait: fwStoreWait,
    /// Name of the job, with which all its keys begin. NULL: "foldwire". A job that is started
    /// again with the same store needs another name.
    pub job: *const c_char,
}

/// Wishes of survivors that admit newcomers. Initialize with FW_ADMISSION_INIT.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fwAdmission {
    /// sizeof(fwAdmission).
    pub size: usize,
    /// Number of ranks that the group should have. It waits for newcomers until it has, and admits
    /// no more. 0: it admits those that wait already.
    pub n_ranks: i32,
    /// Must be 0.
    pub reserved: i32,
    /// Longest wait for newcomers, in seconds.
    pub limit: f64,
    /// Seconds after which a silent rank is left out.
    pub patience: f64,
    /// Bytes for the newcomers, such as the step from which to go on. Newcomers get the bytes of
    /// the lowest rank.
    pub facts: *const c_void,
    /// Number of these bytes, at most 65536.
    pub n_fact_bytes: usize,
}

/// Statistics of a finished call on this rank. Initialize with FW_REPORT_INIT.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fwReport {
    /// sizeof(fwReport).
    pub size: usize,
    /// Duration in seconds, from start to finish.
    pub seconds: f64,
    /// Absolute error bound on each operand. 0: exact.
    pub bound: f64,
    /// Largest possible absolute error of a value of the result, without the rounding of its type.
    /// 0: exact. Negative: unknown.
    pub worst_case: f64,
    /// Uncompressed size in bytes of the values that this rank sent.
    pub raw_bytes: u64,
    /// Size in bytes of the messages that this rank sent.
    pub wire_bytes: u64,
    /// Number of messages that this rank sent.
    pub n_messages: u64,
    /// Name of the codec that was used.
    pub codec: [c_char; FW_NAME_BYTES],
    /// Name of the schedule that was used. Empty for messages between two ranks.
    pub schedule: [c_char; FW_NAME_BYTES],
    /// A value of this rank that sets the range of a relative bound, and costs the other values
    /// most of their digits: perhaps a fill value for missing data, such as 1e20. NaN: none.
    pub suspected_fill: f64,
}
