"""What calls raise."""

from __future__ import annotations

from typing import Optional

__all__ = ["Error"]


class Error(RuntimeError):
    """A call that failed.

    ``str`` says what to change. ``kind`` is one of

    ``"argument"``, ``"usage"``, ``"unsupported"``, ``"no_room"``, ``"too_many_calls"``
        The call itself was wrong, and nothing is under way: correct it and go on.
    ``"mismatch"``
        Ranks disagree: ``rank`` says ``theirs`` of ``field``, this one says ``ours``.
    ``"timeout"``, ``"peer_lost"``, ``"aborted"``, ``"transport"``, ``"interrupted"``
        ``rank`` came too late, is gone, or gave up (because of ``culprit``); the network failed;
        the user stopped the program.
    ``"poisoned"``, ``"closed"``, ``"excluded"``
        The communicator is of no use: an earlier call failed; it was closed or shrunk, or belongs
        to the process that this one was forked off; the survivors went on without this rank.
    ``"damaged"``
        Bytes were not made by Foldwire, or were changed.
    ``"internal"``
        A defect of Foldwire; please report it.
    """

    kind: str
    rank: Optional[int]
    field: Optional[str]
    ours: Optional[str]
    theirs: Optional[str]
    culprit: Optional[int]

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

    @property
    def is_usage(self) -> bool:
        """Whether the call itself was wrong: the communicator can be used on."""
        return self.kind in ("argument", "usage", "unsupported", "no_room", "too_many_calls")

    def __reduce__(self):
        fields = ("kind", "rank", "field", "ours", "theirs", "culprit")
        return _restored, (str(self), {name: getattr(self, name) for name in fields})


def _restored(message, fields):
    return Error(message, **fields)
