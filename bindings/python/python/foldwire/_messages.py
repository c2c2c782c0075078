"""Messages of arrays between two ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ._arguments import U32, has_word, whole
from ._arrays import Out, apart, as_array, check_out, code_of, outs
from ._errors import Error
from ._fill import warn_of_fill
from ._requests import Request

if TYPE_CHECKING:
    from typing import Iterable

    from ._types import Array, ArrayLike, Message, Text


class Messages:
    """The messages of :class:`foldwire.Communicator`."""

    def exchange(self, sends: Iterable[Message] = (), recvs: Iterable[Message] = (),
                 bound: Text = None, plan: Text = None) -> None:
        """Sends and receives several messages concurrently, and waits for all of them.

        A message is ``(rank, array)`` or ``(rank, array, tag)``; the default tag is 0. Each receive
        overwrites its array, which has as many values as the message. All arrays have one type.
        """
        sends, recvs = list(sends), list(recvs)
        for message in sends + recvs:
            if not isinstance(message, (tuple, list)) or len(message) not in (2, 3):
                text = "a message must be (rank, array) or (rank, array, tag)"
                raise Error(text, field="message")
        came = [self._from(*recv) for recv in recvs]
        written = outs([array for array, *_ in came])
        messages = []
        for send in sends:
            array, *rest = self._to(*send, bound=bound, plan=plan)
            # If an array is sent and received into, send its values from before the call.
            for out in written:
                array = apart(array, out.memory, None)
            messages.append((array, *rest))
        messages += [(out.memory, *rest) for out, (_, *rest) in zip(written, came)]
        self.report = self._native.exchange(messages)
        for out in written:
            out.deliver()
        warn_of_fill(self.report["suspected_fill"])

    def _to(self, peer, array, tag=0, bound=None, plan=None):
        array = as_array(array)
        if isinstance(plan, str) and has_word(plan, "schedule:", "scope:"):
            message = f"a message has no schedule and no scope, as in plan={plan!r}; leave them out"
            raise Error(message, kind="unsupported", field="plan")
        plan = self._plan(bound, plan)
        return (array, code_of(array.dtype), self._peer(peer), whole(tag, "tag", 0, U32), plan)

    def _from(self, peer, array, tag=0):
        array = check_out(array, None, None, "array")
        return (array, code_of(array.dtype), self._peer(peer), whole(tag, "tag", 0, U32), None)

    def _peer(self, peer):
        if not 0 <= whole(peer, "rank", -U32) < self.size:
            message = f"rank {peer} does not exist; there are {self.size} ranks"
            raise Error(message, rank=peer, field="rank")
        return peer

    def send(self, array: ArrayLike, to: int, tag: int = 0, bound: Text = None,
             plan: Text = None) -> None:
        """Sends an array to rank ``to``, which receives it with the same tag.

        Returns when the array may be changed; it may not have arrived yet.
        """
        self.exchange([(to, array, tag)], bound=bound, plan=plan)

    def recv(self, out: Array, source: int, tag: int = 0) -> Array:
        """Receives from rank ``source`` into ``out``, and returns it.

        ``out`` has as many values as the message. The sender's bound applies.
        """
        self.exchange((), [(source, out, tag)])
        return out

    def start_send(self, array: ArrayLike, to: int, tag: int = 0, bound: Text = None,
                   plan: Text = None) -> Request[None]:
        """Starts :meth:`send` without blocking. The request finishes when the array may be changed.

        Messages match as in MPI: among messages with the same sender, receiver and tag, the first
        send matches the first receive, blocking or not. Messages with other tags or ranks, and
        collectives, may start in any order. At most 1024 sends and 1024 receives can be in progress
        at once.
        """
        message = self._to(to, array, tag, bound, plan)
        return Request(self._native.start_message(message), self, Out(None))

    def start_recv(self, out: Array, source: int, tag: int = 0) -> Request[Array]:
        """Starts :meth:`recv` without blocking. The request's ``wait()`` returns ``out``."""
        array, *rest = self._from(source, out, tag)
        written = Out(array)
        return Request(self._native.start_message((written.memory, *rest)), self, written)

    def send_recv(self, array: ArrayLike, to: int, out: Array, source: int, tag: int = 0,
                  bound: Text = None, plan: Text = None) -> Array:
        """Sends ``array`` to rank ``to`` while receiving from rank ``source`` into ``out``.

        Returns ``out``. Both messages have the same tag.
        """
        self.exchange([(to, array, tag)], [(source, out, tag)], bound=bound, plan=plan)
        return out
