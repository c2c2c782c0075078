"""Gradients that travel compressed: a communication hook for DistributedDataParallel, and a process
group that hands large float collectives to Foldwire and all else to gloo.

>>> model = DistributedDataParallel(network)                               # doctest: +SKIP
>>> state = foldwire.torch.HookState(foldwire.torch.connect(), "rel:1e-2", feedback=True)
>>> model.register_comm_hook(state, foldwire.torch.hook)                   # doctest: +SKIP

or, for a program that is not to be changed but for one word,

>>> foldwire.torch.configure(bound="rel:1e-3", min_bytes=1 << 20)          # doctest: +SKIP
>>> torch.distributed.init_process_group("foldwire")                       # doctest: +SKIP

Importing this module announces the backend ``"foldwire"``. Tensors of other devices than the CPU go
through its memory.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Optional

import torch
import torch.distributed as dist

from . import join, unique_id
from ._communicator import Communicator

__all__ = ["HookState", "ProcessGroup", "all_reduce", "configure", "connect", "hook"]

_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_KEY = "foldwire/unique_id"


def _array(tensor: torch.Tensor):
    """A contiguous tensor of the CPU as an array of the same memory, and the name of its type where
    numpy has no such type."""
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view("u2"), "bfloat16"
    return tensor.numpy(), None


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu").contiguous()


def connect(group: Optional[dist.ProcessGroup] = None, **settings) -> Communicator:
    """The communicator of a process group's ranks (of the default one's), over TCP.

    Settings are those of :func:`foldwire.join`.
    """
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    id_ = [unique_id() if rank == 0 else None]
    dist.broadcast_object_list(id_, group=group, group_src=0)
    return join(id_[0], rank, size, **settings)


def all_reduce(comm: Communicator, tensor: torch.Tensor, op: str = "sum", bound=None, plan=None):
    """All-reduces a tensor in place; returns it."""
    values = _on_cpu(tensor)
    array, dtype = _array(values)
    comm.all_reduce(array, op, bound=bound, plan=plan, out=array, dtype=dtype)
    if values.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(values)
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
        # One thread, so that all ranks make their calls in the same order; while it waits, without
        # the GIL, the backward pass goes on.
        self._thread = ThreadPoolExecutor(1, "foldwire")

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
        values = [_on_cpu(gradient) for gradient in gradients]
        arrays, dtypes = zip(*map(_array, values))
        arrays, dtype = [array.reshape(-1) for array in arrays], dtypes[0]
        residues = self._residues_of(index, arrays, dtype) if self.feedback else None
        self.comm.all_reduce_group(arrays, "avg", feedback=residues, plan=self._words(),
                                   dtype=dtype)
        self.raw_bytes += self.comm.report["raw_bytes"]
        self.wire_bytes += self.comm.report["wire_bytes"]
        for gradient, value in zip(gradients, values):
            if value.data_ptr() != gradient.data_ptr():
                gradient.detach().copy_(value)


def hook(state: HookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """For ``DistributedDataParallel.register_comm_hook``: the average of a bucket's gradients."""
    future = torch.futures.Future()

    def work():
        try:
            state.average(bucket.index(), bucket.gradients())
            future.set_result(bucket.buffer())
        except Exception as failure:  # noqa: BLE001 (it is the future's)
            future.set_exception(failure)

    state._thread.submit(work)
    return future


_settings = {"bound": None, "plan": None, "min_bytes": 1 << 20}


def configure(bound: Optional[str] = None, plan: Optional[str] = None,
              min_bytes: int = 1 << 20) -> None:
    """What process groups of the backend ``"foldwire"`` that are made from now on do: tensors of
    floats of ``min_bytes`` or more in all go by Foldwire, within the bound, exactly without one.

    Where nothing is configured, ``FOLDWIRE_BOUND`` may hold the bound.
    """
    _settings.update(bound=bound, plan=plan, min_bytes=min_bytes)


_OPS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "avg",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.PRODUCT: "prod",
}


def _op(options):
    op = options.reduceOp
    return next((name for known, name in _OPS.items() if op == known), None)


