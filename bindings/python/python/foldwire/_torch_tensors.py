"""Conversion of tensors to arrays, and of torch's operations to Foldwire's names."""

import functools
import warnings
from typing import Optional

import torch
import torch.distributed as dist

from . import _native

__all__ = ["Lent", "is_float", "is_usable", "on_stream", "op_of", "why_through_cpu"]

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
    if kind == "cpu" or kind == "cuda" and _native.HAS_DEVICES and is_float(tensor):
        return None
    if kind != "cuda":
        return f"Foldwire computes on the CPU and on NVIDIA's GPUs only, not on {kind}"
    if not _native.HAS_DEVICES:
        return "this build of Foldwire has no support for devices; `pip install` adds it"
    return f"there are no kernels for {tensor.dtype}"


def is_usable(tensor: torch.Tensor) -> bool:
    """Returns whether calls can use the tensor's memory: dense, on the CPU or on a GPU."""
    return tensor.layout == torch.strided and why_through_cpu(tensor) is None


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
    op = next((name for known, name in _OPS.items() if options.reduceOp == known), None)
    if is_float(tensor):
        return op
    return op if tensor.dtype in _TYPES and op != "avg" else None


class Lent:
    """A tensor as an array of one dimension: a numpy array, or a tensor on a GPU. Shares the
    tensor's memory if possible, otherwise has a copy: on the CPU if there is a reason ``why``.

    Types that Foldwire lacks become bytes, which can be sent but not reduced.
    """

    def __init__(self, tensor: torch.Tensor, why: Optional[str] = None):
        self._tensor = tensor.detach()
        self.dtype = _TYPES.get(tensor.dtype, "uint8")
        why = why or why_through_cpu(tensor)
        if tensor.device.type != "cpu":
            if why is None:
                self._values = self._tensor.contiguous()
                self.array = self._values.reshape(-1)
                return
            _say_once(why)
        self._values = self._tensor.to("cpu").contiguous()
        values = self._values.reshape(-1)
        if tensor.dtype not in _TYPES:
            values = values.view(torch.uint8)
        if tensor.dtype == torch.bfloat16:
            self.array = values.view(torch.int16).numpy().view("u2")
        else:
            self.array = values.numpy()

    def give_back(self) -> None:
        """Copies the values back to the tensor, unless they share its memory."""
        if self._values.data_ptr() != self._tensor.data_ptr():
            self._tensor.copy_(self._values)
            if self._tensor.is_cuda:
                # Whoever waits for the call may use another stream.
                torch.cuda.current_stream(self._tensor.device).synchronize()
