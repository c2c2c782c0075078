"""A process group whose collectives use Foldwire, in the order of submission. It uses gloo for
calls that Foldwire lacks. A failure of one makes both unusable."""

import math
import os
from datetime import timedelta

import torch
import torch.distributed as dist

from . import join, unique_id
from ._communicator import Communicator
from ._errors import Error
from ._torch_line import again, line_of, seconds
from ._torch_tensors import Lent, is_float, is_usable, on_stream, op_of

__all__ = ["ProcessGroup", "settings"]

_KEY = "foldwire/unique_id"
# Seconds to wait for the other ranks when searching for the rank that failed.
_BLAME = 1.0

settings = {"bound": None, "plan": None, "min_bytes": 1 << 20}


def _shared_id(store, rank):
    """Sends rank 0's unique id to all ranks, or raises rank 0's error on all ranks."""
    if rank == 0:
        try:
            store.set(_KEY, b"+" + unique_id())
        except Error as failure:
            store.set(_KEY, b"-" + str(failure).encode())
            raise
    said = bytes(store.get(_KEY))
    if said[:1] != b"+":
        raise Error(f"rank 0: {said[1:].decode()}", kind="transport", rank=0)
    return said[1:]


class _Passed(dist._Work):
    """A call of gloo. If it fails, the whole group fails."""

    def __init__(self, group, work, peer):
        super().__init__()
        self._group, self._work, self._peer = group, work, peer

    def wait(self, timeout=timedelta(0)):
        limit = timeout
        if seconds(timeout) is None and self._peer is not None:
            # Without a limit, gloo's messages have that of the group's creation, and not that of
            # `set_timeout`.
            limit = self._group._timeout
        try:
            return self._work.wait(limit)
        except RuntimeError as failure:
            if seconds(timeout) is not None and not self._work.is_completed():
                message = f"the call did not finish within {seconds(timeout)} s; it continues"
                raise Error(message, kind="timeout", field="timeout") from failure
            lost = self._group._lost(failure, self._peer)
            raise lost from (None if lost is failure else failure)

    def _source_rank(self):
        return self._work._source_rank()

    source_rank = _source_rank

    def get_future(self):
        return self._work.get_future()

    def is_completed(self):
        return self._work.is_completed()

    def is_success(self):
        return self._work.is_success()

    def exception(self):
        return self._work.exception()

    def result(self):
        return self._work.result()

    def synchronize(self):
        self.wait()


