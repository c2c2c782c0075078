"""Operations that the library does not have, and complex numbers.

A reduction by an operation of one's own is made of data movements and of numpy on this rank: each
rank gets its block of all arrays (all-to-all), reduces it in the order of ranks, and sends the
result on (all-gather, gather or all-to-all). So a function need not be commutative, every rank gets
the same bits, and each value travels twice, as in a ring. Such calls are always exact.

A started call is one all-gather (or gather) of the arrays, which each rank reduces when it waits
for the call. So calls that are started together cannot mix, and each value travels to all ranks.

Complex numbers are pairs of floats: sums, averages and data movements are calls on the floats, and
a bound applies to the real and to the imaginary parts.
"""

from __future__ import annotations

import functools
import inspect
import zlib
from typing import Callable, List, NamedTuple, Optional, TypeVar, Union

import numpy as np

from ._arguments import has_bound, has_word, plan_text
from ._arrays import as_array, check_out
from ._errors import Error

__all__ = ["NAMES", "extended"]


def _logical(function):
    return lambda a, b: function(a, b).astype(a.dtype)


def _located(is_better):
    """Returns an operation on (value, index) pairs. Of equal values, the smaller index counts; NaN
    counts before every other value, as in numpy's ``argmax``."""

    def operation(a, b):
        value, index = a.dtype.names
        x, y = a[value], b[value]
        is_nan = x != x
        is_first = is_better(x, y) | (is_nan & (y == y))
        is_same = (x == y) | (is_nan & (y != y))
        return np.where(is_first | (is_same & (a[index] <= b[index])), a, b)

    return operation


_BITS, _LOGIC, _PAIRS = ("band", "bor", "bxor"), ("land", "lor", "lxor"), ("maxloc", "minloc")
_FUNCTIONS = {
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
    "land": _logical(np.logical_and),
    "lor": _logical(np.logical_or),
    "lxor": _logical(np.logical_xor),
    "maxloc": _located(np.greater),
    "minloc": _located(np.less),
}
NAMES = tuple(_FUNCTIONS)
F = TypeVar("F", bound=Callable)
_REDUCTIONS = {"all_reduce", "reduce", "reduce_scatter", "scan", "exclusive_scan"}


def extended(call: F) -> F:
    """Extends a call to complex numbers and to these operations."""
    is_started = call.__name__.startswith("start_")
    name = call.__name__[len("start_"):] if is_started else call.__name__
    signature = inspect.signature(call)

    @functools.wraps(call)
    def method(self, *args, **kwargs):
        array = args[0] if args else kwargs.get("array")
        if array is None and name == "scatter":
            array = args[1] if len(args) > 1 else kwargs.get("out")
        kind = getattr(getattr(array, "dtype", None), "kind", None)
        is_own = False
        if name in _REDUCTIONS:
            op = args[1] if len(args) > 1 else kwargs.get("op", "sum")
            is_name = isinstance(op, str)
            is_own = callable(op) or is_name and (op in _FUNCTIONS or kind == "c" and op == "prod")
        if kind != "c" and not is_own:
            return call(self, *args, **kwargs)
        given = signature.bind(self, *args, **kwargs)
        given.apply_defaults()
        given = given.arguments
        del given["self"]
        if given.get("fill_value") is not None:
            message = "fill values are kept by the library's own operations on floats only"
            raise Error(message, kind="unsupported", field="fill_value")
        if not is_own:
            return _as_pairs(self, call, name, given)
        _refuse_loss(self, given["bound"], given["plan"], op)
        return (_started if is_started else _reduced)(self, name, given)

    return method


def _refuse_loss(self, bound, plan, op):
    """Checks bound and plan of a call with an operation of one's own, which is always exact. The
    communicator's own bound and plan are for its other calls."""
    self._plan(bound, plan)
    text = plan_text(bound, plan)
    if has_bound(text) or has_word(text, "codec:", "auto"):
        called = repr(op) if isinstance(op, str) else "an operation of one's own"
        message = f"{called} is always exact here; leave bound and codec out"
        raise Error(message, kind="unsupported", field="bound" if bound is not None else "plan")


def _floats(array):
    """Returns complex numbers as pairs of floats, in a new last axis."""
    if array is None:
        return None
    if array.dtype.kind != "c":
        raise Error(f"an array has type {array.dtype}, but another is complex", field="dtype")
    parts = np.dtype(array.real.dtype)
    return array.reshape(*array.shape, 1).view(parts)


