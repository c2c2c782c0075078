//! A filter of HDF5: compresses and decompresses chunks of a data set. h5py registers it by the
//! address of [`FILTER`].
//!
//! The Python package writes the parameters of a data set (`cd_values`, numbers of 32 bits). They
//! are version 1, the code of the type, 1 if there is a fill value, and its bits (low, high). The
//! number of dimensions of a chunk follows, and the dimensions. At the end is the plan's text: its
//! number of bytes, and the bytes, four in a number. A compressed chunk describes itself. A reader
//! compares its type and length with the parameters, because HDF5 trusts the length that a filter
//! returns.
//!
//! Floats lose bits, so a data set of floats must have the type that the parameters name, in native
//! byte order, and no filter may change its bytes before. HDF5 asks [`set_local`] when it creates a
//! data set; the Python package lends it HDF5's own functions by [`set_functions`]. Integers are
//! exact, whatever the bytes stand for.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::slice;
use std::sync::OnceLock;

use foldwire::DType;
use foldwire::compress::{Info, Layout};
use foldwire::plan::PlanSpec;
use foldwire_c::ffi::rust::{self, RawArray};

use crate::report;

/// Number of the filter. The HDF Group leaves numbers from 32768 to everyone.
pub(crate) const FILTER_ID: c_int = 32_931;
/// Version of the parameters.
const VERSION: c_uint = 1;
/// Flag of HDF5: the chunk is read.
const IS_READ: c_uint = 0x100;
/// Most dimensions of a data set.
const MAX_DIMS: usize = 32;

type Filter = unsafe extern "C" fn(
    flags: c_uint,
    n_parameters: usize,
    parameters: *const c_uint,
    n_bytes: usize,
    capacity: *mut usize,
    buffer: *mut *mut c_void,
) -> usize;

/// `H5Z_class2_t` of HDF5.
#[repr(C)]
pub(crate) struct FilterClass {
    version: c_int,
    id: c_int,
    encodes: c_uint,
    decodes: c_uint,
    name: *const c_char,
    can_apply: Option<unsafe extern "C" fn(i64, i64, i64) -> c_int>,
    set_local: Option<unsafe extern "C" fn(i64, i64, i64) -> c_int>,
    filter: Filter,
}

// SAFETY: the pointers are to constants.
unsafe impl Sync for FilterClass {}

const NAME: &CStr = c"foldwire: within an error bound";

pub(crate) static FILTER: FilterClass = FilterClass {
    version: 1,
    id: FILTER_ID,
    encodes: 1,
    decodes: 1,
    name: NAME.as_ptr(),
    can_apply: None,
    set_local: Some(set_local),
    filter,
};

/// A question about a type: its class, or its order. Negative if it fails.
type AskType = unsafe extern "C" fn(dtype: i64) -> c_int;
/// The size of a type in bytes; 0 if it fails.
type SizeOfType = unsafe extern "C" fn(dtype: i64) -> usize;
/// The first bit of the sign, first bit and number of bits of the exponent, and of the mantissa.
/// Negative if it fails.
type FieldsOfType = unsafe extern "C" fn(
    dtype: i64,
    sign: *mut usize,
    exponent: *mut usize,
    n_exponent: *mut usize,
    mantissa: *mut usize,
    n_mantissa: *mut usize,
) -> c_int;
/// A filter of a list: the number of that at a place, or a negative number.
type FilterAt = unsafe extern "C" fn(
    list: i64,
    place: c_uint,
    flags: *mut c_uint,
    n_parameters: *mut usize,
    parameters: *mut c_uint,
    n_name: usize,
    name: *mut c_char,
    config: *mut c_uint,
) -> c_int;
/// The same of the filter with a number. Negative if there is none.
type FilterById = unsafe extern "C" fn(
    list: i64,
    id: c_int,
    flags: *mut c_uint,
    n_parameters: *mut usize,
    parameters: *mut c_uint,
    n_name: usize,
    name: *mut c_char,
    config: *mut c_uint,
) -> c_int;

/// Functions of the HDF5 that has the filter.
struct Functions {
    class: AskType,
    size: SizeOfType,
    order: AskType,
    fields: FieldsOfType,
    filter_at: FilterAt,
    filter_by_id: FilterById,
}

/// Names of the functions, in the order in which [`set_functions`] takes their addresses.
pub(crate) const FUNCTIONS: [&str; 6] = [
    "H5Tget_class",
    "H5Tget_size",
    "H5Tget_order",
    "H5Tget_fields",
    "H5Pget_filter2",
    "H5Pget_filter_by_id2",
];

