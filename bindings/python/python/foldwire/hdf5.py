"""A filter of HDF5 for h5py: compresses chunks within an error bound, or exactly.

>>> import h5py, foldwire.hdf5
>>> with h5py.File("x.h5", "w") as file:  # doctest: +SKIP
...     file.create_dataset("x", data=x, chunks=(250, 250),
...                         **foldwire.hdf5.Foldwire("f4", (250, 250), "abs:1e-3"))

Importing this module registers the filter with h5py, for reading, too. It is like the filters of
hdf5plugin, but is no library that other programs could load: h5dump, or programs in C, do not read
these data sets. Its number, 32931, is one of those that The HDF Group leaves to everyone.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Optional, Tuple, Union

import h5py
import numpy as np

from . import _native
from ._arguments import U32, codec_text, whole
from ._arrays import code_of
from ._codec import compress
from ._errors import Error
from ._fill import REFUSAL, fill_number, refuses

if TYPE_CHECKING:
    from ._types import FillValue

__all__ = ["FILTER_ID", "Foldwire"]

FILTER_ID: int = _native.HDF5_FILTER[0]
_VERSION = 1


def _address(library, name) -> int:
    """Returns the address of a function, or 0 if the library lacks it."""
    function = getattr(library, name, None)
    return ctypes.cast(function, ctypes.c_void_p).value if function is not None else 0


# A library of h5py finds the functions of the HDF5 that h5py uses, wherever that is.
_hdf5 = ctypes.CDLL(h5py.h5z.__file__)
_native.set_hdf5_functions([_address(_hdf5, name) for name in _native.HDF5_FUNCTIONS])
h5py.h5z.register_filter(_native.HDF5_FILTER[1])


class Foldwire(Mapping):
    """Arguments of ``create_dataset`` for data of this type in chunks of this shape.

    ``bound``, ``codec`` and ``fill_value`` are those of :func:`foldwire.compress`. A relative bound
    refers to the value range of each chunk; for the same error in all chunks, use an absolute
    bound. Integers and bool are exact with any bound. A chunk in which a value seems to be a fill
    value causes a warning when HDF5 writes it, which may be when the file is closed; with
    ``fill_value="refuse"``, it is stored unchanged then. It is no error, because HDF5 may crash if
    a filter fails while a file is closed.

    The data set gets the type that is told here, and no shuffle filter. HDF5 refuses to create one
    of floats of another type or byte order with these parameters, or with another filter before
    this one. Chunks of another length than told here are stored as they are.
    """

    def __init__(self, dtype, chunks: Union[int, Tuple[int, ...]], bound: Optional[str] = None,
                 codec: str = "auto", fill_value: FillValue = None):
        dtype = np.dtype(dtype)
        if not dtype.isnative:
            message = f"the type {dtype} is not in native byte order"
            raise Error(message, kind="unsupported", field="dtype")
        chunks = [whole(n, "chunks", 0, U32) for n in (chunks if np.iterable(chunks) else [chunks])]
        fill_value = fill_value if refuses(fill_value) else fill_number(fill_value, dtype)
        # Report invalid arguments here, not at the first chunk.
        compress(np.zeros(1, dtype), bound, codec, fill_value=fill_value)
        self._said = (f"{str(dtype)!r}, {tuple(chunks)}, {bound!r}, codec={codec!r}, "
                      f"fill_value={fill_value!r}")
        words = codec_text(codec, bound)
        text = (f"{words},{REFUSAL}" if refuses(fill_value) else words).encode()
        fill_value = None if refuses(fill_value) else fill_value
        fill = struct.unpack("<2I", struct.pack("<d", 0 if fill_value is None else fill_value))
        four = struct.unpack(f"<{(len(text) + 3) // 4}I", text + b"\0" * (-len(text) % 4))
        # With its own type, h5py would pass chunks of the type of the data.
        self._options = {
            "dtype": dtype,
            "shuffle": False,
            "compression": FILTER_ID,
            "compression_opts": (
                _VERSION, code_of(dtype), int(fill_value is not None), *fill, len(chunks),
                *chunks, len(text), *four),
        }

    def __repr__(self):
        return f"foldwire.hdf5.Foldwire({self._said})"

    def __getitem__(self, key):
        return self._options[key]

    def __iter__(self):
        return iter(self._options)

    def __len__(self):
        return len(self._options)
