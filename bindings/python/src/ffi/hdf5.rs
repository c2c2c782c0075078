//! A filter of HDF5: compresses and decompresses chunks of a data set. h5py registers it by the
//! address of [`FILTER`].
//!
//! The parameters of a data set (`cd_values`, numbers of 32 bits) are written by the Python
//! package: version 1, code of the type, 1 if there is a fill value, its bits (low, high), number
//! of dimensions of a chunk, the dimensions, number of bytes of the plan's text, its bytes, four in
//! a number. Compressed chunks describe themselves, so reading needs none of them.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::slice;

use foldwire::DType;
use foldwire::compress::Layout;
use foldwire_c::ffi::rust::{self, RawArray};

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
    set_local: None,
    filter,
};

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
        if flags & IS_READ != 0 { decompressed(chunk) } else { compressed(chunk, parameters) }
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

fn decompressed(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(rust::decompress(bytes).ok()?.bytes().to_vec())
}

/// Compresses a chunk. `None` if a parameter is invalid, or the chunk has another length.
fn compressed(chunk: &[u8], parameters: &[c_uint]) -> Option<Vec<u8>> {
    let (&[version, code, has_fill, low, high, n_dims], rest) = parameters.split_first_chunk()?;
    let dtype = DType::from_code(u8::try_from(code).ok()?)?;
    let n_dims = usize::try_from(n_dims).ok().filter(|&n| n <= MAX_DIMS)?;
    let (dims, rest) = rest.split_at_checked(n_dims)?;
    let (&n_text, text) = rest.split_first()?;
    let text: Vec<u8> = text.iter().flat_map(|four| four.to_le_bytes()).collect();
    let text = str::from_utf8(text.get(..usize::try_from(n_text).ok()?)?).ok()?;
    let shape: Vec<u64> = dims.iter().map(|&n| n.into()).collect();
    let n_values = shape.iter().try_fold(1u64, |all, &n| all.checked_mul(n))?;
    let is_whole = n_values.checked_mul(dtype.n_bytes() as u64)? == chunk.len() as u64;
    if version != VERSION || !is_whole {
        return None;
    }
    let fill = f64::from_bits(u64::from(high) << 32 | u64::from(low));
    let fill_value = (has_fill == 1).then_some(fill);
    let layout = Layout { shape, fill_value, ..Layout::line(0) };
    let address = chunk.as_ptr().expose_provenance();
    let array = RawArray { address, n_values: n_values as usize };
    // SAFETY: the chunk exists, and nobody writes it.
    let made = unsafe { rust::compress(array, dtype, &layout, &text.parse().ok()?) };
    Some(made.ok()?.0)
}
