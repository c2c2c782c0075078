//! The caller's memory: arrays that a call borrows, structs that store their own size, and pointers
//! to outputs.
//!
//! This module checks everything that can be checked about a pointer: null, alignment, lengths that
//! overflow, and arrays that overlap. The caller guarantees that the memory exists and is not
//! touched during the call (foldwire.h, *Memory*).

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use foldwire::Element;

use crate::errors::ApiError;
use crate::ffi::types::{
    fwAdmission, fwComm, fwConfig, fwMemory, fwPlan, fwReport, fwRequest, fwRequest_t, fwStore,
};

/// Largest accepted size in bytes of a struct of a later version.
const MAX_STRUCT_BYTES: usize = 4096;

/// An array of the caller that is lent to a call until the call has finished.
#[derive(Debug)]
pub(crate) struct LentArray<T> {
    start: NonNull<T>,
    count: usize,
    lent: PhantomData<*mut T>,
}

impl<T: Element> LentArray<T> {
    /// Borrows `count` values at `start`. An array of 0 values may have any address.
    ///
    /// # Errors
    /// If the address is null or misaligned, or the length overflows.
    ///
    /// # Safety
    /// `count` values must exist at `start` until the result is dropped. If the array is written,
    /// nobody else may read or write it until then. Otherwise nobody may write it.
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
        // SAFETY: `lend` has checked null, alignment and length. Its caller guarantees that the
        // values exist and that nobody writes them. Every bit pattern is valid for these types.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T> AsMut<[T]> for LentArray<T> {
    fn as_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `as_ref`; nobody else reads or writes an array that is written.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.count) }
    }
}

/// Input of a call: the caller's array, or a copy of it if the result overlaps it.
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
    ApiError::argument("an array is NULL but has values")
}

/// Returns the address range of an array; an empty range if it has no values.
///
/// # Errors
/// If the address is null or the length overflows.
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

/// Checks that two arrays of a call, given by their address ranges, do not overlap.
///
/// # Errors
/// If they do.
pub(crate) fn check_disjoint(
    (first, second): (&Range<usize>, &Range<usize>),
    what: &str,
) -> Result<(), ApiError> {
    if first.start < second.end && second.start < first.end {
        return Err(ApiError::argument(format!("the arrays of {what} overlap")));
    }
    Ok(())
}

/// Borrows `n` bytes of the caller while the exported function runs.
///
/// # Safety
/// `n` bytes must exist at `start`, and nobody may write them during `'a`.
pub(crate) unsafe fn lent_bytes<'a>(start: *const c_void, n: usize) -> Result<&'a [u8], ApiError> {
    bytes(start, n, 1)?;
    if n == 0 {
        return Ok(&[]);
    }
    // SAFETY: not null, and the length does not overflow; the rest is guaranteed by the caller.
    Ok(unsafe { slice::from_raw_parts(start.cast(), n) })
}

/// Borrows the target of a pointer to an output.
///
/// # Errors
/// If the pointer is null or misaligned.
///
/// # Safety
/// Unless the pointer is null, it must point to a `V` (of any bits) that nobody else uses during
/// `'a`.
pub(crate) unsafe fn out_value<'a, V>(pointer: *mut V, what: &str) -> Result<&'a mut V, ApiError> {
    if !pointer.is_aligned() {
        return Err(ApiError::argument(format!("the pointer to the {what} is not aligned")));
    }
    // SAFETY: aligned; null is an error; the rest is guaranteed by the caller.
    unsafe { pointer.as_mut() }
        .ok_or_else(|| ApiError::argument(format!("the pointer to the {what} is NULL")))
}

/// Borrows an array of `n` outputs, for reading and writing.
///
/// # Errors
/// If the pointer is null or misaligned, or the length overflows.
///
/// # Safety
/// `n` values must exist at `start`, and nobody else may use them during `'a`.
pub(crate) unsafe fn out_values<'a, V>(start: *mut V, n: usize) -> Result<&'a mut [V], ApiError> {
    bytes(start.cast(), n, size_of::<V>())?;
    if n == 0 {
        return Ok(&mut []);
    }
    if !start.is_aligned() {
        return Err(ApiError::argument("an array is not aligned"));
    }
    // SAFETY: not null, aligned, and the length does not overflow; the rest is guaranteed by the
    // caller.
    Ok(unsafe { slice::from_raw_parts_mut(start, n) })
}

/// Pointer of the caller that receives a new handle.
#[derive(Debug)]
pub(crate) struct HandleOut<H>(NonNull<*mut H>);

/// Pointer that receives a request.
pub(crate) type RequestOut = HandleOut<fwRequest>;
/// Pointer that receives a communicator.
pub(crate) type CommOut = HandleOut<fwComm>;

impl<H> HandleOut<H> {
    /// Checks the pointer and sets its target to NULL.
    ///
    /// # Errors
    /// If the pointer is null or misaligned.
    ///
    /// # Safety
    /// Unless the pointer is null, it must point to a handle that nobody else uses until the result
    /// is dropped.
    pub(crate) unsafe fn new(pointer: *mut *mut H, what: &str) -> Result<Self, ApiError> {
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out_value(pointer, what) }?;
        *place = ptr::null_mut();
        Ok(Self(NonNull::from(place)))
    }

    /// Returns the address of the pointer's target.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }

    /// Writes a handle to the target.
    pub(crate) fn put(&mut self, handle: usize) {
        // SAFETY: `new` has checked the pointer, and its caller guarantees that the target exists.
        unsafe { self.0.write(ptr::without_provenance_mut(handle)) };
    }
}

