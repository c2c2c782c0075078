//! The program's arrays as slices: where they are dense and aligned as they are, else copied.

use std::ffi::{c_int, c_void};
use std::slice;

use super::abi::MpiHandle;
use super::library::{MpiApi, MpiErrorCode};
use crate::signature::Signature;

/// The most bytes that MPI packs at once: counts are `int`.
const PACKED_AT_ONCE: usize = 1 << 30;

/// `count` values of a datatype in the program's memory.
#[derive(Clone, Copy)]
pub(crate) struct ArrayRegion {
    start: *mut c_void,
    count: usize,
    datatype: MpiHandle,
    signature: Signature,
}

/// Areas of the program's memory whose values are one array, in this order.
#[derive(Default)]
pub(crate) struct ArrayRegions {
    areas: Vec<ArrayRegion>,
    /// Their datatype as one of ours.
    kept: Option<KeptType>,
}

/// A datatype of ours that is as one of the program's, which may free its own. Freed when this is
/// dropped.
pub(crate) struct KeptType {
    mpi: &'static dyn MpiApi,
    pub(crate) datatype: MpiHandle,
}

/// The values of an array, as a call under way has them: the program's own, or copies.
pub(crate) enum ArrayValues<T> {
    /// Where they lie, which is not null and aligned.
    Direct {
        start: *mut T,
        n_values: usize,
    },
    Copied(Vec<T>),
}

/// What can be in an array: any bits are a value.
pub(crate) trait Plain: foldwire::Element + Default {}
impl Plain for f32 {}
impl Plain for f64 {}
impl Plain for i32 {}
impl Plain for i64 {}

impl ArrayRegion {
    /// # Safety
    /// The memory must be there until the call that it belongs to is over, and nobody else may use
    /// it if it is written, or write it if it is read. What is [`ArrayValues`] of it must go before.
    pub(crate) const unsafe fn new(
        start: *mut c_void,
        count: usize,
        datatype: MpiHandle,
        signature: Signature,
    ) -> Self {
        Self { start, count, datatype, signature }
    }

    fn n_bytes(&self) -> usize {
        self.count.saturating_mul(self.signature.n_bytes)
    }

    fn n_values<T: Plain>(&self) -> usize {
        self.n_bytes() / size_of::<T>()
    }

    /// `count` values of the datatype, the first of which lies `n` after this one's first.
    fn part(&self, mpi: &dyn MpiApi, n: isize, count: usize) -> Result<Self, MpiErrorCode> {
        let before = n.wrapping_mul(mpi.extent(self.datatype)?);
        Ok(Self { start: self.start.wrapping_byte_offset(before), count, ..*self })
    }

    /// Whether it can be used where it lies.
    fn is_direct<T: Plain>(&self) -> bool {
        self.signature.is_dense && !self.start.is_null() && self.start.cast::<T>().is_aligned()
    }

    /// Whether two arrays share memory, as far as that can be told by their ends.
    fn overlaps(&self, mpi: &dyn MpiApi, other: &Self) -> Result<bool, MpiErrorCode> {
        let ends = |area: &Self| -> Result<_, MpiErrorCode> {
            let extent = mpi.extent(area.datatype)?.unsigned_abs();
            let start = area.start.addr();
            Ok((start, start.saturating_add(extent.saturating_mul(area.count))))
        };
        let (a, b) = (ends(self)?, ends(other)?);
        Ok(a.0 < b.1 && b.0 < a.1)
    }

    /// Copies the values, of which there are as many, to this array.
    fn copy_to<T: Plain>(&self, mpi: &dyn MpiApi, values: &mut [T]) -> Result<(), MpiErrorCode> {
        if self.is_direct::<T>() {
            // SAFETY: aligned, not null, and by the promise of `new` there, of so many values, and
            // not written meanwhile; any bits are a value.
            let all = unsafe { slice::from_raw_parts(self.start.cast::<T>(), values.len()) };
            values.copy_from_slice(all);
            return Ok(());
        }
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(values);
        self.pieces(mpi, |start, count, range| {
            // SAFETY: by the promise of `new`; the piece has as many bytes as its values.
            unsafe { mpi.pack(start, count, self.datatype, &mut bytes[range]) }
        })
    }

