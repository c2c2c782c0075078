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

# What xarray knows of how a variable is stored, and goes with any codec.
_KEPT = ("_FillValue", "missing_value", "dtype", "scale_factor", "add_offset", "units", "calendar",
         "chunks")


def encoding(dataset, bound: Optional[str] = None, codec: str = "auto",
             fill_value: FillValue = None, zarr_format: int = 3) -> Dict[Any, Dict[str, Any]]:
    """Returns the argument ``encoding`` of ``dataset.to_zarr``, for the data variables of numbers.

    ``bound``, ``codec`` and ``fill_value`` are those of :func:`foldwire.compress`, for each chunk;
    variables that are stored as integers are exact. Without ``fill_value``, the value that stands
    for missing data is the ``_FillValue`` or ``missing_value`` of each variable, among its
    attributes or in its ``encoding``. With ``"refuse"`` the same, and writing a variable that has
    neither raises an error if a value seems to be one.

    Pass the same ``zarr_format`` to ``to_zarr``. What the variables say about how they are stored
    (``_FillValue``, ``dtype``, ``scale_factor``, ``chunks`` and others) stays.
    """
    made = {}
    for name, variable in dataset.data_vars.items():
        said = {key: variable.encoding[key] for key in _KEPT if key in variable.encoding}
        dtype = np.dtype(said.get("dtype") or variable.dtype)
        if dtype.kind in "fiub" and variable.dtype.kind in "fiub":
            fill = _fill_of(variable, said) if fill_value is None or refuses(fill_value) else None
            is_float = dtype.kind == "f"
            fill = (fill or fill_value) if is_float else None
            made[name] = {**said, **_compressed(bound, codec, fill, zarr_format)}
    return made


def _fill_of(variable, encoding) -> Optional[float]:
    names = ("_FillValue", "missing_value")
    marks = (encoding[name] for name in names if encoding.get(name) is not None)
    said = next(filter(None, map(usable_fill, marks)), None)
    return said or marked_fill(variable, variable.dtype)


def _compressed(bound, codec, fill_value, zarr_format):
    if zarr_format == 2:
        from .numcodecs import Foldwire

        return {"compressors": [Foldwire(bound, codec=codec, fill_value=fill_value)]}
    from .zarr import Foldwire

    return {"serializer": Foldwire(bound, codec, fill_value), "compressors": None}
