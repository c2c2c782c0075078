"""Conversion of arrays for calls: contiguous in C order, native byte order, a supported type.

All ranks send values in C order, so results do not depend on the order of axes in memory.
:class:`Out` is the array that a call writes. Masked arrays are refused.
"""

from __future__ import annotations

import functools
import threading
from typing import Optional

import numpy as np

from . import _native
from ._device_arrays import DeviceArray, apart_on_device, device_array, mixed, refuse_device
from ._errors import Error

# Foldwire's name of each type, with its code, its size in bytes, and whether it is a float.
TYPES = {name: (code, size, is_float) for name, code, size, is_float in _native.DTYPES}

_NAMES = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "u8",
    "int16": "i16",
    "uint16": "u16",
    "int32": "i32",
    "uint32": "u32",
    "int64": "i64",
    "uint64": "u64",
}

_CODES = {name: TYPES[short][0] for name, short in _NAMES.items()}
_FLOATS = {name for name, short in _NAMES.items() if TYPES[short][2]}
_OF_CODE = {code: name for name, code in reversed(_CODES.items())}


@functools.lru_cache(maxsize=64)
def type_name(dtype: np.dtype, name=None) -> str:
    """Returns the name of a type. ``name`` overrides it if numpy lacks the type."""
    if name is None:
        return dtype.name
    return name if isinstance(name, str) else np.dtype(name).name


@functools.lru_cache(maxsize=64)
def code_of(dtype: np.dtype, name=None) -> int:
    """Returns the code of a type; ``name`` as for :func:`type_name`."""
    name = type_name(dtype, name)
    if name not in _CODES:
        name = "structures" if dtype.fields else f"values of {name}"
        message = f"{name} are not supported; floats of 16 to 64 bits, integers and bool are"
        raise Error(message, kind="unsupported", field="dtype")
    n_bytes = TYPES[_NAMES[name]][1]
    if n_bytes != dtype.itemsize:
        message = f"dtype is {name}, of {n_bytes} bytes, but the values have {dtype.itemsize}"
        raise Error(message, field="dtype")
    return _CODES[name]


def is_float(code: int) -> bool:
    return _OF_CODE[code] in _FLOATS


def dtype_of(code: int) -> np.dtype:
    """Returns the numpy type of a code. bfloat16 comes from ml_dtypes."""
    name = _OF_CODE[code]
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            message = "the values are bfloat16; install ml_dtypes, which adds this type to numpy"
            raise Error(message, kind="unsupported", field="dtype") from None
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def refuse_masks(values, what: str = "array") -> None:
    """Raises an error for masked arrays and lists of them, because calls do not keep masks."""
    if isinstance(values, np.ma.MaskedArray):
        message = (f"{what} is a masked array, and masks are not kept; pass its filled(value), and "
                   "fill_value=value to a collective, or its data if nothing is masked")
        raise Error(message, kind="unsupported", field=what)
    if isinstance(values, (list, tuple)):
        for value in values:
            refuse_masks(value, what)


def as_ndarray(values) -> np.ndarray:
    """Returns values as a numpy array of any layout.

    Objects that are not numpy arrays are converted through DLPack if they support it (on the CPU),
    otherwise like ``numpy.asarray``.
    """
    return values if type(values) is np.ndarray else _converted(values)


def as_operand(values):
    """Returns values on the CPU or on a device as a contiguous array. Copies only if necessary, and
    only on the CPU."""
    if type(values) is np.ndarray:
        return as_array(values)
    on_device = values if isinstance(values, DeviceArray) else device_array(values)
    return as_array(values) if on_device is None else on_device


def as_array(values) -> np.ndarray:
    """Returns values as a contiguous array. Copies only if necessary."""
    values = as_ndarray(values)
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    flags = values.flags
    if not (flags.c_contiguous and flags.aligned):
        # Not ascontiguousarray, which changes the shape of a scalar.
        values = np.array(values, order="C", copy=True)
    return values


def _converted(values) -> np.ndarray:
    """Converts other objects, and subclasses of numpy's array."""
    if not isinstance(values, np.ndarray):
        refuse_device(values)
        refuse_masks(values)
        # Not `asarray`, which drops masks of objects with an array interface.
        if hasattr(values, "__dlpack__") and not hasattr(values, "__array_interface__"):
            try:
                values = np.from_dlpack(values)
            except (BufferError, RuntimeError, TypeError):
                values = np.asanyarray(values)
        else:
            values = np.asanyarray(values)
    refuse_masks(values)
    return np.asarray(values)


