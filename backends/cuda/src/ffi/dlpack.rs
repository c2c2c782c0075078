//! DLPack: how libraries of arrays lend memory to each other.
//!
//! The structures are those of `dlpack.h`, versions 0.x and 1.x.

use crate::{DeviceBuffer, DeviceError, DevicePtr};
use foldwire::{DType, Element};
use std::ffi::c_void;
use std::ptr::NonNull;

/// `DLDevice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DlDevice {
    /// Kind: 2 is CUDA, 13 memory that CUDA shares with the host.
    pub kind: i32,
    /// Number of the device.
    pub ordinal: i32,
}

/// `DLDataType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DlDataType {
    /// Kind: 0 and 1 are integers with and without sign, 2 floats, 4 `bf16`.
    pub kind: u8,
    /// Bits of a value.
    pub n_bits: u8,
    /// Values of a vector; 1 for numbers.
    pub n_lanes: u16,
}

/// `DLTensor`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DlTensor {
    /// Memory of the array; perhaps null if it has no values.
    pub data: *mut c_void,
    /// Where the memory is.
    pub device: DlDevice,
    /// Number of dimensions.
    pub n_dims: i32,
    /// Type of the values.
    pub dtype: DlDataType,
    /// Values along each dimension.
    pub shape: *mut i64,
    /// Distance of neighbours along each dimension, in values; null for C order without gaps.
    pub strides: *mut i64,
    /// Bytes from `data` to the first value.
    pub byte_offset: u64,
}

/// `DLManagedTensor`, of a capsule named `dltensor`.
#[derive(Debug)]
#[repr(C)]
pub struct DlManagedTensor {
    /// The array.
    pub tensor: DlTensor,
    /// The owner's.
    pub context: *mut c_void,
    /// Gives the array back.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// `DLManagedTensorVersioned`, of a capsule named `dltensor_versioned`.
#[derive(Debug)]
#[repr(C)]
pub struct DlManagedTensorVersioned {
    /// Major version of DLPack, which is 1, and minor version.
    pub version: [u32; 2],
    /// The owner's.
    pub context: *mut c_void,
    /// Gives the array back.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
    /// Bit 0: the array must not be written.
    pub flags: u64,
    /// The array.
    pub tensor: DlTensor,
}

const CUDA: i32 = 2;
const CUDA_MANAGED: i32 = 13;
const IS_READ_ONLY: u64 = 1;

/// A tensor's shape is untrusted: its values could be more than memory can hold.
const TOO_LONG: DeviceError = refused("an array of DLPack of this shape");

const fn refused(what: &'static str) -> DeviceError {
    DeviceError::Unsupported { what }
}

/// Returns a type's kind and bits.
const fn kind_of(dtype: DType) -> Option<(u8, u8)> {
    Some(match dtype {
        DType::F16 => (2, 16),
        DType::F32 => (2, 32),
        DType::F64 => (2, 64),
        DType::Bf16 => (4, 16),
        DType::I8 => (0, 8),
        DType::I16 => (0, 16),
        DType::I32 => (0, 32),
        DType::I64 => (0, 64),
        DType::U8 => (1, 8),
        DType::U16 => (1, 16),
        DType::U32 => (1, 32),
        DType::U64 => (1, 64),
        _ => return None,
    })
}

impl<T: Element> DeviceBuffer<T> {
    /// Adopts an array that another library exports as a [`DlManagedTensor`], on device number
    /// `ordinal`. All dimensions become one.
    ///
    /// The buffer borrows the array, as [`adopt`](Self::adopt) does: neither it nor a call ever
    /// calls `deleter`. The caller does that, once, after the buffer is gone and the calls on it
    /// have ended. So no code of another library runs inside a call.
    ///
    /// The array's values must be ready, or be made on the stream that
    /// [`Workspace::set_stream`](crate::Workspace::set_stream) names.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] if the array is on another device or in the host's memory, has
    /// another type, or has gaps or another order than C's; [`DeviceError::Misaligned`].
    ///
    /// # Safety
    /// `managed` must point to a valid structure, whose `shape` and `strides` have `n_dims` numbers
    /// (`strides` may be null), and which nobody changes during this call. Its memory must exist
    /// while the buffer does, and nothing else may use it while a call does.
    ///
    /// # Examples
    /// ```no_run
    /// use foldwire_cuda::{DeviceBuffer, DeviceError, dlpack::DlManagedTensor};
    /// use std::ptr::NonNull;
    ///
    /// fn sum(managed: NonNull<DlManagedTensor>) -> Result<(), DeviceError> {
    ///     // SAFETY: the library that made it keeps it until `deleter` is called.
    ///     let x = unsafe { DeviceBuffer::<f32>::from_dlpack(managed, 0)? };
    ///     // … calls on `x` …
    ///     drop(x);
    ///     // SAFETY: nothing uses the array any more.
    ///     if let Some(deleter) = unsafe { managed.as_ref() }.deleter {
    ///         unsafe { deleter(managed.as_ptr()) };
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub unsafe fn from_dlpack(
        managed: NonNull<DlManagedTensor>,
        ordinal: usize,
    ) -> Result<Self, DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { of_tensor(&managed.as_ref().tensor, ordinal) }
    }

