"""Torch's process groups with Foldwire: collectives use it, in the order of submission. Gloo makes
the calls that Foldwire lacks. A failure of one makes both unusable."""

import os
import zlib
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from . import _native, join, unique_id
from ._communicator import Communicator
from ._errors import Error
from ._plans import read_plan
from ._torch_calls import Calls
from ._torch_line import BackendError, again, line_of, seconds
from ._torch_meeting import Meeting, choose_network, gloo, names_by_store
from ._torch_tensors import is_float, on_stream

__all__ = ["Backend", "ProcessGroup", "create", "settings"]

_KEY = "foldwire/unique_id"
# Seconds to wait for the other ranks when searching for the rank that failed.
_BLAME = 1.0
# Backends that torch holds. Its debug mode holds only the C++ part, which is nothing alone.
_ALIVE = set()
_CUSTOM = getattr(dist.ProcessGroup.BackendType, "CUSTOM", None)

settings = {"bound": None, "plan": None, "min_bytes": 1 << 20, "gather_bound": None}


def _base():
    """Returns torch's class of backends, or `object` if Python cannot extend it (before 2.15)."""
    theirs = getattr(c10d, "C10DBackend", None)
    try:
        return type("Probe", (theirs,), {})(0, 1) and theirs
    except TypeError:
        return object


_BASE = _base()


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


def _check_settings(comm, words):
    """Raises if ranks have other settings: they would wait for each other."""
    codes = comm.all_gather(np.array([zlib.crc32(words.encode())], np.int64)).reshape(-1)
    for rank, code in enumerate(codes):
        if code != codes[comm.rank]:
            message = f"rank {rank} has other settings of foldwire.torch.configure: here {words}"
            raise BackendError(message, kind="mismatch", rank=rank, field="bound", ours=words)


class _Passed(dist._Work):
    """A call of gloo. If it fails, the whole group fails."""

    def __init__(self, group, work, peer):
        super().__init__()
        self._group, self._line, self._work, self._peer = group, group._line, work, peer

    def wait(self, timeout=timedelta(0)):
        self._line.refuse_fork()
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
                raise BackendError(message, kind="timeout", field="timeout") from failure
            if self._line is not self._group._line:
                # The group has new connections since, on which nothing has failed.
                raise again(self._line.failure) from failure
            lost = self._group._lost(failure, self._peer)
            raise lost from (None if lost is failure else failure)

    def synchronize(self):
        self.wait()


def _forwarded(name, to):
    """Returns a method that makes the call of this name of an attribute."""
    def call(self, *args, **kwargs):
        return getattr(getattr(self, to), name)(*args, **kwargs)

    call.__name__ = name
    return call


for _name in ("_source_rank", "exception", "get_future", "is_completed", "is_success", "result"):
    setattr(_Passed, _name, _forwarded(_name, "_work"))
_Passed.source_rank = _Passed._source_rank


