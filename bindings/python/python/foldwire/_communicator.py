"""Collectives of numpy arrays."""

from __future__ import annotations

import asyncio
import functools
import math
from typing import Callable, NamedTuple, Optional

import numpy as np

from . import _native
from ._arguments import U32, bound_text, bounds_operands_alone, plan_text, seconds, whole
from ._arrays import (
    TYPES,
    Out,
    apart,
    as_array,
    check_out,
    code_of,
    is_float,
    outs,
    type_name,
)
from ._errors import Error

__all__ = ["Communicator", "Request"]

_OPS = {"sum": 1, "avg": 2, "mean": 2, "min": 3, "max": 4, "prod": 5}
# Of booleans, as numpy's + and *: logical or, logical and.
_OPS_OF_BOOL = {"sum": 4, "min": 3, "max": 4, "prod": 3}
_NO_OP = 0
_FLOAT32 = TYPES["f32"][0]


@functools.lru_cache(maxsize=256)
def _read_plan(text: str):
    try:
        return _native.Plan(text)
    except Error as failure:
        is_bound = text.split(":")[0] in ("abs", "rel", "psnr")
        failure.field = failure.field or ("bound" if is_bound else "plan")
        raise


def read_plan(bound, plan):
    """A bound and a plan, read as one."""
    return _read_plan(plan_text(bound, plan))


@functools.lru_cache(maxsize=256)
def _reduction(op: str, of: np.dtype, dtype, text: str) -> dict:
    """What a call has of an operation on values of a type, by a plan, if they go together."""
    if op not in _OPS:
        raise Error(f"there is no operation {op!r}, but {', '.join(_OPS)}", field="op")
    code, name, ops = code_of(of, dtype), type_name(of, dtype), _OPS
    if name == "bool":
        ops = _OPS_OF_BOOL
        if op not in ops:
            message = "booleans have no average: make them floats, and average those"
            raise Error(message, kind="unsupported", field="op")
    elif not is_float(code):
        if _OPS[op] == _OPS["avg"]:
            message = f"{name} values have no average: divide their sum, or make them floats"
            raise Error(message, kind="unsupported", field="op")
    elif op == "prod" and bounds_operands_alone(text):
        message = ('no bound holds for a product: give bound="exact", or plan="scope:operand" for '
                   "factors within the bound and a product that may be off by anything")
        raise Error(message, kind="unsupported", field="bound")
    return {"dtype": code, "op": ops[op], "plan": _read_plan(text)}


class _Call:
    """A call as the native half takes it, with what becomes of it.

    ``before`` says where a shorter array lies in the longer one if the call is in place.
    """

    __slots__ = (
        "name", "send", "recv", "dtype", "op", "root", "count", "counts", "recv_counts", "plan",
        "out", "timeout",
    )

    def __init__(self, name, send, out, dtype, plan, op=_NO_OP, root=0, count=0, counts=None,
                 recv_counts=None, before=0):
        self.name, self.dtype, self.plan, self.op, self.root = name, dtype, plan, op, root
        self.count, self.counts, self.recv_counts = count, counts, recv_counts
        self.out = Out(out)
        self.recv = self.out.memory
        self.send = apart(send, self.recv, before)
        self.timeout = None


class Request:
    """A call under way. It moves while its rank is in a call of Foldwire's, or tests or awaits.

    Dropping it unfinished gives the call up on all ranks.
    """

    def __init__(self, native, communicator, out: Out):
        self._native = native
        self._communicator = communicator
        self._out = out
        self.report = None

    def test(self) -> bool:
        """Advances all calls of this rank; whether this one is over, well or not."""
        is_over = self._native.test()
        if is_over and self._out.is_due:
            try:
                self.wait()
            except Error:
                # For who waits.
                pass
        return is_over

    def wait(self):
        """Waits until the call is over; its result, as the blocking call returns it."""
        if self.report is None:
            report = self._native.wait()
            self._out.deliver()
            self.report = self._communicator.report = report
        return self._out.array

    def __await__(self):
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


def _blocking(prepare: Callable):
    @functools.wraps(prepare)
    def call(self, *args, **kwargs):
        made = prepare(self, *args, **kwargs)
        made.timeout = self.timeout
        self.report = self._native.call(made)
        return made.out.deliver()

    # What is wrong with arguments is said of the name that was called.
    call.__name__ = prepare.__name__.lstrip("_")
    call.__qualname__ = prepare.__qualname__ = f"Communicator.{call.__name__}"
    return call