    /// Does the same as [`from_dlpack`](Self::from_dlpack) with an array of version 1.
    ///
    /// # Errors
    /// As [`from_dlpack`](Self::from_dlpack); [`DeviceError::Unsupported`] also if the array has
    /// another major version or must not be written.
    ///
    /// # Safety
    /// Like [`from_dlpack`](Self::from_dlpack). If the major version differs, only `version` is
    /// read.
    pub unsafe fn from_dlpack_versioned(
        managed: NonNull<DlManagedTensorVersioned>,
        ordinal: usize,
    ) -> Result<Self, DeviceError> {
        // SAFETY: every version begins with its number.
        let version = unsafe { (*managed.as_ptr()).version };
        if version[0] != 1 {
            return Err(refused("this version of DLPack"));
        }
        // SAFETY: the caller's promise.
        let managed = unsafe { managed.as_ref() };
        if managed.flags & IS_READ_ONLY != 0 {
            return Err(refused("an array of DLPack that must not be written"));
        }
        // SAFETY: the caller's promise.
        unsafe { of_tensor(&managed.tensor, ordinal) }
    }
}

/// Adopts a tensor's memory.
///
/// # Safety
/// Unless they are null, `shape` and `strides` have `n_dims` numbers. The memory exists while the
/// buffer does.
unsafe fn of_tensor<T: Element>(
    tensor: &DlTensor,
    ordinal: usize,
) -> Result<DeviceBuffer<T>, DeviceError> {
    let is_cuda = matches!(tensor.device.kind, CUDA | CUDA_MANAGED);
    if !is_cuda || usize::try_from(tensor.device.ordinal) != Ok(ordinal) {
        return Err(refused("an array of DLPack that is not on this device"));
    }
    let DlDataType { kind, n_bits, n_lanes } = tensor.dtype;
    if n_lanes != 1 || kind_of(T::DTYPE) != Some((kind, n_bits)) {
        return Err(refused("an array of DLPack with values of another type"));
    }
    let n_dims = usize::try_from(tensor.n_dims).map_err(|_| TOO_LONG)?;
    // SAFETY: the caller's promise.
    let (shape, strides) =
        unsafe { (numbers(tensor.shape, n_dims), numbers(tensor.strides, n_dims)) };
    let shape = shape.ok_or(TOO_LONG)?;
    let sizes = shape.iter().map(|size| usize::try_from(*size).map_err(|_| TOO_LONG));
    let sizes = sizes.collect::<Result<Vec<usize>, _>>()?;
    let (mut n_values, mut is_whole) = (1_usize, true);
    for (dim, size) in sizes.iter().enumerate().rev() {
        // Along a dimension of one value there is no distance.
        let stride = strides.map(|strides| strides[dim]).filter(|_| *size > 1);
        is_whole &= stride.is_none_or(|stride| usize::try_from(stride) == Ok(n_values));
        n_values = n_values.checked_mul(*size).ok_or(TOO_LONG)?;
    }
    if n_values > 0 && !is_whole {
        return Err(refused("an array of DLPack with gaps, or not in C order"));
    }
    let address = (tensor.data.addr() as u64).checked_add(tensor.byte_offset);
    let n_bytes = n_values.checked_mul(T::BYTES).ok_or(TOO_LONG)? as u64;
    let address = address.filter(|from| from.checked_add(n_bytes).is_some()).ok_or(TOO_LONG)?;
    if n_values > 0 && tensor.data.is_null() {
        return Err(refused("an array of DLPack without memory"));
    }
    DeviceBuffer::adopt(DevicePtr(address), n_values)
}

