//! Values in a device's memory: allocated here, or lent by another library.

use crate::driver::{Driver, OwnedMemory, Staging, Stream};
use crate::{DeviceError, DevicePtr};
use bytemuck::Pod;
use foldwire::device::{DeviceSlice, OnDevice, Region};
use foldwire::{Buffer, Input};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// `n` values of `T` in a device's memory.
///
/// A buffer owns its memory ([`new`](Self::new)), or adopts memory of another library
/// ([`adopt`](Self::adopt), [`from_dlpack`](Self::from_dlpack)), which it never frees.
pub struct DeviceBuffer<T> {
    memory: Memory,
    n_values: usize,
    of: PhantomData<T>,
}

#[derive(Debug)]
enum Memory {
    Owned(OwnedMemory),
    Adopted(DevicePtr),
}

impl<T: Pod> DeviceBuffer<T> {
    /// Allocates `n_values` values. Their content is unspecified.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn new(driver: &Arc<dyn Driver>, n_values: usize) -> Result<Self, DeviceError> {
        let n_bytes = n_values
            .checked_mul(size_of::<T>())
            .ok_or(DeviceError::OutOfMemory { n_bytes: usize::MAX })?;
        let memory = Memory::Owned(OwnedMemory::new(driver, n_bytes)?);
        Ok(Self { memory, n_values, of: PhantomData })
    }

    /// Allocates memory and copies values there. A [`Transfer`] copies faster, many times.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], or if the device fails.
    pub fn from_values(driver: &Arc<dyn Driver>, values: &[T]) -> Result<Self, DeviceError> {
        let mut buffer = Self::new(driver, values.len())?;
        Transfer::new(driver, size_of_val(values))?.upload(values, &mut buffer)?;
        Ok(buffer)
    }

    /// Adopts `n_values` values at `ptr`, which another library allocated, such as a tensor's. The
    /// memory must outlive the buffer, and nothing else may use it while a call does.
    ///
    /// # Errors
    /// [`DeviceError::Misaligned`] if `ptr` is no multiple of the values' size.
    pub const fn adopt(ptr: DevicePtr, n_values: usize) -> Result<Self, DeviceError> {
        let alignment = align_of::<T>() as u64;
        if n_values > 0 && !ptr.0.is_multiple_of(alignment) {
            return Err(DeviceError::Misaligned { address: ptr.0, alignment });
        }
        Ok(Self { memory: Memory::Adopted(ptr), n_values, of: PhantomData })
    }

    /// Address of the first value.
    #[must_use]
    pub const fn ptr(&self) -> DevicePtr {
        match &self.memory {
            Memory::Owned(memory) => memory.ptr,
            Memory::Adopted(ptr) => *ptr,
        }
    }

    /// Number of values.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.n_values
    }

    /// Returns whether there are no values.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.n_values == 0
    }

    /// Returns the values as a call's input.
    #[must_use]
    pub const fn input(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.ptr().0, self.n_values)
    }

    /// Returns the values as a buffer that a call overwrites.
    #[must_use]
    pub const fn output(&mut self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.ptr().0, self.n_values)
    }

    /// Copies the values to the host. A [`Transfer`] copies faster, many times.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails.
    pub fn to_vec(&self, driver: &Arc<dyn Driver>) -> Result<Vec<T>, DeviceError> {
        self.front(driver, self.n_values)
    }

    /// Copies the first `n_values` values to the host.
    ///
    /// # Errors
    /// [`DeviceError::Capacity`] if there are fewer; or if the device fails.
    pub fn front(&self, driver: &Arc<dyn Driver>, n_values: usize) -> Result<Vec<T>, DeviceError> {
        self.check(n_values)?;
        let mut values = vec![T::zeroed(); n_values];
        Transfer::new(driver, size_of_val(&values[..]))?.download(self, &mut values)?;
        Ok(values)
    }
}

/// Copies values between the host and a device, through pinned memory that is allocated once.
#[derive(Debug)]
pub struct Transfer {
    stream: Stream,
    staging: Staging,
}

impl Transfer {
    /// Allocates pinned memory for at most `n_bytes` at a time.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn new(driver: &Arc<dyn Driver>, n_bytes: usize) -> Result<Self, DeviceError> {
        Ok(Self { stream: Stream::new(driver)?, staging: Staging::new(driver, n_bytes)? })
    }

    /// Copies values to the front of a buffer.
    ///
    /// # Errors
    /// [`DeviceError::Capacity`] if the buffer or the pinned memory is too small; or if the device
    /// fails.
    pub fn upload<T: Pod>(
        &mut self,
        values: &[T],
        to: &mut DeviceBuffer<T>,
    ) -> Result<(), DeviceError> {
        to.check(values.len())?;
        self.staging.send(bytemuck::cast_slice(values), &self.stream, to.ptr())?;
        self.stream.finish()
    }

    /// Copies values from the front of a buffer.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    pub fn download<T: Pod>(
        &mut self,
        from: &DeviceBuffer<T>,
        values: &mut [T],
    ) -> Result<(), DeviceError> {
        from.check(values.len())?;
        self.staging.receive(&self.stream, from.ptr(), 0, size_of_val(values))?;
        self.stream.finish()?;
        self.staging.read(0, bytemuck::cast_slice_mut(values))
    }
}

impl<T> DeviceBuffer<T> {
    const fn check(&self, n_values: usize) -> Result<(), DeviceError> {
        if n_values > self.n_values {
            let each = size_of::<T>();
            let (need, have) = (n_values * each, self.n_values * each);
            return Err(DeviceError::Capacity { need, have });
        }
        Ok(())
    }
}

/// A call may own a buffer.
impl<T: Pod> OnDevice<T> for DeviceBuffer<T> {
    fn region(&self) -> Region {
        Region { address: self.ptr().0, n_values: self.n_values }
    }
}

impl<T: Pod> Input<T> for DeviceBuffer<T> {
    fn n_values(&self) -> usize {
        self.n_values
    }
}

impl<T: Pod> Buffer<T> for DeviceBuffer<T> {
    fn n_values(&mut self) -> usize {
        self.n_values
    }
}

impl<T> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBuffer")
            .field("memory", &self.memory)
            .field("n_values", &self.n_values)
            .finish()
    }
}
