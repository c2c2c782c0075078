"""Communicators: collectives and messages of numpy arrays."""

from __future__ import annotations

import asyncio
import functools
import math
from typing import TYPE_CHECKING, Generic, NamedTuple, Optional, TypeVar

import numpy as np

from . import _native
from ._arguments import U32, bound_text, bounds_operands_alone, plan_text, seconds, whole
from ._arrays import (
    TYPES,
    Out,
    apart,
    as_array,
    as_operand,
    check_out,
    code_of,
    is_float,
    operand_out,
    outs,
    type_name,
    zeros_like,
)
from ._device_arrays import DeviceArray, memory_of, refuse_device
from ._errors import Error

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Generator, Iterable, List, Literal, Sequence, Tuple
    from typing import Union

    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import Concatenate, ParamSpec

    Array = NDArray[Any]
    Text = Optional[str]
    Counts = Optional[Sequence[int]]
    Op = Literal["sum", "avg", "mean", "min", "max", "prod"]
    Message = Union[Tuple[int, Array], Tuple[int, Array, int]]
    P = ParamSpec("P")

__all__ = ["Communicator", "Request"]

R = TypeVar("R")

_OPS = {"sum": 1, "avg": 2, "mean": 2, "min": 3, "max": 4, "prod": 5}
# Booleans, like numpy's + and *: logical or, logical and.
_OPS_OF_BOOL = {"sum": 4, "min": 3, "max": 4, "prod": 3}
_NO_OP = 0
_FLOAT32 = TYPES["f32"][0]


@functools.lru_cache(maxsize=256)
def _read_plan(text: str):
    """Parses the text of a plan."""
    try:
        return _native.Plan(text)
    except Error as failure:
        is_bound = text.split(":")[0] in ("abs", "rel", "psnr")
        failure.field = failure.field or ("bound" if is_bound else "plan")
        raise


def read_plan(bound, plan):
    """Parses a bound and a plan as one plan."""
    return _read_plan(plan_text(bound, plan))


@functools.lru_cache(maxsize=256)
def _reduction(op: str, of: np.dtype, dtype, text: str) -> dict:
    """Returns type code, operation and plan of a reduction, if they are compatible."""
    if op not in _OPS:
        raise Error(f"unknown operation {op!r}; there are {', '.join(_OPS)}", field="op")
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
    return {"dtype": code, "op": ops[op], "plan": _read_plan(text)}


