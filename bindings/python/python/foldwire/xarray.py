"""Compression of xarray's data sets in stores of zarr, formats 2 and 3.

>>> import foldwire.xarray
>>> encoding = foldwire.xarray.encoding(data, "rel:1e-3")
>>> data.to_zarr("x.zarr", encoding=encoding)  # doctest: +SKIP

A codec of format 2 sees the values of a chunk and nothing else, and xarray keeps ``_FillValue``
where codecs do not look. So this module reads it from the data set, and tells the codec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional

import numpy as np

from ._fill import marked_fill, refuses, usable_fill

if TYPE_CHECKING:
    from ._types import FillValue

__all__ = ["encoding"]

# Keys of how a variable is stored that `to_zarr` takes, except for codecs. (It refuses others, such
# as those that data sets from netCDF have.)
_KEPT = ("_FillValue", "missing_value", "dtype", "_Unsigned", "scale_factor", "add_offset", "units",
         "calendar", "coordinates", "bounds", "grid_mapping", "climatology", "geometry",
         "node_coordinates", "node_count", "part_node_count", "interior_ring", "cell_measures",
         "formula_terms", "chunks", "chunk_key_encoding", "write_empty_chunks")
# The same, in format 3 only.
_KEPT_BY_FORMAT_3 = ("shards", "fill_value")


def encoding(dataset, bound: Optional[str] = None, codec: str = "auto",
             fill_value: FillValue = None, zarr_format: int = 3) -> Dict[Any, Dict[str, Any]]:
    """Returns the argument ``encoding`` of ``dataset.to_zarr``, for the data variables of numbers.

    ``bound``, ``codec`` and ``fill_value`` are those of :func:`foldwire.compress`, for each chunk;
    variables that are stored as integers or bool are exact, by the codec ``auto``. Without
    ``fill_value``, the value that stands for missing data is the ``_FillValue`` or
    ``missing_value`` of each variable, among its attributes or in its ``encoding``. With
    ``"refuse"`` the same, and writing a variable that has neither raises an error if a value seems
    to be one.

    Pass the same ``zarr_format`` to ``to_zarr``. What the variables say about how they are stored
    (``_FillValue``, ``dtype``, ``scale_factor``, ``chunks``, ``shards`` and others) stays.
    """
    made = {}
    kept = _KEPT if zarr_format == 2 else _KEPT + _KEPT_BY_FORMAT_3
    for name, variable in dataset.data_vars.items():
        said = {key: variable.encoding[key] for key in kept if key in variable.encoding}
        dtype = np.dtype(said.get("dtype") or variable.dtype)
        if dtype.kind in "fiub" and variable.dtype.kind in "fiub":
            how = None, "auto", None
            if dtype.kind == "f":
                is_open = fill_value is None or refuses(fill_value)
                fill = _fill_of(variable, said) if is_open else None
                how = bound, codec, fill or fill_value
            made[name] = {**said, **_compressed(dtype, zarr_format, *how)}
    return made


def _fill_of(variable, encoding) -> Optional[float]:
    names = ("_FillValue", "missing_value")
    marks = (encoding[name] for name in names if encoding.get(name) is not None)
    said = next(filter(None, map(usable_fill, marks)), None)
    return said or marked_fill(variable, variable.dtype)


def _compressed(dtype, zarr_format, bound, codec, fill_value):
    if zarr_format == 2:
        from .numcodecs import Foldwire

        # Without a type, the codec cannot tell values of one byte from bytes of something else.
        dtype = dtype if dtype.itemsize == 1 else None
        return {"compressors": [Foldwire(bound, dtype, codec, fill_value)]}
    from .zarr import Foldwire

    return {"serializer": Foldwire(bound, codec, fill_value), "compressors": None}
