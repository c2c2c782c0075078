"""Collectives of arrays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, Optional

import numpy as np

from ._arguments import U32, has_bound, whole
from ._arrays import (
    TYPES,
    as_operand,
    check_out,
    code_of,
    is_float,
    operand_out,
    outs,
    type_name,
    zeros_like,
)
from ._device_arrays import refuse_device
from ._errors import Error
from ._fill import warn_of_fill, with_fill
from ._operations import extended
from ._plans import parse_plan, reduction
from ._requests import Call, blocking, starting

if TYPE_CHECKING:
    from typing import Callable, Iterable, List, Sequence, Tuple, Union

    from typing_extensions import Concatenate

    from ._requests import C, P, R, Request
    from ._types import Array, ArrayLike, Counts, FillValue, Op, Text

_FLOAT32 = TYPES["f32"][0]


class _Share(NamedTuple):
    """Lengths of the ranks' blocks of an array."""

    counts: Optional[list]
    """Number of values of each rank, or None if they are equal."""
    count: int
    """Number of values of this rank."""
    before: int
    """Number of values of the ranks before this one."""


def _both(
    prepare: Callable[Concatenate[C, P], Call[R]],
) -> Tuple[Callable[Concatenate[C, P], R], Callable[Concatenate[C, P], Request[R]]]:
    """Returns the blocking call and the one that starts it."""
    return extended(blocking(prepare)), extended(starting(prepare))


