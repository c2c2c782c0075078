"""Fill values, which stand for missing data: a word of the plan of a collective."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import numpy as np

from . import _native
from ._arrays import code_of, is_float, type_name
from ._device_arrays import DeviceArray
from ._errors import Error, warn


# The word of a plan that refuses data in which a fill value is suspected.
REFUSAL = "fill:refuse"


def refuses(fill_value) -> bool:
    """Returns whether an argument ``fill_value`` asks to refuse what seems to be a fill value."""
    return isinstance(fill_value, str) and fill_value == "refuse"


def with_fill(text: str, fill_value, like, dtype=None) -> str:
    """Adds a fill value, if there is one, to the text of a plan for arrays like this one."""
    if fill_value is None:
        return text
    if refuses(fill_value):
        return f"{text},{REFUSAL}"
    if isinstance(like, DeviceArray):
        raise Error("fill values need arrays on the CPU", kind="unsupported", field="fill_value")
    return f"{text},fill:{fill_number(fill_value, like.dtype, dtype)!r}"


def fill_number(fill_value, of, dtype=None) -> Optional[float]:
    """Checks the fill value of an array of type ``of``, and returns it, or None if there is none.

    ``dtype`` as for :func:`code_of`.
    """
    if fill_value is None or refuses(fill_value):
        return None
    if not is_float(code_of(of, dtype)):
        message = f"fill values are for floats, not {type_name(of, dtype)}"
        raise Error(message, kind="unsupported", field="fill_value")
    try:
        value = float(fill_value)
    except (TypeError, ValueError):
        message = f'fill_value is {fill_value!r}; it must be a number, or "refuse"'
        raise Error(message, field="fill_value") from None
    if value != value:
        raise Error("NaN needs no fill_value: it keeps its place already", field="fill_value")
    return value


def stored_fill(fill_value):
    """Checks a fill value, and converts it to what a configuration of a codec can hold."""
    return fill_value if refuses(fill_value) else fill_number(fill_value, np.dtype("f8"))


def marked_fill(of, dtype) -> Optional[float]:
    """Returns the fill value that an array carries among its attributes, or None. ``dtype`` is the
    type of its values; only floats have fill values.

    xarray's arrays and h5py's data sets have attributes. ``_FillValue`` (NetCDF) comes before
    ``missing_value`` (NetCDF, GRIB). xarray removes them where it has replaced the value by NaN.
    """
    attributes = getattr(of, "attrs", None)
    if not isinstance(attributes, Mapping) or dtype.kind != "f":
        return None
    marks = (attributes[name] for name in ("_FillValue", "missing_value") if name in attributes)
    return next(filter(None, map(usable_fill, marks)), None)


def usable_fill(mark) -> Optional[float]:
    """Converts what marks missing floats elsewhere to a fill value; None if there is no need.

    NaN and infinities keep their bits without one, and 0 does not lengthen a range much.
    """
    mark = np.asarray(mark)
    if mark.size != 1 or mark.dtype.kind not in "fiu":
        return None
    value = float(mark.item())
    return value if np.isfinite(value) and value != 0 else None


def warn_of_fill(fill: Optional[float]) -> None:
    """Issues the warning of a report, if it found a value that seems to be a fill value.

    Call it when the caller has the result: if warnings are errors, it raises.
    """
    if fill is not None:
        warn(_native.suspected_fill(fill))
