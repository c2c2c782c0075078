"""Checks of arguments that are not arrays: whole numbers, times, rates, bounds and plans.

An invalid argument raises an error that names it, before anything is sent to other ranks.
"""

from __future__ import annotations

import operator
from typing import Optional

from . import _native
from ._errors import Error

U32, I64 = 2**32 - 1, 2**63 - 1
# Times of this many seconds mean "no limit".
FOREVER = 1e9


def whole(value, what: str, least: int = 0, most: int = I64) -> int:
    """Converts to a whole number from ``least`` to ``most``."""
    try:
        if isinstance(value, bool):
            # To Python it is 0 or 1; to the caller it is an option of another kind.
            raise TypeError
        made = operator.index(value)
    except TypeError:
        kind = type(value).__name__
        raise Error(f"{what} must be a whole number, not {kind}", field=what) from None
    if made < least:
        raise Error(f"{what} is {made}; it must be {least} or more", field=what)
    if made > most:
        raise Error(f"{what} is {made}; it must be {most} or less", field=what)
    return made


def number(value, what: str, unit: str, may_be_0: bool = False) -> Optional[float]:
    """Converts to a number above 0 (or 0, if allowed), or returns None for None."""
    if value is None:
        return None
    try:
        made = float(value)
    except (TypeError, ValueError):
        raise Error(f"{what} is {value!r}; it must be a number of {unit}", field=what) from None
    if not (made > 0 or made == 0 and may_be_0):
        least = "0 or more" if may_be_0 else "more than 0"
        raise Error(f"{what} is {value!r}; it must be {least} {unit}", field=what)
    return made


def seconds(value, what: str) -> Optional[float]:
    """Converts to a time in seconds, or returns None for None."""
    return number(value, what, "seconds", may_be_0=True)


def settings(timeout, deadline, lanes, calls):
    """Converts the settings of a communicator for the native module."""
    lanes = None if lanes is None else whole(lanes, "lanes", 1, _native.MAX_LANES)
    return (seconds(timeout, "timeout"), seconds(deadline, "deadline"), lanes,
            whole(calls, "calls", 1))


def _is_number(bound):
    try:
        float(bound)
    except (TypeError, ValueError):
        return False
    return not isinstance(bound, (bool, bytes))


def bound_text(bound) -> Optional[str]:
    """Checks a bound, which is text or None."""
    if bound is None or isinstance(bound, str) and bound.strip() and not _is_number(bound):
        return bound
    if _is_number(bound):
        message = (f'a bound needs a kind: write bound="abs:{bound}" (in the unit of the data) or '
                   f'bound="rel:{bound}" (a fraction of the value range)')
    else:
        message = (f'a bound must be text such as "rel:1e-4", or None for exact results, not '
                   f'{bound!r}')
    raise Error(message, field="bound")


def plan_text(bound, plan) -> str:
    """Joins bound and plan to the text of one plan."""
    bound = bound_text(bound)
    if plan is not None and not (isinstance(plan, str) and plan.strip()):
        message = f'a plan must be text such as "auto" or "schedule:ring", not {plan!r}'
        raise Error(message, field="plan")
    return ",".join(words for words in (plan, bound) if words is not None) or "exact"


def codec_text(codec, bound) -> str:
    """Joins codec and bound to the text of the plan of one array."""
    bound = bound_text(bound)
    if not (isinstance(codec, str) and codec.strip()):
        message = f'a codec must be text such as "auto" or "dense", not {codec!r}'
        raise Error(message, field="codec")
    words = [] if codec == "auto" else [f"codec:{codec}"]
    if bound is not None:
        # Compression of one array knows no other exactness than that of a lossless codec.
        words.append("lossless" if bound.strip() in ("lossless", "exact") else bound)
    return ",".join(words) or "exact"


def has_word(text: str, *beginnings: str) -> bool:
    """Returns whether a plan has a word that begins with one of these."""
    return any(word.strip().startswith(beginnings) for word in text.split(","))


def has_bound(text: str) -> bool:
    """Returns whether a plan has a bound."""
    return has_word(text, "abs:", "rel:", "psnr:")


def bounds_operands_alone(text: str) -> bool:
    """Returns whether a plan has a bound and lacks ``scope:operand``."""
    return has_bound(text) and not has_word(text, "scope:operand")
