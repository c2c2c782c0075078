"""Foldwire as a backend of Ray's collective groups: ``"FOLDWIRE"``.

Import this module in the driver and in each actor, before they make groups::

    import foldwire.ray
    from ray.util import collective

    collective.init_collective_group(world_size, rank, "FOLDWIRE", "sums")
    collective.allreduce(array, "sums")

All of Ray's collectives and messages work in place on numpy arrays and torch tensors on the CPU.
They are exact, unless :func:`configure` sets a bound. What Ray has no name for (gather, scatter,
all-to-all, scans, groups of arrays, objects, split) is on the group's :func:`communicator`.

Ray's key-value store carries the address of rank 0 and a secret; data goes over TCP.
"""

from __future__ import annotations

import os
import time
from typing import Optional

import numpy as np
import ray
from ray.experimental import internal_kv
from ray.util import collective
from ray.util.collective.backend_registry import register_collective_backend
from ray.util.collective.collective_group.base_collective_group import BaseGroup
from ray.util.collective.types import ReduceOp

from ._arguments import bound_text, whole
from ._communicator import Communicator
from ._errors import Error
from ._join import join, unique_id
from ._plans import read_plan

__all__ = ["FoldwireGroup", "communicator", "configure"]

_LIMIT, _PAUSE = 60.0, 0.02
_OPS = {ReduceOp.SUM: "sum", ReduceOp.PRODUCT: "prod", ReduceOp.MIN: "min", ReduceOp.MAX: "max"}


class _Settings:
    bound: Optional[str] = None
    plan: Optional[str] = None
    min_bytes = 1 << 20


def configure(*, bound: Optional[str] = None, plan: Optional[str] = None,
              min_bytes: int = 1 << 20) -> None:
    """Sets bound and plan of this process's reductions and all-gathers of floats.

    They hold for arrays of ``min_bytes`` or more; shorter ones, products, broadcasts and messages
    stay exact. All ranks set the same.
    """
    if bound is not None or plan is not None:
        read_plan(bound, plan)
    _Settings.bound = None if bound is None else bound_text(bound)
    _Settings.plan, _Settings.min_bytes = plan, whole(min_bytes, "min_bytes")


def communicator(group_name: str = "default") -> Communicator:
    """Returns the communicator of a group of this actor, for calls that Ray has no name for."""
    group = collective.get_group_handle(group_name)
    if not isinstance(group, FoldwireGroup):
        message = f"group {group_name!r} has another backend; create it with \"FOLDWIRE\""
        raise Error(message, field="group_name")
    return group.communicator


class _Lent:
    """A numpy array or a tensor on the CPU, as an array that shares its memory if it can."""

    def __init__(self, tensor, what: str = "tensor"):
        self.tensor, self.dtype = tensor, None
        if isinstance(tensor, np.ndarray):
            self.array = tensor
        else:
            if tensor.device.type != "cpu":
                message = (f"{what} is on {tensor.device}; Ray's groups of Foldwire take arrays on "
                           "the CPU. foldwire.ray.communicator() takes CUDA tensors")
                raise Error(message, kind="unsupported", field=what)
            tensor = tensor.detach()
            if str(tensor.dtype) == "torch.bfloat16":
                import torch

                tensor, self.dtype = tensor.view(torch.int16), "bfloat16"
            self.array = tensor.numpy()
        flags = self.array.flags
        self._shared, self.is_copy = self.array, not (flags.c_contiguous and flags.aligned)
        if self.is_copy:
            self.array = np.ascontiguousarray(self.array)

    def written(self):
        """Copies a result back, if the call wrote a copy."""
        if self.is_copy:
            self._shared[...] = self.array


def _single(tensors, what):
    if len(tensors) != 1:
        message = f"{what} has {len(tensors)} tensors; an actor of this backend has one"
        raise Error(message, kind="unsupported", field=what)
    return tensors[0]