def _starting(prepare: Callable):
    @functools.wraps(prepare)
    def start(self, *args, **kwargs):
        made = prepare(self, *args, **kwargs)
        made.timeout = self.timeout
        return Request(self._native.start(made), self, made.out)

    name = prepare.__name__.lstrip("_")
    start.__name__ = f"start_{name}"
    start.__qualname__ = f"Communicator.{start.__name__}"
    start.__doc__ = f"Starts what :meth:`{name}` does; the :class:`Request` has its result."
    return start


class _Share(NamedTuple):
    """Rows of an array that ranks have shares of."""

    counts: Optional[list]
    """Values of each rank, if they are not as many."""
    count: int
    """Values of this rank."""
    before: int
    """Values of the ranks before it."""


class Communicator:
    """A rank of a group of ranks that make the same calls in the same order.

    Arrays are numpy's, or what has DLPack; others are made arrays. Calls are exact unless a
    ``bound`` is given, here or as the communicator's (:attr:`bound`): ``"rel:1e-4"``,
    ``"abs:0.1"``, ``"psnr:60"``, or ``"lossless"``, which compresses and keeps every bit. ``plan``
    says more, in the words of Foldwire's plans: ``"auto"``, ``"codec:dense,shape:64x64x64"``,
    ``"schedule:ring"``. All ranks give the same.

    Calls let the GIL go. An array must not be written while a call has it, nor one be read that a
    call writes to. Several threads may use a communicator; they take turns. Forks of the process
    may not: their calls are errors of kind ``"closed"``.
    """

    def __init__(self, native, bound: Optional[str] = None, plan: Optional[str] = None):
        self._native = native
        self.rank: int = native.rank
        self.size: int = native.size
        self.bound = bound
        """The bound of calls that give none; None: they are exact."""
        self.plan = plan
        """The plan of calls that give none."""
        self.timeout: Optional[float] = None
        """The seconds without any progress after which a collective fails; None: those that the
        communicator was made with."""
        self.report: Optional[dict] = None
        """What the last call that ended well did on this rank."""

    def __repr__(self):
        return f"<foldwire.Communicator: rank {self.rank} of {self.size}>"

    def _text(self, bound, plan):
        bound = self.bound if bound is None else bound
        plan = self.plan if plan is None else plan
        return "exact" if bound is None and plan is None else plan_text(bound, plan)

    def _plan(self, bound, plan):
        return _read_plan(self._text(bound, plan))

    def _reduction(self, op, array, dtype, bound, plan):
        """Type, operation and plan of a reduction."""
        return _reduction(str(op), array.dtype, dtype, self._text(bound, plan))

    def _new(self, out, shape, like):
        if out is None:
            return np.empty(shape, like.dtype)
        return check_out(out, shape, like.dtype)

    def _root(self, root):
        if not 0 <= whole(root, "root", -U32) < self.size:
            message = f"root {root} does not exist; there are {self.size} ranks"
            raise Error(message, rank=root, field="root")
        return self.rank == root

    def share(self, n_values: int) -> slice:
        """Where this rank's share of so many values is: shares of ranks differ by one at most."""
        return slice(*self._native.share(whole(n_values, "n_values")))

    def _shares(self, n_values):
        """Each rank's share, as counts; None if they are equal."""
        if n_values % self.size == 0:
            return None
        each, more = divmod(n_values, self.size)
        return [each + (rank < more) for rank in range(self.size)]

    def _counts(self, counts, what="counts"):
        try:
            counts = [whole(count, what) for count in counts]
        except TypeError:
            raise Error(f"{what} is a list, of a count for each rank", field=what) from None
        if len(counts) != self.size:
            raise Error(f"{what} has {len(counts)} counts for {self.size} ranks", field=what)
        return counts

    # Reductions

    def _all_reduce(self, array, op="sum", bound=None, plan=None, out=None, dtype=None):
        """The reduction of all ranks' arrays, the same bits on every rank.

        In a new array, or in ``out``, which may be ``array`` itself. ``dtype`` names what the bits
        are where numpy has no such type: ``"bfloat16"``.
        """
        array = as_array(array)
        out = self._new(out, array.shape, array)
        return _Call("all_reduce", array, out, count=array.size,
                     **self._reduction(op, array, dtype, bound, plan))

    def _reduce(self, array, op="sum", root=0, bound=None, plan=None, out=None, dtype=None):
        """The reduction of all ranks' arrays on the root; None on the others."""
        array = as_array(array)
        out = self._new(out, array.shape, array) if self._root(root) else None
        return _Call("reduce", array, out, root=root, count=array.size,
                     **self._reduction(op, array, dtype, bound, plan))

    def _reduce_scatter(self, array, op="sum", counts=None, bound=None, plan=None, out=None,
                        dtype=None):
        """This rank's share of the reduction of all ranks' arrays, as values in a row.

        That is ``array.reshape(-1)[comm.share(array.size)]`` of it, or of rank r ``counts[r]``
        values, one after the other.
        """
        array = as_array(array)
        counts = self._shares(array.size) if counts is None else self._counts(counts)
        if counts is not None and sum(counts) != array.size:
            message = f"counts are of {sum(counts)} values, and the array has {array.size}"
            raise Error(message, field="counts")
        own = array.size // self.size if counts is None else counts[self.rank]
        before = own * self.rank if counts is None else sum(counts[: self.rank])
        out = self._new(out, (own,), array)
        return _Call("reduce_scatter", array, out, count=own, counts=counts, before=before,
                     **self._reduction(op, array, dtype, bound, plan))

    def _scan(self, array, op="sum", bound=None, plan=None, out=None):
        """The reduction of the arrays of the ranks up to this one."""
        array = as_array(array)
        out = self._new(out, array.shape, array)
        return _Call("scan", array, out, count=array.size,
                     **self._reduction(op, array, None, bound, plan))

    def _exclusive_scan(self, array, op="sum", bound=None, plan=None, out=None):
        """The reduction of the arrays of the ranks before this one; on rank 0 ``out`` as it was, or
        zeros."""
        array = as_array(array)
        if out is None and self.rank == 0:
            out = np.zeros_like(array)
        out = self._new(out, array.shape, array)
        return _Call("exclusive_scan", array, out, count=array.size,
                     **self._reduction(op, array, None, bound, plan))

    # Movement

    def _broadcast(self, array, root=0, bound=None, plan=None, dtype=None):
        """The array becomes the root's, in place, the same bits on every rank."""
        out = check_out(array, None, None, "array")
        send = as_array(out) if self._root(root) else None
        return _Call("broadcast", send, out, code_of(out.dtype, dtype), self._plan(bound, plan),
                     root=root, count=out.size)

    def _rows(self, array, counts):
        """What ranks have of an array along its first axis, and the shape of all."""
        if counts is None:
            size = array.size
            return _Share(None, size, size * self.rank), (self.size, *array.shape)
        if array.ndim == 0:
            raise Error("counts are of rows, and this array has none", field="counts")
        rows = self._counts(counts)
        row = math.prod(array.shape[1:])
        if len(array) != rows[self.rank]:
            message = f"counts say {rows[self.rank]} rows of this rank, which has {len(array)}"
            raise Error(message, field="counts")
        values = [count * row for count in rows]
        share = _Share(values, array.size, sum(values[: self.rank]))
        return share, (sum(rows), *array.shape[1:])

    def _all_gather(self, array, counts=None, bound=None, plan=None, out=None, dtype=None):
        """All ranks' arrays, the same bits on every rank: of shape ``(size, *array.shape)``.

        With ``counts``, rank r has ``counts[r]`` rows, and they lie one after the other.
        """
        array = as_array(array)
        share, shape = self._rows(array, counts)
        out = self._new(out, shape, array)
        return _Call("all_gather", array, out, code_of(array.dtype, dtype),
                     self._plan(bound, plan), **share._asdict())

    def _gather(self, array, root=0, counts=None, bound=None, plan=None, out=None):
        """As :meth:`all_gather`, on the root; None on the others."""
        array = as_array(array)
        share, shape = self._rows(array, counts)
        out = self._new(out, shape, array) if self._root(root) else None
        return _Call("gather", array, out, code_of(array.dtype), self._plan(bound, plan),
                     root=root, **share._asdict())

    def _scatter(self, array, out, root=0, counts=None, bound=None, plan=None):
        """``out`` becomes this rank's part of the root's array, which others need not give.

        The root has as many values for each rank as ``out`` has, or ``counts[r]`` rows for rank r.
        """
        out = check_out(out, None, None)
        share, shape = self._rows(out, counts)
        if self._root(root):
            array = as_array(array)
            if array.dtype != out.dtype:
                raise Error(f"array is of {array.dtype}, out of {out.dtype}", field="array")
            n = math.prod(shape)
            if array.size != n:
                message = f"array has {array.size} values, and the parts of all ranks have {n}"
                raise Error(message, field="array")
        else:
            array = None
        return _Call("scatter", array, out, code_of(out.dtype), self._plan(bound, plan),
                     root=root, **share._asdict())

    def _all_to_all(self, array, bound=None, plan=None, out=None):
        """Row r of the array goes to rank r; row r of the result came from rank r."""
        array = as_array(array)
        if array.ndim == 0 or array.shape[0] != self.size:
            message = f"an array of shape {array.shape}; its first axis is the {self.size} ranks"
            raise Error(message, field="array")
        out = self._new(out, array.shape, array)
        return _Call("all_to_all", array, out, code_of(array.dtype), self._plan(bound, plan),
                     count=array.size // self.size)

    def _all_to_all_v(self, array, send_counts, recv_counts, bound=None, plan=None, out=None):
        """``send_counts[r]`` rows of the array go to rank r; of the result, ``recv_counts[r]`` came
        from it. They lie in the order of ranks."""
        array = as_array(array)
        if array.ndim == 0:
            raise Error("counts are of rows, and this array has none", field="array")
        to = self._counts(send_counts, "send_counts")
        back = self._counts(recv_counts, "recv_counts")
        if sum(to) != len(array):
            message = f"send_counts are of {sum(to)} rows, and the array has {len(array)}"
            raise Error(message, field="send_counts")
        row = math.prod(array.shape[1:])
        out = self._new(out, (sum(back), *array.shape[1:]), array)
        return _Call("all_to_all", array, out, code_of(array.dtype), self._plan(bound, plan),
                     counts=[count * row for count in to],
                     recv_counts=[count * row for count in back], before=None)

    def _barrier(self):
        """Returns when all ranks have called it."""
        return _Call("barrier", None, None, _FLOAT32, _read_plan("exact"))

    all_reduce, start_all_reduce = _blocking(_all_reduce), _starting(_all_reduce)
    reduce, start_reduce = _blocking(_reduce), _starting(_reduce)
    reduce_scatter, start_reduce_scatter = _blocking(_reduce_scatter), _starting(_reduce_scatter)
    scan, start_scan = _blocking(_scan), _starting(_scan)
    exclusive_scan, start_exclusive_scan = _blocking(_exclusive_scan), _starting(_exclusive_scan)
    broadcast, start_broadcast = _blocking(_broadcast), _starting(_broadcast)
    all_gather, start_all_gather = _blocking(_all_gather), _starting(_all_gather)
    gather, start_gather = _blocking(_gather), _starting(_gather)
    scatter, start_scatter = _blocking(_scatter), _starting(_scatter)
    all_to_all, start_all_to_all = _blocking(_all_to_all), _starting(_all_to_all)
    all_to_all_v, start_all_to_all_v = _blocking(_all_to_all_v), _starting(_all_to_all_v)
    barrier, start_barrier = _blocking(_barrier), _starting(_barrier)

    def all_reduce_group(self, arrays, op="sum", bounds=None, feedback=None, plan=None, dtype=None):
        """All-reduces of several arrays of floats in place, as one call: one look at all of them,
        and short ones share messages.

        ``bounds`` is one for all, or one for each. ``feedback``, an array for each (of
        :meth:`feedback_for`), has error feedback: what rounding lost of a value in earlier calls is
        added to it, and what is lost now takes its place, so that errors do not add up over calls.
        """
        arrays = list(arrays)
        if not arrays:
            return arrays
        first = check_out(arrays[0], None, None, "an array of the group").dtype
        arrays = [check_out(array, None, first, "an array of the group") for array in arrays]
        if bounds is None or isinstance(bounds, str) or not np.iterable(bounds):
            text, bounds = self._text(bounds, plan), [None] * len(arrays)
        else:
            bounds = [bound_text(bound) for bound in bounds]
            text = self._text(next(iter(bounds), None), plan)
        if len(bounds) != len(arrays):
            raise Error(f"{len(bounds)} bounds for {len(arrays)} arrays", field="bounds")
        code = code_of(first, dtype)
        if not is_float(code):
            message = f"a group of {type_name(first, dtype)} arrays; there are groups of floats"
            raise Error(message, kind="unsupported", field="dtype")
        residue = _residue(code)
        kept = []
        if feedback is not None:
            kept = list(feedback)
            if [np.shape(array) for array in kept] != [array.shape for array in arrays]:
                raise Error("feedback has an array of the same shape for each", field="feedback")
            kept = [check_out(array, None, residue, "feedback") for array in kept]
        written = outs(arrays + kept)
        memory = [out.memory for out in written]
        n = len(arrays)
        terms = _reduction(str(op), first, dtype, text)
        self.report = self._native.all_reduce_group(
            memory[:n], bounds, None if feedback is None else memory[n:], code, code_of(residue),
            terms["op"], terms["plan"])
        for out in written:
            out.deliver()
        return arrays

    @staticmethod
    def feedback_for(array, dtype=None) -> np.ndarray:
        """Zeros to begin error feedback with, for an array."""
        array = np.asanyarray(array)
        return np.zeros(array.shape, _residue(code_of(array.dtype, dtype)))

    # Messages

    def exchange(self, sends=(), recvs=(), bound=None, plan=None) -> None:
        """Sends and receives side by side: ``(rank, array)`` or ``(rank, array, tag)`` each.

        Received arrays are written to, and are as long as what is sent.
        """
        sends, recvs = list(sends), list(recvs)
        for message in sends + recvs:
            if not isinstance(message, (tuple, list)) or len(message) not in (2, 3):
                raise Error("a message is (rank, array) or (rank, array, tag)", field="message")
        came = [self._from(*recv) for recv in recvs]
        written = outs([array for array, *_ in came])
        messages = []
        for send in sends:
            array, *rest = self._to(*send, bound=bound, plan=plan)
            # Of an array that is received into, what was there before is sent.
            for out in written:
                array = apart(array, out.memory, None)
            messages.append((array, *rest))
        messages += [(out.memory, *rest) for out, (_, *rest) in zip(written, came)]
        self.report = self._native.exchange(messages)
        for out in written:
            out.deliver()

    def _to(self, peer, array, tag=0, bound=None, plan=None):
        array = as_array(array)
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

    def send(self, array, to: int, tag: int = 0, bound=None, plan=None) -> None:
        """Sends an array to a rank, which receives it with the same tag."""
        self.exchange([(to, array, tag)], bound=bound, plan=plan)

    def recv(self, out, source: int, tag: int = 0) -> np.ndarray:
        """Receives into an array from a rank. What may be lost is the sender's choice."""
        self.exchange((), [(source, out, tag)])
        return out

    def start_send(self, array, to: int, tag: int = 0, bound=None, plan=None) -> Request:
        """Starts what :meth:`send` does. It is over when the array may be used again.

        Messages match as in MPI, blocking ones too: from one rank to another, of those with the
        same tag, the first that was started comes to the first receive. Otherwise ranks start
        messages and collectives in any order, and at most 1024 sends and as many receives at once.
        """
        message = self._to(to, array, tag, bound, plan)
        return Request(self._native.start_message(message), self, Out(None))

    def start_recv(self, out, source: int, tag: int = 0) -> Request:
        """Starts what :meth:`recv` does; the :class:`Request` has the array."""
        array, *rest = self._from(source, out, tag)
        written = Out(array)
        return Request(self._native.start_message((written.memory, *rest)), self, written)

    def send_recv(self, array, to: int, out, source: int, tag: int = 0, bound=None, plan=None):
        """Sends an array to one rank while another's is received into ``out``."""
        self.exchange([(to, array, tag)], [(source, out, tag)], bound=bound, plan=plan)
        return out

    # Groups

    def split(self, color: Optional[int], key: int = 0, calls: Optional[int] = None):
        """The communicator of the ranks that give the same color, in the order of their keys; None
        for a rank that gives None. All ranks call it. A communicator that nobody refers to any more
        gives its room back, so there is no end to splits. Where too many live at once, a split is
        an error, and this communicator is as it was."""
        if color is not None:
            color = whole(color, "color", 0, U32)
        key = whole(key, "key", -2**31, 2**31 - 1)
        calls = self._native.n_calls if calls is None else whole(calls, "calls", 1)
        made = self._native.split(color, key, calls)
        return None if made is None else Communicator(made, self.bound, self.plan)

    def duplicate(self):
        """Another communicator of the same ranks, whose calls are apart from this one's."""
        return self.split(0)

    def shrink(self, patience: float = 5.0):
        """The communicator of the ranks that call this, after a failure or without one; who does
        not answer for ``patience`` seconds is left out. This one is of no use then."""
        made = self._native.shrink(seconds(patience, "patience"))
        return Communicator(made, self.bound, self.plan)

    @property
    def is_poisoned(self) -> bool:
        """Whether an earlier call failed, so that this communicator is of no use but to shrink."""
        return self._native.is_poisoned()

    def progress(self) -> None:
        """Advances all calls of this rank that are under way."""
        self._native.progress()

    def interrupt(self) -> None:
        """Ends the calls that other threads wait in on this rank, and all that come, with an error
        of kind ``"interrupted"``. Its other ranks notice."""
        self._native.interrupt()

    def close(self) -> None:
        """Ends this rank, with all communicators split from the same one. Nothing in a fork of the
        process, which has no part in it."""
        self._native.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _residue(code):
    return np.dtype(np.float64 if code == TYPES["f64"][0] else np.float32)
