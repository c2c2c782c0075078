"""Fill values, which stand for missing data: a word of the plan of a collective."""

from __future__ import annotations

from typing import Any, Dict, Optional

from . import _native
from ._arrays import code_of, is_float, type_name
from ._device_arrays import DeviceArray
from ._errors import Error, warn


def with_fill(text: str, fill_value, like, dtype=None) -> str:
    """Adds a fill value, if there is one, to the text of a plan for arrays like this one."""
    if fill_value is None:
        return text
    if isinstance(like, DeviceArray):
        raise Error("fill values need arrays on the CPU", kind="unsupported", field="fill_value")
    return f"{text},fill:{fill_number(fill_value, like.dtype, dtype)!r}"


def fill_number(fill_value, of, dtype=None) -> Optional[float]:
    """Checks the fill value of an array of type ``of``, and returns it, or None if there is none.

    ``dtype`` as for :func:`code_of`.
    """
    if fill_value is None:
        return None
    if not is_float(code_of(of, dtype)):
        message = f"fill values are for floats, not {type_name(of, dtype)}"
        raise Error(message, kind="unsupported", field="fill_value")
    try:
        value = float(fill_value)
    except (TypeError, ValueError):
        message = f"fill_value is {fill_value!r}; it must be a number"
        raise Error(message, field="fill_value") from None
    if value != value:
        raise Error("NaN needs no fill_value: it keeps its place already", field="fill_value")
    return value


def warn_of_fill(report: Dict[str, Any]) -> None:
    """Issues the warning of a report, if it found a value that seems to be a fill value.

    Call it when the caller has the result: if warnings are errors, it raises.
    """
    fill = report["suspected_fill"]
    if fill is not None:
        warn(_native.suspected_fill(fill))
