"""Tests of the numcodecs codec, with zarr if it is installed."""

import json
import os
import tempfile
import unittest

import numpy as np

try:
    import numcodecs
except ImportError:
    numcodecs = None

try:
    import zarr
    # The tests use the API of zarr 3, which also writes format 2.
    zarr = zarr if hasattr(zarr, "create_array") else None
except ImportError:
    zarr = None

try:
    # The checks of numcodecs need pytest.
    from numcodecs.tests import common
except ImportError:
    common = None

import foldwire


def layouts(array):
    """Yields the array in all orders of axes and bytes; also an empty, a small and a 0-d array."""
    yield array
    yield np.asfortranarray(array)
    yield np.array(array.T, order="C").T
    yield array.astype(array.dtype.newbyteorder())
    yield np.asfortranarray(array.astype(array.dtype.newbyteorder()))
    yield array[..., :0]
    yield array[:1, :1]
    yield np.array(array.flat[0])


@unittest.skipIf(numcodecs is None, "numcodecs: not installed")
class Numcodecs(unittest.TestCase):
    def setUp(self):
        import foldwire.numcodecs as codecs

        self.codec = codecs.Foldwire
        self.field = np.cumsum(np.random.default_rng(2).normal(size=(64, 100)), 1).astype("f4")

    def test_chunks_come_back_within_the_bound(self):
        for bound, most in ((None, 0.0), ("abs:0.01", 0.01)):
            codec = self.codec(bound)
            data = codec.encode(self.field)
            # Without a bound, data may grow by a few percent.
            self.assertLess(len(data), self.field.nbytes / (2 if bound else 0.9))
            out = np.empty_like(self.field)
            codec.decode(data, out)
            self.assertLessEqual(np.abs(out - self.field).max(), most * 1.001)
            np.testing.assert_array_equal(codec.decode(data).reshape(out.shape), out)

    def test_a_codec_is_found_by_its_configuration(self):
        codec = self.codec("rel:1e-3", "<f8")
        again = numcodecs.get_codec(codec.get_config())
        self.assertEqual(again, codec)
        data = codec.encode(np.arange(100.0).tobytes())
        np.testing.assert_allclose(again.decode(data), np.arange(100.0), atol=0.1)

    def test_a_bound_without_a_kind_is_refused_at_once(self):
        with self.assertRaises(foldwire.Error):
            self.codec("1e-3")

    def test_a_codec_that_loses_bits_takes_no_integers_for_floats(self):
        for codec in ("truncate:16", "zfp-rate:8"):
            self.refused(lambda c=codec: self.codec("lossless", codec=c), "lossy")
            made = self.codec(None, "f4", codec)
            self.refused(lambda c=made: c.encode(np.arange(1000, 1100, dtype="i4")), "<i4")
        whole = np.arange(1000, 1100, dtype="i4")
        back = self.codec(None, "f4", "lossless").decode(
            self.codec(None, "f4", "lossless").encode(whole))
        np.testing.assert_array_equal(back.view("i4"), whole)

    def refused(self, call, *words):
        """Asserts that a call raises an error whose message contains these words."""
        with self.assertRaises(foldwire.Error) as raised:
            call()
        for word in words:
            self.assertIn(word, str(raised.exception))

    @unittest.skipIf(common is None, "the checks of numcodecs: no pytest")
    def test_the_checks_of_numcodecs_pass(self):
        common.Foldwire = self.codec
        field = self.field - self.field.min()
        for dtype in ("f4", "f8", "f2"):
            for array in layouts(field.astype(dtype)):
                # No layout has gaps, so `reshape` below makes no copy.
                self.assertTrue(array.flags.c_contiguous or array.flags.f_contiguous)
                # These checks also encode the array's bytes, so the codec needs the type.
                codec = self.codec(None, array.dtype)
                common.check_encode_decode(array, codec)
                common.check_encode_decode_array(array.reshape(-1, order="A"), codec)
                if dtype != "f2":
                    within = self.codec("abs:1e-4", array.dtype)
                    common.check_encode_decode(array, within, precision=3)
                if array.dtype.isnative:
                    common.check_encode_decode_array(array.reshape(-1, order="A"), self.codec())
        for codec in (self.codec(), self.codec("rel:1e-3", ">f8"), self.codec("lossless", "f2")):
            common.check_config(codec)
        common.check_repr("Foldwire(bound=None, dtype=None, codec='auto')")
        common.check_repr("Foldwire(bound='abs:0.01', dtype='>f4', codec='dense')")
        common.check_err_encode_object_buffer(self.codec())
        common.check_err_encode_object_buffer(self.codec(None, "f4"))
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                # The first run writes files, and the second run decodes them.
                for _ in range(2):
                    common.check_backwards_compatibility(
                        "foldwire", [self.field, np.asfortranarray(self.field)],
                        [self.codec(), self.codec(dtype="f4"), self.codec("abs:1e-4")],
                        [None, None, 3])
            finally:
                os.chdir(here)

    def test_another_byte_order_is_kept(self):
        swapped = self.field.astype(">f4")
        for bound in (None, "abs:0.01"):
            back = self.codec(bound).decode(self.codec(bound).encode(swapped))
            self.assertEqual(back.dtype.str, ">f4")
            np.testing.assert_allclose(back, self.field, atol=0.0101 if bound else 0)
            codec = self.codec(bound, ">f4")
            back = codec.decode(codec.encode(swapped))
            self.assertEqual(back.dtype.str, ">f4")
            np.testing.assert_allclose(back, self.field, atol=0.0101 if bound else 0)
            # A chunk of bytes gives values of the same type.
            again = codec.decode(codec.encode(swapped.tobytes()))
            self.assertEqual(again.dtype.str, ">f4")
            np.testing.assert_allclose(again, self.field.ravel(), atol=0.0101 if bound else 0)
        native = self.codec().encode(self.field)
        self.refused(lambda: self.codec().decode(native, np.zeros(self.field.shape, ">f4")), ">f4")
        self.refused(lambda: self.codec(None, ">f4").encode(self.field), "<f4")
        # Chunks of another type are not decoded as this type.
        self.refused(lambda: self.codec(None, ">f8").decode(native), "float32")

    def test_chunks_of_other_kinds_are_refused(self):
        codec, typed = self.codec("abs:0.1"), self.codec("abs:0.1", "f4")
        for chunk in (np.zeros(2, complex), b"bytes", np.zeros(2, bool), np.zeros(2, "f4,f4"),
                      np.zeros(2, "M8[s]"), np.ma.masked_less(np.ones(3), 2)):
            self.refused(lambda c=chunk: codec.encode(c))
        np.testing.assert_array_equal(codec.decode(codec.encode(np.arange(4))), np.arange(4))
        for chunk in (np.arange(4, dtype="i4"), np.zeros(4), b"odd", np.zeros(4, "M8[s]")):
            self.refused(lambda c=chunk: typed.encode(c))
        # Floats of one type are not accepted as bits of another type.
        for chunk in (np.zeros(4), b"odd", np.zeros(4, ">f4")):
            self.refused(lambda c=chunk: self.codec(None, "f4").encode(c))
        for bound in (0.1, 1, ""):
            self.refused(lambda b=bound: self.codec(b), "rel:" if bound else "text")
        for dtype in ("f4,f4", "c8", "M8[s]"):
            self.refused(lambda d=dtype: self.codec(None, d))
        self.refused(lambda: self.codec("abs:1", "f2", "dense"), "not for f16")

    def test_fill_values_are_kept(self):
        field = self.field.copy()
        field[5:30, 20:] = -9999
        codec = self.codec("rel:1e-3", fill_value=-9999)
        self.assertEqual(numcodecs.get_codec(codec.get_config()), codec)
        back = codec.decode(codec.encode(field))
        np.testing.assert_array_equal(back == -9999, field == -9999)
        span = np.ptp(self.field)
        np.testing.assert_allclose(back, field, rtol=0, atol=1.001e-3 * span)

    def test_a_suspected_fill_value_is_refused(self):
        codec = self.codec("rel:1e-3", fill_value="refuse")
        self.assertEqual(numcodecs.get_codec(codec.get_config()), codec)
        field = np.sin(np.arange(4000) * 1e-2)
        codec.encode(field)
        field[5:90] = 1e20
        self.refused(lambda: codec.encode(field), "sets the value range")

    def test_fill_values_of_all_types_of_numbers_are_stored(self):
        for fill in (np.float32(1e20), np.float64(1e20), np.int64(-9999), -9999, np.array(1e20)):
            codec = self.codec("rel:1e-3", fill_value=fill)
            again = numcodecs.get_codec(json.loads(json.dumps(codec.get_config())))
            self.assertEqual((again, again.fill_value), (codec, float(fill)))
        self.refused(lambda: self.codec("rel:1e-3", fill_value="none"), "number")

    def test_views_with_gaps_keep_their_shape(self):
        for view in (self.field[::2, ::-3], self.field[:, 1:5],
                     np.array(self.field.reshape(4, 16, 100).transpose(1, 0, 2))):
            codec = self.codec()
            np.testing.assert_array_equal(codec.decode(codec.encode(view)), view)

    def test_decode_writes_into_out(self):
        codec = self.codec()
        data = codec.encode(self.field)
        for out in (np.zeros_like(self.field), np.zeros(self.field.size, "f4"),
                    np.zeros((128, 100), "f4")[::2], bytearray(self.field.nbytes),
                    memoryview(bytearray(self.field.nbytes)), np.zeros(self.field.nbytes, "u1")):
            self.assertIs(codec.decode(data, out), out)
            got = np.asarray(out)
            got = got.view("f4") if got.dtype == np.uint8 else got
            np.testing.assert_array_equal(got.reshape(self.field.shape), self.field)
        column = np.zeros(self.field.shape, "f4", order="F")
        codec.decode(codec.encode(np.asfortranarray(self.field)), column)
        np.testing.assert_array_equal(column, self.field)
        # The order in memory may be another than that of the chunk.
        for out in (np.zeros_like(column), np.zeros_like(self.field),
                    np.zeros((100, 64), "f4").T, np.zeros((64, 200), "f4")[:, ::2]):
            for order in "CF":
                out[...] = 0
                codec.decode(codec.encode(np.asarray(self.field, order=order)), out)
                np.testing.assert_array_equal(out, self.field)
        fixed = np.zeros_like(self.field)
        fixed.flags.writeable = False
        for out in (np.zeros(3, "f4"), np.zeros(self.field.size, "i4"), fixed,
                    np.zeros(self.field.size // 2, "f8"), np.ma.masked_all(self.field.shape, "f4")):
            self.refused(lambda o=out: codec.decode(data, o), "out")

    def test_bfloat16_arrays_have_the_type_of_ml_dtypes(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("bfloat16: no ml_dtypes")
        field = self.field.astype(ml_dtypes.bfloat16)
        codec = numcodecs.get_codec({"id": "foldwire", "bound": None, "dtype": "bfloat16"})
        self.assertEqual(codec.get_config()["dtype"], "bfloat16")
        for one in (codec, self.codec()):
            back = one.decode(one.encode(field))
            np.testing.assert_array_equal(back.view("u2"), field.view("u2"))

    def stored(self, array, chunks, **how):
        """Writes an array with zarr and a codec, and returns what zarr reads."""
        with tempfile.TemporaryDirectory() as folder:
            made = zarr.create_array(folder, shape=array.shape, chunks=chunks, dtype=array.dtype,
                                     zarr_format=2, **how)
            made[...] = array
            opened = zarr.open_array(folder, mode="r+")
            self.assertEqual(opened.metadata.dtype.to_native_dtype(), array.dtype)
            if array.shape == self.field.shape:
                opened[3:7, 2:9] = array[3:7, 2:9]
                self.assertEqual(opened[5, 6].dtype, array.dtype)
                np.testing.assert_allclose(opened[3:7, 2:9], array[3:7, 2:9], atol=0.0101)
            return opened[...]

    @unittest.skipIf(zarr is None, "zarr: no version 3")
    def test_zarr_stores_arrays_with_the_codec(self):
        for order in "CF":
            for dtype in ("f4", "f8", "f2"):
                for array in layouts(self.field.astype(dtype)):
                    # Whole chunks, and partial ones at the edges.
                    chunks = tuple(max(1, min(n, 40)) for n in array.shape)
                    for bound, most in ((None, 0.0), ("abs:0.01", 0.0101)):
                        if dtype == "f2" and bound:
                            continue
                        codec = self.codec(bound)
                        back = self.stored(array, chunks, order=order, compressors=codec)
                        np.testing.assert_allclose(
                            back, array, rtol=0, atol=most, err_msg=f"{order} {dtype}")

    @unittest.skipIf(zarr is None, "zarr: no version 3")
    def test_the_codec_works_with_filters_and_as_a_filter(self):
        if not hasattr(numcodecs, "BitRound"):
            self.skipTest("numcodecs: too old for this test")
        for order in "CF":
            if order == "C":
                # BitRound passes chunks on as integers that hold the bits of floats. Only order C:
                # BitRound itself transposes chunks in Fortran order, whatever the codec.
                back = self.stored(self.field, (16, 30), filters=[numcodecs.BitRound(20)],
                                   compressors=self.codec(None, "f4"))
                np.testing.assert_allclose(back, self.field, rtol=1e-6)
            back = self.stored(self.field, (16, 30), order=order, filters=[numcodecs.Shuffle(4)],
                               compressors=self.codec(None, "f4"))
            np.testing.assert_array_equal(back, self.field)
            # Foldwire as a filter, followed by a general codec.
            back = self.stored(self.field, (16, 30), order=order,
                               filters=[self.codec("abs:0.01")], compressors=numcodecs.Zlib())
            np.testing.assert_allclose(back, self.field, atol=0.0101)

    @unittest.skipIf(zarr is None, "zarr: no version 3")
    def test_xarray_stores_data_sets_with_the_codec(self):
        try:
            import xarray
        except ImportError:
            self.skipTest("xarray: not installed")
        for dtype in ("<f4", ">f4"):
            field = self.field.astype(dtype)
            data = xarray.Dataset({"t": (("y", "x"), field)}, {"x": np.arange(100)})
            codec, n_stored = self.codec("abs:0.01"), 0
            for keyword in ("compressors", "compressor"):
                with tempfile.TemporaryDirectory() as folder:
                    try:
                        data.to_zarr(folder, zarr_format=2, mode="w", consolidated=False,
                                     encoding={"t": {keyword: codec, "chunks": (16, 30)}})
                    except ValueError as failure:
                        # Keywords depend on the version of zarr.
                        self.assertIn(keyword, str(failure))
                        continue
                    back = xarray.open_zarr(folder, consolidated=False).load()
                    stored = zarr.open_array(folder + "/t", mode="r").compressors
                    self.assertEqual(stored, (codec,))
                np.testing.assert_allclose(back["t"], self.field, atol=0.0101)
                np.testing.assert_array_equal(back["x"], np.arange(100))
                n_stored += 1
            self.assertGreater(n_stored, 0)


if __name__ == "__main__":
    unittest.main()
