"""Arrays as bytes that say all about themselves."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

import numpy as np

from . import _native
from ._arguments import bound_text
from ._arrays import as_array, code_of, dtype_of, is_float
from ._errors import Error

__all__ = ["Info", "compress", "decompress", "info"]


class Info(NamedTuple):
    """What compressed bytes say of themselves."""

    dtype: np.dtype
    n_values: int
    bound: float
    """No finite value is off by more; 0 if every bit is kept."""


def _bound(bound):
    bound = bound_text(bound)
    return None if bound in (None, "lossless", "exact") else bound


def compress(array, bound: Optional[str] = None) -> bytes:
    """Compresses an array of floats.

    ``bound`` is ``"abs:0.1"`` (in the unit of the data), ``"rel:1e-4"`` (a fraction of the range of
    the values) or ``"psnr:60"``; None or ``"lossless"`` keeps every bit. The shape is not kept:
    values are in C's order, whatever the array's.
    """
    array = as_array(array)
    code = code_of(array.dtype)
    if not is_float(code):
        message = f"{array.dtype} values are not compressed: floats of 16 to 64 bits are"
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
        raise Error(f"data is to be contiguous bytes: {failure}", field="data") from None


def info(data) -> Info:
    """What bytes that :func:`compress` made say of themselves."""
    code, n_values, bound = _native.info(_bytes(data))
    return Info(dtype_of(code), n_values, bound)


def decompress(data, shape: Optional[Tuple[int, ...]] = None) -> np.ndarray:
    """The array that :func:`compress` made these bytes of, within its bound, in this shape.

    Bytes that were damaged, or made otherwise, raise :class:`Error` of kind ``"damaged"``.
    """
    bytes_ = _bytes(data)
    code, _, _ = _native.info(bytes_)
    values = np.frombuffer(_native.decompress(bytes_), dtype_of(code))
    if shape is None:
        return values
    try:
        return values.reshape(shape)
    except (TypeError, ValueError):
        message = f"shape is {shape}, and there are {values.size} values"
        raise Error(message, field="shape") from None
