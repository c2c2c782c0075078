"""Conversion of tensors to arrays, and of torch's operations to Foldwire's names."""

import functools
import warnings
from typing import Optional

import numpy as np
import torch
import torch.distributed as dist

from . import _native
from ._fill import warn_of_fill
from ._plans import reduction

__all__ = ["Lent", "is_expanded", "is_float", "is_usable", "on_stream", "op_of", "reduce_in_place",
           "why_through_cpu"]

_FLOATS = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}
_TYPES = {
    **_FLOATS,
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
}

# Codes of numpy, and sizes of values. The communicator learns that 16-bit integers are `bfloat16`.
_BYTES = (np.dtype(np.uint8).str, 1)
_CODES = {
    getattr(torch, name): (np.dtype(code).str, np.dtype(code).itemsize)
    for name, code in {"float32": "f4", "float64": "f8", "float16": "f2", "bfloat16": "u2",
                       "int8": "i1", "uint8": "u1", "int16": "i2", "int32": "i4",
                       "int64": "i8"}.items()
}

_OPS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "avg",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.PRODUCT: "prod",
}


def is_float(tensor: torch.Tensor) -> bool:
    return tensor.dtype in _FLOATS


def why_through_cpu(tensor: torch.Tensor) -> Optional[str]:
    """Returns why calls need a copy of the tensor on the CPU. None: it is there, or on a GPU whose
    memory calls can use."""
    # Torch for AMD's GPUs calls them "cuda", too.
    kind = "hip" if tensor.is_cuda and torch.version.hip else tensor.device.type
    if kind == "cpu" or kind == "cuda" and _native.HAS_DEVICES and tensor.dtype in _TYPES:
        return None
    if kind != "cuda":
        return f"Foldwire computes on the CPU and on NVIDIA's GPUs only, not on {kind}"
    if not _native.HAS_DEVICES:
        return "this build of Foldwire has no support for devices; `pip install` adds it"
    return f"there are no kernels for {tensor.dtype}"


def is_usable(tensor: torch.Tensor) -> bool:
    """Returns whether calls can use the tensor's memory: dense, on the CPU or on a GPU."""
    if tensor.layout != torch.strided:
        return False
    return tensor.is_cpu or why_through_cpu(tensor) is None


def is_expanded(tensor: torch.Tensor) -> bool:
    """Returns whether several values of a tensor share memory, so that none can be written."""
    return any(n > 1 and step == 0 for n, step in zip(tensor.shape, tensor.stride()))


def on_stream(call, tensor: Optional[torch.Tensor]):
    """Returns a call that uses the stream that is now current for the tensor's device, whichever
    thread makes it."""
    if tensor is None or not tensor.is_cuda:
        return call
    stream = torch.cuda.current_stream(tensor.device)

    def ordered():
        with torch.cuda.stream(stream):
            call()

    return ordered


@functools.lru_cache(maxsize=None)
def _say_once(why):
    message = f"tensors go through the CPU's memory: {why}"
    warnings.warn(message, RuntimeWarning, stacklevel=3)


def op_of(options, tensor):
    """Returns the name of an operation, or None if Foldwire lacks it for this type."""
    op, dtype = _OPS.get(options.reduceOp.op), tensor.dtype
    return op if dtype in _FLOATS or dtype in _TYPES and op != "avg" else None


def reduce_in_place(comm, tensor, op) -> None:
    """Makes a blocking all-reduce of a tensor."""
    if not (tensor.is_cpu and tensor.is_contiguous() and _is_as_stored(tensor)):
        own = Lent(tensor)
        comm.all_reduce(own.array, op, out=own.array, dtype=own.dtype)
        own.give_back()
        return
    # A short call takes little longer than the conversion to an array.
    kind, plan = _reduction(tensor.dtype, op, comm._text(None, None))
    memory = (tensor.data_ptr(), tensor.numel())
    report = comm._native.all_reduce_tensor(tensor, memory, kind, plan, comm.timeout)
    comm.report = report
    warn_of_fill(report.suspected_fill)


@functools.lru_cache(maxsize=256)
def _reduction(dtype, op, text):
    """Returns the codes of a type and an operation, and a plan."""
    terms = reduction(op, np.dtype(_CODES[dtype][0]), _TYPES[dtype], text)
    return (terms["dtype"], terms["op"]), terms["plan"]


def _is_as_stored(tensor):
    """Returns whether a tensor stands for what is in its memory, and not for the negative or the
    conjugate of that."""
    return not (tensor.is_neg() or tensor.is_conj())


class _Memory:
    """A contiguous tensor's memory for numpy.

    After ``Tensor.numpy`` torch refuses to resize the tensor's storage, as FSDP does.
    """

    __slots__ = ("tensor", "__array_interface__")

    def __init__(self, tensor):
        self.tensor = tensor
        code, size = _CODES.get(tensor.dtype, _BYTES)
        shape = (tensor.numel() * tensor.element_size() // size,)
        self.__array_interface__ = {"shape": shape, "typestr": code, "version": 3,
                                    "data": (tensor.data_ptr(), False)}


class Lent:
    """A tensor as an array of one dimension: a numpy array, or a tensor on a GPU. Shares the
    tensor's memory if possible, otherwise has a copy: on the CPU if there is a reason ``why``.

    Types that Foldwire lacks become bytes, which can be sent but not reduced.
    """

    def __init__(self, tensor: torch.Tensor, why: Optional[str] = None):
        self.dtype = _TYPES.get(tensor.dtype, "uint8")
        self._copy = None
        if tensor.is_cpu and tensor.is_contiguous() and _is_as_stored(tensor):
            self.array = np.asarray(_Memory(tensor))
            return
        self._tensor = tensor = tensor.detach()
        if not tensor.is_cpu:
            why = why or why_through_cpu(tensor)
            if why is None:
                self._copy = tensor.resolve_neg().contiguous()
                self.array = self._copy.reshape(-1)
                return
            _say_once(why)
        self._copy = tensor.resolve_conj().resolve_neg().to("cpu").contiguous()
        self.array = np.asarray(_Memory(self._copy))

    def give_back(self) -> None:
        """Copies the values back to the tensor, unless they share its memory."""
        copy = self._copy
        if copy is not None and copy is not self._tensor:
            self._tensor.copy_(copy)
            if self._tensor.is_cuda:
                # Whoever waits for the call may use another stream.
                torch.cuda.current_stream(self._tensor.device).synchronize()
