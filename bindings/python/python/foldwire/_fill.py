"""Fill values in collectives, which stand for missing data.

A call sends a NaN of its own, the *mark*, in place of each fill value: bounds do not count NaN in
the range, codecs keep its bits, and a reduction with it is NaN. The result has the fill value where
a mark, or the NaN of a reduction, comes back.
"""

from __future__ import annotations

import numpy as np

from ._arrays import as_operand, type_name
from ._device_arrays import DeviceArray
from ._errors import Error

# Type of a float's bits, and the bits of the mark.
_MARKS = {
    "float64": (np.uint64, 0x7FF8_0000_0000_003A),
    "float32": (np.uint32, 0x7FC0_003A),
    "float16": (np.uint16, 0x7E3A),
    "bfloat16": (np.uint16, 0x7FFA),
}
# Bits of infinity. Without its sign, a NaN has a larger number.
_INFINITY = {"float64": 0x7FF0 << 48, "float32": 0x7F80 << 16, "float16": 0x7C00,
             "bfloat16": 0x7F80}
# Codecs whose setting decides what is lost. They do not keep NaN.
_WITHOUT_NAN = ("zfp-rate", "truncate", "truncate-xor", "demote")


class Fill:
    """Fill value of a call's arrays."""

    __slots__ = ("_bits", "_kind", "_mark", "_infinity", "_is_reduced")

    def __init__(self, value, dtype: np.dtype, name: str, is_reduced: bool):
        self._kind, mark = _MARKS[name]
        self._mark, self._infinity = self._kind(mark), self._kind(_INFINITY[name])
        self._is_reduced = is_reduced
        if dtype.kind == "f":
            with np.errstate(over="ignore"):
                self._bits = np.array(value, np.float64).astype(dtype).view(self._kind)[()]
        else:
            # bfloat16 as integers or as a type of ml_dtypes: the upper half of a float32, rounded.
            bits = int(np.array(value, np.float32).view(np.uint32))
            self._bits = np.uint16(bits + 0x7FFF + (bits >> 16 & 1) >> 16)

    def marked(self, array: np.ndarray) -> np.ndarray:
        """Returns a copy with marks in place of fill values."""
        array = array.copy(order="C")
        bits = array.view(self._kind)
        if (bits == self._mark).any():
            message = f"the array has the NaN {self._mark:#x}, which stands for fill values"
            raise Error(message, kind="unsupported", field="array")
        bits[bits == self._bits] = self._mark
        return array

    def restore(self, array: np.ndarray) -> None:
        """Replaces what came back for fill values."""
        bits = array.view(self._kind)
        if self._is_reduced:
            sign = self._kind(1 << (8 * bits.itemsize - 1))
            bits[(bits & ~sign) > self._infinity] = self._bits
        else:
            bits[bits == self._mark] = self._bits


def check(fill_value, like, text: str, dtype=None, is_reduced: bool = False):
    """Returns the :class:`Fill` of arrays like this one, for a call with this plan; None if there
    is no fill value."""
    if fill_value is None:
        return None
    if isinstance(like, DeviceArray):
        raise Error("fill values need arrays on the CPU", kind="unsupported", field="fill_value")
    name = type_name(like.dtype, dtype)
    if name not in _MARKS:
        message = f"fill values are for floats, not {name}"
        raise Error(message, kind="unsupported", field="fill_value")
    for word in text.replace(" ", "").split(","):
        if word.startswith("codec:") and word.split(":")[1] in _WITHOUT_NAN:
            message = f"{word} does not keep fill values; choose a codec within a bound"
            raise Error(message, kind="unsupported", field="plan")
    try:
        value = float(fill_value)
    except (TypeError, ValueError):
        message = f"fill_value is {fill_value!r}; it must be a number"
        raise Error(message, field="fill_value") from None
    if value != value:
        raise Error("NaN needs no fill_value: it keeps its place already", field="fill_value")
    return Fill(value, like.dtype, name, is_reduced)
