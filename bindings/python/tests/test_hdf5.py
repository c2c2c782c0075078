"""Tests of the filter of HDF5 with h5py."""

import os
import subprocess
import sys
import tempfile
import unittest
import warnings

import numpy as np

import foldwire

try:
    import h5py

    import foldwire.hdf5
except ImportError:
    h5py = None

READ = """
import sys, h5py, foldwire.hdf5
with h5py.File(sys.argv[1]) as file:
    print(float(file["x"][()].sum()))
"""


@unittest.skipIf(h5py is None, "the filter of HDF5: no h5py")
class Filter(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "x.h5")

    def written(self, data, chunks, *arguments, **options):
        wanted = foldwire.hdf5.Foldwire(data.dtype, chunks, *arguments, **options)
        with h5py.File(self.path, "w") as file:
            file.create_dataset("x", data=data, chunks=chunks, **wanted)
        with h5py.File(self.path) as file:
            return file["x"][()], file["x"].id.get_storage_size()

    def written_with(self, data, chunks, **how):
        with h5py.File(self.path, "w") as file:
            file.create_dataset("x", data=data, chunks=chunks, **how)
        with h5py.File(self.path) as file:
            return file["x"][()], file["x"].id.get_storage_size()

    def test_values_are_within_the_bound_in_whole_and_in_cut_chunks(self):
        field = np.sin(np.arange(300 * 170) * 1e-3).reshape(300, 170).astype("f4")
        for bound, error in (("abs:1e-3", 1e-3), ("rel:1e-3", 2e-3), (None, 0)):
            for chunks in ((100, 170), (64, 64)):
                back, size = self.written(field, chunks, bound)
                self.assertLessEqual(np.abs(back - field).max(), error)
                if bound and chunks[0] == 100:
                    self.assertLess(size, field.nbytes / 8)
        script = [sys.executable, "-B", "-c", READ, self.path]
        other = subprocess.run(script, capture_output=True, text=True, check=True)
        self.assertEqual(float(other.stdout), float(back.sum()))

    def test_types_codecs_and_fill_values(self):
        for dtype in ("f8", "f2", "i4", "u1", bool):
            data = (np.arange(5000) % 200).astype(dtype)
            back, _ = self.written(data, (1000,))
            np.testing.assert_array_equal(back, data)
        depths = np.sin(np.arange(9000) * 1e-3)
        depths[100:200] = 1e20
        back, _ = self.written(depths, (3000,), "rel:1e-3", "dense", fill_value=1e20)
        np.testing.assert_array_equal(back == 1e20, depths == 1e20)
        self.assertLessEqual(np.abs(back - depths).max(), 2e-3)

    def test_a_suspected_fill_value_is_warned_of_or_refused(self):
        depths = np.sin(np.arange(9000) * 1e-3)
        depths[100:200] = 1e20
        with self.assertWarnsRegex(UserWarning, "1e20 sets the value range"):
            self.written(depths, (3000,), "rel:1e-3")
        # HDF5 cannot refuse a chunk safely: it crashes if a filter fails while it closes a file.
        with self.assertWarnsRegex(UserWarning, "1e20 sets .*is stored unchanged"):
            back, _ = self.written(depths, (3000,), "rel:1e-3", fill_value="refuse")
        np.testing.assert_array_equal(back[:3000], depths[:3000])
        self.assertFalse((back[3000:] == depths[3000:]).all())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for data, bound, fill in ((depths, "rel:1e-3", 1e20), (depths, "abs:1e-3", "refuse"),
                                      (np.sin(depths), "rel:1e-3", "refuse")):
                back, _ = self.written(data, (3000,), bound, fill_value=fill)
                self.assertLessEqual(np.abs(back - data).max(), 2.1e-3)

    def test_data_sets_have_the_type_that_was_told(self):
        field = np.sin(np.arange(64 * 64) * 1e-2).reshape(64, 64) * 50
        wanted = foldwire.hdf5.Foldwire("f4", (64, 64), "abs:0.01")
        alone = {name: wanted[name] for name in ("compression", "compression_opts")}
        for data in (field, field.astype(">f4"), field.astype("i4")):
            back, _ = self.written_with(data, (64, 64), **wanted)
            self.assertEqual(back.dtype, np.float32)
            self.assertLessEqual(np.abs(back - data).max(), 0.0101)
        for doubled in ({"dtype": ">f4"}, {"dtype": "f4"}, {"shuffle": True}):
            with self.assertRaises(TypeError):
                self.written_with(field, (64, 64), **doubled, **wanted)
        # With the parameters alone, HDF5 asks the filter.
        for dtype, chunks in (("f4", (64, 64)), ("<f4", (32, 64))):
            back, _ = self.written_with(field, chunks, dtype=dtype, **alone)
            self.assertLessEqual(np.abs(back - field).max(), 0.0101)
        for dtype, chunks, more in ((">f4", (64, 64), {}), ("f8", (32, 64), {}),
                                    ("i4", (64, 64), {}), ("u4", (64, 64), {}),
                                    ("f2", (64, 128), {}), ("f4", (64, 64), {"shuffle": True})):
            data = np.tile(field, 2) if chunks[1] == 128 else field
            with self.assertRaises((ValueError, RuntimeError, OSError), msg=(dtype, more)):
                self.written_with(data.astype(dtype), chunks, **more, **alone)
        back, _ = self.written_with(field.astype("f4"), (64, 64), fletcher32=True, **alone)
        self.assertLessEqual(np.abs(back - field).max(), 0.0101)
        # Integers are exact, whatever comes before.
        whole = foldwire.hdf5.Foldwire("i4", (64, 64), "abs:10")
        alone = {name: whole[name] for name in ("compression", "compression_opts")}
        back, _ = self.written_with(field.astype("f4"), (64, 64), shuffle=True, **alone)
        np.testing.assert_array_equal(back, field.astype("f4"))

    def test_chunks_of_another_length_or_type_are_not_read(self):
        wanted = foldwire.hdf5.Foldwire("f4", (2000,), "abs:0.1")
        for chunk in (np.full(10, 7, "f4"), np.full(4000, 7, "f4"), np.arange(1000.0),
                      np.zeros(2000, "i4"), np.zeros((0, 3), "f4")):
            with h5py.File(self.path, "w") as file:
                made = file.create_dataset("x", shape=(2000,), chunks=(2000,), **wanted)
                made.id.write_direct_chunk((0,), foldwire.compress(chunk))
            with h5py.File(self.path) as file:
                with self.assertRaises(OSError):
                    file["x"][()]

    def test_arguments_of_other_kinds(self):
        field = np.sin(np.arange(96) * 0.1).astype("f4")
        for chunks in (32, (32,), [np.int64(32)]):
            wanted = foldwire.hdf5.Foldwire("f4", chunks, "abs:0.01", fill_value=np.float32(1e20))
            back, _ = self.written_with(field, (32,), **wanted)
            self.assertLessEqual(np.abs(back - field).max(), 0.0101)
        self.assertIn("'float32', (32,), 'abs:0.01'", repr(wanted))
        for chunks in (-1, (-1, 2), (2**32,), ("x",), (1.5,), None, True):
            with self.assertRaises(foldwire.Error) as caught:
                foldwire.hdf5.Foldwire("f4", chunks, "abs:0.01")
            self.assertEqual(caught.exception.field, "chunks")

    def test_errors(self):
        for arguments, field in ((("f4", (9,), "fast"), None), (("f4", (9,), "rel:2"), "bound"),
                                 (("f4", (9,), "lossless", "truncate:16"), "codec"),
                                 ((">f4", (9,)), "dtype"), (("M8[s]", (9,)), "dtype")):
            with self.assertRaises(foldwire.Error) as caught:
                foldwire.hdf5.Foldwire(*arguments)
            if field:
                self.assertEqual(caught.exception.field, field)
        # Chunks of another shape than the filter was told, and those with any other parameters, are
        # stored as they are.
        data = np.arange(100, dtype="f4") * 1e-5
        good = foldwire.hdf5.Foldwire("f4", (20,), "abs:1e-3")["compression_opts"]
        wrong = [foldwire.hdf5.Foldwire("f4", (10,), "abs:1e-3")["compression_opts"],
                 (2**32 - 1,) * 90, (*good[:7], 2**32 - 1, *good[8:]), (*good[:8], 0, 0)]
        wrong += [good[:n] for n in range(len(good))]
        for options in wrong:
            with h5py.File(self.path, "w") as file:
                file.create_dataset("x", data=data, chunks=(20,), compression_opts=options,
                                    compression=foldwire.hdf5.FILTER_ID)
            with h5py.File(self.path) as file:
                np.testing.assert_array_equal(file["x"][()], data)
                self.assertEqual(file["x"].id.get_storage_size(), data.nbytes)
        # Damaged chunks.
        self.written(np.arange(1000.0), (1000,))
        with h5py.File(self.path) as file:
            offset = file["x"].id.get_chunk_info(0).byte_offset
        with open(self.path, "r+b") as file:
            file.seek(offset + 60)
            file.write(b"damaged")
        with h5py.File(self.path) as file:
            with self.assertRaises(OSError):
                file["x"][()]


if __name__ == "__main__":
    unittest.main()