def _as_pairs(self, call, name, given):
    """Makes a call on complex numbers as a call on pairs of floats."""
    if name in _REDUCTIONS and given["op"] not in ("sum", "avg", "mean"):
        message = f"complex numbers have no order, and so no {given['op']!r}"
        raise Error(message, kind="unsupported", field="op")
    if given.get("dtype") is not None:
        message = "dtype names a type that numpy lacks; complex arrays need none"
        raise Error(message, kind="unsupported", field="dtype")
    written = "array" if name == "broadcast" else "out"
    out = given.get(written)
    pairs = dict(given)
    if out is not None:
        out = check_out(out, None, None, written)
        if not out.flags.c_contiguous:
            message = f"{written} is complex and not in C order; pass an array that is"
            raise Error(message, kind="unsupported", field=written)
        pairs[written] = _floats(out)
    if written != "array":
        array = given["array"]
        pairs["array"] = None if array is None else _floats(as_array(array))
    if name == "reduce_scatter":
        # Its counts are values, not rows, and its result has one dimension.
        n = as_array(given["array"]).size
        counts = given["counts"]
        if counts is None:
            counts = self._shares(n) or [n // self.size] * self.size
        pairs["counts"] = [2 * count for count in self._counts(counts)]
        pairs["array"] = pairs["array"].reshape(-1)
        if out is not None:
            pairs["out"] = pairs["out"].reshape(-1)

    def whole(result):
        if result is None or out is not None:
            return None if result is None else given[written]
        made = result.view(np.result_type(result.dtype, np.complex64))
        return made if name == "reduce_scatter" else made.reshape(made.shape[:-1])

    result = call(self, **pairs)
    if not call.__name__.startswith("start_"):
        return whole(result)
    result._view = whole
    return result


class _Reduction(NamedTuple):
    """The checked arguments of a reduction."""

    name: str
    op: Union[str, Callable]
    array: np.ndarray
    apply: Callable
    counts: List[int]
    """Number of values of each rank's block."""
    root: int
    out: Optional[np.ndarray]

    @classmethod
    def of(cls, comm, name, given):
        op, array = given["op"], as_array(given["array"])
        if given.get("dtype") is not None or array.dtype.hasobject:
            message = (f"arrays of {given.get('dtype') or array.dtype} have no operations of "
                       "one's own")
            raise Error(message, kind="unsupported", field="dtype")
        apply = _checked(op, array)
        size, n = comm.size, array.size
        is_scatter = name == "reduce_scatter"
        counts = given["counts"] if is_scatter else None
        if counts is not None:
            counts = comm._counts(counts)
        else:
            counts = comm._shares(n) or [n // size] * size
        if sum(counts) != n:
            message = f"counts add up to {sum(counts)} values, but the array has {n}"
            raise Error(message, field="counts")
        root = given.get("root", 0)
        is_root = name != "reduce" or comm._root(root)
        out = given["out"] if is_root else None
        if out is not None:
            shape = (counts[comm.rank],) if is_scatter else array.shape
            out = check_out(out, shape, array.dtype)
        return cls(name, op, array, apply, counts, root, out)

    def facts(self):
        """Returns what must be the same on all ranks, by its name."""
        op = self.op
        called = op if isinstance(op, str) else getattr(op, "__qualname__", type(op).__name__)
        return {"call": self.name, "op": called, "dtype": str(self.array.dtype.descr),
                "root": str(self.root), "counts": str(self.counts)}

    def codes(self):
        """Returns a number for each of :meth:`facts`."""
        return np.array([zlib.crc32(fact.encode()) for fact in self.facts().values()], np.int64)

    def check(self, codes_of_ranks):
        """Raises if another rank passed different arguments."""
        mine = self.codes()
        for rank, theirs in enumerate(codes_of_ranks):
            for (field, fact), ours, other in zip(self.facts().items(), mine, theirs):
                if ours != other:
                    message = (f"rank {rank} passed another {field} than this rank, which passed "
                               f"{fact}")
                    raise Error(message, kind="mismatch", rank=rank, field=field, ours=fact)

    def reduce(self, rows):
        """Reduces in the order of ranks."""
        return self.deliver(functools.reduce(self.apply, rows))

    def deliver(self, result):
        if self.out is None:
            return np.array(result)
        self.out[...] = result
        return self.out


def _started(self, name, given):
    """Starts a reduction by an operation that the library does not have."""
    reduction = _Reduction.of(self, name, given)
    array, codes = reduction.array, reduction.codes()
    mine = np.frombuffer(codes.tobytes() + array.tobytes(), np.uint8)
    rank = self.rank
    if name == "reduce":
        request = self.start_gather(mine, reduction.root)
    else:
        request = self.start_all_gather(mine)
    # Not the request, which refers to this function: dropping it aborts the call at once.
    gathered_into = request._out

    @functools.lru_cache(maxsize=None)
    def result():
        # The arrays of all ranks, each behind its codes.
        came = gathered_into.array.reshape(-1, mine.size)
        reduction.check(np.ascontiguousarray(came[:, :codes.nbytes]).view(np.int64))
        rows = np.ascontiguousarray(came[:, codes.nbytes:]).view(array.dtype)
        if name == "reduce_scatter":
            before, counts = sum(reduction.counts[:rank]), reduction.counts
            return reduction.reduce(rows[:, before:before + counts[rank]])
        rows = rows.reshape(len(rows), *array.shape)
        if name == "exclusive_scan" and rank == 0:
            return np.zeros_like(array) if reduction.out is None else given["out"]
        n_ranks = {"scan": rank + 1, "exclusive_scan": rank}.get(name, len(rows))
        return reduction.reduce(rows[:n_ranks])

    request._view = lambda gathered: None if gathered is None else result()
    return request


def _reduced(self, name, given):
    """Reduces by an operation that the library does not have."""
    reduction = _Reduction.of(self, name, given)
    array, apply, counts = reduction.array, reduction.apply, reduction.counts
    size, own, is_scatter = self.size, counts[self.rank], name == "reduce_scatter"
    reduction.check(self.all_gather(reduction.codes()))
    width = array.dtype.itemsize
    mine = np.frombuffer(array.tobytes(), np.uint8)
    # Bytes are integers, which are exact with every bound.
    came = self.all_to_all_v(mine, [count * width for count in counts], [own * width] * size)
    rows = came.view(array.dtype).reshape(size, own)
    is_scan = name in ("scan", "exclusive_scan")
    failure, prefixes = None, [rows[0]]
    try:
        for row in rows[1:]:
            # A function may write its first argument, and return it.
            last = apply(prefixes[-1].copy() if is_scan else prefixes[-1], row)
            prefixes = prefixes + [last] if is_scan else [last]
    except Exception as raised:  # the other ranks wait for this one
        failure, prefixes = raised, [rows[0]] * (size if is_scan else 1)
    if is_scatter:
        if failure is not None:
            raise failure
        return reduction.deliver(prefixes[0])
    if name == "exclusive_scan":
        # Rank r gets the reduction of the ranks before it; rank 0's is not used.
        prefixes = [prefixes[0], *prefixes[:-1]]
    # The first byte of each block tells whether the function failed.
    blocks = [bytes([failure is not None]) + block.tobytes() for block in prefixes]
    lengths = [1 + count * width for count in counts]
    if is_scan:
        send = np.frombuffer(b"".join(blocks), np.uint8)
        got = self.all_to_all_v(send, [len(blocks[0])] * size, lengths)
    else:
        send = np.frombuffer(blocks[0], np.uint8)
        got = (self.all_gather(send, counts=lengths) if name == "all_reduce"
               else self.gather(send, reduction.root, counts=lengths))
    if failure is not None:
        raise failure
    if got is None:
        return None
    starts = np.cumsum([0] + lengths)
    for rank in range(size):
        if got[starts[rank]]:
            message = f"the operation failed on rank {rank}; its own error says why"
            raise Error(message, kind="aborted", rank=rank, culprit=rank)
    values = b"".join(got[start + 1:end].tobytes() for start, end in zip(starts, starts[1:]))
    result = np.frombuffer(bytearray(values), array.dtype).reshape(array.shape)
    if name == "exclusive_scan" and self.rank == 0:
        return np.zeros_like(result) if reduction.out is None else given["out"]
    return reduction.deliver(result)


def _checked(op, array):
    """Returns the function of an operation, with a check of its results."""
    kind, dtype = array.dtype.kind, array.dtype
    if isinstance(op, str):
        fits = (kind in "biu" if op in _BITS else kind in "biufc" if op in _LOGIC
                else len(dtype.names or ()) == 2 if op in _PAIRS else True)
        if not fits:
            needs = ("integers or booleans" if op in _BITS else "numbers" if op in _LOGIC
                     else "pairs: a structured type with the fields value and index")
            message = f"{op!r} needs {needs}, not {dtype}"
            raise Error(message, kind="unsupported", field="op")
        return np.multiply if op == "prod" else _FUNCTIONS[op]

    def apply(a, b):
        made = np.asarray(op(a, b))
        if made.shape != a.shape or made.dtype != dtype:
            message = (f"the operation made {made.dtype} values of shape {made.shape} of "
                       f"{dtype} values of shape {a.shape}; it must keep both")
            raise Error(message, field="op")
        return made

    return apply
