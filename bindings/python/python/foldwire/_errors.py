"""The exception that Foldwire raises."""

from __future__ import annotations

import sys
import warnings
from typing import Optional

__all__ = ["Error"]


class Error(RuntimeError):
    """A call that failed.

    ``str(error)`` says what was wrong and what to change. ``kind`` is one of:

    ``"argument"``, ``"usage"``, ``"unsupported"``, ``"no_room"``, ``"too_many_calls"``
        The call is invalid, and nothing was sent. Correct it; the communicator stays usable.
    ``"mismatch"``
        Ranks disagree on ``field``: ``rank`` passed ``theirs``, this rank passed ``ours``.
    ``"timeout"``
        ``rank`` did not answer in time.
    ``"peer_lost"``
        ``rank`` has ended, was killed, or closed its communicator.
    ``"aborted"``
        ``rank`` aborted the call, because of ``culprit``.
    ``"transport"``
        The network failed.
    ``"interrupted"``
        Another thread called ``interrupt``.
    ``"poisoned"``
        An earlier call failed, and the communicator is unusable. Call ``shrink``.
    ``"closed"``
        The communicator was closed or shrunk, or belongs to the parent of this forked process.
    ``"excluded"``
        The other ranks shrank the communicator without this rank.
    ``"device"``
        A device failed.
    ``"damaged"``
        Bytes are damaged, or were not made by Foldwire.
    ``"internal"``
        A bug in Foldwire; please report it.

    Attributes that do not apply are None.
    """

    kind: str
    rank: Optional[int]
    """The rank that the error is about."""
    field: Optional[str]
    """The argument that the error is about."""
    ours: Optional[str]
    """This rank's value of ``field``, for a mismatch."""
    theirs: Optional[str]
    """The value of ``field`` on ``rank``, for a mismatch."""
    culprit: Optional[int]
    """The rank whose failure made ``rank`` abort the call."""

    def __init__(
        self,
        message: str,
        *,
        kind: str = "argument",
        rank: Optional[int] = None,
        field: Optional[str] = None,
        ours: Optional[str] = None,
        theirs: Optional[str] = None,
        culprit: Optional[int] = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.rank = rank
        self.field = field
        self.ours = ours
        self.theirs = theirs
        self.culprit = culprit

    def __repr__(self):
        fields = ("kind", "rank", "field", "ours", "theirs", "culprit")
        given = [(name, getattr(self, name)) for name in fields]
        said = [f"{name}={value!r}" for name, value in given if value is not None]
        return f"{type(self).__name__}({', '.join([repr(str(self)), *said])})"

    @property
    def is_usage(self) -> bool:
        """True if the call itself was invalid, so that the communicator stays usable."""
        return self.kind in ("argument", "usage", "unsupported", "no_room", "too_many_calls")

    def __reduce__(self):
        fields = ("kind", "rank", "field", "ours", "theirs", "culprit")
        given = {name: getattr(self, name) for name in fields}
        return _restored, (type(self), str(self), given)


def _restored(kind, message, fields):
    return kind(message, **fields)


def warn(message: str) -> None:
    """Issues a warning about the line that called the package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_ours(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)


def _is_ours(frame) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == __name__.partition(".")[0]
