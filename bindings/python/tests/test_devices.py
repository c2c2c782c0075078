"""Tests of arrays in the memory of a device. No device is needed: arrays that claim to be on one
are refused before anything reads them."""

import ctypes
import sys
import types
import unittest
from unittest import mock

import numpy as np

import foldwire
from foldwire import _device_arrays, _dlpack
from foldwire._device_arrays import device_array

# No machine has this device.
MISSING = 1_000_000


class Fake:
    """An array with the CUDA array interface, at an address that nothing may read."""

    def __init__(self, shape=(6,), typestr="<f4", address=256, device=MISSING, **more):
        self.device = device
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (address, False), "version": 3, **more}

    def __dlpack_device__(self):
        return (2, self.device)


_NAME, _NAME_OF_VERSIONED = b"dltensor", b"dltensor_versioned"
_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi))


class Exporter:
    """An array with DLPack alone, at an address that nothing may read. Without ``flags`` it has an
    early version of the protocol."""

    def __init__(self, shape=(6,), kind=2, n_bits=32, address=256, device=(2, MISSING), lanes=1,
                 strides=None, offset=0, flags=None):
        self.device, self.flags, self.streams, self.n_back = device, flags, [], 0
        # What the capsule points to lives as long as this.
        self.numbers = [None if numbers is None else (ctypes.c_int64 * len(numbers))(*numbers)
                        for numbers in (shape, strides)]
        shape, strides = (numbers and ctypes.cast(numbers, ctypes.POINTER(ctypes.c_int64))
                          for numbers in self.numbers)
        n_dims = len(self.numbers[0])
        self.tensor = _dlpack._Tensor(address, *device, n_dims, kind, n_bits, lanes, shape,
                                      strides, offset)
        self.versioned = _dlpack._Versioned(1, 0, None, None, flags or 0, self.tensor)
        self.destroy = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(self.take_back)

    def take_back(self, _):
        self.n_back += 1

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None, **more):
        if more and self.flags is None:
            raise TypeError(f"no such arguments: {more}")
        self.streams.append(stream)
        of, name = ((self.tensor, _NAME) if self.flags is None
                    else (self.versioned, _NAME_OF_VERSIONED))
        return _new_capsule(ctypes.addressof(of), name, self.destroy)


