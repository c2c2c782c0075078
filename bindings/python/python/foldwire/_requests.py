"""Calls as values, and requests: calls in progress."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Generic, Optional, TypeVar

from ._arrays import Out, apart
from ._device_arrays import DeviceArray, memory_of
from ._errors import Error
from ._fill import warn_of_fill
from ._plans import NO_OP

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Generator

    from typing_extensions import Concatenate, ParamSpec

    from . import _native
    from ._communicator import Communicator

    P = ParamSpec("P")

C = TypeVar("C")
R = TypeVar("R")


class Call(Generic[R]):
    """Arguments of a collective for the native module. R is the type of the result.

    ``before`` is the offset, in values, of the shorter array in the longer one if the call is in
    place.
    """

    __slots__ = (
        "name", "send", "recv", "dtype", "op", "root", "count", "counts", "recv_counts", "plan",
        "out", "timeout", "memory",
    )

    def __init__(self, name, send, out, dtype, plan, op=NO_OP, root=0, count=0, counts=None,
                 recv_counts=None, before=0):
        self.name, self.dtype, self.plan, self.op, self.root = name, dtype, plan, op, root
        self.count, self.counts, self.recv_counts = count, counts, recv_counts
        self.out = Out(out)
        self.recv = self.out.memory
        is_on_device = DeviceArray in (type(send), type(out))
        self.memory = memory_of(send, out) if is_on_device else None
        self.send = apart(send, self.recv, before)
        self.timeout = None


class Request(Generic[R]):
    """A call in progress.

    There is no background thread: the call progresses while its rank is in a call of Foldwire, or
    in :meth:`test`, :meth:`wait` or ``await``. Dropping an unfinished request aborts the call on
    all ranks. ``report`` is the report of the finished call, or None.
    """

    def __init__(self, native: _native.Request, communicator: Communicator, out: Out):
        self._native = native
        self._communicator = communicator
        self._out = out
        # What the result is seen as, if it is of another type.
        self._view: Callable[[Any], Any] = lambda array: array
        self.report: Optional[Dict[str, Any]] = None

    def __repr__(self):
        state = "in progress" if self.report is None else "finished"
        return f"<foldwire.Request: {state}, of {self._communicator!r}>"

    def test(self) -> bool:
        """Advances all calls of this rank. Returns whether this one has finished or failed.

        Does not raise the error of a failed call; :meth:`wait` does.
        """
        is_over = self._native.test()
        if is_over and self._out.is_due:
            try:
                self.wait()
            except Error:
                # `wait` raises it again.
                pass
        return is_over

    def wait(self) -> R:
        """Waits until the call has finished. Returns the result of the blocking call.

        Raises :class:`Error` if the call failed.
        """
        if self.report is None:
            report = self._native.wait()
            self._out.deliver()
            self.report = self._communicator.report = report
            warn_of_fill(report["suspected_fill"])
        return self._view(self._out.array)

    def __await__(self) -> Generator[Any, None, R]:
        return self._awaited().__await__()

    async def _awaited(self):
        loop = asyncio.get_running_loop()
        while True:
            woken = loop.create_future()

            def wake(woken=woken):
                loop.call_soon_threadsafe(lambda: woken.done() or woken.set_result(None))

            if self._native.poll(wake):
                return self.wait()
            await woken


def blocking(
    prepare: Callable[Concatenate[C, P], Call[R]],
) -> Callable[Concatenate[C, P], R]:
    @functools.wraps(prepare)
    def call(self, *args, **kwargs):
        made = prepare(self, *args, **kwargs)
        made.timeout = self.timeout
        self.report = report = self._native.call(made)
        result = made.out.deliver()
        warn_of_fill(report.suspected_fill)
        return result

    # Python's errors about arguments show the public name.
    call.__name__ = prepare.__name__.lstrip("_")
    call.__qualname__ = prepare.__qualname__ = f"Communicator.{call.__name__}"
    return call


def starting(
    prepare: Callable[Concatenate[C, P], Call[R]],
) -> Callable[Concatenate[C, P], Request[R]]:
    @functools.wraps(prepare)
    def start(self, *args, **kwargs):
        made = prepare(self, *args, **kwargs)
        made.timeout = self.timeout
        return Request(self._native.start(made), self, made.out)

    name = prepare.__name__.lstrip("_")
    start.__name__ = f"start_{name}"
    start.__qualname__ = f"Communicator.{start.__name__}"
    start.__doc__ = (f"Starts :meth:`{name}` without blocking. Returns a :class:`Request`, whose "
                     "``wait()`` returns the result.")
    return start