class _Call(Generic[R]):
    """Arguments of a collective for the native module. R is the type of the result.

    ``before`` is the offset, in values, of the shorter array in the longer one if the call is in
    place.
    """

    __slots__ = (
        "name", "send", "recv", "dtype", "op", "root", "count", "counts", "recv_counts", "plan",
        "out", "timeout", "memory",
    )

    def __init__(self, name, send, out, dtype, plan, op=_NO_OP, root=0, count=0, counts=None,
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
        self.report: Optional[Dict[str, Any]] = None

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
        return self._out.array

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


def _blocking(
    prepare: Callable[Concatenate[Communicator, P], _Call[R]],
) -> Callable[Concatenate[Communicator, P], R]:
    @functools.wraps(prepare)
    def call(self, *args, **kwargs):
        made = prepare(self, *args, **kwargs)
        made.timeout = self.timeout
        self.report = self._native.call(made)
        return made.out.deliver()

    # Python's errors about arguments show the public name.
    call.__name__ = prepare.__name__.lstrip("_")
    call.__qualname__ = prepare.__qualname__ = f"Communicator.{call.__name__}"
    return call


def _starting(
    prepare: Callable[Concatenate[Communicator, P], _Call[R]],
) -> Callable[Concatenate[Communicator, P], Request[R]]:
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


class _Share(NamedTuple):
    """Lengths of the ranks' blocks of an array."""

    counts: Optional[list]
    """Number of values of each rank, or None if they are equal."""
    count: int
    """Number of values of this rank."""
    before: int
    """Number of values of the ranks before this one."""


class Communicator:
    """One rank of a communicator. All ranks make the same collectives in the same order.

    Create one with :func:`foldwire.run`, :func:`foldwire.threads`, :func:`foldwire.init`,
    :func:`foldwire.join` or :func:`foldwire.from_mpi`.

    *Arrays* are numpy arrays, or objects that convert to one (DLPack, lists). Types are floats of
    16 to 64 bits, bfloat16 of ml_dtypes, integers of 8 to 64 bits, and bool. Integers and bool are
    always exact.

    *Devices.* Collectives also take torch's CUDA tensors, CuPy's arrays, and others with the CUDA
    array interface, contiguous and of floats. They stay on the device, and the call keeps to the
    order of the current stream. All arrays of a call are on the CPU, or all on one device; a new
    result is of the same kind. Messages and :meth:`all_reduce_group` need numpy arrays.

    *Bounds.* Calls are exact unless ``bound`` is set, as an argument or for all calls
    (:attr:`bound`): ``"rel:1e-4"`` (a fraction of the value range over all ranks), ``"abs:0.1"``
    (in the unit of the data), ``"psnr:60"`` (dB), or ``"lossless"``, which compresses and keeps
    every bit. By default the bound applies to each rank's input.

    *Plans.* ``plan`` sets more: ``"auto"``, ``"codec:dense,shape:64x64x64"``, ``"schedule:ring"``,
    ``"scope:result"``. All ranks pass the same bound and plan.

    *Threads.* Calls release the GIL. Until a call has finished, no other thread may write an array
    that it reads, nor use an array that it writes. Several threads may share a communicator; their
    calls run one after the other. In a fork of the process, calls raise errors of kind
    ``"closed"``.

    Calls raise :class:`foldwire.Error`.
    """

    def __init__(self, native: _native.Comm, bound: Text = None, plan: Text = None):
        self._native = native
        self.rank: int = native.rank
        self.size: int = native.size
        self.bound = bound
        """Default error bound of calls; None: exact."""
        self.plan = plan
        """Default plan of calls."""
        self.timeout: Optional[float] = None
        """Seconds without progress after which a collective fails; None: the timeout with which the
        communicator was created."""
        self.report: Optional[Dict[str, Any]] = None
        """Statistics of this rank's last successful call: codec, schedule, sizes in bytes, ratio,
        absolute bound, worst-case error, times in seconds."""

    def __repr__(self):
        return f"<foldwire.Communicator: rank {self.rank} of {self.size}>"

    def _text(self, bound, plan):
        bound = self.bound if bound is None else bound
        plan = self.plan if plan is None else plan
        return "exact" if bound is None and plan is None else plan_text(bound, plan)

    def _plan(self, bound, plan):
        return _read_plan(self._text(bound, plan))

    def _reduction(self, op, array, dtype, bound, plan):
        """Returns type, operation and plan of a reduction."""
        return _reduction(str(op), array.dtype, dtype, self._text(bound, plan))

    def _root(self, root):
        if not 0 <= whole(root, "root", -U32) < self.size:
            message = f"root {root} does not exist; there are {self.size} ranks"
            raise Error(message, rank=root, field="root")
        return self.rank == root

    def share(self, n_values: int) -> slice:
        """Returns the slice of this rank's block in an array of ``n_values`` values.

        The lengths of the ranks' blocks differ by at most one.
        """
        return slice(*self._native.share(whole(n_values, "n_values")))

    def _shares(self, n_values):
        """Returns the lengths of the ranks' blocks, or None if they are equal."""
        if n_values % self.size == 0:
            return None
        each, more = divmod(n_values, self.size)
        return [each + (rank < more) for rank in range(self.size)]

    def _counts(self, counts, what="counts"):
        try:
            counts = [whole(count, what) for count in counts]
        except TypeError:
            raise Error(f"{what} must be a list with one count for each rank", field=what) from None
        if len(counts) != self.size:
            raise Error(f"{what} has {len(counts)} counts for {self.size} ranks", field=what)
        return counts

    # Reductions

    def _all_reduce(self, array: ArrayLike, op: Op = "sum", bound: Text = None, plan: Text = None,
                    out: Optional[Array] = None, dtype: Text = None) -> _Call[Array]:
        """Returns the reduction of all ranks' arrays, with the same bits on every rank.

        :param array: this rank's input; the same shape and type on every rank
        :param op: ``"sum"``, ``"avg"`` (or ``"mean"``), ``"min"``, ``"max"`` or ``"prod"``
        :param out: array for the result, of the shape of ``array``; may be ``array`` itself. None:
            a new array
        :param dtype: name of the type if numpy lacks it, such as ``"bfloat16"`` for an array of
            16-bit integers

        Raises :class:`Error` of kind ``"unsupported"`` for an average of integers, and for a
        product of floats with an error bound.
        """
        array = as_operand(array)
        out = operand_out(out, array.shape, array)
        return _Call("all_reduce", array, out, count=array.size,
                     **self._reduction(op, array, dtype, bound, plan))

    def _reduce(self, array: ArrayLike, op: Op = "sum", root: int = 0, bound: Text = None,
                plan: Text = None, out: Optional[Array] = None,
                dtype: Text = None) -> _Call[Optional[Array]]:
        """Returns the reduction of all ranks' arrays on rank ``root``, and None on other ranks.

        The other arguments are those of :meth:`all_reduce`. ``out`` is used on the root only.
        """
        array = as_operand(array)
        out = operand_out(out, array.shape, array) if self._root(root) else None
        return _Call("reduce", array, out, root=root, count=array.size,
                     **self._reduction(op, array, dtype, bound, plan))

    def _reduce_scatter(self, array: ArrayLike, op: Op = "sum", counts: Counts = None,
                        bound: Text = None, plan: Text = None, out: Optional[Array] = None,
                        dtype: Text = None) -> _Call[Array]:
        """Returns this rank's block of the reduction of all ranks' arrays, with one dimension.

        Without ``counts``, this is ``total.reshape(-1)[comm.share(array.size)]`` of the reduction
        ``total``. With ``counts``, rank r gets ``counts[r]`` values; the blocks are in order of
        ranks and add up to ``array.size``.

        The other arguments are those of :meth:`all_reduce`.
        """
        array = as_operand(array)
        counts = self._shares(array.size) if counts is None else self._counts(counts)
        if counts is not None and sum(counts) != array.size:
            message = f"counts add up to {sum(counts)} values, but the array has {array.size}"
            raise Error(message, field="counts")
        own = array.size // self.size if counts is None else counts[self.rank]
        before = own * self.rank if counts is None else sum(counts[: self.rank])
        out = operand_out(out, (own,), array)
        return _Call("reduce_scatter", array, out, count=own, counts=counts, before=before,
                     **self._reduction(op, array, dtype, bound, plan))

    def _scan(self, array: ArrayLike, op: Op = "sum", bound: Text = None, plan: Text = None,
              out: Optional[Array] = None) -> _Call[Array]:
        """Returns the reduction of the arrays of ranks 0 to this rank (inclusive scan).

        The arguments are those of :meth:`all_reduce`.
        """
        array = as_operand(array)
        out = operand_out(out, array.shape, array)
        return _Call("scan", array, out, count=array.size,
                     **self._reduction(op, array, None, bound, plan))

    def _exclusive_scan(self, array: ArrayLike, op: Op = "sum", bound: Text = None,
                        plan: Text = None, out: Optional[Array] = None) -> _Call[Array]:
        """Returns the reduction of the arrays of the ranks before this one (exclusive scan).

        Rank 0 returns ``out`` unchanged, or zeros without ``out``. The arguments are those of
        :meth:`all_reduce`.
        """
        array = as_operand(array)
        if out is None and self.rank == 0:
            out = zeros_like(array)
        out = operand_out(out, array.shape, array)
        return _Call("exclusive_scan", array, out, count=array.size,
                     **self._reduction(op, array, None, bound, plan))

    # Data movement

    def _broadcast(self, array: Array, root: int = 0, bound: Text = None, plan: Text = None,
                   dtype: Text = None) -> _Call[Array]:
        """Overwrites ``array`` with that of rank ``root``, and returns it.

        The array has the same bits on every rank, also on the root if the plan compresses. It has
        the same shape and type on every rank.
        """
        out = operand_out(array, None, None, "array")
        send = as_operand(out) if self._root(root) else None
        return _Call("broadcast", send, out, code_of(out.dtype, dtype), self._plan(bound, plan),
                     root=root, count=out.size)

    def _rows(self, array, counts):
        """Returns the ranks' blocks along the first axis, and the shape of all of them."""
        if counts is None:
            size = array.size
            return _Share(None, size, size * self.rank), (self.size, *array.shape)
        if array.ndim == 0:
            raise Error("counts are numbers of rows, but this array is a scalar", field="counts")
        rows = self._counts(counts)
        row = math.prod(array.shape[1:])
        if len(array) != rows[self.rank]:
            message = (f"counts has {rows[self.rank]} rows for this rank, but its array has "
                       f"{len(array)}")
            raise Error(message, field="counts")
        values = [count * row for count in rows]
        share = _Share(values, array.size, sum(values[: self.rank]))
        return share, (sum(rows), *array.shape[1:])

    def _all_gather(self, array: ArrayLike, counts: Counts = None, bound: Text = None,
                    plan: Text = None, out: Optional[Array] = None,
                    dtype: Text = None) -> _Call[Array]:
        """Returns the arrays of all ranks, with the same bits on every rank.

        The result has the shape ``(size, *array.shape)``; row r is the array of rank r. With
        ``counts``, the array of rank r has ``counts[r]`` rows, and the result has the shape
        ``(sum(counts), *array.shape[1:])``, with the rows in order of ranks.
        """
        array = as_operand(array)
        share, shape = self._rows(array, counts)
        out = operand_out(out, shape, array)
        return _Call("all_gather", array, out, code_of(array.dtype, dtype),
                     self._plan(bound, plan), **share._asdict())

    def _gather(self, array: ArrayLike, root: int = 0, counts: Counts = None, bound: Text = None,
                plan: Text = None, out: Optional[Array] = None) -> _Call[Optional[Array]]:
        """Returns the result of :meth:`all_gather` on rank ``root``, and None on other ranks."""
        array = as_operand(array)
        share, shape = self._rows(array, counts)
        out = operand_out(out, shape, array) if self._root(root) else None
        return _Call("gather", array, out, code_of(array.dtype), self._plan(bound, plan),
                     root=root, **share._asdict())

    def _scatter(self, array: Optional[ArrayLike], out: Array, root: int = 0,
                 counts: Counts = None, bound: Text = None, plan: Text = None) -> _Call[Array]:
        """Fills ``out`` with this rank's block of the root's array, and returns it.

        The root's array has ``size * out.size`` values. With ``counts``, ``out`` of rank r has
        ``counts[r]`` rows, and the root's array has ``sum(counts)`` rows. ``array`` is used on the
        root only.
        """
        out = operand_out(out, None, None)
        share, shape = self._rows(out, counts)
        if self._root(root):
            array = as_operand(array)
            if array.dtype != out.dtype:
                message = f"array has type {array.dtype}, but out has type {out.dtype}"
                raise Error(message, field="array")
            n = math.prod(shape)
            if array.size != n:
                message = f"array has {array.size} values, but the blocks of all ranks have {n}"
                raise Error(message, field="array")
        else:
            array = None
        return _Call("scatter", array, out, code_of(out.dtype), self._plan(bound, plan),
                     root=root, **share._asdict())

    def _all_to_all(self, array: ArrayLike, bound: Text = None, plan: Text = None,
                    out: Optional[Array] = None) -> _Call[Array]:
        """Sends row r of the array to rank r. Row r of the result is from rank r.

        The first axis of the array has length ``size``. The result has the shape of the array.
        """
        array = as_operand(array)
        if array.ndim == 0 or array.shape[0] != self.size:
            message = (f"the array has shape {array.shape}; its first axis must have length "
                       f"{self.size}")
            raise Error(message, field="array")
        out = operand_out(out, array.shape, array)
        return _Call("all_to_all", array, out, code_of(array.dtype), self._plan(bound, plan),
                     count=array.size // self.size)

    def _all_to_all_v(self, array: ArrayLike, send_counts: Sequence[int],
                      recv_counts: Sequence[int], bound: Text = None, plan: Text = None,
                      out: Optional[Array] = None) -> _Call[Array]:
        """Sends ``send_counts[r]`` rows of the array to rank r. Receives ``recv_counts[r]`` rows.

        Rows of the array and of the result are in order of ranks. The result has the shape
        ``(sum(recv_counts), *array.shape[1:])``.
        """
        array = as_operand(array)
        if array.ndim == 0:
            raise Error("counts are numbers of rows, but this array is a scalar", field="array")
        to = self._counts(send_counts, "send_counts")
        back = self._counts(recv_counts, "recv_counts")
        if sum(to) != len(array):
            message = f"send_counts add up to {sum(to)} rows, but the array has {len(array)}"
            raise Error(message, field="send_counts")
        row = math.prod(array.shape[1:])
        out = operand_out(out, (sum(back), *array.shape[1:]), array)
        return _Call("all_to_all", array, out, code_of(array.dtype), self._plan(bound, plan),
                     counts=[count * row for count in to],
                     recv_counts=[count * row for count in back], before=None)

    def _barrier(self) -> _Call[None]:
        """Waits until all ranks have called it."""
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

    def all_reduce_group(self, arrays: Iterable[Array], op: Op = "sum",
                         bounds: Union[None, str, Sequence[Text]] = None,
                         feedback: Optional[Iterable[Array]] = None, plan: Text = None,
                         dtype: Text = None) -> List[Array]:
        """All-reduces several arrays of floats in place, as one call. Returns the list of arrays.

        This is faster than separate calls, because short arrays share messages.

        :param arrays: arrays of one type of floats, which must not overlap
        :param bounds: one error bound for all arrays, or a list with one for each
        :param feedback: enables error feedback: a list with one array for each, from
            :meth:`feedback_for`. The call adds the rounding errors of earlier calls to the input,
            and stores the new ones, so that errors do not accumulate over calls.
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
            raise Error(f"there are {len(bounds)} bounds for {len(arrays)} arrays", field="bounds")
        code = code_of(first, dtype)
        if not is_float(code):
            message = f"a group cannot have {type_name(first, dtype)} arrays, only floats"
            raise Error(message, kind="unsupported", field="dtype")
        residue = _residue(code)
        kept = []
        if feedback is not None:
            kept = list(feedback)
            for array in kept:
                refuse_device(array, "feedback")
            if [np.shape(array) for array in kept] != [array.shape for array in arrays]:
                message = "feedback must have one array of the same shape for each array"
                raise Error(message, field="feedback")
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
    def feedback_for(array: Array, dtype: Text = None) -> Array:
        """Returns the initial error feedback for an array: zeros of the same shape.

        The type is float32 for floats of 16 bits, otherwise the type of the array.
        """
        refuse_device(array)
        array = np.asanyarray(array)
        return np.zeros(array.shape, _residue(code_of(array.dtype, dtype)))

    # Messages

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

    # Communicators

    def split(self, color: Optional[int], key: int = 0,
              calls: Optional[int] = None) -> Optional[Communicator]:
        """Returns a communicator of the ranks that pass the same color, or None for color None.

        All ranks call it. Ranks are ordered by key, and for equal keys by their rank here.
        ``calls`` is the largest number of calls in progress at once (default: as here).

        The communicator inherits ``bound`` and ``plan``. A communicator without references frees
        its channels. Raises :class:`Error` of kind ``"no_room"`` if too few channels are free, and
        of kind ``"mismatch"`` if ``calls`` differs between ranks of a color; this communicator
        stays usable.
        """
        if color is not None:
            color = whole(color, "color", 0, U32)
        key = whole(key, "key", -2**31, 2**31 - 1)
        calls = self._native.n_calls if calls is None else whole(calls, "calls", 1)
        made = self._native.split(color, key, calls)
        return None if made is None else Communicator(made, self.bound, self.plan)

    def duplicate(self) -> Communicator:
        """Returns another communicator of the same ranks. Calls on the two do not interfere."""
        made = self.split(0)
        assert made is not None, "a rank with a color gets a communicator"
        return made

    def shrink(self, patience: float = 5.0) -> Communicator:
        """Returns a communicator of the ranks that call this, after a failure or without one.

        A rank that does not answer for ``patience`` seconds is excluded. This communicator becomes
        unusable.
        """
        made = self._native.shrink(seconds(patience, "patience"))
        return Communicator(made, self.bound, self.plan)

    @property
    def is_poisoned(self) -> bool:
        """True if an earlier call has failed; then only :meth:`shrink` is possible."""
        return self._native.is_poisoned()

    def progress(self) -> None:
        """Advances all calls of this rank that are in progress."""
        self._native.progress()

    def interrupt(self) -> None:
        """Stops running calls of other threads on this rank, and all later calls.

        They raise errors of kind ``"interrupted"``. Calls of the other ranks fail, too.
        """
        self._native.interrupt()

    def close(self) -> None:
        """Ends this rank, on this communicator and all others that were split from the same one.

        Calls of other ranks that need this rank fail. Does nothing in a fork of the process.
        """
        self._native.close()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _residue(code):
    """Returns the type of error feedback for a float type."""
    return np.dtype(np.float64 if code == TYPES["f64"][0] else np.float32)
