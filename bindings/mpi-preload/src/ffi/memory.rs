//! The program's arrays as slices. An array that is dense and aligned is used in place, and any
//! other array is copied.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::slice;

use super::abi::MpiHandle;
use super::library::{MpiApi, MpiErrorCode};
use crate::call::BufferArgs;
use crate::signature::Signature;

/// Largest number of bytes that are packed with one call of MPI, if that is not a single value.
const PACKED_AT_ONCE: usize = 1 << 30;

/// `count` values of a datatype in the program's memory.
#[derive(Clone, Copy)]
pub(crate) struct ArrayRegion {
    start: *mut c_void,
    count: usize,
    datatype: MpiHandle,
    signature: Signature,
}

/// Regions of the program's memory that form one array, in this order.
#[derive(Default)]
pub(crate) struct ArrayRegions {
    regions: Vec<ArrayRegion>,
    /// Copy of the regions' datatype.
    kept: Option<KeptType>,
}

/// Copy of a datatype of the program, since the program may free the original. Dropping this value
/// frees the copy.
pub(crate) struct KeptType {
    mpi: &'static dyn MpiApi,
    pub(crate) datatype: MpiHandle,
}

/// Values of an array in a running call: in the program's memory, or a copy.
pub(crate) enum ArrayValues<T> {
    /// Program memory, not null and aligned.
    Direct {
        start: *mut T,
        n_values: usize,
    },
    Copied(Vec<T>),
}

/// Element types for which any bits are a valid value.
pub(crate) trait Plain: foldwire::Element + Default {}
impl Plain for f32 {}
impl Plain for f64 {}
impl Plain for i32 {}
impl Plain for i64 {}

impl ArrayRegion {
    /// # Safety
    /// The memory must be valid until the call to which it belongs is complete. Nothing else may
    /// access it if the call writes it, or write it if the call reads it. [`ArrayValues`] of the
    /// region must be dropped before the call is complete.
    pub(crate) const unsafe fn new(
        start: *mut c_void,
        count: usize,
        datatype: MpiHandle,
        signature: Signature,
    ) -> Self {
        Self { start, count, datatype, signature }
    }

    /// Empty region at the start of a collective's buffer, from which regions of values are made.
    pub(crate) fn start_of(mpi: &dyn MpiApi, buffer: &BufferArgs) -> Result<Self, MpiErrorCode> {
        let signature = mpi.signature(buffer.datatype)?;
        // SAFETY: the program passed this buffer to a collective, and does not use it until the
        // call is complete.
        Ok(unsafe { Self::new(buffer.start, 0, buffer.datatype, signature) })
    }

    fn n_bytes(&self) -> usize {
        self.count.saturating_mul(self.signature.n_bytes)
    }

    fn n_values<T: Plain>(&self) -> usize {
        self.n_bytes() / size_of::<T>()
    }

    /// Region of `count` values that begins `n` values after the start of this region.
    fn part(&self, mpi: &dyn MpiApi, n: isize, count: usize) -> Result<Self, MpiErrorCode> {
        let before = n.wrapping_mul(mpi.extent(self.datatype)?);
        Ok(Self { start: self.start.wrapping_byte_offset(before), count, ..*self })
    }

    /// Returns whether the region can be used as a slice.
    fn is_direct<T: Plain>(&self) -> bool {
        self.signature.is_dense && !self.start.is_null() && self.start.cast::<T>().is_aligned()
    }

    /// Returns whether the address ranges of two regions overlap. Gaps are parts of the ranges.
    fn overlaps(&self, mpi: &dyn MpiApi, other: &Self) -> Result<bool, MpiErrorCode> {
        let ends = |region: &Self| -> Result<_, MpiErrorCode> {
            let extent = mpi.extent(region.datatype)?.unsigned_abs();
            let start = region.start.addr();
            Ok((start, start.saturating_add(extent.saturating_mul(region.count))))
        };
        let (a, b) = (ends(self)?, ends(other)?);
        Ok(a.0 < b.1 && b.0 < a.1)
    }

    /// Copies the values of this region to a slice of equal length.
    fn copy_to<T: Plain>(&self, mpi: &dyn MpiApi, values: &mut [T]) -> Result<(), MpiErrorCode> {
        if self.is_direct::<T>() {
            // SAFETY: aligned and not null. The caller of `new` guarantees that the memory holds
            // this many values and that nothing writes it. Any bits are a valid value.
            let all = unsafe { slice::from_raw_parts(self.start.cast::<T>(), values.len()) };
            values.copy_from_slice(all);
            return Ok(());
        }
        self.pack_to(mpi, bytemuck::cast_slice_mut(values))
    }

    /// Packs the values of this region, which have as many bytes.
    pub(super) fn pack_to(&self, mpi: &dyn MpiApi, bytes: &mut [u8]) -> Result<(), MpiErrorCode> {
        self.pieces(mpi, |start, count, range| {
            // SAFETY: the caller of `new` guarantees the memory. The piece has the length of its
            // packed values.
            unsafe { mpi.pack(start, count, self.datatype, &mut bytes[range]) }
        })
    }

    /// Unpacks as many bytes as the values of this region have.
    pub(super) fn unpack_from(&self, mpi: &dyn MpiApi, bytes: &[u8]) -> Result<(), MpiErrorCode> {
        self.pieces(mpi, |start, count, range| {
            // SAFETY: the caller of `new` guarantees the memory. The piece has the length of its
            // packed values.
            unsafe { mpi.unpack(&bytes[range], start, count, self.datatype) }
        })
    }

