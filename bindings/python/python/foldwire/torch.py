"""Compressed gradients for torch: a communication hook for DistributedDataParallel, and a process
group whose collectives use Foldwire.

The hook averages gradients within an error bound:

>>> model = DistributedDataParallel(network)                               # doctest: +SKIP
>>> state = foldwire.torch.HookState(foldwire.torch.connect(), "rel:1e-2", feedback=True)
>>> model.register_comm_hook(state, foldwire.torch.hook)                   # doctest: +SKIP

The process group works without other changes to a program. It keeps large arrays of floats within
the bound, and all other data exact:

>>> foldwire.torch.configure(bound="rel:1e-3", min_bytes=1 << 20)          # doctest: +SKIP
>>> torch.distributed.init_process_group("foldwire")                       # doctest: +SKIP

Importing this module registers the backend ``"foldwire"``.

CUDA tensors of floats stay on their GPU: they are compressed and reduced there, in the order of the
current stream. Through the CPU's memory go, with a warning: tensors of other devices and, in the
hook, gradients with error feedback or unbiased rounding. The process group passes the other tensors
on to gloo.

A failed call raises :class:`foldwire.Error` when it is made or waited for, with the rank and field
that it is about. All later calls raise it again. Torch futures raise a ``RuntimeError`` with the
same message.
"""

import collections
from typing import Optional

import torch
import torch.distributed as dist

from . import _native, join, unique_id
from ._communicator import Communicator
from ._errors import Error
from ._torch_group import ProcessGroup, settings
from ._torch_line import line_of
from ._torch_tensors import Lent, on_stream, why_through_cpu

__all__ = ["HookState", "ProcessGroup", "all_reduce", "configure", "connect", "hook"]


def connect(group: Optional[dist.ProcessGroup] = None, **settings) -> Communicator:
    """Creates a communicator of a process group's ranks (default: all ranks), over TCP.

    All ranks of the group call it. The settings are those of :func:`foldwire.join`. ``limit`` and
    ``timeout`` default to the timeout of the group, if it can be read.
    """
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    limit = _timeout_of(group or dist.group.WORLD)
    if limit is not None:
        settings = {"limit": limit, "timeout": limit, **settings}
    said = [None]
    if rank == 0:
        try:
            said[0] = unique_id()
        except Error as failure:
            said[0] = str(failure)
    dist.broadcast_object_list(said, group=group, group_src=0)
    if isinstance(said[0], str):
        # Raise on all ranks, because a rank that fails alone would leave the others waiting.
        raise Error(f"rank 0: {said[0]}", kind="transport", rank=0)
    return join(said[0], rank, size, **settings)


def _timeout_of(group):
    """Returns the timeout of a group in seconds, or None if it cannot be read."""
    try:
        options = group if isinstance(group, ProcessGroup) else group._get_backend(
            torch.device("cpu")).options
        return options._timeout.total_seconds()
    except (AttributeError, RuntimeError):
        return None


def all_reduce(comm: Communicator, tensor: torch.Tensor, op: str = "sum", bound=None, plan=None):
    """All-reduces a tensor in place, and returns it.

    The arguments are those of :meth:`foldwire.Communicator.all_reduce`.
    """
    own = Lent(tensor)
    comm.all_reduce(own.array, op, bound=bound, plan=plan, out=own.array, dtype=own.dtype)
    own.give_back()
    return tensor


