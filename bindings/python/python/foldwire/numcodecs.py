"""A codec of numcodecs, for zarr: chunks of floats within a bound, or exact.

>>> import zarr, foldwire.numcodecs
>>> zarr.create_array("x.zarr", shape=(1000, 1000), chunks=(250, 250), dtype="f4", zarr_format=2,
...                   compressors=foldwire.numcodecs.Foldwire("abs:1e-3"))  # doctest: +SKIP

The package announces it, so that readers find it by its name, ``foldwire``, without an import.
"""

from __future__ import annotations

import numpy as np
from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray_like, ndarray_copy
from numcodecs.registry import register_codec

from . import compress, decompress

__all__ = ["Foldwire"]


class Foldwire(Codec):
    """Compresses each chunk within ``bound``, or exactly if there is none.

    A relative bound is a fraction of the range of each chunk's values; give an absolute one for the
    same error everywhere. ``dtype`` is that of the floats in buffers that do not say it, as after
    other filters.
    """

    codec_id = "foldwire"

    def __init__(self, bound=None, dtype=None):
        self.bound = bound
        self.dtype = None if dtype is None else np.dtype(dtype).str
        # What is wrong shows here, and not at the first chunk.
        compress(np.zeros(1, self.dtype or "f4"), bound)

    def encode(self, buf):
        if self.dtype is not None:
            values = ensure_contiguous_ndarray_like(buf).view(self.dtype)
        else:
            values = buf if isinstance(buf, np.ndarray) else np.asarray(buf)
        return compress(values, self.bound)

    def decode(self, buf, out=None):
        return ndarray_copy(decompress(np.ascontiguousarray(buf).view(np.uint8)), out)

    def get_config(self):
        return {"id": self.codec_id, "bound": self.bound, "dtype": self.dtype}

    def __repr__(self):
        return f"Foldwire(bound={self.bound!r}, dtype={self.dtype!r})"


register_codec(Foldwire)