    /// Makes them those of this array, which has as many.
    fn copy_from<T: Plain>(&self, mpi: &dyn MpiApi, values: &[T]) -> Result<(), MpiErrorCode> {
        if self.is_direct::<T>() {
            // SAFETY: as in `copy_to`, and not used by others meanwhile.
            let all = unsafe { slice::from_raw_parts_mut(self.start.cast::<T>(), values.len()) };
            all.copy_from_slice(values);
            return Ok(());
        }
        let bytes: &[u8] = bytemuck::cast_slice(values);
        self.pieces(mpi, |start, count, range| {
            // SAFETY: by the promise of `new`; the piece has as many bytes as its values.
            unsafe { mpi.unpack(&bytes[range], start, count, self.datatype) }
        })
    }

    /// Calls `each` for pieces that MPI can pack at once: where one begins, its values of the
    /// datatype, and where its bytes are among all.
    fn pieces(
        &self,
        mpi: &dyn MpiApi,
        mut each: impl FnMut(*mut c_void, c_int, std::ops::Range<usize>) -> Result<(), MpiErrorCode>,
    ) -> Result<(), MpiErrorCode> {
        let (extent, n_bytes) = (mpi.extent(self.datatype)?, self.signature.n_bytes);
        let at_once = (PACKED_AT_ONCE / n_bytes.max(1)).max(1);
        for first in (0..self.count).step_by(at_once) {
            let n = at_once.min(self.count - first);
            let start = self.start.wrapping_byte_offset((first as isize).wrapping_mul(extent));
            each(start, n as c_int, first * n_bytes..(first + n) * n_bytes)?;
        }
        Ok(())
    }
}

impl ArrayRegions {
    /// Parts of an area by their counts and where they begin, in values of its datatype. Those that
    /// follow each other are one.
    pub(crate) fn new(
        mpi: &dyn MpiApi,
        whole: &ArrayRegion,
        parts: impl Iterator<Item = (usize, isize)>,
    ) -> Result<Self, MpiErrorCode> {
        let mut joined: Vec<(usize, isize)> = Vec::new();
        for (count, place) in parts.filter(|&(count, _)| count > 0) {
            match joined.last_mut() {
                Some((before, start)) if start.wrapping_add_unsigned(*before) == place => {
                    *before += count;
                }
                _ => joined.push((count, place)),
            }
        }
        let area = |(count, place)| whole.part(mpi, place, count);
        Ok(Self { areas: joined.into_iter().map(area).collect::<Result<_, _>>()?, kept: None })
    }

    /// Whether any of them shares memory with one of the others, as far as their ends tell.
    pub(crate) fn overlaps(&self, mpi: &dyn MpiApi, others: &Self) -> Result<bool, MpiErrorCode> {
        let mut overlaps = false;
        for area in &self.areas {
            for other in &others.areas {
                overlaps |= area.overlaps(mpi, other)?;
            }
        }
        Ok(overlaps)
    }

    /// The values, to be read; a copy where they cannot be used as they lie, or where one is asked
    /// for.
    pub(crate) fn for_reading<T: Plain>(
        &self,
        mpi: &dyn MpiApi,
        copy: bool,
    ) -> Result<ArrayValues<T>, MpiErrorCode> {
        match self.direct() {
            Some(values) if !copy => Ok(values),
            _ => self.copied(mpi).map(ArrayValues::Copied),
        }
    }

