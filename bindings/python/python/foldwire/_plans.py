"""Plans and operations of calls: what texts mean, and which operation a type has."""

from __future__ import annotations

import functools

import numpy as np

from . import _native
from ._arguments import bounds_operands_alone, plan_text
from ._arrays import code_of, is_float, type_name
from ._errors import Error
from ._operations import NAMES

_OPS = {"sum": 1, "avg": 2, "mean": 2, "min": 3, "max": 4, "prod": 5}
# Booleans, like numpy's + and *: logical or, logical and.
_OPS_OF_BOOL = {"sum": 4, "min": 3, "max": 4, "prod": 3}
NO_OP = 0


@functools.lru_cache(maxsize=256)
def parse_plan(text: str):
    """Parses the text of a plan."""
    try:
        return _native.Plan(text)
    except Error as failure:
        is_bound = text.split(":")[0] in ("abs", "rel", "psnr")
        failure.field = failure.field or ("bound" if is_bound else "plan")
        raise


def read_plan(bound, plan):
    """Parses a bound and a plan as one plan."""
    return parse_plan(plan_text(bound, plan))


@functools.lru_cache(maxsize=256)
def reduction(op: str, of: np.dtype, dtype, text: str) -> dict:
    """Returns type code, operation and plan of a reduction, if they are compatible."""
    if op in NAMES:
        message = f"{op!r} is for single arrays on the CPU only"
        raise Error(message, kind="unsupported", field="op")
    if op not in _OPS:
        known = ", ".join([*_OPS, *NAMES])
        raise Error(f"unknown operation {op!r}; there are {known}, and functions of two arrays",
                    field="op")
    code, name, ops = code_of(of, dtype), type_name(of, dtype), _OPS
    if name == "bool":
        ops = _OPS_OF_BOOL
        if op not in ops:
            message = "booleans have no average; convert them to floats"
            raise Error(message, kind="unsupported", field="op")
    elif not is_float(code):
        if _OPS[op] == _OPS["avg"]:
            message = f"{name} values have no average; divide their sum, or convert them to floats"
            raise Error(message, kind="unsupported", field="op")
    elif op == "prod" and bounds_operands_alone(text):
        message = ('a product cannot keep a bound; pass bound="exact", or plan="scope:operand" to '
                   "bound only the factors")
        raise Error(message, kind="unsupported", field="bound")
    return {"dtype": code, "op": ops[op], "plan": parse_plan(text)}