    /// Copies a slice of equal length to this region.
    fn copy_from<T: Plain>(&self, mpi: &dyn MpiApi, values: &[T]) -> Result<(), MpiErrorCode> {
        if self.is_direct::<T>() {
            // SAFETY: as in `copy_to`, and nothing else accesses the memory.
            let all = unsafe { slice::from_raw_parts_mut(self.start.cast::<T>(), values.len()) };
            all.copy_from_slice(values);
            return Ok(());
        }
        self.unpack_from(mpi, bytemuck::cast_slice(values))
    }

    /// Calls `each` for each piece that MPI can pack at once, with its address, its number of
    /// values, and the range of its packed bytes.
    fn pieces(
        &self,
        mpi: &dyn MpiApi,
        mut each: impl FnMut(*mut c_void, c_int, Range<usize>) -> Result<(), MpiErrorCode>,
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
    /// Builds regions from counts and displacements, in values of the datatype of `whole` and
    /// relative to its start. Joins adjacent regions.
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
        let region = |(count, place)| whole.part(mpi, place, count);
        Ok(Self { regions: joined.into_iter().map(region).collect::<Result<_, _>>()?, kept: None })
    }

    /// Returns whether the address range of one of these regions overlaps that of one of `others`.
    /// Gaps are parts of the ranges.
    pub(crate) fn overlaps(&self, mpi: &dyn MpiApi, others: &Self) -> Result<bool, MpiErrorCode> {
        let mut overlaps = false;
        for region in &self.regions {
            for other in &others.regions {
                overlaps |= region.overlaps(mpi, other)?;
            }
        }
        Ok(overlaps)
    }

    /// Values to read. Copies them if `copy` is set or a slice is impossible.
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

    /// Values to overwrite. They hold the old values if `reads_old` is set, and are unspecified
    /// otherwise.
    pub(crate) fn for_writing<T: Plain>(
        &self,
        mpi: &dyn MpiApi,
        reads_old: bool,
    ) -> Result<ArrayValues<T>, MpiErrorCode> {
        match self.direct() {
            Some(values) => Ok(values),
            None if reads_old => self.copied(mpi).map(ArrayValues::Copied),
            None => Ok(ArrayValues::zeros(self.n_values::<T>())),
        }
    }

    /// Writes the values from [`for_writing`](Self::for_writing) back to the program's memory. Gaps
    /// keep their contents.
    pub(crate) fn write_back<T: Plain>(
        &self,
        mpi: &dyn MpiApi,
        values: &ArrayValues<T>,
    ) -> Result<(), MpiErrorCode> {
        let ArrayValues::Copied(values) = values else { return Ok(()) };
        let mut rest = &values[..];
        for region in &self.regions {
            let (own, after) = rest.split_at(region.n_values::<T>());
            region.copy_from(mpi, own)?;
            rest = after;
        }
        Ok(())
    }

    /// Copies the datatype, so that values can be written back after the program has freed it.
    pub(crate) fn keep_type(&mut self, mpi: &'static dyn MpiApi) -> Result<(), MpiErrorCode> {
        let Some(first) = self.regions.first() else { return Ok(()) };
        // All regions have the same datatype.
        let kept = KeptType::of(mpi, first.datatype)?;
        self.regions.iter_mut().for_each(|region| region.datatype = kept.datatype);
        self.kept = Some(kept);
        Ok(())
    }

    /// Values in the program's memory, if a slice is possible.
    fn direct<T: Plain>(&self) -> Option<ArrayValues<T>> {
        match &self.regions[..] {
            [region] if region.is_direct::<T>() => Some(ArrayValues::Direct {
                start: region.start.cast(),
                n_values: region.n_values::<T>(),
            }),
            _ => None,
        }
    }

    fn copied<T: Plain>(&self, mpi: &dyn MpiApi) -> Result<Vec<T>, MpiErrorCode> {
        let mut values = vec![T::default(); self.n_values::<T>()];
        let mut rest = &mut values[..];
        for region in &self.regions {
            let (own, after) = rest.split_at_mut(region.n_values::<T>());
            region.copy_to(mpi, own)?;
            rest = after;
        }
        Ok(values)
    }

    /// Number of values of this type.
    pub(crate) fn n_values<T: Plain>(&self) -> usize {
        self.regions.iter().map(ArrayRegion::n_values::<T>).sum()
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

    /// Returns a copy with `n_values` values, truncated or filled with zeros.
    pub(crate) fn resized(&self, n_values: usize) -> Self {
        let mut values = self.as_ref().to_vec();
        values.resize(n_values, T::default());
        Self::Copied(values)
    }
}

impl<T: Plain> AsRef<[T]> for ArrayValues<T> {
    fn as_ref(&self) -> &[T] {
        match self {
            // SAFETY: the caller of `ArrayRegion::new` guarantees that the memory is valid until
            // the call is complete and that nothing else writes it. Any bits are a valid value.
            Self::Direct { start, n_values } => unsafe { slice::from_raw_parts(*start, *n_values) },
            Self::Copied(values) => values,
        }
    }
}

impl<T: Plain> AsMut<[T]> for ArrayValues<T> {
    fn as_mut(&mut self) -> &mut [T] {
        match self {
            // SAFETY: as above, and nothing else accesses the memory: only values from
            // `for_writing` are borrowed mutably.
            Self::Direct { start, n_values } => unsafe {
                slice::from_raw_parts_mut(*start, *n_values)
            },
            Self::Copied(values) => values,
        }
    }
}
