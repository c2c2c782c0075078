"""Arguments that are no arrays: whole numbers, times and rates, bounds and plans. One that cannot
be used is an error that names it, before other ranks hear of the call.
"""

from __future__ import annotations

import operator
from typing import Optional

from ._errors import Error

U32, I64 = 2**32 - 1, 2**63 - 1


def whole(value, what: str, least: int = 0, most: int = I64) -> int:
    """A whole number from ``least`` to ``most``."""
    try:
        made = operator.index(value)
    except TypeError:
        kind = type(value).__name__
        raise Error(f"{what}: a whole number is needed, and not {kind}", field=what) from None
    if made < least:
        raise Error(f"{what} is {made}; it must be {least} or more", field=what)
    if made > most:
        raise Error(f"{what} is {made}; it must be {most} or less", field=what)
    return made


def number(value, what: str, unit: str, may_be_0: bool = False) -> Optional[float]:
    """A number above 0, or None."""
    if value is None:
        return None
    try:
        made = float(value)
    except (TypeError, ValueError):
        raise Error(f"{what} is {value!r}; give {unit}, as a number", field=what) from None
    if not (made > 0 or made == 0 and may_be_0):
        least = "0 or more" if may_be_0 else "more than 0"
        raise Error(f"{what} is {value!r}; give {unit}, {least}", field=what)
    return made


def seconds(value, what: str) -> Optional[float]:
    """A time in seconds, or None."""
    return number(value, what, "seconds", may_be_0=True)


def settings(timeout, deadline, lanes, calls):
    """What communicators of all kinds take, as the native half does."""
    lanes = None if lanes is None else whole(lanes, "lanes", 1)
    return (seconds(timeout, "timeout"), seconds(deadline, "deadline"), lanes,
            whole(calls, "calls", 1))


def _is_number(bound):
    try:
        float(bound)
    except (TypeError, ValueError):
        return False
    return not isinstance(bound, (bool, bytes))


def bound_text(bound) -> Optional[str]:
    """A bound as text, or None."""
    if bound is None or isinstance(bound, str) and bound.strip() and not _is_number(bound):
        return bound
    if _is_number(bound):
        message = (f'a bound says of what it is: write bound="abs:{bound}" (in the unit of the '
                   f'data), or bound="rel:{bound}" (a fraction of the range of the values)')
    else:
        message = f'a bound is text as "rel:1e-4", or None for exact results, and not {bound!r}'
    raise Error(message, field="bound")


def plan_text(bound, plan) -> str:
    """Bound and plan as one text."""
    bound = bound_text(bound)
    if plan is not None and not (isinstance(plan, str) and plan.strip()):
        raise Error(f'a plan is text as "auto" or "schedule:ring", and not {plan!r}', field="plan")
    return ",".join(words for words in (plan, bound) if words is not None) or "exact"


def bounds_operands_alone(text: str) -> bool:
    """Whether a plan has a bound, and does not say itself that it is one of the operands."""
    words = [word.strip() for word in text.split(",")]
    return "scope:operand" not in words and any(
        word.startswith(("abs:", "rel:", "psnr:")) for word in words)