/// Returns the numbers at an address; `None` if it is null and there are some.
///
/// # Safety
/// Unless `first` is null, `n` numbers are there, which nobody changes for as long as `'a`.
unsafe fn numbers<'a>(first: *const i64, n: usize) -> Option<&'a [i64]> {
    if first.is_null() {
        return (n == 0).then_some(&[]);
    }
    // SAFETY: the caller's promise; the address is not null.
    Some(unsafe { std::slice::from_raw_parts(first, n) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null_mut, without_provenance_mut};
    use std::sync::atomic::{AtomicUsize, Ordering};

    static N_DELETED: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn delete(_: *mut DlManagedTensor) {
        N_DELETED.fetch_add(1, Ordering::Relaxed);
    }

    /// Shape and strides of an array of `f32` at address 4096.
    type Dims<'d> = (&'d [i64], Option<&'d [i64]>);

    fn tensor((shape, strides): Dims<'_>) -> DlTensor {
        DlTensor {
            data: without_provenance_mut(4096),
            device: DlDevice { kind: CUDA, ordinal: 1 },
            n_dims: shape.len() as i32,
            dtype: DlDataType { kind: 2, n_bits: 32, n_lanes: 1 },
            shape: shape.as_ptr().cast_mut(),
            strides: strides.map_or(null_mut(), |strides| strides.as_ptr().cast_mut()),
            byte_offset: 0,
        }
    }

    fn adopt<T: Element>(tensor: DlTensor) -> Result<(u64, usize), DeviceError> {
        let mut managed = DlManagedTensor { tensor, context: null_mut(), deleter: Some(delete) };
        // SAFETY: the structure lives, and so do the arrays of `tensor`.
        let buffer = unsafe { DeviceBuffer::<T>::from_dlpack(NonNull::from(&mut managed), 1)? };
        Ok((buffer.ptr().0, buffer.len()))
    }

    #[test]
    fn arrays_in_c_order_are_adopted_and_never_deleted() {
        let dims: [(Dims<'_>, usize); 9] = [
            ((&[], None), 1),
            ((&[], Some(&[])), 1),
            ((&[5], None), 5),
            ((&[2, 3], Some(&[3, 1])), 6),
            ((&[2, 1, 3], Some(&[3, 99, 1])), 6),
            ((&[1, 3], Some(&[-7, 1])), 3),
            ((&[0], None), 0),
            ((&[2, 0, 3], Some(&[9, 9, 9])), 0),
            ((&[1 << 20, 1 << 20], None), 1 << 40),
        ];
        for (dims, n_values) in dims {
            assert_eq!(adopt::<f32>(tensor(dims)), Ok((4096, n_values)), "{dims:?}");
        }
        let behind = DlTensor { byte_offset: 8, ..tensor((&[5], None)) };
        assert_eq!(adopt::<f32>(behind), Ok((4104, 5)));
        let shared = DlDevice { kind: CUDA_MANAGED, ordinal: 1 };
        assert!(adopt::<f32>(DlTensor { device: shared, ..behind }).is_ok());
        let empty = DlTensor { data: null_mut(), ..tensor((&[0], None)) };
        assert_eq!(adopt::<f32>(empty), Ok((0, 0)));
        assert_eq!(N_DELETED.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn other_arrays_are_refused() {
        let dims: [Dims<'_>; 7] = [
            (&[2, 3], Some(&[1, 2])),
            (&[2, 3], Some(&[4, 1])),
            (&[3], Some(&[2])),
            (&[3], Some(&[-1])),
            (&[3], Some(&[0])),
            (&[-3], None),
            (&[i64::MAX, 4], None),
        ];
        for dims in dims {
            let found = adopt::<f32>(tensor(dims));
            assert!(matches!(found, Err(DeviceError::Unsupported { .. })), "{dims:?}: {found:?}");
        }
        let plain = tensor((&[3], None));
        let device = |kind, ordinal| DlTensor { device: DlDevice { kind, ordinal }, ..plain };
        // Memory of the host, pinned or not, of other devices, and of device −1.
        for other in [device(1, 1), device(3, 1), device(10, 1), device(2, 0), device(2, -1)] {
            assert!(adopt::<f32>(other).is_err(), "{other:?}");
        }
        assert!(adopt::<f64>(plain).is_err() && adopt::<i32>(plain).is_err());
        let vectors = DlDataType { n_lanes: 2, ..plain.dtype };
        let others = [
            DlTensor { dtype: vectors, ..plain },
            DlTensor { data: null_mut(), ..plain },
            DlTensor { shape: null_mut(), ..plain },
            DlTensor { n_dims: -1, ..plain },
            DlTensor { byte_offset: u64::MAX, ..plain },
            DlTensor { byte_offset: u64::MAX - 4100, ..plain },
        ];
        for other in others {
            assert!(adopt::<f32>(other).is_err(), "{other:?}");
        }
        let odd = adopt::<f32>(DlTensor { byte_offset: 2, ..plain });
        assert!(matches!(odd, Err(DeviceError::Misaligned { .. })));
    }

    #[test]
    fn every_type_has_its_code() {
        let of = |kind, n_bits| {
            let dtype = DlDataType { kind, n_bits, n_lanes: 1 };
            DlTensor { dtype, ..tensor((&[3], None)) }
        };
        assert!(adopt::<foldwire::f16>(of(2, 16)).is_ok());
        assert!(adopt::<foldwire::bf16>(of(4, 16)).is_ok());
        assert!(adopt::<f64>(of(2, 64)).is_ok());
        assert!(adopt::<u8>(of(1, 8)).is_ok() && adopt::<i64>(of(0, 64)).is_ok());
        assert!(adopt::<foldwire::bf16>(of(2, 16)).is_err());
    }

    #[test]
    fn versions_and_flags_are_checked() {
        let adopt = |major, flags| {
            let tensor = tensor((&[3], None));
            let (version, context) = ([major, 0], null_mut());
            let mut managed =
                DlManagedTensorVersioned { version, context, deleter: None, flags, tensor };
            // SAFETY: the structure lives, and so does the shape of `tensor`.
            unsafe {
                DeviceBuffer::<f32>::from_dlpack_versioned(NonNull::from(&mut managed), 1)
                    .map(|buffer| buffer.len())
            }
        };
        assert_eq!(adopt(1, 0), Ok(3));
        // Bit 1 says that the array is a copy.
        assert_eq!(adopt(1, 2), Ok(3));
        for (major, flags) in [(0, 0), (2, 0), (1, 1), (1, 3)] {
            assert!(adopt(major, flags).is_err(), "{major} {flags}");
        }
    }
}