class ProcessGroup(dist.ProcessGroup):
    """A process group whose collectives use Foldwire, for tensors on the CPU and for floats on
    NVIDIA's GPUs.

    All-reduces, all-gathers and reduce-scatters of large arrays of floats have the bound and plan
    of :func:`configure`. All other calls are exact. Messages, coalesced calls, bitwise operations,
    integers on GPUs and tensors on other devices use gloo. All ranks choose alike, by type and
    operation.

    ``timeout`` is the longest time without progress of a call. After a call has failed, with
    Foldwire or gloo, all later calls fail.
    """

    def __init__(self, store, rank: int, size: int, timeout):
        super().__init__(rank, size)
        self._timeout = timeout
        self._gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timeout)
        self._min_bytes, self._plan = settings["min_bytes"], settings["plan"]
        self._bound = settings["bound"] or os.environ.get("FOLDWIRE_BOUND") or None
        limit = timeout.total_seconds()
        self.comm = join(_shared_id(store, rank), rank, size, limit=limit, timeout=limit,
                         bound=self._bound, plan=self._plan)
        # The same communicator, without the bound and plan of `configure`.
        self._exact = Communicator(self.comm._native)
        # Queue that makes the calls in order.
        self._line = line_of(self.comm)
        self.n_taken = 0
        """Number of calls with the bound and plan of ``configure``."""

    def getBackendName(self):
        return "foldwire"

    name = getBackendName

    def set_timeout(self, timeout):
        """Sets the longest time without progress for later calls."""
        self._timeout = timeout
        if hasattr(self._gloo, "set_timeout"):
            self._gloo.set_timeout(timeout)

    def shutdown(self):
        """Waits for calls in progress, and leaves the group."""
        self._line.end()
        self._line.fail(Error("this process group was shut down", kind="closed"))
        self.comm.close()

    def abort(self):
        """Stops running calls, and all later ones."""
        self._line.fail(Error("this process group was aborted", kind="interrupted"))
        self.comm.interrupt()
        if hasattr(self._gloo, "abort"):
            self._gloo.abort()

    def _start(self, call, result, opts, tensor, n_bytes=None):
        """Starts ``call(comm)`` on a tensor. ``n_bytes``: size of floats that may be compressed, or
        None."""
        is_large = n_bytes is not None and n_bytes >= self._min_bytes
        self.n_taken += is_large
        comm = self.comm if is_large else self._exact
        limit = seconds(getattr(opts, "timeout", None)) or self._timeout.total_seconds()

        def limited():
            comm.timeout = limit
            call(comm)

        limited = on_stream(limited, tensor)
        return self._line.start(limited, result, getattr(opts, "asyncOp", True))

    def _pass_on(self, name, *args, peer=None):
        self._line.check()
        try:
            work = getattr(self._gloo, name)(*args)
        except RuntimeError as failure:
            lost = self._lost(failure, peer)
            raise lost from (None if lost is failure else failure)
        return _Passed(self, work, peer)

    def _lost(self, failure, peer):
        """Returns the error to raise for a failed gloo call, and marks the group as failed if
        needed."""
        if self._line.failure is not None:
            return again(self._line.failure)
        said = str(failure)
        is_late = "imed out" in said or "timeout" in said
        if not is_late and "gloo/" not in said:
            return failure
        # If the barrier in it fails, Foldwire also notifies the other ranks.
        blamed = self._blamed()
        kind, rank = "timeout" if is_late else "peer_lost", blamed if peer is None else peer
        self._line.fail(Error(f"gloo: {said}", kind=kind, rank=rank))
        self.comm.interrupt()
        return self._line.failure

    def _blamed(self):
        """Returns the rank that has ended or does not answer, or None if unknown."""
        if not self._line.is_idle:
            return None
        try:
            self._exact.timeout = min(_BLAME, self._timeout.total_seconds())
            self._exact.barrier()
        except Error as failure:
            # If `rank` aborted the barrier, `culprit` is the rank that made it do so.
            return failure.rank if failure.culprit is None else failure.culprit
        return None

    # Reductions

    def allreduce(self, tensors, opts=None):
        opts = opts or dist.AllreduceOptions()
        (tensor,) = tensors
        op = op_of(opts, tensor)
        if op is None or not is_usable(tensor):
            return self._pass_on("allreduce", tensors, opts)

        def call(comm):
            own = Lent(tensor)
            comm.all_reduce(own.array, op, out=own.array, dtype=own.dtype)
            own.give_back()

        n_bytes = tensor.nbytes if is_float(tensor) else None
        return self._start(call, tensors, opts, tensor, n_bytes)

    def reduce(self, tensors, opts=None):
        opts = opts or dist.ReduceOptions()
        (tensor,) = tensors
        op, root = op_of(opts, tensor), opts.rootRank
        if op is None or not is_usable(tensor):
            return self._pass_on("reduce", tensors, opts)

        def call(comm):
            own = Lent(tensor)
            out = own.array if self.rank() == root else None
            comm.reduce(own.array, op, root, out=out, dtype=own.dtype)
            own.give_back()

        return self._start(call, tensors, opts, tensor)

    def _scatter(self, output, tensor, op, opts):
        if tensor.numel() != self.size() * output.numel():
            raise Error(f"{tensor.numel()} values are not {output.numel()} for each of "
                        f"{self.size()} ranks", field="count")

        def call(comm):
            own, to = Lent(tensor), Lent(output)
            comm.reduce_scatter(own.array, op, out=to.array, dtype=own.dtype)
            to.give_back()

        n_bytes = tensor.nbytes if is_float(tensor) else None
        return self._start(call, [output], opts, tensor, n_bytes)

    def reduce_scatter(self, output_tensors, input_tensors, opts=None):
        opts = opts or dist.ReduceScatterOptions()
        (output,), (inputs,) = output_tensors, input_tensors
        op = op_of(opts, output)
        alike = all(tensor.nbytes == output.nbytes for tensor in inputs)
        if op is None or not alike or not is_usable(output):
            return self._pass_on("reduce_scatter", output_tensors, input_tensors, opts)
        return self._scatter(output, torch.stack([t.reshape(-1) for t in inputs]), op, opts)

    def _reduce_scatter_base(self, output, tensor, opts=None):
        opts = opts or dist.ReduceScatterOptions()
        op = op_of(opts, output)
        if op is None or not is_usable(output):
            return self._pass_on("_reduce_scatter_base", output, tensor, opts)
        return self._scatter(output, tensor, op, opts)

    # Data movement

    def broadcast(self, tensors, opts=None):
        opts = opts or dist.BroadcastOptions()
        (tensor,) = tensors
        if not is_usable(tensor):
            return self._pass_on("broadcast", tensors, opts)

        def call(comm):
            own = Lent(tensor)
            comm.broadcast(own.array, opts.rootRank, dtype=own.dtype)
            own.give_back()

        return self._start(call, tensors, opts, tensor)

    def allgather(self, output_tensors, input_tensors, opts=None):
        opts = opts or dist.AllgatherOptions()
        (outputs,), (tensor,) = output_tensors, input_tensors
        alike = all(output.nbytes == tensor.nbytes for output in outputs)
        if not alike or not is_usable(tensor):
            return self._pass_on("allgather", output_tensors, input_tensors, opts)

        def call(comm):
            own = Lent(tensor)
            for row, output in zip(comm.all_gather(own.array, dtype=own.dtype), outputs):
                to = Lent(output)
                to.array[:] = row
                to.give_back()

        n_bytes = tensor.nbytes * self.size() if is_float(tensor) else None
        return self._start(call, output_tensors, opts, tensor, n_bytes)

    def _allgather_base(self, output, tensor, opts=None):
        opts = opts or dist.AllgatherOptions()
        if not is_usable(tensor):
            return self._pass_on("_allgather_base", output, tensor, opts)

        def call(comm):
            own, to = Lent(tensor), Lent(output)
            rows = to.array.reshape(comm.size, -1)
            comm.all_gather(own.array, out=rows, dtype=own.dtype)
            to.give_back()

        n_bytes = output.nbytes if is_float(tensor) else None
        return self._start(call, [output], opts, tensor, n_bytes)

    def gather(self, output_tensors, input_tensors, opts=None):
        opts = opts or dist.GatherOptions()
        (tensor,), (outputs,) = input_tensors, output_tensors or [[]]
        if not is_usable(tensor):
            return self._pass_on("gather", output_tensors, input_tensors, opts)

        def call(comm):
            rows = comm.gather(Lent(tensor).array, opts.rootRank)
            for row, output in zip(rows if rows is not None else [], outputs):
                to = Lent(output)
                to.array[:] = row
                to.give_back()

        return self._start(call, output_tensors, opts, tensor)

    def scatter(self, output_tensors, input_tensors, opts=None):
        opts = opts or dist.ScatterOptions()
        (output,), (inputs,) = output_tensors, input_tensors or [[]]
        if not is_usable(output):
            return self._pass_on("scatter", output_tensors, input_tensors, opts)

        def call(comm):
            to = Lent(output)
            rows = Lent(torch.stack(list(inputs))).array if inputs else None
            comm.scatter(rows, to.array, opts.rootRank)
            to.give_back()

        return self._start(call, output_tensors, opts, output)

    def alltoall_base(self, output, tensor, output_splits, input_splits, opts=None):
        opts = opts or dist.AllToAllOptions()
        if not is_usable(tensor):
            return self._pass_on("alltoall_base", output, tensor, output_splits, input_splits,
                                 opts)

        def call(comm):
            own, to = Lent(tensor), Lent(output)
            back, out = _splits(output_splits, to.array, output, comm.size)
            counts, array = _splits(input_splits, own.array, tensor, comm.size)
            comm.all_to_all_v(array, counts, back, out=out)
            to.give_back()

        return self._start(call, [output], opts, tensor)

    def barrier(self, opts=None):
        return self._start(lambda comm: comm.barrier(), None, opts or dist.BarrierOptions(), None)

    # Names of the same calls in later versions of torch.
    def all_gather_single(self, output, tensor, opts=None):
        return self._allgather_base(output, tensor, opts)

    def reduce_scatter_single(self, output, tensor, opts=None):
        return self._reduce_scatter_base(output, tensor, opts)

    def all_to_all_single(self, output, tensor, output_splits, input_splits, opts=None):
        return self.alltoall_base(output, tensor, output_splits, input_splits, opts)


