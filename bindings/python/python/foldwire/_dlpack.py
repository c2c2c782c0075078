"""DLPack: how a library that has no other interface tells where an array is.

The library exports a capsule, which keeps the array's memory. Whoever takes the memory over renames
the capsule. Here it keeps its name and its owner: it is dropped after the call, and the library
then takes back what it exported.
"""

from __future__ import annotations

import ctypes

from ._errors import Error

__all__ = ["Exported"]

_KINDS = {0: "i", 1: "u", 2: "f", 5: "c"}
_BFLOAT = 4
_IS_READ_ONLY = 1


class _Tensor(ctypes.Structure):
    """``DLTensor``, with which ``DLManagedTensor`` begins."""

    _fields_ = [("data", ctypes.c_void_p),
                ("device_kind", ctypes.c_int32), ("device", ctypes.c_int32),
                ("n_dims", ctypes.c_int32),
                ("kind", ctypes.c_uint8), ("n_bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class _Versioned(ctypes.Structure):
    """``DLManagedTensorVersioned``."""

    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


def _of_python(name, result):
    kind = ctypes.PYFUNCTYPE(result, ctypes.py_object, ctypes.c_char_p)
    return kind((name, ctypes.pythonapi))


_is_valid = _of_python("PyCapsule_IsValid", ctypes.c_int)
_pointer_of = _of_python("PyCapsule_GetPointer", ctypes.c_void_p)


class Exported:
    """An array's place. ``strides`` are in values, or None: contiguous in C order. ``code`` is
    numpy's name of the type, "bfloat16", or None for a type that numpy lacks. The memory is there
    while this lives."""

    def __init__(self, values, stream: int):
        try:
            self._capsule = values.__dlpack__(stream=stream, max_version=(1, 0))
        except TypeError:
            # The library has an earlier version of the protocol.
            self._capsule = values.__dlpack__(stream=stream)
        self.is_read_only = False
        if _is_valid(self._capsule, b"dltensor_versioned"):
            pointer = _pointer_of(self._capsule, b"dltensor_versioned")
            managed = ctypes.cast(pointer, ctypes.POINTER(_Versioned)).contents
            if managed.major != 1:
                message = f"arrays of DLPack {managed.major} are not supported"
                raise Error(message, kind="unsupported", field="array")
            self.is_read_only = bool(managed.flags & _IS_READ_ONLY)
            tensor = managed.tensor
        else:
            pointer = _pointer_of(self._capsule, b"dltensor")
            tensor = ctypes.cast(pointer, ctypes.POINTER(_Tensor)).contents
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.shape = tuple(tensor.shape[:tensor.n_dims])
        self.strides = tuple(tensor.strides[:tensor.n_dims]) if tensor.strides else None
        self.device = (tensor.device_kind, tensor.device)
        n_bytes, kind = tensor.n_bits // 8, _KINDS.get(tensor.kind)
        self.code = None
        if tensor.lanes == 1 and tensor.n_bits % 8 == 0:
            is_bfloat = (tensor.kind, n_bytes) == (_BFLOAT, 2)
            self.code = "bfloat16" if is_bfloat else kind and f"{kind}{n_bytes}"
