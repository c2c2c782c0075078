"""Arrays as calls need them: contiguous, in the machine's byte order, of a type that is moved."""

from __future__ import annotations

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


def code_of(dtype: np.dtype, name: str | None = None) -> int:
    """The code of a type; ``name`` is what its bits are if numpy has no such type."""
    name = name or dtype.name
    try:
        return _CODES[name]
    except KeyError:
        message = f"values of {name} are not moved: floats of 16 to 64 bits and integers are"
        raise Error(message, kind="unsupported", field="dtype") from None


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


def as_array(values) -> np.ndarray:
    """Values as a contiguous array, copied only if they are not one.

    What is no array of numpy's is taken by DLPack if it has that (on the CPU), else as
    ``numpy.asarray`` does.
    """
    if not isinstance(values, np.ndarray):
        if hasattr(values, "__dlpack__") and not hasattr(values, "__array_interface__"):
            try:
                values = np.from_dlpack(values)
            except (BufferError, RuntimeError, TypeError):
                values = np.asarray(values)
        else:
            values = np.asarray(values)
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if not (values.flags.c_contiguous and values.flags.aligned):
        # Never of another shape, as ascontiguousarray makes it of a number.
        values = np.array(values, order="C", copy=True)
    return values


def check_out(out, shape, dtype, what: str = "out") -> np.ndarray:
    """An array that a result can be written to."""
    if not isinstance(out, np.ndarray):
        raise Error(f"{what} is not a numpy array", field=what)
    if out.dtype != dtype:
        raise Error(f"{what} is of {out.dtype}, the result of {dtype}", field=what)
    if shape is not None and out.shape != tuple(shape):
        raise Error(f"{what} has the shape {out.shape}, the result {tuple(shape)}", field=what)
    if not (out.flags.c_contiguous and out.flags.writeable and out.flags.aligned):
        raise Error(f"{what} is not contiguous, or cannot be written to", field=what)
    return out