def _splits(splits, array, tensor, size):
    """Returns the number of rows for each rank, and the array reshaped to rows."""
    n_rows = tensor.shape[0] if tensor.dim() else 1
    if not splits and n_rows % size != 0:
        raise Error(f"{n_rows} rows cannot be divided evenly among {size} ranks",
                    field="splits")
    # Not -1, which numpy cannot infer if there are no rows.
    row = math.prod(tensor.shape[1:]) * tensor.element_size() // array.itemsize
    return splits or [n_rows // size] * size, array.reshape(n_rows, row)


def _passes(name, has_peer=False):
    """Returns a method that calls gloo."""
    def call(self, *args):
        return self._pass_on(name, *args, peer=args[1] if has_peer else None)

    call.__name__ = name
    return call


for _name in ("allgather_coalesced", "allgather_into_tensor_coalesced", "allreduce_coalesced",
              "alltoall", "recv_anysource", "reduce_scatter_tensor_coalesced"):
    if hasattr(dist.ProcessGroupGloo, _name):
        setattr(ProcessGroup, _name, _passes(_name))
ProcessGroup.send, ProcessGroup.recv = _passes("send", True), _passes("recv", True)


def _monitored_barrier(self, *args, **kwargs):
    # Its error names the missing rank, and does not end gloo's group.
    self._line.check()
    return self._gloo.monitored_barrier(*args, **kwargs)


ProcessGroup.monitored_barrier = _monitored_barrier
