"""Compressed gradients for torch: a communication hook for DistributedDataParallel, and a process
group whose collectives use Foldwire.

The hook averages gradients within an error bound:

>>> model = DistributedDataParallel(network)                               # doctest: +SKIP
>>> state = foldwire.torch.HookState(foldwire.torch.connect(), "rel:1e-2", feedback=True,
...                                  model=model)                          # doctest: +SKIP
>>> model.register_comm_hook(state, foldwire.torch.hook)                   # doctest: +SKIP

The process group works without other changes to a program. It keeps large arrays of floats within
the bound, and all other data exact:

>>> foldwire.torch.configure(bound="rel:1e-3", min_bytes=1 << 20)          # doctest: +SKIP
>>> torch.distributed.init_process_group("foldwire")                       # doctest: +SKIP

Importing this module registers the backend ``"foldwire"``.

CUDA tensors of floats or integers stay on their GPU, in the order of the current stream. Foldwire's
docs/torch.md names the exceptions.

A failed call raises :class:`foldwire.Error` when it is made or waited for, with the rank and field
that it is about. All later calls raise it again. Torch futures raise a ``RuntimeError`` with the
same message.
"""

from typing import Optional

import torch
import torch.distributed as dist

from . import _native, join, unique_id
from ._communicator import Communicator
from ._errors import Error
from ._torch_group import Backend, ProcessGroup, create, settings
from ._torch_hook import HookState, hook
from ._torch_line import BackendError
from ._torch_meeting import choose_network
from ._torch_tensors import Lent, is_expanded

__all__ = ["Backend", "BackendError", "HookState", "ProcessGroup", "all_reduce", "configure",
           "connect", "hook"]


def connect(group: Optional[dist.ProcessGroup] = None, **settings) -> Communicator:
    """Creates a communicator of a process group's ranks (default: all ranks), over TCP.

    All ranks of the group call it. The settings are those of :func:`foldwire.join`. ``limit`` and
    ``timeout`` default to the timeout of the group, if it can be read.
    """
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    limit = _timeout_of(group or dist.group.WORLD)
    if limit is not None:
        settings = {"limit": limit, "timeout": limit, **settings}

    def names_of_hosts(name):
        names = [None] * size
        dist.all_gather_object(names, name, group=group)
        return names

    choose_network(dist.distributed_c10d._get_default_store(), names_of_hosts)
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
    if is_expanded(tensor):
        raise Error("a tensor that was expanded cannot have a result; pass a copy", field="tensor")
    own = Lent(tensor)
    comm.all_reduce(own.array, op, bound=bound, plan=plan, out=own.array, dtype=own.dtype)
    own.give_back()
    return tensor


def configure(bound: Optional[str] = None, plan: Optional[str] = None, min_bytes: int = 1 << 20,
              gather_bound: Optional[str] = None) -> None:
    """Sets bound and plan for process groups of the backend ``"foldwire"`` that are created later.

    They apply to all-reduces and reduce-scatters of floats of ``min_bytes`` or more. All-gathers of
    such sizes have ``gather_bound``: without it, parameters that FSDP gathers are exact. All other
    calls are exact. Without a bound here, the environment variable ``FOLDWIRE_BOUND`` is used.

    All ranks of a group set the same, or it cannot be created.
    """
    settings.update(bound=bound, plan=plan, min_bytes=min_bytes, gather_bound=gather_bound)


dist.Backend.register_backend("foldwire", create, extended_api=True,
                              devices=["cpu", "cuda"] if _native.HAS_DEVICES else ["cpu"])
