"""Gradients that travel compressed: a communication hook for DistributedDataParallel, and a process
group whose collectives go by Foldwire: large floats within a bound, all else exactly.

>>> model = DistributedDataParallel(network)                               # doctest: +SKIP
>>> state = foldwire.torch.HookState(foldwire.torch.connect(), "rel:1e-2", feedback=True)
>>> model.register_comm_hook(state, foldwire.torch.hook)                   # doctest: +SKIP

or, for a program that is not to be changed but for one word,

>>> foldwire.torch.configure(bound="rel:1e-3", min_bytes=1 << 20)          # doctest: +SKIP
>>> torch.distributed.init_process_group("foldwire")                       # doctest: +SKIP

Importing this module announces the backend ``"foldwire"``. The hook takes tensors of other devices
than the CPU through its memory; the process group hands them to gloo.

A call that fails raises :class:`foldwire.Error`, when it is made or when it is waited for, with the
rank and the field that it is about; so does each call after it. Futures of torch's raise a
``RuntimeError`` with the same words.
"""

from typing import Optional

import torch
import torch.distributed as dist

from . import join, unique_id
from ._communicator import Communicator
from ._errors import Error
from ._torch_group import ProcessGroup, settings
from ._torch_line import line_of
from ._torch_tensors import Lent

__all__ = ["HookState", "ProcessGroup", "all_reduce", "configure", "connect", "hook"]


def connect(group: Optional[dist.ProcessGroup] = None, **settings) -> Communicator:
    """The communicator of a process group's ranks (of the default one's), over TCP.

    Settings are those of :func:`foldwire.join`; ``limit`` and ``timeout`` are the group's, if it
    tells its own.
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
        # A rank that fails alone would leave the others waiting.
        raise Error(f"rank 0: {said[0]}", kind="transport", rank=0)
    return join(said[0], rank, size, **settings)


def _timeout_of(group):
    """The seconds that calls of a group may take, if it tells them."""
    try:
        options = group if isinstance(group, ProcessGroup) else group._get_backend(
            torch.device("cpu")).options
        return options._timeout.total_seconds()
    except (AttributeError, RuntimeError):
        return None


def all_reduce(comm: Communicator, tensor: torch.Tensor, op: str = "sum", bound=None, plan=None):
    """All-reduces a tensor in place; returns it."""
    own = Lent(tensor)
    comm.all_reduce(own.array, op, bound=bound, plan=plan, out=own.array, dtype=own.dtype)
    own.give_back()
    return tensor


class HookState:
    """How :func:`hook` averages gradients.

    Each gradient is within ``bound`` of its own, so that a relative one does not erase small
    layers. ``feedback`` adds what rounding lost to the gradient of the next step, so that coarse
    bounds (``"rel:0.1"``) train as exact ones do; ``unbiased`` rounds at random with the exact
    value as the mean, from ``seed``. Without a bound averages are exact.
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
        """Bytes of the gradients that this rank sent."""
        self.wire_bytes = 0
        """Bytes that it sent them as."""
        self._step = 0
        self._residues = {}

    def _words(self):
        words = [self.plan, self.bound]
        if self.unbiased:
            self._step += 1
            words.append(f"unbiased:{self.seed + self._step}")
        return ",".join(word for word in words if word) or "exact"

    def _residues_of(self, index, arrays, dtype):
        """What earlier steps lost of a bucket; none if it was built anew."""
        residues = self._residues.get(index)
        if residues is None or [r.shape for r in residues] != [a.shape for a in arrays]:
            residues = [self.comm.feedback_for(array, dtype) for array in arrays]
            self._residues[index] = residues
        return residues

    def average(self, index: int, gradients) -> None:
        """Averages tensors over all ranks, in place, as one call; ``index`` tells lists apart."""
        lent = [Lent(gradient) for gradient in gradients]
        arrays, dtype = [own.array for own in lent], lent[0].dtype
        residues = self._residues_of(index, arrays, dtype) if self.feedback else None
        self.comm.all_reduce_group(arrays, "avg", feedback=residues, plan=self._words(),
                                   dtype=dtype)
        self.raw_bytes += self.comm.report["raw_bytes"]
        self.wire_bytes += self.comm.report["wire_bytes"]
        for own in lent:
            own.give_back()


def hook(state: HookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """For ``DistributedDataParallel.register_comm_hook``: the average of a bucket's gradients.

    A thread makes the calls, in the same order on all ranks, while the backward pass goes on. That
    of the last bucket, for which the pass would only wait, is made at once: so ``backward()``
    raises what failed in any of them.
    """

    def average():
        state.average(bucket.index(), bucket.gradients())

    is_last = bucket.is_last()
    work = line_of(state.comm).start(average, bucket.buffer(), is_async=not is_last)
    if is_last:
        work.wait()
    return work.get_future()


def configure(bound: Optional[str] = None, plan: Optional[str] = None,
              min_bytes: int = 1 << 20) -> None:
    """What process groups of the backend ``"foldwire"`` that are made from now on do with
    all-reduces, all-gathers and reduce-scatters of floats of ``min_bytes`` or more in all: they are
    within the bound, by the plan, and exact without either.

    Where nothing is configured, ``FOLDWIRE_BOUND`` may hold the bound.
    """
    settings.update(bound=bound, plan=plan, min_bytes=min_bytes)


dist.Backend.register_backend("foldwire", ProcessGroup, devices=["cpu"])