class Backend(Calls, _BASE):
    """The backend ``"foldwire"`` of torch's process groups, for tensors on the CPU and on NVIDIA's
    GPUs.

    All-reduces and reduce-scatters of large arrays of floats have the bound and plan of
    :func:`configure`. All other calls are exact. Messages, bitwise operations, sparse tensors,
    bool and complex numbers on GPUs and tensors on other devices use gloo. All ranks choose alike,
    by type and operation.

    ``timeout`` is the longest time without progress of a call. After a call has failed, with
    Foldwire or gloo, all later calls fail.
    """

    def __init__(self, store, rank: int, size: int, timeout, connect: bool = True):
        super().__init__(*([] if _BASE is object else [rank, size]))
        self._own = (rank, size)
        self._timeout = timeout
        self._meeting = None
        self._min_bytes, self._plan = settings["min_bytes"], settings["plan"]
        self._bound = settings["bound"] or os.environ.get("FOLDWIRE_BOUND") or None
        self._gather_bound = settings["gather_bound"]
        self.n_taken = 0
        """Number of calls with the bound and plan of ``configure``."""
        self._n_calls = 0
        if connect:
            self._connect(store, timeout)
        else:
            self._disconnect()

    def _close(self):
        self.comm.close()
        self._disconnect()

    def _disconnect(self):
        self.comm = self._exact = self._gathers = self._gloo = None
        self._line = _Unconnected()

    def _connect(self, store, limit):
        (rank, size), limit = self._own, limit.total_seconds()
        times = {"limit": limit, "timeout": limit}
        choose_network(store, names_by_store(store, rank, size))
        self._gloo = gloo(dist.PrefixStore("gloo", store), rank, size, self._timeout)
        words = [self._bound, self._plan, self._gather_bound]
        is_bounded = any(word is not None for word in words)
        # Exact calls have no codec to overlap with messages, and are faster on one lane.
        lane = {"plan": "lanes:1"} if is_bounded else {"lanes": 1}
        self._exact = join(_shared_id(store, rank), rank, size, **lane, **times)
        if is_bounded:
            # Ranks must agree on which calls have the bound.
            words.append(self._min_bytes)
        _check_settings(self._exact, " ".join(map(str, words)))
        self.comm, native = self._exact, self._exact._native
        if is_bounded:
            read_plan(self._bound, self._plan)
            # It shares the connection, so ranks learn at once if only some calls have the bound.
            self.comm = Communicator(native, self._bound, self._plan)
        self._gathers = Communicator(native, self._gather_bound, self._plan)
        # Queue that makes the calls in order.
        self._line = line_of(self.comm)

    def __repr__(self):
        return f"<foldwire.torch.Backend: rank {self._own[0]} of {self._own[1]}>"

    def rank(self):
        return self._own[0]

    def size(self):
        return self._own[1]

    def getBackendName(self):
        return "foldwire"

    name = getBackendName

    @property
    def options(self):
        return c10d.C10DBackend.Options("foldwire", self._timeout)

    # Torch reads all of these. It never returns from one that a backend in Python leaves out.
    supports_splitting = supports_reconfigure = property(lambda self: True)
    supports_coalescing = supports_shrinking = supports_window = property(lambda self: False)
    _supports_time_estimate = supports_abort_hooks = supports_coalescing

    def split(self, store, ranks, opts):
        ranks = list(ranks)
        if self.rank() not in ranks:
            return None
        timeout = getattr(opts, "_timeout", None) or self._timeout
        return Backend(_store_of(store, ranks), ranks.index(self.rank()), len(ranks), timeout)

    def merge(self, store, opts, rank, size):
        return Backend(store, rank, size, getattr(opts, "_timeout", None) or self._timeout)

    def get_reconfigure_handle(self):
        """Returns this rank's address for :meth:`reconfigure`, which ranks tell each other."""
        if self._meeting is None:
            self._meeting = Meeting()
        return self._meeting.handle

    def reconfigure(self, opts):
        """Leaves the present group, if there is one, and forms a group of the ranks with these
        handles. Blocks until all of them have called this. Returns a finished work."""
        own = self.get_reconfigure_handle()
        limit = opts.timeout or self._timeout
        rank, size, store = self._meeting.of(opts.handles, opts.uuid, limit)
        if self.comm is not None:
            self.abort()
            self._line.end()
            self._close()
        self._own = (rank, size)
        try:
            self._connect(store, limit)
        except RuntimeError as failure:
            kind, blamed = getattr(failure, "kind", "transport"), getattr(failure, "rank", None)
            raise BackendError(f"{own} could not join: {failure}", kind=kind,
                               rank=blamed) from failure
        return self._line.start(lambda: None, None, is_async=False)

    def set_timeout(self, timeout):
        """Sets the longest time without progress for later calls."""
        self._timeout = timeout
        if hasattr(self._gloo, "set_timeout"):
            self._gloo.set_timeout(timeout)

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self):
        pass

    def _get_sequence_number_for_group(self):
        return self._n_calls

    def get_error(self):
        kinds = torch._C._distributed_c10d.ErrorType
        failure = self._line.failure
        if failure is None:
            return kinds.SUCCESS
        return kinds.TIMEOUT if failure.kind == "timeout" else kinds.COMM_ERROR

    def shutdown(self):
        """Waits for calls in progress, and leaves the group."""
        self._line.end()
        self._line.fail(Error("this process group was shut down", kind="closed"))
        if self.comm is not None:
            self.comm.close()
        self._gloo = self._meeting = None
        _ALIVE.discard(self)

    def abort(self):
        """Stops running calls, and all later ones."""
        self._line.fail(Error("this process group was aborted", kind="interrupted"))
        self._interrupt()
        if hasattr(self._gloo, "abort"):
            self._gloo.abort()

    def _interrupt(self):
        if self.comm is not None:
            self.comm.interrupt()

    def _bounded(self, op, tensor, n_bytes):
        """Returns the communicator for a reduction of ``n_bytes``. Products have no bound."""
        return self._taken(self.comm if op != "prod" else None, tensor, n_bytes)

    def _gathering(self, tensor, n_bytes):
        """Returns the communicator for an all-gather of ``n_bytes``."""
        return self._taken(self._gathers if self._gather_bound else None, tensor, n_bytes)

    def _taken(self, comm, tensor, n_bytes):
        if comm is None or n_bytes < self._min_bytes or not is_float(tensor):
            return None
        self.n_taken += 1
        return comm

    def _start(self, call, result, opts, tensor=None, comm=None):
        """Starts ``call(comm)`` on a tensor, by default with an exact communicator."""
        comm = comm or self._exact
        limit = seconds(opts.timeout) or self._timeout.total_seconds()
        self._n_calls += 1

        def limited():
            comm.timeout = limit
            call(comm)

        limited = on_stream(limited, tensor)
        return self._line.start(limited, result, getattr(opts, "asyncOp", True))

    def _pass_on(self, name, *args, peer=None):
        self._line.check()
        self._n_calls += 1
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
        self._line.fail(BackendError(f"gloo: {said}", kind=kind, rank=rank))
        self._interrupt()
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