impl RequestOut {
    /// Like [`new`](Self::new), but returns `None` for a null pointer, which selects a blocking
    /// call.
    ///
    /// # Safety
    /// As for `new`.
    pub(crate) unsafe fn optional(pointer: *mut fwRequest_t) -> Result<Option<Self>, ApiError> {
        // SAFETY: guaranteed by the caller.
        let place = || unsafe { Self::new(pointer, "request") };
        if pointer.is_null() { Ok(None) } else { place().map(Some) }
    }
}

/// Copies `n` counts.
///
/// # Errors
/// If the pointer is null or misaligned.
///
/// # Safety
/// `n` counts must exist at `start`, and nobody may write them during the call.
pub(crate) unsafe fn counts(start: *const usize, n: usize) -> Result<Arc<[usize]>, ApiError> {
    bytes(start.cast(), n, size_of::<usize>())?;
    if start.is_null() || !start.is_aligned() {
        return Err(ApiError::argument("the counts are NULL or not aligned"));
    }
    // SAFETY: not null, aligned, and the length does not overflow; the rest is guaranteed by the
    // caller.
    Ok(Arc::from(unsafe { slice::from_raw_parts(start, n) }))
}

/// A C struct whose first member is its size in bytes, so that later versions can add members.
///
/// # Safety
/// The type must be `repr(C)`, begin with a `usize` that holds its size, and contain only numbers,
/// raw pointers and optional functions, so that every bit pattern is valid.
pub(crate) unsafe trait Versioned: Copy {
    /// Size in bytes of the first version.
    const FIRST_BYTES: usize = size_of::<Self>();
}

// SAFETY: the size, then integers and floats.
unsafe impl Versioned for fwConfig {}
// SAFETY: the size, then integers, floats, and arrays of integers.
unsafe impl Versioned for fwPlan {
    const FIRST_BYTES: usize = offset_of!(fwPlan, fill);
}
// SAFETY: the size, then integers, and a raw pointer.
unsafe impl Versioned for fwMemory {}
// SAFETY: the size, then raw pointers and optional functions.
unsafe impl Versioned for fwStore {}
// SAFETY: the size, then integers, floats, and a raw pointer.
unsafe impl Versioned for fwAdmission {}
// SAFETY: the size, then floats, integers, and arrays of integers.
unsafe impl Versioned for fwReport {
    const FIRST_BYTES: usize = offset_of!(fwReport, suspected_fill);
}

// Compiled programs depend on these sizes.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(
    fwConfig::FIRST_BYTES == 48 && fwPlan::FIRST_BYTES == 144 && fwReport::FIRST_BYTES == 120
);

/// Reads the size that a struct declares.
///
/// # Errors
/// If the pointer is null or misaligned, or the size is out of range.
///
/// # Safety
/// As for [`read`].
unsafe fn declared_size<V: Versioned>(pointer: *const V, what: &str) -> Result<usize, ApiError> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(ApiError::argument(format!("the {what} is NULL or not aligned")));
    }
    // SAFETY: not null and aligned; the caller guarantees that the struct begins with its size.
    let size = unsafe { pointer.cast::<usize>().read() };
    if !(V::FIRST_BYTES..=MAX_STRUCT_BYTES).contains(&size) {
        let message = format!(
            "the size member of the {what} is {size}, but must be {} or more; initialize the \
             struct with its _INIT macro of foldwire.h",
            V::FIRST_BYTES
        );
        return Err(ApiError::argument(message));
    }
    Ok(size)
}

/// Copies a struct of the caller. Members that an older version lacks are taken from `default`.
///
/// # Errors
/// If the declared size is out of range, or if the struct is of a later version and sets a member
/// that this version lacks.
///
/// # Safety
/// Unless the pointer is null, as many bytes as the struct declares must exist, and nobody may
/// write them during the call.
pub(crate) unsafe fn read<V: Versioned>(
    pointer: *const V,
    default: V,
    what: &str,
) -> Result<V, ApiError> {
    // SAFETY: guaranteed by the caller.
    let size = unsafe { declared_size(pointer, what) }?;
    let known = size.min(size_of::<V>());
    // SAFETY: the caller guarantees `size` bytes.
    let more = unsafe { lent_bytes(pointer.cast::<u8>().add(known).cast(), size - known) }?;
    if more.iter().any(|&byte| byte != 0) {
        let message =
            format!("the {what} is of a later version, and sets a member that this version lacks");
        return Err(ApiError::argument(message));
    }
    let mut copy = default;
    // SAFETY: both have at least `known` bytes; all bits are valid for a `Versioned` type.
    unsafe { ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut copy).cast(), known) };
    Ok(copy)
}

/// Fills the members of a struct of the caller, up to its declared size. Leaves the size member.
///
/// # Errors
/// If the declared size is out of range.
///
/// # Safety
/// Unless the pointer is null, as many bytes as the struct declares must exist, and nobody else may
/// use them during the call.
pub(crate) unsafe fn write<V: Versioned>(
    pointer: *mut V,
    value: V,
    what: &str,
) -> Result<(), ApiError> {
    // SAFETY: guaranteed by the caller.
    let size = unsafe { declared_size(pointer, what) }?;
    let (skip, n) = (size_of::<usize>(), size.min(size_of::<V>()));
    // SAFETY: both have `n` bytes, at least `skip` of them.
    unsafe {
        let from = (&raw const value).cast::<u8>().add(skip);
        ptr::copy_nonoverlapping(from, pointer.cast::<u8>().add(skip), n - skip);
    }
    Ok(())
}
