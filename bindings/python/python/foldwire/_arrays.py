"""Arrays as calls need them: contiguous in C's order, in the machine's byte order, of a type that
is moved. Masks are refused.

All ranks send in C's order, whatever order their arrays have in memory, so that results do not
depend on that. :class:`Out` is what a call writes to.
"""

from __future__ import annotations

import functools
import threading
from typing import Optional

import numpy as np

from . import _native
from ._errors import Error

# Foldwire's name of a type: its code, its bytes, whether it is a float.
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
    """What values are; ``name`` says what their bits are if numpy has no such type."""
    if name is None:
        return dtype.name
    return name if isinstance(name, str) else np.dtype(name).name


@functools.lru_cache(maxsize=64)
def code_of(dtype: np.dtype, name=None) -> int:
    """The code of a type; ``name`` as for :func:`type_name`."""
    name = type_name(dtype, name)
    if name not in _CODES:
        name = "structures" if dtype.fields else f"values of {name}"
        message = f"{name} are not moved: floats of 16 to 64 bits, integers and bool are"
        raise Error(message, kind="unsupported", field="dtype")
    n_bytes = TYPES[_NAMES[name]][1]
    if n_bytes != dtype.itemsize:
        message = f"dtype is {name}, of {n_bytes} bytes; the array's values have {dtype.itemsize}"
        raise Error(message, field="dtype")
    return _CODES[name]


def is_float(code: int) -> bool:
    return _OF_CODE[code] in _FLOATS


def dtype_of(code: int) -> np.dtype:
    """The numpy type of a code; bfloat16 is that of ml_dtypes."""
    name = _OF_CODE[code]
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            message = "values are bfloat16, which numpy has with the package ml_dtypes only"
            raise Error(message, kind="unsupported", field="dtype") from None
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def refuse_masks(values, what: str = "array") -> None:
    """A masked array is an error, as no result would have its mask; so is a list of some."""
    if isinstance(values, np.ma.MaskedArray):
        message = (f"{what} is a masked array, and masks are not kept: give filled(value) of it, "
                   "or data if nothing is masked")
        raise Error(message, kind="unsupported", field=what)
    if isinstance(values, (list, tuple)):
        for value in values:
            refuse_masks(value, what)


def as_array(values) -> np.ndarray:
    """Values as a contiguous array, copied only if they are not one.

    What is no array of numpy's is taken by DLPack if it has that (on the CPU), else as
    ``numpy.asarray`` does.
    """
    if type(values) is not np.ndarray:
        values = _converted(values)
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    flags = values.flags
    if not (flags.c_contiguous and flags.aligned):
        # Never of another shape, as ascontiguousarray makes it of a number.
        values = np.array(values, order="C", copy=True)
    return values


def _converted(values) -> np.ndarray:
    """What is no array of numpy's, or is one of a kind of its own, as one."""
    if not isinstance(values, np.ndarray):
        refuse_masks(values)
        # Not `asarray`, which drops the masks of what says that it is an array.
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
    """Whether an array is contiguous, with its axes in whatever order."""
    axes = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    return array.transpose(axes).flags.c_contiguous


def check_out(out, shape, dtype, what: str = "out") -> np.ndarray:
    """An array that a result can be written to."""
    if type(out) is not np.ndarray:
        if not isinstance(out, np.ndarray):
            kind = type(out).__name__
            raise Error(f"{what} is written to; give a numpy array, and not {kind}", field=what)
        refuse_masks(out, what)
    if dtype is not None and out.dtype != dtype:
        raise Error(f"{what} is of {out.dtype}, the result of {dtype}", field=what)
    if not out.dtype.isnative:
        message = f"{what} is of {out.dtype}, which is not the machine's byte order"
        raise Error(message, kind="unsupported", field=what)
    if shape is not None and out.shape != tuple(shape):
        raise Error(f"{what} has the shape {out.shape}, the result {tuple(shape)}", field=what)
    flags = out.flags
    if not flags.writeable:
        raise Error(f"{what} is read-only", field=what)
    if not (flags.aligned and (flags.c_contiguous or is_dense(out))):
        message = (f"{what} has gaps, runs backwards or is not aligned: give an array of its own, "
                   "and assign that")
        raise Error(message, field=what)
    return out


_DELIVERY = threading.Lock()


class Out:
    """An array that a call writes: itself, or memory in C's order whose values it gets after."""

    __slots__ = ("array", "memory", "_is_due")

    def __init__(self, array: Optional[np.ndarray]):
        self.array = self.memory = array
        self._is_due = array is not None and not array.flags.c_contiguous
        if self._is_due:
            self.memory = np.array(array, order="C", copy=True)

    def deliver(self) -> Optional[np.ndarray]:
        """The array, with its values, once the call is done."""
        if self._is_due:
            # Who waits too does not return before they are there.
            with _DELIVERY:
                if self._is_due:
                    self.array[...] = self.memory
                    self._is_due = False
        return self.array

    @property
    def is_due(self) -> bool:
        """Whether values are still to be brought."""
        return self._is_due


def outs(arrays) -> list:
    """Of several arrays, which do not overlap."""
    if any(not array.flags.c_contiguous for array in arrays):
        # Of those that are written to themselves the native half sees it.
        spans = sorted((array.ctypes.data, array.nbytes) for array in arrays if array.nbytes)
        if any(start + n > after for (start, n), (after, _) in zip(spans, spans[1:])):
            raise Error("arrays that are written to overlap", field="array")
    return [Out(array) for array in arrays]


def apart(array, out, before: Optional[int] = 0):
    """An array to send, or a copy of it if the result lies over it, unless the shorter of the two
    is so many values behind the start of the longer one: that is a call in place."""
    if array is None or out is None or before == 0 and array is out:
        return array
    if not np.may_share_memory(array, out):
        return array
    long, short = (out, array) if out.size >= array.size else (array, out)
    if before is not None and short.ctypes.data - long.ctypes.data == before * array.itemsize:
        return array
    return array.copy()
