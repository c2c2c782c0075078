//! The caller's memory: arrays that are lent for a call, structs that say their size, and places
//! for what is returned.
//!
//! Everything that can be checked of a pointer is: null, alignment, lengths that overflow, arrays
//! that overlap. That the memory is there, and is left alone during the call, is what the caller
//! promises (foldwire.h, *Memory*).

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::slice;

use foldwire::Element;

use crate::errors::ApiError;
use crate::ffi::types::{fwComm, fwConfig, fwPlan, fwReport, fwRequest, fwRequest_t};

/// Longest struct of a later version that is looked at.
const MAX_STRUCT_BYTES: usize = 4096;

/// An array of the caller's, lent until the call that has it is over.
#[derive(Debug)]
pub(crate) struct LentArray<T> {
    start: NonNull<T>,
    count: usize,
    lent: PhantomData<*mut T>,
}

impl<T: Element> LentArray<T> {
    /// # Errors
    /// A fault if there can be no such array; none of no values is at any address.
    ///
    /// # Safety
    /// Unless it is of no values, there must be as many at `start` until this is dropped. If it is
    /// written to, nobody else may read or write them meanwhile; else nobody may write them.
    pub(crate) unsafe fn lend(start: *const c_void, count: usize) -> Result<Self, ApiError> {
        let lent = PhantomData;
        if count == 0 {
            return Ok(Self { start: NonNull::dangling(), count, lent });
        }
        let range = bytes(start, count, T::BYTES)?;
        if range.start % align_of::<T>() != 0 {
            let message = format!("an array of {} at {start:p} is not aligned", T::DTYPE);
            return Err(ApiError::argument(message));
        }
        let start = NonNull::new(start.cast::<T>().cast_mut()).ok_or_else(null)?;
        Ok(Self { start, count, lent })
    }
}

impl<T> AsRef<[T]> for LentArray<T> {
    fn as_ref(&self) -> &[T] {
        // SAFETY: `lend` has checked null, alignment and length; its caller promised that the
        // values are there and that nobody writes them. Any bits are a value of these types.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T> AsMut<[T]> for LentArray<T> {
    fn as_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `as_ref`; nobody else reads or writes what is written to.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.count) }
    }
}

/// What a call sends: the caller's array, or a copy where the caller has the result overlap it.
#[derive(Debug)]
pub(crate) enum SendBuffer<T> {
    Lent(LentArray<T>),
    Copied(Vec<T>),
}

impl<T> AsRef<[T]> for SendBuffer<T> {
    fn as_ref(&self) -> &[T] {
        match self {
            Self::Lent(values) => values.as_ref(),
            Self::Copied(values) => values,
        }
    }
}

fn null() -> ApiError {
    ApiError::argument("an array is NULL")
}

/// The addresses of an array; none if it has no values.
pub(crate) fn bytes(
    start: *const c_void,
    count: usize,
    n_bytes: usize,
) -> Result<Range<usize>, ApiError> {
    if count == 0 {
        return Ok(0..0);
    }
    let at = start.addr();
    if at == 0 {
        return Err(null());
    }
    let length = count.checked_mul(n_bytes).filter(|&length| isize::try_from(length).is_ok());
    let end = length.and_then(|length| at.checked_add(length));
    let overflow = || ApiError::argument(format!("{count} values are more than memory can hold"));
    Ok(at..end.ok_or_else(overflow)?)
}

/// Bytes of the caller's, lent for as long as the function runs.
///
/// # Safety
/// As many must be there, and nobody may write them meanwhile.
pub(crate) unsafe fn lent_bytes<'a>(start: *const c_void, n: usize) -> Result<&'a [u8], ApiError> {
    bytes(start, n, 1)?;
    if n == 0 {
        return Ok(&[]);
    }
    // SAFETY: not null, and not longer than memory; the rest is the caller's promise.
    Ok(unsafe { slice::from_raw_parts(start.cast(), n) })
}

/// A place for one thing that is returned.
///
/// # Safety
/// Unless it is null, a `V` must be there (of any bits), which nobody else uses meanwhile.
pub(crate) unsafe fn out_value<'a, V>(pointer: *mut V, what: &str) -> Result<&'a mut V, ApiError> {
    if !pointer.is_aligned() {
        return Err(ApiError::argument(format!("the place for the {what} is not aligned")));
    }
    // SAFETY: aligned; null is an error; the rest is the caller's promise.
    unsafe { pointer.as_mut() }
        .ok_or_else(|| ApiError::argument(format!("the place for the {what} is NULL")))
}

/// As many things in a row, to read and write.
///
/// # Safety
/// Unless there are none, as many must be there, which nobody else uses meanwhile.
pub(crate) unsafe fn out_values<'a, V>(start: *mut V, n: usize) -> Result<&'a mut [V], ApiError> {
    bytes(start.cast(), n, size_of::<V>())?;
    if n == 0 {
        return Ok(&mut []);
    }
    if !start.is_aligned() {
        return Err(ApiError::argument("an array is not aligned"));
    }
    // SAFETY: not null, aligned and not longer than memory; the rest is the caller's promise.
    Ok(unsafe { slice::from_raw_parts_mut(start, n) })
}

/// Where a handle goes, once there is one.
#[derive(Debug)]
pub(crate) struct HandleOut<H>(NonNull<*mut H>);

/// Of a request.
pub(crate) type RequestOut = HandleOut<fwRequest>;
/// Of a communicator.
pub(crate) type CommOut = HandleOut<fwComm>;