class ProcessGroup(dist.ProcessGroup):
    """A process group of gloo's whose large float all-reduces, all-gathers and reduce-scatters go
    by Foldwire. Which those are, all ranks tell alike: by type, length and operation."""

    def __init__(self, store, rank: int, size: int, timeout):
        super().__init__(rank, size)
        self._gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timeout)
        self._min_bytes = _settings["min_bytes"]
        bound = _settings["bound"] or os.environ.get("FOLDWIRE_BOUND") or None
        if rank == 0:
            store.set(_KEY, unique_id())
        self.comm = join(bytes(store.get(_KEY)), rank, size, bound=bound, plan=_settings["plan"])
        self._thread = ThreadPoolExecutor(1, "foldwire")
        self.n_taken = 0
        """Calls that went by Foldwire."""

    def getBackendName(self):
        return "foldwire"

    name = getBackendName

    def _takes(self, tensor, n_bytes, op="sum"):
        return (op is not None and tensor.dtype in _FLOATS and tensor.device.type == "cpu"
                and n_bytes >= self._min_bytes)

    def _start(self, call, result):
        """Makes a call in the group's own thread, one after the other, as gloo's calls are."""
        self.n_taken += 1
        future = torch.futures.Future()

        def work():
            try:
                call()
                future.set_result(result)
            except Exception as failure:  # noqa: BLE001 (it is the future's)
                future.set_exception(failure)

        self._thread.submit(work)
        return torch._C._distributed_c10d._create_work_from_future(future)

    def allreduce(self, tensors, opts=None):
        opts = opts or dist.AllreduceOptions()
        (tensor,) = tensors
        op = _op(opts)
        if not self._takes(tensor, tensor.nbytes, op):
            return self._gloo.allreduce(tensors, opts)
        return self._start(lambda: all_reduce(self.comm, tensor, op), tensors)

    def _gather(self, outputs, tensor, result):
        array, dtype = _array(_on_cpu(tensor))

        def call():
            rows = self.comm.all_gather(array.reshape(-1), dtype=dtype)
            for row, output in zip(rows, outputs):
                bits = torch.from_numpy(row.view("i2") if dtype else row)
                output.copy_(bits.view(output.dtype).view(output.shape))

        return self._start(call, result)

    # Later names of the two _base calls below.
    def all_gather_single(self, output, tensor, opts=None):
        return self._allgather_base(output, tensor, opts)

    def reduce_scatter_single(self, output, tensor, opts=None):
        return self._reduce_scatter_base(output, tensor, opts)

    def allgather(self, output_tensors, input_tensors, opts=None):
        opts = opts or dist.AllgatherOptions()
        (outputs,), (tensor,) = output_tensors, input_tensors
        alike = all(output.nbytes == tensor.nbytes for output in outputs)
        if not alike or not self._takes(tensor, tensor.nbytes * self.size()):
            return self._gloo.allgather(output_tensors, input_tensors, opts)
        return self._gather(outputs, tensor, output_tensors)

    def _allgather_base(self, output, tensor, opts=None):
        opts = opts or dist.AllgatherOptions()
        if not self._takes(tensor, output.nbytes) or not output.is_contiguous():
            return self._gloo._allgather_base(output, tensor, opts)
        return self._gather(output.view(self.size(), -1), tensor, [output])

    def _scatter(self, output, tensor, op):
        array, dtype = _array(_on_cpu(tensor))

        def call():
            own = self.comm.reduce_scatter(array.reshape(-1), op, dtype=dtype)
            bits = torch.from_numpy(own.view("i2") if dtype else own)
            output.copy_(bits.view(output.dtype).view(output.shape))

        return self._start(call, [output])

    def reduce_scatter(self, output_tensors, input_tensors, opts=None):
        opts = opts or dist.ReduceScatterOptions()
        (output,), (inputs,) = output_tensors, input_tensors
        op = _op(opts)
        alike = all(tensor.nbytes == output.nbytes for tensor in inputs)
        if not alike or not self._takes(output, output.nbytes * self.size(), op):
            return self._gloo.reduce_scatter(output_tensors, input_tensors, opts)
        return self._scatter(output, torch.stack([t.reshape(-1) for t in inputs]), op)

    def _reduce_scatter_base(self, output, tensor, opts=None):
        opts = opts or dist.ReduceScatterOptions()
        op = _op(opts)
        if not self._takes(output, tensor.nbytes, op):
            return self._gloo._reduce_scatter_base(output, tensor, opts)
        return self._scatter(output, tensor, op)


def _forward(name):
    def call(self, *args, **kwargs):
        return getattr(self._gloo, name)(*args, **kwargs)

    call.__name__ = name
    return call


for _name in ("all_to_all_single", "allgather_coalesced", "allgather_into_tensor_coalesced",
              "allreduce_coalesced", "alltoall", "alltoall_base", "barrier", "broadcast", "gather",
              "monitored_barrier", "recv", "recv_anysource", "reduce",
              "reduce_scatter_tensor_coalesced", "scatter", "send"):
    if hasattr(dist.ProcessGroupGloo, _name):
        setattr(ProcessGroup, _name, _forward(_name))

dist.Backend.register_backend("foldwire", ProcessGroup, devices=["cpu"])
