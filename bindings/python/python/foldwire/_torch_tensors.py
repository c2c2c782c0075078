"""Tensors as arrays of the same memory, and operations by torch's names for them."""

import torch
import torch.distributed as dist

__all__ = ["Lent", "is_float", "is_moved", "op_of"]

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


def is_moved(tensor: torch.Tensor) -> bool:
    """Whether Foldwire can take it from where it is."""
    return tensor.device.type == "cpu" and tensor.layout == torch.strided


def op_of(options, tensor):
    """The name of an operation, if Foldwire has it for such values."""
    op = next((name for known, name in _OPS.items() if options.reduceOp == known), None)
    if is_float(tensor):
        return op
    return op if tensor.dtype in _TYPES and op != "avg" else None


class Lent:
    """A tensor's values in a row, as numpy has them: its own memory, or a copy of it on the CPU.

    Other types than Foldwire's are their bytes, which can be moved but not reduced.
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
        """Writes the values to the tensor, unless they are its own memory."""
        if self._values.data_ptr() != self._tensor.data_ptr():
            self._tensor.copy_(self._values)