static HDF5: OnceLock<Functions> = OnceLock::new();

/// Classes and orders of types, as HDF5 numbers them.
const CLASS_FLOAT: c_int = 1;
const ORDER_LITTLE_ENDIAN: c_int = 0;

/// Keeps the addresses of [`FUNCTIONS`], which the Python package looked up by these names. Later
/// calls, and calls with an address of 0, change nothing.
pub(crate) fn set_functions(addresses: [usize; 6]) {
    if addresses.contains(&0) {
        return;
    }
    let [class, size, order, fields, filter_at, filter_by_id] =
        addresses.map(ptr::with_exposed_provenance::<c_void>);
    // SAFETY: the package looked up each address by the function's name in the library that h5py
    // has loaded and never unloads. The types are those of HDF5 1.10 and later, whose ids have 64
    // bits; h5py needs 1.10.
    let functions = unsafe {
        Functions {
            class: mem::transmute::<*const c_void, AskType>(class),
            size: mem::transmute::<*const c_void, SizeOfType>(size),
            order: mem::transmute::<*const c_void, AskType>(order),
            fields: mem::transmute::<*const c_void, FieldsOfType>(fields),
            filter_at: mem::transmute::<*const c_void, FilterAt>(filter_at),
            filter_by_id: mem::transmute::<*const c_void, FilterById>(filter_by_id),
        }
    };
    let _ = HDF5.set(functions);
}

/// Refuses a data set whose floats are not those of the parameters. HDF5 calls it before it creates
/// a data set, and does not create it if the result is negative.
unsafe extern "C" fn set_local(list: i64, dtype: i64, _space: i64) -> c_int {
    let Some(hdf5) = HDF5.get() else { return 0 };
    let mut parameters: [c_uint; 2] = [0; 2];
    let mut n_parameters = parameters.len();
    let null = ptr::null_mut::<c_uint>();
    // SAFETY: HDF5 passes valid ids. It writes at most `n_parameters` parameters, and nothing to
    // null pointers.
    let found = unsafe {
        let (count, to) = (&raw mut n_parameters, parameters.as_mut_ptr());
        (hdf5.filter_by_id)(list, FILTER_ID, null, count, to, 0, ptr::null_mut(), null)
    };
    let told = u8::try_from(parameters[1]).ok().and_then(DType::from_code);
    // Chunks with other parameters are stored as they are.
    let Some(told) = told.filter(|_| found >= 0 && n_parameters >= 2 && parameters[0] == VERSION)
    else {
        return 0;
    };
    if !told.is_float() {
        return 0;
    }
    let exponent_bits = match told {
        DType::F16 => 5,
        DType::F64 => 11,
        _ => 8,
    };
    let mut bits = [0usize; 5];
    let [sign, exponent, n_exponent, mantissa, n_mantissa] = bits.each_mut().map(ptr::from_mut);
    let mut none = 0;
    // SAFETY: as above; the five numbers exist.
    let is_as_told = unsafe {
        (hdf5.class)(dtype) == CLASS_FLOAT
            && (hdf5.size)(dtype) == told.n_bytes()
            && (hdf5.order)(dtype) == ORDER_LITTLE_ENDIAN
            && (hdf5.fields)(dtype, sign, exponent, n_exponent, mantissa, n_mantissa) >= 0
            && (hdf5.filter_at)(list, 0, null, &raw mut none, null, 0, ptr::null_mut(), null)
                == FILTER_ID
    };
    if is_as_told && bits[2] == exponent_bits { 0 } else { -1 }
}

// HDF5 frees and grows a chunk's memory by these.
unsafe extern "C" {
    fn malloc(n_bytes: usize) -> *mut c_void;
    fn free(memory: *mut c_void);
}