class FoldwireGroup(BaseGroup):
    """A collective group of Ray over Foldwire. Ray creates it."""

    def __init__(self, world_size: int, rank: int, group_name: str):
        super().__init__(world_size, rank, group_name)
        self.communicator = _joined(world_size, rank, group_name)

    def __repr__(self):
        return f"<foldwire.ray group {self.group_name!r}: {self.communicator!r}>"

    @classmethod
    def backend(cls):
        return "FOLDWIRE"

    @classmethod
    def check_backend_availability(cls) -> bool:
        return True

    def destroy_group(self):
        self.communicator.close()

    def _plan(self, array, dtype=None, op="sum"):
        is_lossy = array.dtype.kind == "f" or dtype is not None
        if not is_lossy or op == "prod" or array.nbytes < _Settings.min_bytes:
            return {"dtype": dtype}
        return {"bound": _Settings.bound, "plan": _Settings.plan, "dtype": dtype}

    def allreduce(self, tensor, allreduce_options=None):
        op = _op(allreduce_options)
        lent = _Lent(_single(tensor, "tensor"))
        keywords = self._plan(lent.array, lent.dtype, op)
        self.communicator.all_reduce(lent.array, op, out=lent.array, **keywords)
        lent.written()

    def barrier(self, barrier_options=None):
        self.communicator.barrier()

    def reduce(self, tensor, reduce_options=None):
        op, root = _op(reduce_options), getattr(reduce_options, "root_rank", 0)
        lent = _Lent(_single(tensor, "tensor"))
        out = lent.array if self.rank == root else None
        keywords = self._plan(lent.array, lent.dtype, op)
        self.communicator.reduce(lent.array, op, root, out=out, **keywords)
        lent.written()

    def broadcast(self, tensor, broadcast_options=None):
        lent = _Lent(_single(tensor, "tensor"))
        root = getattr(broadcast_options, "root_rank", 0)
        self.communicator.broadcast(lent.array, root, dtype=lent.dtype)
        lent.written()

    def allgather(self, tensor_list, tensor, allgather_options=None):
        lent = _Lent(_single(tensor, "tensor"))
        into = self._list(_single(tensor_list, "tensor_list"), lent)
        keywords = self._plan(lent.array, lent.dtype)
        for each, row in zip(into, self.communicator.all_gather(lent.array, **keywords)):
            each.array[...] = row
            each.written()

    def reducescatter(self, tensor, tensor_list, reducescatter_options=None):
        op = _op(reducescatter_options)
        lent = _Lent(_single(tensor, "tensor"))
        parts = self._list(_single(tensor_list, "tensor_list"), lent)
        whole_ = np.stack([part.array for part in parts])
        keywords = self._plan(whole_, lent.dtype, op)
        counts = [lent.array.size] * self.world_size
        got = self.communicator.reduce_scatter(whole_, op, counts=counts, **keywords)
        lent.array[...] = got.reshape(lent.array.shape)
        lent.written()

    def send(self, tensor, send_options):
        self.communicator.send(_Lent(_single(tensor, "tensor")).array, send_options.dst_rank)

    def recv(self, tensor, recv_options):
        lent = _Lent(_single(tensor, "tensor"))
        self.communicator.recv(lent.array, recv_options.src_rank)
        lent.written()

    def _list(self, tensors, like):
        lents = [_Lent(tensor, "tensor_list") for tensor in tensors]
        for lent in lents:
            if (lent.array.shape, lent.array.dtype) != (like.array.shape, like.array.dtype):
                message = (f"tensor_list has an array of shape {lent.array.shape} and type "
                           f"{lent.array.dtype}, but tensor has {like.array.shape} and "
                           f"{like.array.dtype}")
                raise Error(message, field="tensor_list")
        if len(lents) != self.world_size:
            message = f"tensor_list has {len(lents)} arrays for {self.world_size} ranks"
            raise Error(message, field="tensor_list")
        return lents


def _op(options):
    op = getattr(options, "reduceOp", ReduceOp.SUM)
    if op not in _OPS:
        raise Error(f"unknown operation {op}", kind="unsupported", field="op")
    return _OPS[op]


def _joined(size, rank, group_name):
    """Joins the ranks of a group. Rank 0 publishes a unique id under the group's name."""
    # Jobs of one cluster share the store, and may use the same names.
    job = ray.get_runtime_context().get_job_id()
    key = f"foldwire/group/{job}/{group_name}".encode()
    if not (os.environ.get("FOLDWIRE_ADDRESS") or os.environ.get("FOLDWIRE_IFACE")):
        # Other nodes of the cluster reach this address. Only ranks with the id can connect.
        os.environ["FOLDWIRE_ADDRESS"] = ray.util.get_node_ip_address()
    if rank == 0:
        id_ = unique_id()
        internal_kv._internal_kv_put(key, id_, overwrite=True)
        try:
            return join(id_, 0, size, limit=_LIMIT)
        finally:
            if internal_kv._internal_kv_get(key) == id_:
                internal_kv._internal_kv_del(key)
    end, stale = time.monotonic() + _LIMIT, None
    while True:
        id_ = internal_kv._internal_kv_get(key)
        left = end - time.monotonic()
        if id_ is not None and id_ != stale and left > 0:
            try:
                return join(id_, rank, size, limit=left)
            except Error as failure:
                # An earlier group of this name left its id; rank 0 has yet to come.
                if failure.kind != "peer_lost":
                    raise
                stale = id_
        if left <= 0:
            message = (f"rank 0 of group {group_name!r} did not come within {_LIMIT:g} s; create "
                       "the group in all its actors")
            raise Error(message, kind="timeout", rank=0)
        time.sleep(_PAUSE)


# Ray refuses a second registration, which a reload of this module would make.
if not collective.collective._global_registry.is_registered("FOLDWIRE"):
    register_collective_backend("FOLDWIRE", FoldwireGroup)
