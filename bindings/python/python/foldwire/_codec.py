"""Compression of arrays to bytes that store their type, length and error bound."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

import numpy as np

from . import _native
from ._arguments import bound_text
from ._arrays import as_array, code_of, dtype_of, is_float
from ._errors import Error

__all__ = ["Info", "compress", "decompress", "info"]


class Info(NamedTuple):
    """Header of compressed bytes: type, number of values and error bound."""

    dtype: np.dtype
    n_values: int
    bound: float
    """Largest absolute error of a finite value; 0 if every bit is kept."""


def _bound(bound):
    bound = bound_text(bound)
    return None if bound in (None, "lossless", "exact") else bound


def compress(array, bound: Optional[str] = None) -> bytes:
    """Compresses an array of floats (16 to 64 bits) to bytes.

    ``bound`` is ``"abs:0.1"`` (in the unit of the data), ``"rel:1e-4"`` (a fraction of the value
    range of this array) or ``"psnr:60"`` (dB). None or ``"lossless"`` keeps every bit. The values
    are stored in C order. The shape is not stored.

    Raises :class:`Error` of kind ``"unsupported"`` for other types, and ``"argument"`` for an
    invalid bound.
    """
    array = as_array(array)
    code = code_of(array.dtype)
    if not is_float(code):
        message = f"{array.dtype} values cannot be compressed; floats of 16 to 64 bits can"
        raise Error(message, kind="unsupported", field="dtype")
    try:
        return _native.compress(array, code, _bound(bound))
    except Error as failure:
        failure.field = failure.field or "bound"
        raise


def _bytes(data) -> np.ndarray:
    try:
        return np.frombuffer(data, np.uint8)
    except (TypeError, ValueError) as failure:
        raise Error(f"data must be contiguous bytes: {failure}", field="data") from None


def info(data) -> Info:
    """Reads the header of bytes that :func:`compress` returned.

    Raises :class:`Error` of kind ``"damaged"`` if the bytes are damaged or have another format.
    """
    code, n_values, bound = _native.info(_bytes(data))
    return Info(dtype_of(code), n_values, bound)


def decompress(data, shape: Optional[Tuple[int, ...]] = None) -> np.ndarray:
    """Decompresses bytes that :func:`compress` returned.

    The result has the given shape. Without a shape, it has one dimension. Each value is within the
    error bound that the array was compressed with.

    Raises :class:`Error` of kind ``"damaged"`` if the bytes are damaged or have another format, and
    ``"argument"`` if the shape does not fit the number of values.
    """
    bytes_ = _bytes(data)
    code, _, _ = _native.info(bytes_)
    values = np.frombuffer(_native.decompress(bytes_), dtype_of(code))
    if shape is None:
        return values
    try:
        return values.reshape(shape)
    except (TypeError, ValueError):
        message = f"shape is {shape}, but there are {values.size} values"
        raise Error(message, field="shape") from None