class _Unconnected:
    """Stands for the queue of a group before it is configured."""

    failure = None

    def check(self):
        raise BackendError("this process group has no ranks yet: call _reconfigure",
                           kind="usage", field="group")

    def start(self, *_args, **_kwargs):
        self.check()

    def end(self):
        pass

    def fail(self, failure):
        pass


def _store_of(store, ranks):
    """Returns a part of a store for a group of some ranks."""
    return dist.PrefixStore("-".join(map(str, ranks)), store)


class ProcessGroup(dist.ProcessGroup):
    """A process group with :class:`Backend` for all devices.

    Calls from Python go to the backend without the way through torch's C++ code, whose works
    cannot be polled. Calls from C++ find the backend, too.
    """

    def __init__(self, store, rank: int, size: int, timeout, connect: bool = True):
        super().__init__(rank, size)
        self.backend = Backend(store, rank, size, timeout, connect)
        """The backend, whose ``comm`` is the communicator."""
        self._store = store
        for device in _devices() if _BASE is not object else []:
            self._register_backend(torch.device(device), _CUSTOM, self.backend)
        if _CUSTOM is not None:
            self._set_default_backend(_CUSTOM)

    def __repr__(self):
        return f"<foldwire.torch.ProcessGroup: rank {self.rank()} of {self.size()}>"

    def getBackendName(self):
        return "foldwire"

    name = getBackendName

    supports_reconfigure = property(lambda self: True)

    @property
    def comm(self):
        return self.backend.comm

    @property
    def n_taken(self):
        return self.backend.n_taken

    @property
    def _timeout(self):
        return self.backend._timeout

    def split_group(self, ranks, timeout=None, opts=None, group_name=None, group_desc=None,
                    device_types=None):
        """Returns the group of some ranks, which all call this, and None on other ranks."""
        ranks, rank = list(ranks), self.rank()
        if rank not in ranks:
            return None
        timeout = timeout or getattr(opts, "_timeout", None) or self._timeout
        store = _store_of(dist.PrefixStore(f"split/{group_name}", self._store), ranks)
        group = ProcessGroup(store, ranks.index(rank), len(ranks), timeout)
        if group_name is not None:
            group._set_group_name(group_name)
        group._set_group_desc(group_desc or "")
        return group


