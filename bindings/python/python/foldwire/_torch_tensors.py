"""Conversion of tensors to arrays, and of torch's operations to Foldwire's names."""

import torch
import torch.distributed as dist

__all__ = ["Lent", "is_dense_cpu", "is_float", "op_of"]

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


def is_dense_cpu(tensor: torch.Tensor) -> bool:
    """Returns whether Foldwire can read the tensor: dense, on the CPU."""
    return tensor.device.type == "cpu" and tensor.layout == torch.strided


def op_of(options, tensor):
    """Returns the name of an operation, or None if Foldwire lacks it for this type."""
    op = next((name for known, name in _OPS.items() if options.reduceOp == known), None)
    if is_float(tensor):
        return op
    return op if tensor.dtype in _TYPES and op != "avg" else None


class Lent:
    """A tensor as a numpy array of one dimension. Shares the tensor's memory if possible, otherwise
    has a copy on the CPU.

    Types that Foldwire lacks become bytes, which can be sent but not reduced.
    """

    def __init__(self, tensor: torch.Tensor):
        self._tensor = tensor.detach()
        self._values = self._tensor.to("cpu").contiguous()
        values = self._values.reshape(-1)
        self.dtype = _TYPES.get(tensor.dtype, "uint8")
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