impl<H> HandleOut<H> {
    /// The place, with no handle in it.
    ///
    /// # Errors
    /// A fault if it is null or misaligned.
    ///
    /// # Safety
    /// Unless it is null, a handle must be there, which nobody else uses until this is dropped.
    pub(crate) unsafe fn new(pointer: *mut *mut H, what: &str) -> Result<Self, ApiError> {
        // SAFETY: by the caller's promise.
        let place = unsafe { out_value(pointer, what) }?;
        *place = ptr::null_mut();
        Ok(Self(NonNull::from(place)))
    }

    /// Where that is.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }

    /// Puts a handle there.
    pub(crate) fn put(&mut self, handle: usize) {
        // SAFETY: `new` has checked it, and was promised that it is there.
        unsafe { self.0.write(ptr::without_provenance_mut(handle)) };
    }
}

impl RequestOut {
    /// As [`new`](Self::new); `None` if it is null, for a call that blocks.
    ///
    /// # Safety
    /// As of `new`.
    pub(crate) unsafe fn optional(pointer: *mut fwRequest_t) -> Result<Option<Self>, ApiError> {
        // SAFETY: by the caller's promise.
        let place = || unsafe { Self::new(pointer, "request") };
        if pointer.is_null() { Ok(None) } else { place().map(Some) }
    }
}

/// A copy of as many counts.
///
/// # Safety
/// As many must be there, and nobody may write them meanwhile.
pub(crate) unsafe fn counts(start: *const usize, n: usize) -> Result<Rc<[usize]>, ApiError> {
    bytes(start.cast(), n, size_of::<usize>())?;
    if start.is_null() || !start.is_aligned() {
        return Err(ApiError::argument("the counts are NULL or not aligned"));
    }
    // SAFETY: not null, aligned and not longer than memory; the rest is the caller's promise.
    Ok(Rc::from(unsafe { slice::from_raw_parts(start, n) }))
}

/// A struct that begins with its size, and of which all bits mean something.
///
/// # Safety
/// `repr(C)`, beginning with a `usize` that is its size, and of numbers only.
pub(crate) unsafe trait Versioned: Copy {
    /// Bytes of the first version, which is this one.
    const FIRST_BYTES: usize = size_of::<Self>();
}

// SAFETY: the size, then integers and floats.
unsafe impl Versioned for fwConfig {}
// SAFETY: the size, then integers, floats, and arrays of integers.
unsafe impl Versioned for fwPlan {}
// SAFETY: the size, then floats, integers, and arrays of integers.
unsafe impl Versioned for fwReport {}

// What was compiled once counts on it.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(
    fwConfig::FIRST_BYTES == 48 && fwPlan::FIRST_BYTES == 144 && fwReport::FIRST_BYTES == 120
);

/// The size that a struct says it has.
unsafe fn declared_size<V: Versioned>(pointer: *const V, what: &str) -> Result<usize, ApiError> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(ApiError::argument(format!("the {what} is NULL or not aligned")));
    }
    // SAFETY: not null, aligned, and by the caller's promise it begins with its size.
    let size = unsafe { pointer.cast::<usize>().read() };
    if !(V::FIRST_BYTES..=MAX_STRUCT_BYTES).contains(&size) {
        let message = format!(
            "a {what} of {size} bytes: its first member is its size, of {} bytes or more; begin \
             with the _INIT of foldwire.h",
            V::FIRST_BYTES
        );
        return Err(ApiError::argument(message));
    }
    Ok(size)
}

/// A copy of a caller's struct, `default` where it is of an older version.
///
/// # Errors
/// A fault if it says no size that can be, or if it is of a later version and says what this one
/// does not know.
///
/// # Safety
/// Unless it is null, there must be as many bytes as it says, which nobody writes meanwhile.
pub(crate) unsafe fn read<V: Versioned>(
    pointer: *const V,
    default: V,
    what: &str,
) -> Result<V, ApiError> {
    // SAFETY: by the caller's promise.
    let size = unsafe { declared_size(pointer, what) }?;
    let known = size.min(size_of::<V>());
    // SAFETY: so many bytes are there.
    let more = unsafe { lent_bytes(pointer.cast::<u8>().add(known).cast(), size - known) }?;
    if more.iter().any(|&byte| byte != 0) {
        let message = format!("the {what} is of a later version and says what this one cannot do");
        return Err(ApiError::argument(message));
    }
    let mut copy = default;
    // SAFETY: both have so many bytes; any bits are a value of `V`, which is made of numbers.
    unsafe { ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut copy).cast(), known) };
    Ok(copy)
}

/// Fills in a caller's struct, as much of it as the caller knows, but for its size.
///
/// # Errors
/// A fault if it says no size that can be.
///
/// # Safety
/// Unless it is null, there must be as many bytes as it says, which nobody else uses meanwhile.
pub(crate) unsafe fn write<V: Versioned>(
    pointer: *mut V,
    value: V,
    what: &str,
) -> Result<(), ApiError> {
    // SAFETY: by the caller's promise.
    let size = unsafe { declared_size(pointer, what) }?;
    let (skip, n) = (size_of::<usize>(), size.min(size_of::<V>()));
    // SAFETY: both have `n` bytes, at least `skip` of them.
    unsafe {
        let from = (&raw const value).cast::<u8>().add(skip);
        ptr::copy_nonoverlapping(from, pointer.cast::<u8>().add(skip), n - skip);
    }
    Ok(())
}