def _devices():
    return ["cpu", "cuda"] if _native.HAS_DEVICES else ["cpu"]


# For each call with several forms: its options, its number of tensor arguments, and the options
# that may follow these one by one.
_FORMS = {
    "allreduce": (c10d.AllreduceOptions, 1, ("reduceOp", "timeout")),
    "broadcast": (c10d.BroadcastOptions, 1, ("rootRank", "timeout")),
    "reduce": (c10d.ReduceOptions, 1, ("rootRank", "reduceOp", "timeout")),
    "allgather": (c10d.AllgatherOptions, 2, ("timeout",)),
    "gather": (c10d.GatherOptions, 2, ("rootRank", "timeout")),
    "scatter": (c10d.ScatterOptions, 2, ("rootRank", "timeout")),
    "reduce_scatter": (c10d.ReduceScatterOptions, 2, ("reduceOp", "timeout")),
    "alltoall": (c10d.AllToAllOptions, 2, ("timeout",)),
    "all_to_all_single": (c10d.AllToAllOptions, 4, ("timeout",)),
    "alltoall_base": (c10d.AllToAllOptions, 4, ("timeout",)),
    "barrier": (c10d.BarrierOptions, 0, ("timeout",)),
}
_FIELDS = {"op": "reduceOp", "root": "rootRank", "timeout": "timeout"}


def _forwarded_forms(name, kind, n_tensors, fields):
    """Returns a method that makes the backend's call, from any of the forms that torch has."""
    def call(self, *args, opts=None, **named):
        if len(args) == n_tensors + 1 and type(args[-1]) is kind and type(args[0]) is list:
            # The form of torch's functions.
            return getattr(self.backend, name)(*args)
        tensors, rest = args[:n_tensors], args[n_tensors:]
        if rest and isinstance(rest[0], kind):
            opts, rest = rest[0], ()
        if rest or named:
            opts = kind()
            given = {**dict(zip(fields, rest)), **{_FIELDS[key]: named[key] for key in named}}
            for field, value in given.items():
                if value is not None:
                    setattr(opts, field, value)
        if n_tensors < 3 and any(isinstance(tensor, torch.Tensor) for tensor in tensors):
            tensors = [[tensor] for tensor in tensors]
        return getattr(self.backend, name)(*tensors, opts)

    call.__name__ = name
    return call


for _name, _form in _FORMS.items():
    setattr(ProcessGroup, _name, _forwarded_forms(_name, *_form))
for _name in (
    "_allgather_base", "_get_sequence_number_for_group", "_reduce_scatter_base", "abort",
    "all_gather_single", "all_gather_single_coalesced", "allgather_coalesced",
    "allgather_into_tensor_coalesced", "allreduce_coalesced", "gather_into_tensor",
    "gather_single", "get_reconfigure_handle", "monitored_barrier", "rank", "reconfigure", "recv",
    "recv_anysource", "reduce_scatter_single", "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced", "send", "set_timeout", "shutdown", "size",
):
    setattr(ProcessGroup, _name, _forwarded(_name, "backend"))
ProcessGroup.getRank, ProcessGroup.getSize = ProcessGroup.rank, ProcessGroup.size


def create(opts, _options=None):
    """Creates what ``init_process_group`` asks for: a group, or a backend beside those of other
    devices or below torch's search for NaN."""
    # Older versions of torch do not say which group the backend is for.
    config = getattr(getattr(opts, "process_group", None), "_get_backend_name", lambda: "custom")
    is_alone = config() == "custom" and os.environ.get("TORCH_DIST_NAN_CHECK", "0") != "1"
    group = ProcessGroup if is_alone or _BASE is object else Backend
    connect = not getattr(opts, "enable_reconfigure", False)
    made = group(opts.store, opts.group_rank, opts.group_size, opts.timeout, connect)
    if group is Backend:
        _ALIVE.add(made)
    return made