class Collectives:
    """The collectives of :class:`foldwire.Communicator`."""

    def _reduction(self, op, array, dtype, bound, plan, fill_value):
        """Returns type, operation and plan of a reduction."""
        text = with_fill(self._text(bound, plan), fill_value, array, dtype)
        return reduction(str(op), array.dtype, dtype, text)

    def _filled(self, bound, plan, fill_value, like, dtype=None):
        """Returns the plan of a call on arrays like this one."""
        return parse_plan(with_fill(self._text(bound, plan), fill_value, like, dtype))

    def _root(self, root):
        if not 0 <= whole(root, "root", -U32) < self.size:
            message = f"root {root} does not exist; there are {self.size} ranks"
            raise Error(message, rank=root, field="root")
        return self.rank == root

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
                    out: Optional[Array] = None, dtype: Text = None,
                    fill_value: FillValue = None) -> Call[Array]:
        """Returns the reduction of all ranks' arrays, with the same bits on every rank.

        :param array: this rank's input; the same shape and type on every rank
        :param op: ``"sum"``, ``"avg"`` (or ``"mean"``), ``"min"``, ``"max"`` or ``"prod"``; also
            ``"band"``, ``"bor"``, ``"bxor"``, ``"land"``, ``"lor"``, ``"lxor"``; ``"maxloc"`` and
            ``"minloc"`` of (value, index) pairs, a structured type; and a function of two arrays,
            which must be associative. These are always exact
        :param out: array for the result, of the shape of ``array``; may be ``array`` itself. None:
            a new array
        :param dtype: name of the type if numpy lacks it, such as ``"bfloat16"`` for an array of
            16-bit integers

        Raises :class:`Error` of kind ``"unsupported"`` for an average of integers, and for a
        product of floats with an error bound.
        """
        array = as_operand(array)
        out = operand_out(out, array.shape, array)
        return Call("all_reduce", array, out, count=array.size,
                    **self._reduction(op, array, dtype, bound, plan, fill_value))

    def _reduce(self, array: ArrayLike, op: Op = "sum", root: int = 0, bound: Text = None,
                plan: Text = None, out: Optional[Array] = None,
                dtype: Text = None, fill_value: FillValue = None) -> Call[Optional[Array]]:
        """Returns the reduction of all ranks' arrays on rank ``root``, and None on other ranks.

        The other arguments are those of :meth:`all_reduce`. ``out`` is used on the root only.
        """
        array = as_operand(array)
        out = operand_out(out, array.shape, array) if self._root(root) else None
        return Call("reduce", array, out, root=root, count=array.size,
                    **self._reduction(op, array, dtype, bound, plan, fill_value))

    def _reduce_scatter(self, array: ArrayLike, op: Op = "sum", counts: Counts = None,
                        bound: Text = None, plan: Text = None, out: Optional[Array] = None,
                        dtype: Text = None, fill_value: FillValue = None) -> Call[Array]:
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
        return Call("reduce_scatter", array, out, count=own, counts=counts, before=before,
                    **self._reduction(op, array, dtype, bound, plan, fill_value))

    def _scan(self, array: ArrayLike, op: Op = "sum", bound: Text = None, plan: Text = None,
              out: Optional[Array] = None, fill_value: FillValue = None) -> Call[Array]:
        """Returns the reduction of the arrays of ranks 0 to this rank (inclusive scan).

        The arguments are those of :meth:`all_reduce`.
        """
        array = as_operand(array)
        out = operand_out(out, array.shape, array)
        return Call("scan", array, out, count=array.size,
                    **self._reduction(op, array, None, bound, plan, fill_value))

    def _exclusive_scan(self, array: ArrayLike, op: Op = "sum", bound: Text = None,
                        plan: Text = None, out: Optional[Array] = None,
                        fill_value: FillValue = None) -> Call[Array]:
        """Returns the reduction of the arrays of the ranks before this one (exclusive scan).

        Rank 0 returns ``out`` unchanged, or zeros without ``out``. The arguments are those of
        :meth:`all_reduce`.
        """
        array = as_operand(array)
        if out is None and self.rank == 0:
            out = zeros_like(array)
        out = operand_out(out, array.shape, array)
        return Call("exclusive_scan", array, out, count=array.size,
                    **self._reduction(op, array, None, bound, plan, fill_value))

    # Data movement

    def _broadcast(self, array: Array, root: int = 0, bound: Text = None, plan: Text = None,
                   dtype: Text = None, fill_value: FillValue = None) -> Call[Array]:
        """Overwrites ``array`` with that of rank ``root``, and returns it.

        The array has the same bits on every rank, also on the root if the plan compresses. It has
        the same shape and type on every rank.
        """
        out = operand_out(array, None, None, "array")
        send = as_operand(out) if self._root(root) else None
        return Call("broadcast", send, out, code_of(out.dtype, dtype),
                     self._filled(bound, plan, fill_value, out, dtype), root=root,
                     count=out.size)

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
                    dtype: Text = None, fill_value: FillValue = None) -> Call[Array]:
        """Returns the arrays of all ranks, with the same bits on every rank.

        The result has the shape ``(size, *array.shape)``; row r is the array of rank r. With
        ``counts``, the array of rank r has ``counts[r]`` rows, and the result has the shape
        ``(sum(counts), *array.shape[1:])``, with the rows in order of ranks.
        """
        array = as_operand(array)
        share, shape = self._rows(array, counts)
        out = operand_out(out, shape, array)
        return Call("all_gather", array, out, code_of(array.dtype, dtype),
                     self._filled(bound, plan, fill_value, array, dtype), **share._asdict())

    def _gather(self, array: ArrayLike, root: int = 0, counts: Counts = None, bound: Text = None,
                plan: Text = None, out: Optional[Array] = None,
                fill_value: FillValue = None) -> Call[Optional[Array]]:
        """Returns the result of :meth:`all_gather` on rank ``root``, and None on other ranks."""
        array = as_operand(array)
        share, shape = self._rows(array, counts)
        out = operand_out(out, shape, array) if self._root(root) else None
        return Call("gather", array, out, code_of(array.dtype),
                     self._filled(bound, plan, fill_value, array), root=root, **share._asdict())

    def _scatter(self, array: Optional[ArrayLike], out: Array, root: int = 0,
                 counts: Counts = None, bound: Text = None, plan: Text = None,
                 fill_value: FillValue = None) -> Call[Array]:
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
        return Call("scatter", array, out, code_of(out.dtype),
                     self._filled(bound, plan, fill_value, out), root=root, **share._asdict())

    def _all_to_all(self, array: ArrayLike, bound: Text = None, plan: Text = None,
                    out: Optional[Array] = None, fill_value: FillValue = None) -> Call[Array]:
        """Sends row r of the array to rank r. Row r of the result is from rank r.

        The first axis of the array has length ``size``. The result has the shape of the array.
        """
        array = as_operand(array)
        if array.ndim == 0 or array.shape[0] != self.size:
            message = (f"the array has shape {array.shape}; its first axis must have length "
                       f"{self.size}")
            raise Error(message, field="array")
        out = operand_out(out, array.shape, array)
        return Call("all_to_all", array, out, code_of(array.dtype),
                     self._filled(bound, plan, fill_value, array),
                     count=array.size // self.size)

    def _all_to_all_v(self, array: ArrayLike, send_counts: Sequence[int],
                      recv_counts: Sequence[int], bound: Text = None, plan: Text = None,
                      out: Optional[Array] = None,
                      fill_value: FillValue = None) -> Call[Array]:
        """Sends ``send_counts[r]`` rows of the array to rank r. Receives ``recv_counts[r]`` rows.

        Rows of the array and of the result are in order of ranks. The result has the shape
        ``(sum(recv_counts), *array.shape[1:])``. A rank that sends itself another number of rows
        than it receives from itself gets an error.
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
        return Call("all_to_all", array, out, code_of(array.dtype),
                     self._filled(bound, plan, fill_value, array),
                     counts=[count * row for count in to],
                     recv_counts=[count * row for count in back], before=None)

    def _barrier(self) -> Call[None]:
        """Waits until all ranks have called it."""
        return Call("barrier", None, None, _FLOAT32, parse_plan("exact"))

    all_reduce, start_all_reduce = _both(_all_reduce)
    reduce, start_reduce = _both(_reduce)
    reduce_scatter, start_reduce_scatter = _both(_reduce_scatter)
    scan, start_scan = _both(_scan)
    exclusive_scan, start_exclusive_scan = _both(_exclusive_scan)
    broadcast, start_broadcast = _both(_broadcast)
    all_gather, start_all_gather = _both(_all_gather)
    gather, start_gather = _both(_gather)
    scatter, start_scatter = _both(_scatter)
    all_to_all, start_all_to_all = _both(_all_to_all)
    all_to_all_v, start_all_to_all_v = _both(_all_to_all_v)
    barrier, start_barrier = blocking(_barrier), starting(_barrier)

    def all_reduce_group(self, arrays: Iterable[Array], op: Op = "sum",
                         bounds: Union[None, str, Sequence[Text]] = None,
                         feedback: Optional[Iterable[Array]] = None, plan: Text = None,
                         dtype: Text = None,
                         fill_value: FillValue = None) -> List[Array]:
        """All-reduces several arrays of floats in place, as one call. Returns the list of arrays.

        This is faster than separate calls, because short arrays share messages.

        :param arrays: arrays of one type of floats, which must not overlap
        :param bounds: one error bound for all arrays, or a list with one for each. In a list, None
            is as for a call of its own: exact, or the communicator's bound. Arrays with a bound are
            one call, and the others another one
        :param feedback: enables error feedback: a list with one array for each, from
            :meth:`feedback_for`. The call adds the rounding errors of earlier calls to the input,
            and stores the new ones, so that errors do not accumulate over calls.
        :param fill_value: value that stands for missing data in all arrays; not with feedback
        """
        arrays = list(arrays)
        if not arrays:
            return arrays
        first = check_out(arrays[0], None, None, "an array of the group").dtype
        arrays = [check_out(array, None, first, "an array of the group") for array in arrays]
        if bounds is None or isinstance(bounds, str) or not np.iterable(bounds):
            bounds = [bounds] * len(arrays)
        bounds = [self.bound if bound is None else bound for bound in bounds]
        if len(bounds) != len(arrays):
            raise Error(f"there are {len(bounds)} bounds for {len(arrays)} arrays", field="bounds")
        texts = [self._text(bound, plan) for bound in bounds]
        code = code_of(first, dtype)
        if not is_float(code):
            message = f"a group cannot have {type_name(first, dtype)} arrays, only floats"
            raise Error(message, kind="unsupported", field="dtype")
        texts = [with_fill(text, fill_value, arrays[0], dtype) for text in texts]
        terms = {text: reduction(str(op), first, dtype, text) for text in texts}
        # Arrays with bounds share messages, whatever the bounds, and so do those with none.
        groups = {}
        for at, text in sorted(enumerate(texts), key=lambda entry: not has_bound(entry[1])):
            plan_and_places = (terms[text]["plan"], [])
            groups.setdefault(has_bound(text) or text, plan_and_places)[1].append(at)
        # The bounds that are not in the plan of the group.
        differ = len(set(filter(has_bound, texts))) > 1
        bounds = [bound if differ and has_bound(text) else None
                  for bound, text in zip(bounds, texts)]
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
        written = outs(arrays + kept, len(groups))
        memory = [out.memory for out in written]
        n = len(arrays)
        reports = []
        for group_plan, places in groups.values():
            reports.append(self._native.all_reduce_group(
                [memory[at] for at in places], [bounds[at] for at in places],
                None if feedback is None else [memory[n + at] for at in places], code,
                code_of(residue), terms[texts[0]]["op"], group_plan, self.timeout))
        self.report = _sum_of(reports)
        for out in written:
            out.deliver()
        warn_of_fill(self.report["suspected_fill"])
        return arrays

    @staticmethod
    def feedback_for(array: Array, dtype: Text = None) -> Array:
        """Returns the initial error feedback for an array: zeros of the same shape.

        The type is float32 for floats of 16 bits, otherwise the type of the array.
        """
        refuse_device(array)
        array = np.asanyarray(array)
        return np.zeros(array.shape, _residue(code_of(array.dtype, dtype)))


def _sum_of(reports):
    """Returns the report of several calls: the first one's, with sizes and times of all."""
    sum = reports[0]
    for report in reports[1:]:
        for key in report:
            if key.endswith(("bytes", "seconds")) or key == "n_messages":
                sum[key] += report[key]
    if len(reports) > 1 and sum["wire_bytes"]:
        sum["ratio"] = sum["raw_bytes"] / sum["wire_bytes"]
    return sum


def _residue(code):
    """Returns the type of error feedback for a float type."""
    return np.dtype(np.float64 if code == TYPES["f64"][0] else np.float32)
