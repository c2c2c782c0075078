"""Types that the methods of communicators name, for type checkers alone."""

from __future__ import annotations

from typing import Any, Callable, Literal, Optional, Sequence, Tuple, Union

from numpy.typing import ArrayLike, NDArray

__all__ = ["Array", "ArrayLike", "Counts", "FillValue", "Message", "Op", "Text"]

Array = NDArray[Any]
Text = Optional[str]
Counts = Optional[Sequence[int]]
FillValue = Union[float, Literal["refuse"], None]
Op = Union[
    Literal[
        "sum", "avg", "mean", "min", "max", "prod", "band", "bor", "bxor", "land", "lor", "lxor",
        "maxloc", "minloc",
    ],
    Callable[[Array, Array], Array],
]
Message = Union[Tuple[int, Array], Tuple[int, Array, int]]