    /// The values, to be written; before that they are the old ones if somebody `wants` them.
    pub(crate) fn for_writing<T: Plain>(
        &self,
        mpi: &dyn MpiApi,
        wants: bool,
    ) -> Result<ArrayValues<T>, MpiErrorCode> {
        match self.direct() {
            Some(values) => Ok(values),
            None if wants => self.copied(mpi).map(ArrayValues::Copied),
            None => Ok(ArrayValues::zeros(self.n_values::<T>())),
        }
    }

    /// Makes the values what was made of those that were [held](Self::hold). What lies between the
    /// areas is not touched.
    pub(crate) fn write_back<T: Plain>(
        &self,
        mpi: &dyn MpiApi,
        values: &ArrayValues<T>,
    ) -> Result<(), MpiErrorCode> {
        let ArrayValues::Copied(values) = values else { return Ok(()) };
        let mut rest = &values[..];
        for area in &self.areas {
            let (own, after) = rest.split_at(area.n_values::<T>());
            area.copy_from(mpi, own)?;
            rest = after;
        }
        Ok(())
    }

    /// Sees that copies can be written back after the program has freed its datatype.
    pub(crate) fn keep_type(&mut self, mpi: &'static dyn MpiApi) -> Result<(), MpiErrorCode> {
        let Some(first) = self.areas.first() else { return Ok(()) };
        // All are parts of one area.
        let kept = KeptType::of(mpi, first.datatype)?;
        self.areas.iter_mut().for_each(|area| area.datatype = kept.datatype);
        self.kept = Some(kept);
        Ok(())
    }

    fn direct<T: Plain>(&self) -> Option<ArrayValues<T>> {
        match &self.areas[..] {
            [area] if area.is_direct::<T>() => Some(ArrayValues::Direct {
                start: area.start.cast(),
                n_values: area.n_values::<T>(),
            }),
            _ => None,
        }
    }

    fn copied<T: Plain>(&self, mpi: &dyn MpiApi) -> Result<Vec<T>, MpiErrorCode> {
        let mut values = vec![T::default(); self.n_values::<T>()];
        let mut rest = &mut values[..];
        for area in &self.areas {
            let (own, after) = rest.split_at_mut(area.n_values::<T>());
            area.copy_to(mpi, own)?;
            rest = after;
        }
        Ok(values)
    }

    /// Values of this type.
    pub(crate) fn n_values<T: Plain>(&self) -> usize {
        self.areas.iter().map(ArrayRegion::n_values::<T>).sum()
    }
}

impl KeptType {
    pub(crate) fn of(mpi: &'static dyn MpiApi, datatype: MpiHandle) -> Result<Self, MpiErrorCode> {
        Ok(Self { mpi, datatype: mpi.keep_type(datatype)? })
    }
}

impl Drop for KeptType {
    fn drop(&mut self) {
        self.mpi.free_type(self.datatype);
    }
}

impl<T: Plain> ArrayValues<T> {
    pub(crate) fn zeros(n_values: usize) -> Self {
        Self::Copied(vec![T::default(); n_values])
    }

    /// A copy of as many as this, with zeros where there are fewer.
    pub(crate) fn resized(&self, n_values: usize) -> Self {
        let mut values = self.as_ref().to_vec();
        values.resize(n_values, T::default());
        Self::Copied(values)
    }
}

impl<T: Plain> AsRef<[T]> for ArrayValues<T> {
    fn as_ref(&self) -> &[T] {
        match self {
            // SAFETY: by the promise of `ArrayRegion::new` there until the call is over, and not written
            // by others; any bits are a value.
            Self::Direct { start, n_values } => unsafe { slice::from_raw_parts(*start, *n_values) },
            Self::Copied(values) => values,
        }
    }
}

impl<T: Plain> AsMut<[T]> for ArrayValues<T> {
    fn as_mut(&mut self) -> &mut [T] {
        match self {
            // SAFETY: as above, and not used by others: this is asked of what was held only.
            Self::Direct { start, n_values } => unsafe {
                slice::from_raw_parts_mut(*start, *n_values)
            },
            Self::Copied(values) => values,
        }
    }
}
