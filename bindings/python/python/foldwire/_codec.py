"""Compression of arrays to bytes that store their type, layout and error bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Optional, Tuple

import numpy as np

from . import _native
from ._arguments import codec_text, has_bound, whole
from ._arrays import as_ndarray, code_of, dtype_of
from ._errors import Error
from ._fill import REFUSAL, fill_number, marked_fill, refuses, warn_of_fill

if TYPE_CHECKING:
    from ._types import FillValue

__all__ = ["Info", "compress", "decompress", "info"]


class Info(NamedTuple):
    """Head of compressed bytes."""

    dtype: np.dtype
    """Type of the values, with the byte order of the array that was compressed."""
    shape: Tuple[int, ...]
    order: str
    """``"C"`` or ``"F"``: order of the values in memory."""
    bound: float
    """Largest absolute error of a finite value; 0 if every bit is kept. Infinite if the setting of
    a codec determines the error."""
    fill_value: Optional[float] = None
    """Value that stands for missing data; None if the array has none."""

    @property
    def n_values(self) -> int:
        """Number of values."""
        return int(np.prod(self.shape, dtype=object))


def compress(array, bound: Optional[str] = None, codec: str = "auto",
             shape: Optional[Tuple[int, ...]] = None,
             fill_value: FillValue = None) -> bytes:
    """Compresses an array to bytes that :func:`decompress` turns back into it, with its type,
    shape, memory order and byte order.

    ``bound`` is ``"abs:0.1"`` (in the unit of the data), ``"rel:1e-4"`` (a fraction of the value
    range of this array) or ``"psnr:60"`` (dB). ``"lossless"`` keeps every bit, and so does None
    with a codec that has no setting. Integers and bool are exact with any bound.

    ``codec`` is ``"auto"``, the codec that makes the array shortest, or the name of one. If a
    setting determines its error, as in ``"truncate:16"``, it takes no bound. ``shape`` says which
    values are neighbours, if the array is flat.

    ``fill_value`` is the value that stands for missing data among floats, such as 1e20. It keeps
    its bits, and does not count in the range of a relative bound. By default, with a bound, it is
    the ``_FillValue`` or ``missing_value`` among the attributes of an array of xarray or h5py.
    Without one, a value that seems to be one and sets the range causes a warning. With
    ``fill_value="refuse"`` it is an error instead.

    Raises :class:`Error` of kind ``"unsupported"`` for other types, masked arrays, codecs that are
    not for the type, and fill values of integers; and of kind ``"argument"`` for an invalid bound
    or shape, a bound that the codec does not keep, and refused values.
    """
    plan = codec_text(codec, bound)
    given, array = array, as_ndarray(array)
    if refuses(fill_value):
        plan, fill_value = f"{plan},{REFUSAL}", None
    if fill_value is None and has_bound(plan):
        fill_value = marked_fill(given, array.dtype)
    code = code_of(array.dtype)
    hint = _hint(array, shape)
    is_fortran = not array.flags.c_contiguous and array.flags.f_contiguous
    # The values in the order in which they are stored.
    memory = array.T if is_fortran else array
    is_swapped = not array.dtype.isnative
    if is_swapped:
        memory = memory.astype(array.dtype.newbyteorder("="), order="C")
    elif not (memory.flags.c_contiguous and memory.flags.aligned):
        # Not ascontiguousarray, which changes the shape of a scalar.
        memory = np.array(memory, order="C", copy=True)
    fill_value = fill_number(fill_value, array.dtype)
    layout = (list(array.shape), is_fortran, is_swapped, array.dtype == bool, fill_value)
    try:
        data, suspected = _native.compress(memory, code, layout, plan + hint)
    except Error as failure:
        failure.field = failure.field or _field_of(str(failure))
        raise
    warn_of_fill(suspected)
    return data


def _field_of(message: str) -> str:
    """Returns the argument that a message of the library is about."""
    if "codec " in message:
        return "codec"
    return "fill_value" if "sets the value range" in message else "bound"


def _hint(array, shape) -> str:
    """Returns the words of a plan with this shape."""
    if shape is None:
        return ""
    sizes = [whole(size, "shape") for size in (shape if np.iterable(shape) else (shape,))]
    n_values = int(np.prod(sizes, dtype=object))
    if n_values != array.size:
        message = f"shape is {tuple(sizes)}, but there are {array.size} values"
        raise Error(message, field="shape")
    return ",shape:" + "x".join(map(str, sizes)) if n_values else ""


def _bytes(data) -> np.ndarray:
    try:
        return np.frombuffer(data, np.uint8)
    except (TypeError, ValueError) as failure:
        raise Error(f"data must be contiguous bytes: {failure}", field="data") from None


def info(data) -> Info:
    """Reads the head of bytes that :func:`compress` returned.

    Raises :class:`Error` of kind ``"damaged"`` if the bytes are damaged or have another format.
    """
    code, layout, bound = _native.info(_bytes(data))
    shape, is_fortran, is_swapped, is_bool, fill_value = layout
    dtype = np.dtype(bool) if is_bool else dtype_of(code)
    dtype = dtype.newbyteorder("S") if is_swapped else dtype
    return Info(dtype, tuple(shape), "F" if is_fortran else "C", bound, fill_value)


def decompress(data, shape: Optional[Tuple[int, ...]] = None) -> np.ndarray:
    """Decompresses bytes that :func:`compress` returned.

    The result has the type, shape, memory order and byte order of the array that was compressed;
    views with gaps have become arrays in C order. With ``shape`` it has that shape, in C order of
    its values. Each value is within the error bound that the array was compressed with.

    Raises :class:`Error` of kind ``"damaged"`` if the bytes are damaged or have another format, and
    ``"argument"`` if the shape does not fit the number of values.
    """
    bytes_ = _bytes(data)
    about = info(bytes_)
    memory = _native.decompress(bytes_)
    values = np.frombuffer(memory, about.dtype.newbyteorder("="))
    if not about.dtype.isnative:
        values = values.byteswap(inplace=True).view(about.dtype)
    values = values.reshape(about.shape, order=about.order)
    if shape is None:
        return values
    try:
        return values.reshape(shape)
    except (TypeError, ValueError):
        message = f"shape is {shape}, but there are {values.size} values"
        raise Error(message, field="shape") from None