class HookState:
    """Settings of :func:`hook`, and its error feedback.

    :param comm: communicator of the ranks, from :func:`connect`
    :param bound: error bound of each gradient; None: exact. A relative bound refers to the value
        range of each gradient, so that it keeps small layers
    :param plan: other words of the plan, for example ``"schedule:ring"``
    :param feedback: adds the rounding error of each step to the gradient of the next step. Coarse
        bounds (``"rel:0.1"``) then train like exact gradients
    :param unbiased: rounds stochastically, so that the expected error is 0
    :param seed: seed for ``unbiased``
    """

    def __init__(self, comm: Communicator, bound: Optional[str] = None, *,
                 plan: Optional[str] = None, feedback: bool = False, unbiased: bool = False,
                 seed: int = 0):
        self.comm = comm
        self.bound = bound
        self.plan = plan
        self.feedback = feedback and bound is not None
        self.unbiased = unbiased and bound is not None
        self.seed = seed
        self.raw_bytes = 0
        """Uncompressed size in bytes of the gradients that this rank sent."""
        self.wire_bytes = 0
        """Size in bytes of the messages that this rank sent."""
        self._step = 0
        self._residues = {}

    def _words(self):
        words = [self.plan, self.bound]
        if self.unbiased:
            self._step += 1
            words.append(f"unbiased:{self.seed + self._step}")
        return ",".join(word for word in words if word) or "exact"

    def _residues_of(self, index, arrays, dtype):
        """Returns the error feedback of a bucket. It restarts at zero if the bucket changed."""
        residues = self._residues.get(index)
        if residues is None or [r.shape for r in residues] != [a.shape for a in arrays]:
            residues = [self.comm.feedback_for(array, dtype) for array in arrays]
            self._residues[index] = residues
        return residues

    def average(self, index: int, gradients) -> None:
        """Averages tensors over all ranks, in place, as one call.

        ``index`` identifies the list of tensors, which has its own error feedback.
        """
        why = next(filter(None, map(why_through_cpu, gradients)), None)
        if self.feedback or self.unbiased:
            why = why or "error feedback and unbiased rounding are computed there"
        elif why is None and gradients and gradients[0].is_cuda:
            self._average_on_device(gradients)
            return
        lent = [Lent(gradient, why) for gradient in gradients]
        arrays, dtype = [own.array for own in lent], lent[0].dtype
        residues = self._residues_of(index, arrays, dtype) if self.feedback else None
        self.comm.all_reduce_group(arrays, "avg", feedback=residues, plan=self._words(),
                                   dtype=dtype)
        self._count(self.comm.report)
        for own in lent:
            own.give_back()

    def _average_on_device(self, gradients) -> None:
        """Averages tensors on a GPU: a call for each, as many at once as the communicator has."""
        words, running = self._words(), collections.deque()

        def finish():
            request, own = running.popleft()
            request.wait()
            self._count(request.report)
            own.give_back()

        for gradient in gradients:
            if len(running) == self.comm._native.n_calls:
                finish()
            own = Lent(gradient)
            request = self.comm.start_all_reduce(own.array, "avg", plan=words, out=own.array,
                                                 dtype=own.dtype)
            running.append((request, own))
        while running:
            finish()

    def _count(self, report) -> None:
        self.raw_bytes += report["raw_bytes"]
        self.wire_bytes += report["wire_bytes"]


def hook(state: HookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Communication hook for ``DistributedDataParallel.register_comm_hook``: averages a bucket.

    A background thread makes the calls, in the same order on all ranks, during the backward pass.
    The call of the last bucket is made in the calling thread, which would only wait. So
    ``backward()`` raises the error of any failed call.
    """

    def average():
        state.average(bucket.index(), bucket.gradients())

    is_last = bucket.is_last()
    average = on_stream(average, bucket.buffer())
    work = line_of(state.comm).start(average, bucket.buffer(), is_async=not is_last)
    if is_last:
        work.wait()
    return work.get_future()


def configure(bound: Optional[str] = None, plan: Optional[str] = None,
              min_bytes: int = 1 << 20) -> None:
    """Sets bound and plan for process groups of the backend ``"foldwire"`` that are created later.

    They apply to all-reduces, all-gathers and reduce-scatters of floats of ``min_bytes`` or more.
    All other calls are exact. Without a bound here, the environment variable ``FOLDWIRE_BOUND`` is
    used.
    """
    settings.update(bound=bound, plan=plan, min_bytes=min_bytes)


dist.Backend.register_backend("foldwire", ProcessGroup,
                              devices=["cpu", "cuda"] if _native.HAS_DEVICES else ["cpu"])
