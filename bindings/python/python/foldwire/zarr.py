"""A codec of zarr format 3: compresses chunks within an error bound, or exactly.

>>> import zarr, foldwire.zarr
>>> zarr.create_array("x.zarr", shape=(1000, 1000), chunks=(250, 250), dtype="f4",
...                   serializer=foldwire.zarr.Foldwire("abs:1e-3"),
...                   compressors=None)  # doctest: +SKIP

It takes arrays and returns bytes, as zarr's own serializers do, and so knows the shape of a chunk.
The package registers it as ``foldwire``, so that readers find it without an import. For format 2
there is :mod:`foldwire.numcodecs`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

import numpy as np
from zarr.abc.codec import ArrayBytesCodec
from zarr.registry import register_codec

from . import compress, decompress
from ._arguments import codec_text, has_bound
from ._errors import Error
from ._fill import refuses, stored_fill, usable_fill

if TYPE_CHECKING:
    from ._types import FillValue

__all__ = ["Foldwire"]


@dataclass(frozen=True)
class Foldwire(ArrayBytesCodec):
    """Codec that compresses each chunk within ``bound``, or exactly without one.

    ``bound``, ``codec`` and ``fill_value`` are those of :func:`foldwire.compress`. A relative bound
    refers to the value range of each chunk; for the same error in all chunks, use an absolute
    bound. Integers and bool are exact with any bound.

    With a bound and without ``fill_value``, the array's own fill value, unless it is 0, stands for
    missing data. xarray keeps ``_FillValue`` as an attribute, which codecs do not see:
    :func:`foldwire.xarray.encoding` names it.
    """

    bound: Optional[str] = None
    codec: str = "auto"
    fill_value: FillValue = None

    is_fixed_size = False

    def __post_init__(self):
        # Numbers of numpy's other types cannot be stored among an array's attributes.
        fill_value = stored_fill(self.fill_value)
        object.__setattr__(self, "fill_value", fill_value)
        # Report invalid arguments here, not at the first chunk. All codecs are for f8.
        self._compress(np.zeros(1))

    def _compress(self, values):
        return compress(values, self.bound, self.codec, fill_value=self.fill_value)

    def _is_within_bound(self):
        return has_bound(codec_text(self.codec, self.bound))

    @classmethod
    def from_dict(cls, data):
        return cls(**data.get("configuration", {}))

    def to_dict(self):
        configuration = {"bound": self.bound, "codec": self.codec}
        if self.fill_value is not None:
            configuration["fill_value"] = self.fill_value
        return {"name": "foldwire", "configuration": configuration}

    def validate(self, *, shape, dtype, chunk_grid):
        self._compress(np.zeros(1, _numpys(dtype)))

    def _encode_sync(self, chunk_array, chunk_spec):
        values, fill_value = chunk_array.as_numpy_array(), self.fill_value
        is_open = fill_value is None or refuses(fill_value)
        if is_open and values.dtype.kind == "f" and self._is_within_bound():
            fill_value = usable_fill(chunk_spec.fill_value) or fill_value
        data = compress(values, self.bound, self.codec, fill_value=fill_value)
        return chunk_spec.prototype.buffer.from_bytes(data)

    async def _encode_single(self, chunk_array, chunk_spec):
        return await asyncio.to_thread(self._encode_sync, chunk_array, chunk_spec)

    def _decode_sync(self, chunk_bytes, chunk_spec):
        values = decompress(chunk_bytes.as_numpy_array())
        dtype = _numpys(chunk_spec.dtype)
        is_same = values.dtype.newbyteorder("=") == dtype.newbyteorder("=")
        if not is_same or values.shape != tuple(chunk_spec.shape):
            message = (f"the chunk contains {values.dtype} of shape {values.shape}, not {dtype} of "
                       f"shape {tuple(chunk_spec.shape)}")
            raise Error(message, kind="damaged", field="data")
        values = values.astype(dtype, copy=False)
        return chunk_spec.prototype.nd_buffer.from_ndarray_like(values)

    async def _decode_single(self, chunk_bytes, chunk_spec):
        return await asyncio.to_thread(self._decode_sync, chunk_bytes, chunk_spec)

    def compute_encoded_size(self, _input_byte_length, _chunk_spec):
        raise NotImplementedError


def _numpys(dtype) -> np.dtype:
    """Converts a type of zarr (before 3.1, a numpy type) to a numpy type."""
    return dtype.to_native_dtype() if hasattr(dtype, "to_native_dtype") else np.dtype(dtype)


register_codec("foldwire", Foldwire)