def collectives(comm, make):
    """Returns all collectives with arrays on a device."""
    a, b = make(), make(address=1024)
    rows = make(shape=(comm.size, 6), address=1024)
    yield lambda: comm.all_reduce(a, out=b)
    yield lambda: comm.all_reduce(a, out=a)
    yield lambda: comm.reduce(a, root=0, out=b)
    yield lambda: comm.reduce_scatter(a, out=make(shape=(6 // comm.size,), address=1024))
    yield lambda: comm.scan(a, out=b)
    yield lambda: comm.exclusive_scan(a, out=b)
    yield lambda: comm.broadcast(a)
    yield lambda: comm.all_gather(a, out=rows)
    yield lambda: comm.gather(a, out=rows)
    yield lambda: comm.scatter(rows, a)
    yield lambda: comm.all_to_all(rows, out=make(shape=(comm.size, 6), address=4096))
    yield lambda: comm.all_to_all_v(a, [6 // comm.size] * comm.size, [1] * comm.size,
                                    out=make(shape=(comm.size,), address=4096))


class Devices(unittest.TestCase):
    def refused(self, call, kind="unsupported", says=""):
        with self.assertRaises(foldwire.Error) as raised:
            call()
        self.assertEqual(raised.exception.kind, kind)
        self.assertIn(says, str(raised.exception))

    def test_a_missing_device_is_an_error_that_says_what_to_do(self):
        says = "driver" if foldwire._native.HAS_DEVICES else "pip install"

        def program(comm):
            for call in collectives(comm, Fake):
                self.refused(call, says=says)
                self.refused(lambda: comm.start_all_reduce(Fake(), out=Fake(address=512)))
            # Nothing was sent.
            self.assertEqual(comm.all_reduce(np.ones(3))[0], comm.size)

        foldwire.run(2, program)

    def test_arrays_on_the_cpu_and_on_a_device_do_not_mix(self):
        comm, = foldwire.threads(1)
        host = np.zeros(6, np.float32)
        for call in (lambda: comm.all_reduce(Fake(), out=host),
                     lambda: comm.all_reduce(host, out=Fake()),
                     lambda: comm.scatter(host, Fake()),
                     lambda: comm.scatter(Fake(), host)):
            self.assertRaises(TypeError, call)
        self.refused(lambda: comm.all_reduce(Fake(), out=Fake(device=0, address=1024)),
                     kind="argument", says="devices")
        self.refused(lambda: comm.all_reduce(Fake(stream=1), out=Fake(stream=2, address=1024)),
                     kind="argument", says="streams")

    def test_what_needs_the_cpu_says_so(self):
        comm, = foldwire.threads(1)
        for call in (lambda: comm.send(Fake(), 0), lambda: comm.recv(Fake(), 0),
                     lambda: comm.start_send(Fake(), 0), lambda: comm.start_recv(Fake(), 0),
                     lambda: comm.send_recv(np.ones(6), 0, Fake(), 0),
                     lambda: comm.all_reduce_group([Fake()]),
                     lambda: comm.all_reduce_group([np.ones(6)], feedback=[Fake(typestr="<f8")],
                                                   bounds="abs:1"),
                     lambda: comm.feedback_for(Fake()),
                     lambda: foldwire.compress(Fake())):
            self.refused(call, says="on the CPU")

    def test_results_have_the_type_shape_and_place_that_calls_need(self):
        comm, = foldwire.threads(1)
        for wrong, says in (
            (Fake(shape=(5,), address=1024), "shape"),
            (Fake(typestr="<f8", address=1024), "type"),
        ):
            self.refused(lambda: comm.all_reduce(Fake(), out=wrong), "argument", says)
        self.refused(lambda: comm.all_reduce(Fake(), out=Fake(address=260)), says="overlaps")
        read_only = Fake()
        read_only.__cuda_array_interface__["data"] = (1024, True)
        self.refused(lambda: comm.all_reduce(Fake(), out=read_only), "argument", "read-only")
        # Nobody knows how to make another such array.
        self.refused(lambda: comm.all_reduce(Fake()), says="pass an array")

    def test_an_empty_array_overlaps_nothing(self):
        array, whole = device_array(Fake(shape=(0,), address=264)), device_array(Fake())
        for send, out in ((array, whole), (whole, array)):
            self.assertIs(_device_arrays.apart_on_device(send, out, 0), send)

    def test_strange_arrays_are_refused(self):
        for strange, kind in (
            (Fake(strides=(8,)), "unsupported"),
            (Fake(shape=(2, 3), strides=(4, 8)), "unsupported"),
            (Fake(typestr=">f4"), "unsupported"),
            (Fake(mask=np.ones(6)), "unsupported"),
            (Fake(address=258), "argument"),
            (Fake(stream=0), "argument"),
        ):
            self.refused(lambda: device_array(strange), kind)
        comm, = foldwire.threads(1)
        self.refused(lambda: comm.all_reduce(Fake(typestr="<c8"), out=Fake(typestr="<c8")))
        for same in (Fake(strides=(4,)), Fake(shape=(2, 3), strides=(12, 4)),
                     Fake(shape=(1, 6), strides=(99, 4)),
                     Fake(shape=(0,), strides=(8,), address=0)):
            self.assertEqual(device_array(same).address,
                             same.__cuda_array_interface__["data"][0])

    def test_dlpack_alone_tells_where_an_array_is(self):
        for flags in (None, 0):
            for exporter, dtype, address in (
                (Exporter(flags=flags), "float32", 256),
                (Exporter(flags=flags, n_bits=64, strides=(1,)), "float64", 256),
                (Exporter(flags=flags, kind=4, n_bits=16, offset=64), "bfloat16", 320),
                (Exporter(flags=flags, kind=0, n_bits=8), "int8", 256),
                (Exporter(flags=flags, kind=1, n_bits=32, shape=(2, 3), strides=(3, 1)), "uint32",
                 256),
            ):
                found = device_array(exporter)
                self.assertEqual((found.dtype.name, found.address, found.size, found.device),
                                 (dtype, address, 6, MISSING))
                self.assertEqual(found.shape, tuple(exporter.numbers[0]))
                self.assertIs(found.owner, exporter)
                self.assertEqual(exporter.streams, [found.stream])
                # The library keeps the memory for as long as the array is in use.
                self.assertEqual(exporter.n_back, 0)
                del found
                self.assertEqual(exporter.n_back, 1)
        comm, = foldwire.threads(1)
        says = "driver" if foldwire._native.HAS_DEVICES else "pip install"
        self.refused(lambda: comm.all_reduce(Exporter(), out=Exporter(address=512)), says=says)
        self.refused(lambda: comm.all_reduce(Exporter()), says="pass an array")

    def test_strange_arrays_with_dlpack_are_refused(self):
        for strange, kind, says in (
            (Exporter(strides=(2,)), "unsupported", "contiguous"),
            (Exporter(shape=(2, 3), strides=(1, 2)), "unsupported", "contiguous"),
            (Exporter(lanes=4), "unsupported", "type"),
            (Exporter(kind=3), "unsupported", "type"),
            (Exporter(kind=6, n_bits=4), "unsupported", "type"),
            (Exporter(offset=2), "argument", "aligned"),
        ):
            self.refused(lambda: device_array(strange), kind, says)
            self.assertEqual(strange.n_back, len(strange.streams))
        later = Exporter(flags=0)
        later.versioned.major = 2
        self.refused(lambda: device_array(later), says="DLPack 2")
        comm, = foldwire.threads(1)
        read_only = Exporter(flags=_dlpack._IS_READ_ONLY, address=512)
        self.refused(lambda: comm.all_reduce(Exporter(), out=read_only), "argument", "read-only")
        # Another kind of device is none of CUDA's.
        self.assertIsNone(device_array(Exporter(device=(10, 0))))

    def test_the_driver_knows_the_device_of_an_array_that_does_not(self):
        class Driver:
            def cuPointerGetAttribute(self, number, attribute, address):
                if address.value != 256:
                    return 1
                number._obj.value = 5
                return 0

        with mock.patch.object(Fake, "__dlpack_device__", None):
            with mock.patch.object(_device_arrays, "_driver", Driver):
                self.assertEqual(device_array(Fake()).device, 5)
                self.assertEqual(device_array(Fake(address=512)).device, 0)
            with mock.patch.object(_device_arrays, "_driver", lambda: None):
                self.assertEqual(device_array(Fake()).device, 0)

    def test_tensors_of_torch_are_read_by_torchs_own_functions(self):
        class Tensor:
            layout, dtype, shape, is_cuda = "strided", "torch.bfloat16", (2, 3), True
            device = types.SimpleNamespace(index=3)
            data_ptr, is_neg, is_contiguous = lambda _: 512, lambda _: False, lambda _: True

        torch = types.SimpleNamespace(Tensor=Tensor, strided="strided", cuda=types.SimpleNamespace(
            current_stream=lambda device: types.SimpleNamespace(cuda_stream=0)))
        with mock.patch.dict(sys.modules, torch=torch):
            found = device_array(Tensor())
            self.assertEqual((found.address, found.shape, found.size, found.device, found.stream),
                             (512, (2, 3), 6, 3, _device_arrays._DEFAULT_STREAM))
            self.assertEqual((found.dtype.name, found.nbytes), ("bfloat16", 12))
            Tensor.is_contiguous = lambda _: False
            self.refused(lambda: device_array(Tensor()), says="contiguous")
            Tensor.is_cuda = False
            self.assertIsNone(device_array(Tensor()))


@unittest.skipUnless(hasattr(foldwire._native, "SimulatedDevice"),
                     "a simulated device: cargo test -p foldwire-python --features simulated")
class SimulatedDevices(unittest.TestCase):
    """Every collective gives the bits of the same call on the CPU."""

    SIZE = 3

    def setUp(self):
        self.device = foldwire._native.SimulatedDevice(MISSING + 1)
        self.streams = [self.device.stream() for _ in range(self.SIZE)]

    def on_device(self, values, stream):
        """Returns a copy of an array on the device."""
        made = Fake(values.shape, values.dtype.str, self.device.put(values.tobytes()),
                    MISSING + 1, stream=stream)
        made.values = lambda: np.frombuffer(
            self.device.get(made.__cuda_array_interface__["data"][0]),
            values.dtype).reshape(values.shape)
        return made

    def test_every_collective_gives_the_bits_of_the_cpu(self):
        n = 300

        def program(comm):
            own = np.sin(np.arange(n * comm.size) + comm.rank).astype(np.float32)
            part, rows = own[:n], own.reshape(comm.size, n)
            at_root = comm.rank == 1
            counts = [n] * comm.size

            def put(values):
                return self.on_device(values, self.streams[comm.rank])

            for bound in (None, "abs:1e-3", "rel:1e-2"):
                for name, send, out, more in (
                    ("all_reduce", part, part, {"op": "avg"}),
                    ("reduce", part, part if at_root else None, {"root": 1}),
                    ("reduce_scatter", own, part, {"op": "max"}),
                    ("scan", part, part, {}),
                    ("exclusive_scan", part, part, {}),
                    ("all_gather", part, rows, {}),
                    ("all_gather", part, own, {"counts": counts}),
                    ("gather", part, rows if at_root else None, {"root": 1}),
                    ("scatter", own if at_root else None, part, {"root": 1}),
                    ("all_to_all", rows, rows, {}),
                    ("all_to_all_v", own, own,
                     {"send_counts": counts, "recv_counts": counts}),
                ):
                    call = getattr(comm, name)
                    into = None if out is None else np.zeros_like(out)
                    expected = call(send, out=into, bound=bound, **more)
                    to = None if out is None else put(np.zeros_like(out))
                    found = call(None if send is None else put(send), out=to, bound=bound, **more)
                    self.assertIs(found, to)
                    if to is not None:
                        np.testing.assert_array_equal(to.values(), expected, name)
                array = put(part)
                self.assertIs(comm.broadcast(array, root=2, bound=bound), array)
                np.testing.assert_array_equal(
                    array.values(), comm.broadcast(part.copy(), root=2, bound=bound))
                # In place, and without blocking.
                request = comm.start_all_reduce(array, out=array, bound=bound)
                self.assertIs(request.wait(), array)

        foldwire.run(self.SIZE, program)

    def test_arrays_with_dlpack_alone_give_the_bits_of_the_cpu(self):
        def program(comm):
            own = np.sin(np.arange(600) + comm.rank).astype(np.float32)

            def put(values, flags):
                address = self.device.put(values.tobytes())
                return Exporter(values.shape, address=address, device=(2, MISSING + 1),
                                flags=flags)

            for flags in (None, 0):
                for bound in (None, "abs:1e-3"):
                    expected = comm.all_reduce(own, bound=bound)
                    array, out = put(own, flags), put(np.zeros_like(own), flags)
                    self.assertIs(comm.all_reduce(array, out=out, bound=bound), out)
                    self.assertIs(comm.all_reduce(array, out=array, bound=bound), array)
                    for each in (array, out):
                        found = np.frombuffer(self.device.get(each.tensor.data), np.float32)
                        np.testing.assert_array_equal(found, expected)
                        self.assertEqual(each.n_back, len(each.streams))
                        self.assertEqual(set(each.streams), {self.streams[0]})

        # The simulated device has no stream 1.
        with mock.patch.object(_device_arrays, "_DEFAULT_STREAM", self.streams[0]):
            foldwire.run(self.SIZE, program)

    def test_slices_with_dlpack_begin_at_any_value(self):
        def program(comm):
            for dtype in (np.float16, np.float32, np.float64):
                own = np.sin(np.arange(600) + comm.rank).astype(dtype)

                def put(n_skipped, n):
                    address = self.device.put(own.tobytes())
                    return Exporter((n,), n_bits=8 * own.itemsize, address=address,
                                    device=(2, MISSING + 1), offset=n_skipped * own.itemsize)

                for n_skipped in (1, 3):
                    n = 600 - n_skipped - 2
                    array, out = put(n_skipped, n), put(1, n)
                    expected = comm.all_reduce(own[n_skipped:][:n], bound="abs:1e-3")
                    comm.all_reduce(array, out=out, bound="abs:1e-3")
                    found = np.frombuffer(self.device.get(out.tensor.data), dtype)
                    np.testing.assert_array_equal(found[1:][:n], expected)
                    np.testing.assert_array_equal(found[:1], own[:1])
                    np.testing.assert_array_equal(found[1 + n:], own[1 + n:])

        # The simulated device has no stream 1.
        with mock.patch.object(_device_arrays, "_DEFAULT_STREAM", self.streams[0]):
            foldwire.run(self.SIZE, program)

    def test_what_the_device_cannot_do_is_an_error_and_nothing_was_sent(self):
        def program(comm):
            def put(dtype):
                return self.on_device(np.ones(50, dtype), self.streams[comm.rank])

            with self.assertRaises(foldwire.Error) as raised:
                comm.all_reduce(put(np.float32), out=put(np.float32), plan="abs:1e-3,codec:dense")
            self.assertEqual(raised.exception.kind, "unsupported")
            for dtype in (np.float32, np.uint8, np.int64):
                array = put(dtype)
                comm.all_reduce(array, out=array)
                self.assertEqual(array.values()[0], self.SIZE)

        foldwire.run(self.SIZE, program)

    def test_a_failed_device_is_an_error_with_its_own_words(self):
        def program(comm):
            array = self.on_device(np.ones(50, np.float32), self.streams[comm.rank])
            comm.all_reduce(array, out=array)
            comm.barrier()
            self.device.refuse_launches(0)
            with self.assertRaises(foldwire.Error) as raised:
                comm.all_reduce(array, out=array)
            return raised.exception

        failures = foldwire.run(self.SIZE, program)
        self.assertTrue(any(failure.kind == "device" and "refuses" in str(failure)
                            for failure in failures), failures)


if __name__ == "__main__":
    unittest.main()