/// Replaces a chunk in `buffer` by its compressed or decompressed bytes. Returns their number; 0 if
/// that fails, and then leaves the buffer as it is.
unsafe extern "C" fn filter(
    flags: c_uint,
    n_parameters: usize,
    parameters: *const c_uint,
    n_bytes: usize,
    capacity: *mut usize,
    buffer: *mut *mut c_void,
) -> usize {
    if capacity.is_null() || buffer.is_null() {
        return 0;
    }
    // SAFETY: HDF5 passes a buffer with `n_bytes` bytes, and its parameters.
    let (chunk, parameters) = unsafe {
        let chunk =
            if n_bytes == 0 { &[] } else { slice::from_raw_parts((*buffer).cast(), n_bytes) };
        let no_parameters = n_parameters == 0 || parameters.is_null();
        let parameters: &[c_uint] =
            if no_parameters { &[] } else { slice::from_raw_parts(parameters, n_parameters) };
        (chunk, parameters)
    };
    let made = catch_unwind(AssertUnwindSafe(|| {
        let parameters = Parameters::read(parameters)?;
        if flags & IS_READ != 0 { parameters.decompress(chunk) } else { parameters.compress(chunk) }
    }));
    let Ok(Some(made)) = made else { return 0 };
    // SAFETY: the old buffer is HDF5's, and the new one has space for all bytes.
    unsafe {
        let new = malloc(made.len().max(1));
        if new.is_null() {
            return 0;
        }
        ptr::copy_nonoverlapping(made.as_ptr(), new.cast(), made.len());
        free(*buffer);
        (*buffer, *capacity) = (new, made.len());
    }
    made.len()
}

/// The parameters of a data set.
struct Parameters<'a> {
    dtype: DType,
    fill_value: Option<f64>,
    shape: Vec<u64>,
    /// Length of a chunk.
    n_values: usize,
    /// The plan's text, four bytes in a number.
    text: &'a [c_uint],
    n_text: usize,
}

impl<'a> Parameters<'a> {
    /// Reads the parameters. `None` if one is invalid.
    fn read(parameters: &'a [c_uint]) -> Option<Self> {
        let (&[version, code, has_fill, low, high, n_dims], rest) =
            parameters.split_first_chunk()?;
        let dtype = DType::from_code(u8::try_from(code).ok()?)?;
        let n_dims = usize::try_from(n_dims).ok().filter(|&n| n <= MAX_DIMS)?;
        let (dims, rest) = rest.split_at_checked(n_dims)?;
        let (&n_text, text) = rest.split_first()?;
        let shape: Vec<u64> = dims.iter().map(|&n| n.into()).collect();
        let n_values = shape.iter().try_fold(1u64, |all, &n| all.checked_mul(n))?;
        n_values.checked_mul(dtype.n_bytes() as u64)?;
        let fill = f64::from_bits(u64::from(high) << 32 | u64::from(low));
        let fill_value = (has_fill == 1).then_some(fill);
        let (n_values, n_text) = (usize::try_from(n_values).ok()?, usize::try_from(n_text).ok()?);
        (version == VERSION).then_some(Self { dtype, fill_value, shape, n_values, text, n_text })
    }

    /// Decompresses a chunk. `None` if it is damaged, or has another type or length.
    fn decompress(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let info = Info::read(bytes).ok()?;
        if info.dtype != self.dtype || info.n_values() != self.n_values as u64 {
            return None;
        }
        let values = rust::decompress(bytes).ok()?;
        let n_bytes = self.n_values * self.dtype.n_bytes();
        (values.bytes().len() == n_bytes).then(|| values.bytes().to_vec())
    }

    /// Compresses a chunk. `None` if the plan is invalid or refuses the values, or the chunk has
    /// another length: HDF5 then stores it as it is. Warns of a suspected fill value.
    ///
    /// A refusal cannot be an error: HDF5 writes chunks when it closes a file, and its memory is
    /// damaged if a filter fails then.
    fn compress(self, chunk: &[u8]) -> Option<Vec<u8>> {
        if self.n_values * self.dtype.n_bytes() != chunk.len() {
            return None;
        }
        let text: Vec<u8> = self.text.iter().flat_map(|four| four.to_le_bytes()).collect();
        let plan: PlanSpec = str::from_utf8(text.get(..self.n_text)?).ok()?.parse().ok()?;
        let layout = Layout { shape: self.shape, fill_value: self.fill_value, ..Layout::line(0) };
        let address = chunk.as_ptr().expose_provenance();
        // SAFETY: the chunk exists, and nobody writes it.
        let array = unsafe { RawArray::new(address, self.n_values) };
        match rust::compress(array, self.dtype, &layout, &plan) {
            Ok((bytes, suspected_fill)) => {
                if let Some(fill) = suspected_fill {
                    report::warn(report::suspected_fill(fill));
                }
                Some(bytes)
            }
            Err(error) => {
                if plan.refuses_fill {
                    report::warn(format!("{} (the chunk is stored unchanged)", error.message));
                }
                None
            }
        }
    }
}