def is_dense(array: np.ndarray) -> bool:
    """Returns whether an array has no gaps, with its axes in any order."""
    axes = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    return array.transpose(axes).flags.c_contiguous


def operand_out(out, shape, like, what: str = "out"):
    """Checks that a result like an array, of this shape, can be written to ``out``, or makes an
    array for it. Without ``like``, ``out`` decides."""
    if out is None and like is not None:
        is_on_device = isinstance(like, DeviceArray)
        return like.new(shape) if is_on_device else np.empty(shape, like.dtype)
    on_device = None if type(out) is np.ndarray else device_array(out)
    if like is not None and isinstance(like, DeviceArray) != (on_device is not None):
        raise mixed()
    dtype = None if like is None else like.dtype
    if on_device is not None:
        return on_device.checked(shape, dtype, what)
    return check_out(out, shape, dtype, what)


def zeros_like(array):
    """Returns zeros of the shape and type of an array, where it is."""
    is_on_device = isinstance(array, DeviceArray)
    return array.new(array.shape, is_zero=True).owner if is_on_device else np.zeros_like(array)


def check_out(out, shape, dtype, what: str = "out") -> np.ndarray:
    """Checks that a result of this shape and type can be written to an array."""
    if type(out) is not np.ndarray:
        if not isinstance(out, np.ndarray):
            refuse_device(out, what)
            kind = type(out).__name__
            raise Error(f"{what} is written; it must be a numpy array, not {kind}", field=what)
        refuse_masks(out, what)
    if dtype is not None and out.dtype != dtype:
        raise Error(f"{what} has type {out.dtype}, but the result has type {dtype}", field=what)
    if not out.dtype.isnative:
        message = f"{what} has type {out.dtype}, which is not in native byte order"
        raise Error(message, kind="unsupported", field=what)
    if shape is not None and out.shape != tuple(shape):
        message = f"{what} has shape {out.shape}, but the result has shape {tuple(shape)}"
        raise Error(message, field=what)
    flags = out.flags
    if not flags.writeable:
        raise Error(f"{what} is read-only", field=what)
    if not (flags.aligned and (flags.c_contiguous or is_dense(out))):
        message = (f"{what} has gaps, negative strides or is not aligned; pass a new array, and "
                   "assign its values")
        raise Error(message, field=what)
    return out


_DELIVERY = threading.Lock()


class Out:
    """An array that a call writes, directly or through a copy in C order.

    ``array`` is the caller's array, ``memory`` the contiguous array that the call writes. An array
    on a device is written directly.
    """

    __slots__ = ("array", "memory", "_is_due")

    def __init__(self, array):
        self.array = self.memory = array
        if isinstance(array, DeviceArray):
            self.array, self._is_due = array.owner, False
            return
        self._is_due = array is not None and not array.flags.c_contiguous
        if self._is_due:
            self.memory = np.array(array, order="C", copy=True)

    def deliver(self) -> Optional[np.ndarray]:
        """Returns the array. Copies the result first, if that is due. Call it after the call has
        finished."""
        if self._is_due:
            # A second thread that waits must not return before the copy is complete.
            with _DELIVERY:
                if self._is_due:
                    self.array[...] = self.memory
                    self._is_due = False
        return self.array

    @property
    def is_due(self) -> bool:
        """Returns whether the array does not have the result yet."""
        return self._is_due


def outs(arrays, n_calls: int = 1) -> list:
    """Returns an :class:`Out` for each of several arrays, which must not overlap."""
    if n_calls > 1 or any(not array.flags.c_contiguous for array in arrays):
        # The native module checks arrays that one call writes directly.
        spans = sorted((array.ctypes.data, array.nbytes) for array in arrays if array.nbytes)
        if any(start + n > after for (start, n), (after, _) in zip(spans, spans[1:])):
            raise Error("arrays that the call writes overlap", field="array")
    return [Out(array) for array in arrays]


def apart(array, out, before: Optional[int] = 0):
    """Returns the array to send, or a copy of it if the result would overwrite it.

    There is no copy for a call in place: the shorter array starts ``before`` values after the
    start of the longer one. With ``before=None`` calls cannot be in place.
    """
    if array is None or out is None or before == 0 and array is out:
        return array
    if isinstance(array, DeviceArray):
        return apart_on_device(array, out, before)
    if not np.may_share_memory(array, out):
        return array
    long, short = (out, array) if out.size >= array.size else (array, out)
    if before is not None and short.ctypes.data - long.ctypes.data == before * array.itemsize:
        return array
    return array.copy()
