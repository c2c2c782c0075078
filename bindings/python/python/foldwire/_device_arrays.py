"""Arrays in the memory of a GPU: torch's CUDA tensors, CuPy's arrays, and all others with the CUDA
array interface or DLPack.

Collectives take them where they take numpy arrays. They are compressed and reduced where they are,
in the order of the stream on which the program uses them, and never come to the CPU.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import importlib.util
import math
import os
import sys
from typing import Optional

import numpy as np

from . import _dlpack
from ._errors import Error

__all__ = ["DeviceArray", "apart_on_device", "device_array", "memory_of", "refuse_device"]

# Codes of DLPack for devices of CUDA: their memory, and memory that they share with the CPU.
_CUDA = (2, 13)
# CUDA's handle for the default stream, where torch says 0.
_DEFAULT_STREAM = 1


class _BFloat16:
    """The type of bfloat16 values, for which numpy has none."""

    name, itemsize, fields, isnative = "bfloat16", 2, None, True

    def __repr__(self):
        return self.name


_BFLOAT16 = _BFloat16()


class DeviceArray:
    """An array in a device's memory: contiguous in C order, and aligned.

    It has the attributes of numpy arrays that calls use. ``owner`` is the caller's object.
    ``stream`` is the handle of the stream on which the array is used, or None if it is ready.
    """

    __slots__ = ("owner", "address", "shape", "size", "dtype", "device", "stream", "is_read_only",
                 "_keeps")

    def __init__(self, owner, address, shape, dtype, device, stream, is_read_only=False,
                 keeps=None):
        self._keeps = keeps
        self.owner, self.address, self.shape, self.dtype = owner, address, tuple(shape), dtype
        self.size = math.prod(self.shape)
        self.device, self.stream, self.is_read_only = device, stream, is_read_only
        if self.size and address % dtype.itemsize:
            raise Error("an array on a device is not aligned", field="array")

    ndim = property(lambda self: len(self.shape))
    nbytes = property(lambda self: self.size * self.dtype.itemsize)

    def __len__(self):
        return self.shape[0]

    def new(self, shape, is_zero=False) -> DeviceArray:
        """Returns a new array of this type on the same device, from the same library."""
        library = type(self.owner).__module__.partition(".")[0]
        if library == "torch":
            make = self.owner.new_zeros if is_zero else self.owner.new_empty
            return device_array(make(shape, requires_grad=False))
        if library == "cupy":
            import cupy
            make = cupy.zeros if is_zero else cupy.empty
            with self.owner.device:
                return device_array(make(shape, self.owner.dtype))
        message = f"pass an array for the result: no other {type(self.owner).__name__} can be made"
        raise Error(message, kind="unsupported", field="out")

    def checked(self, shape, dtype, what="out") -> DeviceArray:
        """Checks that a result of this shape and type can be written to the array."""
        if dtype is not None and self.dtype != dtype:
            raise Error(f"{what} has type {self.dtype}, but the result has type {dtype}",
                        field=what)
        if shape is not None and self.shape != tuple(shape):
            raise Error(f"{what} has shape {self.shape}, but the result has shape {tuple(shape)}",
                        field=what)
        if self.is_read_only:
            raise Error(f"{what} is read-only", field=what)
        return self


def device_array(values) -> Optional[DeviceArray]:
    """Returns a device's array, or None if the CPU can read the values."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        return _of_tensor(torch, values) if values.is_cuda else None
    interface = getattr(values, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_interface(values, interface)
    return _of_dlpack(values) if _dlpack_device(values)[0] in _CUDA else None


def _gaps():
    message = ("an array on a device must be contiguous in C order; pass tensor.contiguous() or "
               "cupy.ascontiguousarray(array)")
    return Error(message, kind="unsupported", field="array")


def _of_tensor(torch, tensor):
    _find_nvrtc()
    if tensor.layout != torch.strided or tensor.is_neg() or not tensor.is_contiguous():
        raise _gaps()
    name = str(tensor.dtype).rpartition(".")[2]
    try:
        dtype = _BFLOAT16 if name == "bfloat16" else np.dtype(name)
    except TypeError:
        message = f"values of {name} are not supported"
        raise Error(message, kind="unsupported", field="dtype") from None
    stream = torch.cuda.current_stream(tensor.device).cuda_stream or _DEFAULT_STREAM
    return DeviceArray(tensor, tensor.data_ptr(), tensor.shape, dtype, tensor.device.index, stream)


def _of_interface(values, interface):
    _find_nvrtc()
    shape, dtype = tuple(interface["shape"]), np.dtype(interface["typestr"])
    address, is_read_only = interface["data"]
    if not dtype.isnative:
        message = f"values of type {dtype} are not in native byte order"
        raise Error(message, kind="unsupported", field="dtype")
    if interface.get("mask") is not None:
        raise Error("masks of arrays are not kept", kind="unsupported", field="array")
    _check_strides(shape, interface.get("strides"), dtype.itemsize)
    stream = interface.get("stream")
    if stream == 0:
        raise Error("an array names stream 0, which its interface does not allow", field="array")
    # An interface does not name the device.
    kind, device = _dlpack_device(values)
    device = device if kind in _CUDA else _device_of(address or 0)
    return DeviceArray(values, address or 0, shape, dtype, device, stream, is_read_only)


def _check_strides(shape, strides, unit):
    """Checks that an array has no gaps. Its values are ``unit`` apart, in the unit of strides."""
    if strides is not None and math.prod(shape):
        for n, stride in zip(reversed(shape), reversed(strides)):
            if n > 1 and stride != unit:
                raise _gaps()
            unit *= n


def _of_dlpack(values):
    _find_nvrtc()
    # The library makes this stream wait for the array.
    stream = _DEFAULT_STREAM
    there = _dlpack.Exported(values, stream)
    if there.code is None:
        message = f"the values of {type(values).__name__} have a type that is not supported"
        raise Error(message, kind="unsupported", field="dtype")
    dtype = _BFLOAT16 if there.code == "bfloat16" else np.dtype(there.code)
    _check_strides(there.shape, there.strides, 1)
    return DeviceArray(values, there.address, there.shape, dtype, there.device[1], stream,
                       there.is_read_only, keeps=there)


def _device_of(address):
    """Returns the number of the device that has this address, by the driver; 0 if nobody knows."""
    number = ctypes.c_int(0)
    driver = _driver()
    if driver is not None and address:
        # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        found = driver.cuPointerGetAttribute(ctypes.byref(number), 9, ctypes.c_uint64(address))
        return number.value if found == 0 else 0
    return 0


@functools.lru_cache(maxsize=None)
def _driver():
    """Returns NVIDIA's driver, or None without one."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def _dlpack_device(values):
    """Returns the kind and number of the device that holds the values."""
    try:
        kind, device = values.__dlpack_device__()
    except (AttributeError, BufferError, RuntimeError, TypeError):
        return 0, 0
    return int(kind), int(device)


def refuse_device(values, what: str = "array") -> None:
    """Raises an error if values are in a device's memory, where a call needs them on the CPU."""
    if type(values) is not np.ndarray and device_array(values) is not None:
        message = (f"{what} is in the memory of a device; messages, calls of several arrays and "
                   "compression need it on the CPU")
        raise Error(message, kind="unsupported", field=what)


def memory_of(*arrays):
    """Returns device and stream of a call's arrays, of which one or all are on a device."""
    arrays = [array for array in arrays if array is not None]
    if not all(isinstance(array, DeviceArray) for array in arrays):
        raise mixed()
    devices = {array.device for array in arrays}
    streams = {array.stream for array in arrays if array.stream is not None}
    if len(devices) > 1:
        raise Error(f"the arrays of a call are on devices {sorted(devices)}", field="out")
    if len(streams) > 1:
        raise Error("the arrays of a call are used on different streams", field="out")
    return devices.pop(), streams.pop() if streams else None


def mixed() -> TypeError:
    """Returns the error for a call with arrays on the CPU and on a device."""
    return TypeError("one array of the call is on a device and the other on the CPU; copy one")


def apart_on_device(array, out, before):
    """Checks that arrays of a call do not overlap, except in place, as ``_arrays.apart`` does for
    the CPU. There the array is copied."""
    if not isinstance(array, DeviceArray) or not isinstance(out, DeviceArray):
        return array
    is_apart = (not array.nbytes or not out.nbytes
                or array.address + array.nbytes <= out.address
                or out.address + out.nbytes <= array.address)
    long, short = (out, array) if out.size >= array.size else (array, out)
    is_in_place = (before is not None
                   and short.address - long.address == before * array.dtype.itemsize)
    if not (is_apart or is_in_place):
        message = "out overlaps the array, but not in place; pass another array"
        raise Error(message, kind="unsupported", field="out")
    return array


@functools.lru_cache(maxsize=None)
def _find_nvrtc() -> None:
    """Tells the library where pip has installed NVIDIA's compiler, unless the user has."""
    if "FOLDWIRE_NVRTC" in os.environ:
        return
    try:
        package = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return
    for folder in (package.submodule_search_locations or ()) if package else ():
        for version in ("cuda_nvrtc", "cu*"):
            for path in sorted(glob.glob(f"{folder}/{version}/lib/libnvrtc.so.*")):
                os.environ["FOLDWIRE_NVRTC"] = path
                return
