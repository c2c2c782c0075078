"""A codec of numcodecs, for zarr: chunks of floats within a bound, or exact.

>>> import zarr, foldwire.numcodecs
>>> zarr.create_array("x.zarr", shape=(1000, 1000), chunks=(250, 250), dtype="f4", zarr_format=2,
...                   compressors=foldwire.numcodecs.Foldwire("abs:1e-3"))  # doctest: +SKIP

The package announces it, so that readers find it by its name, ``foldwire``, without an import.
"""

from __future__ import annotations

import numpy as np
from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray, ensure_ndarray, ndarray_copy
from numcodecs.registry import register_codec

from . import compress, decompress
from ._arrays import TYPES, dtype_of, refuse_masks
from ._errors import Error

__all__ = ["Foldwire"]


def _numpys(dtype):
    """A type of a configuration, as numpy has it."""
    return dtype_of(TYPES["bf16"][0]) if dtype == "bfloat16" else np.dtype(dtype)


def _dtype(dtype):
    """A type as it stands in a configuration: a name where others have no letter for it."""
    dtype = _numpys(dtype)
    return dtype.name if dtype.name == "bfloat16" else dtype.str


def _is_of_bytes(dtype):
    return dtype.itemsize == 1 or dtype.kind == "V"


class Foldwire(Codec):
    """Compresses each chunk within ``bound``, or exactly if there is none.

    A relative bound is a fraction of the range of each chunk's values; give an absolute one for the
    same error everywhere.

    ``dtype`` is the type of the floats in chunks that do not say it (bytes, as after other
    filters), and of what chunks are decoded to. Chunks in another byte order than the machine's
    need it, as ``">f4"``: what is stored does not name an order. Values are stored in the order in
    which they lie in memory, C's or Fortran's, and come back in that order.
    """

    codec_id = "foldwire"

    def __init__(self, bound=None, dtype=None):
        self.bound = bound
        self.dtype = None if dtype is None else _dtype(dtype)
        # What is wrong shows here, and not at the first chunk.
        compress(np.zeros(1, _numpys(self.dtype or "f4")), bound)

    def encode(self, buf):
        refuse_masks(buf, "chunk")
        values = ensure_ndarray(buf)
        if not (values.flags.c_contiguous or values.flags.f_contiguous):
            values = np.array(values, order="C", copy=True)
        values = ensure_contiguous_ndarray(values)
        if self.dtype is None:
            if not values.dtype.isnative:
                given = _dtype(values.dtype)
                message = (f'chunks are of {given}, of another byte order than the machine\'s: '
                           f'make the codec with dtype="{given}"')
                raise Error(message, kind="unsupported", field="dtype")
            return compress(values, self.bound)
        dtype = _numpys(self.dtype)
        if values.dtype != dtype:
            # Integers may be bits of floats, as those of BitRound, or numbers: with every bit kept
            # that is the same.
            is_exact = self.bound in (None, "lossless", "exact")
            is_of_bits = _is_of_bytes(values.dtype) or is_exact and values.dtype.kind in "iu"
            if not is_of_bits or values.nbytes % dtype.itemsize != 0:
                message = (f"the codec is for {self.dtype}, and a chunk of {values.size} values is "
                           f"of {_dtype(values.dtype)}")
                raise Error(message, field="dtype")
            values = values.view(dtype)
        return compress(values, self.bound)

    def decode(self, buf, out=None):
        values = decompress(ensure_contiguous_ndarray(buf).view(np.uint8))
        if self.dtype is not None:
            dtype = _numpys(self.dtype)
            if values.dtype != dtype.newbyteorder("="):
                message = f"the codec is for {self.dtype}, and the chunk holds {values.dtype}"
                raise Error(message, kind="damaged", field="dtype")
            values = values.astype(dtype, copy=False)
        if out is None:
            return values
        refuse_masks(out, "out")
        into = ensure_ndarray(out)
        if into.nbytes != values.nbytes:
            message = f"out has {into.nbytes} bytes, and the chunk {values.nbytes}"
            raise Error(message, field="out")
        # Bytes of floats in bytes; but nobody means floats of another kind.
        if into.dtype != values.dtype and not _is_of_bytes(into.dtype):
            message = f"out is of {_dtype(into.dtype)}, and the chunk of {_dtype(values.dtype)}"
            raise Error(message, field="out")
        if not into.flags.writeable:
            raise Error("out is read-only", field="out")
        ndarray_copy(values, into)
        return out

    def get_config(self):
        return {"id": self.codec_id, "bound": self.bound, "dtype": self.dtype}

    def __repr__(self):
        return f"Foldwire(bound={self.bound!r}, dtype={self.dtype!r})"


register_codec(Foldwire)
