"""A numcodecs codec, for zarr format 2: compresses chunks within an error bound, or exactly.

>>> import zarr, foldwire.numcodecs
>>> zarr.create_array("x.zarr", shape=(1000, 1000), chunks=(250, 250), dtype="f4", zarr_format=2,
...                   compressors=foldwire.numcodecs.Foldwire("abs:1e-3"))  # doctest: +SKIP

The package registers the codec as ``foldwire``, so that readers find it without an import. For zarr
format 3 there is :mod:`foldwire.zarr`.
"""

from __future__ import annotations

import numpy as np
from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray, ensure_ndarray, ndarray_copy
from numcodecs.registry import register_codec

from . import compress, decompress, info
from ._arrays import TYPES, dtype_of, refuse_masks
from ._errors import Error
from ._fill import stored_fill

__all__ = ["Foldwire"]


def _numpys(dtype):
    """Converts the type of a configuration to a numpy type."""
    return dtype_of(TYPES["bf16"][0]) if dtype == "bfloat16" else np.dtype(dtype)


def _dtype(dtype):
    """Converts a type to its text in a configuration. bfloat16 has no type string, so its name."""
    dtype = _numpys(dtype)
    return dtype.name if dtype.name == "bfloat16" else dtype.str


def _is_of_bytes(dtype):
    # bfloat16 of ml_dtypes has kind V, too.
    return dtype.itemsize == 1 or dtype.kind == "V" and dtype.name != "bfloat16"


class Foldwire(Codec):
    """Codec that compresses each chunk within ``bound``, or exactly without one.

    :param bound: ``"abs:0.1"`` (in the unit of the data), ``"rel:1e-4"`` (a fraction of the value
        range of each chunk), ``"psnr:60"`` (dB), or None. For the same error in all chunks, use an
        absolute bound. Integers are exact with any bound.
    :param dtype: type of the values, for example ``">f4"``. Needed if chunks are bytes (after other
        filters). Chunks are decoded to this type.
    :param codec: ``"auto"``, or the name of a codec, as for :func:`foldwire.compress`.
    :param fill_value: value that stands for missing data, or ``"refuse"``, as for
        :func:`foldwire.compress`. For data sets of xarray, :func:`foldwire.xarray.encoding` finds
        it.

    Values are stored and restored in memory order, C or Fortran, and in their byte order. Raises
    :class:`foldwire.Error` if an argument is invalid, or if a chunk has another type or is damaged.
    """

    codec_id = "foldwire"

    def __init__(self, bound=None, dtype=None, codec="auto", fill_value=None):
        self.bound = bound
        self.dtype = None if dtype is None else _dtype(dtype)
        self.codec = codec
        # Numbers of numpy's other types cannot be stored in a configuration.
        self.fill_value = stored_fill(fill_value)
        # Report invalid arguments here, not at the first chunk. All codecs are for f8.
        made = self._compress(np.zeros(1, _numpys(self.dtype or "f8")))
        # Zeros have no range, so that every bound of a fraction of it is 0 here.
        self._is_exact = bound in (None, "lossless", "exact") and info(made).bound == 0

    def encode(self, buf):
        refuse_masks(buf, "chunk")
        values = ensure_ndarray(buf)
        if values.dtype.kind == "O":
            raise TypeError("chunks of objects are not supported; encode them to numbers before")
        if self.dtype is None:
            if _is_of_bytes(values.dtype):
                message = ('chunks are bytes; create the codec with the type of their values, for '
                           'example dtype="<f4"')
                raise Error(message, kind="unsupported", field="dtype")
            return self._compress(values)
        dtype = _numpys(self.dtype)
        if values.dtype != dtype:
            values = self._viewed(values, dtype)
        return self._compress(values)

    def _compress(self, values):
        return compress(values, self.bound, self.codec, fill_value=self.fill_value)

    def _viewed(self, values, dtype):
        """Returns a chunk of bytes, or of integers that hold the bits of floats, as values."""
        if not (values.flags.c_contiguous or values.flags.f_contiguous):
            values = np.array(values, order="C", copy=True)
        values = ensure_contiguous_ndarray(values)
        # Integers may be the bits of floats, as from BitRound, or numbers. If every bit is kept,
        # both work.
        is_of_bits = _is_of_bytes(values.dtype) or self._is_exact and values.dtype.kind in "iu"
        if not is_of_bits or values.nbytes % dtype.itemsize != 0:
            message = (f"the codec has dtype {self.dtype}, but a chunk of {values.size} values "
                       f"has type {_dtype(values.dtype)}")
            raise Error(message, field="dtype")
        return values.view(dtype)

    def decode(self, buf, out=None):
        values = decompress(ensure_contiguous_ndarray(buf).view(np.uint8))
        if self.dtype is not None:
            dtype = _numpys(self.dtype)
            if values.dtype.newbyteorder("=") != dtype.newbyteorder("="):
                message = f"the codec has dtype {self.dtype}, but the chunk contains {values.dtype}"
                raise Error(message, kind="damaged", field="dtype")
            values = values.astype(dtype, copy=False)
        if out is None:
            return values
        refuse_masks(out, "out")
        into = ensure_ndarray(out)
        if into.nbytes != values.nbytes:
            message = f"out has {into.nbytes} bytes, but the chunk has {values.nbytes}"
            raise Error(message, field="out")
        # Floats may be decoded into an array of bytes, but not into floats of another type.
        if into.dtype != values.dtype and not _is_of_bytes(into.dtype):
            message = f"out has type {_dtype(into.dtype)}, but the chunk has {_dtype(values.dtype)}"
            raise Error(message, field="out")
        if not into.flags.writeable:
            raise Error("out is read-only", field="out")
        if (into.shape, into.dtype) == (values.shape, values.dtype):
            # The order of values in memory may differ.
            np.copyto(into, values)
        else:
            ndarray_copy(values, into)
        return out

    def get_config(self):
        return {"id": self.codec_id, "bound": self.bound, "dtype": self.dtype,
                "codec": self.codec, "fill_value": self.fill_value}

    def __repr__(self):
        more = "" if self.fill_value is None else f", fill_value={self.fill_value!r}"
        return f"Foldwire(bound={self.bound!r}, dtype={self.dtype!r}, codec={self.codec!r}{more})"


register_codec(Foldwire)
