"""Tests of compression to bytes."""

import pickle
import unittest

import numpy as np

import foldwire


class Codec(unittest.TestCase):
    def setUp(self):
        self.field = np.cumsum(np.random.default_rng(1).normal(size=(40, 50, 10)), axis=1)

    def test_values_come_back_within_the_bound_and_compressed(self):
        span = self.field.max() - self.field.min()
        for dtype in (np.float32, np.float64, np.float16):
            field = self.field.astype(dtype)
            for bound, most in (("abs:0.125", 0.125), ("rel:1e-2", span * 1e-2)):
                data = foldwire.compress(field, bound)
                self.assertLess(len(data), field.nbytes)
                back = foldwire.decompress(data, field.shape)
                self.assertEqual((back.dtype, back.shape), (field.dtype, field.shape))
                off = np.abs(back.astype(np.float64) - field.astype(np.float64)).max()
                self.assertLessEqual(off, most * (1 + 1e-6), (dtype, bound))

    def test_without_a_bound_every_bit_comes_back(self):
        odd = np.array([0.0, -0.0, np.nan, np.inf, 1e-310, 1.5])
        for bound in (None, "lossless", "exact"):
            back = foldwire.decompress(foldwire.compress(odd, bound))
            np.testing.assert_array_equal(back.view(np.uint64), odd.view(np.uint64))
        self.assertEqual(foldwire.info(foldwire.compress(odd)).bound, 0.0)

    def test_lossless_refuses_a_codec_that_loses_bits(self):
        for bound in ("lossless", "exact", " lossless "):
            for codec in ("truncate:16", "zfp-rate:8", "dense"):
                with self.assertRaises(foldwire.Error) as raised:
                    foldwire.compress(self.field, bound, codec)
                self.assertEqual(raised.exception.field, "codec")
            back = foldwire.decompress(foldwire.compress(self.field, bound, "lossless"))
            np.testing.assert_array_equal(back, self.field)
        self.assertEqual(foldwire.info(foldwire.compress(self.field, None, "truncate:16")).bound,
                         np.inf)

    def test_a_fill_value_keeps_its_bits_and_does_not_widen_the_range(self):
        for dtype, fill in (("f4", 1e20), (">f8", -9999.0), ("f2", -9999.0)):
            field = self.field.astype(dtype)
            span = float(field.max()) - float(field.min())
            field[3:20, 10:, :] = fill
            is_fill = field == field[3, 10, 0]
            for given in (field, np.asfortranarray(field)):
                data = foldwire.compress(given, "rel:1e-2", fill_value=fill)
                self.assertEqual(foldwire.info(data).fill_value, fill)
                back = foldwire.decompress(data)
                np.testing.assert_array_equal(back == field[3, 10, 0], is_fill)
                off = np.abs(back[~is_fill].astype("f8") - field[~is_fill].astype("f8")).max()
                self.assertLessEqual(off, span * 1.001e-2, dtype)
            with self.assertWarnsRegex(UserWarning, "sets the value range"):
                foldwire.compress(field, "rel:1e-2")
        with self.assertRaisesRegex(foldwire.Error, "floats, not int64"):
            foldwire.compress(np.arange(9), "abs:1", fill_value=-1)
        with self.assertRaisesRegex(foldwire.Error, "fill values"):
            foldwire.compress(self.field, codec="truncate:16", fill_value=1e20)

    def test_arrays_of_any_layout_are_accepted(self):
        view = self.field[::2, ::-1, 1]
        back = foldwire.decompress(foldwire.compress(view), view.shape)
        np.testing.assert_array_equal(back, view)
        self.assertEqual(foldwire.decompress(foldwire.compress(1.5)), 1.5)

    def test_type_shape_and_orders_come_back(self):
        for dtype in ("f4", "f8", ">f4", ">f8", "f2", ">f2", "i1", "u2", ">i4", "i8", ">u8", bool):
            array = (self.field * 3).astype(dtype)
            fixed = array.copy()
            fixed.flags.writeable = False
            for given in (array, np.asfortranarray(array), array.transpose(1, 2, 0), fixed,
                          array[::2, ::-1, 3:], array[:0], array[0, 0, 0],
                          np.array(array[0, 0, 0])):
                for bound in (None, "abs:0.5"):
                    data = foldwire.compress(given, bound)
                    back, info = foldwire.decompress(data), foldwire.info(data)
                    self.assertEqual((back.dtype, back.shape), (given.dtype, given.shape))
                    self.assertEqual((info.dtype, info.shape), (given.dtype, given.shape))
                    self.assertEqual(info.n_values, given.size)
                    self.assertTrue(back.flags.writeable)
                    if bound is None or back.dtype.kind not in "f":
                        np.testing.assert_array_equal(back, given)
                    else:
                        np.testing.assert_allclose(back, given, rtol=0, atol=0.501)
            column = foldwire.decompress(foldwire.compress(np.asfortranarray(array)))
            self.assertTrue(column.flags.f_contiguous and not column.flags.c_contiguous)
            self.assertEqual(foldwire.info(foldwire.compress(column)).order, "F")

    def test_integers_are_exact_and_shorter(self):
        for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"):
            array = (np.arange(30_000) // 300).astype(dtype)
            data = foldwire.compress(array, "rel:0.1")
            self.assertLess(len(data), array.nbytes / 3, dtype)
            np.testing.assert_array_equal(foldwire.decompress(data), array)
            self.assertEqual(foldwire.info(data).bound, 0.0)

    def test_the_best_codec_is_chosen_or_one_is_named(self):
        sizes = {}
        for codec in ("auto", "fz-light", "fz-nd", "dense", "szx"):
            data = foldwire.compress(self.field, "abs:0.1", codec)
            sizes[codec] = len(data)
            np.testing.assert_allclose(foldwire.decompress(data), self.field, atol=0.1001)
        self.assertEqual(sizes["auto"], min(sizes.values()))
        data = foldwire.compress(self.field, codec="truncate:40")
        self.assertEqual(foldwire.info(data).bound, np.inf)
        # A flat array with its shape is as short as the array.
        flat = foldwire.compress(self.field.ravel(), "abs:0.1", shape=self.field.shape)
        self.assertLess(abs(len(flat) - sizes["auto"]), 64)
        self.assertEqual(foldwire.info(flat).shape, (self.field.size,))


    def test_info_reads_type_count_and_bound(self):
        info = foldwire.info(foldwire.compress(self.field, "abs:0.5"))
        self.assertEqual((info.dtype, info.n_values), (np.float64, self.field.size))
        self.assertLessEqual(info.bound, 0.5)

    def test_a_suspected_fill_value_is_refused(self):
        field = self.field.copy()
        field[3:20] = 1e20
        with self.assertRaisesRegex(foldwire.Error, "sets the value range") as caught:
            foldwire.compress(field, "rel:1e-3", fill_value="refuse")
        self.assertEqual(caught.exception.field, "fill_value")
        self.assertEqual(caught.exception.kind, "argument")
        for bound in ("abs:1", None):
            foldwire.compress(field, bound, fill_value="refuse")
        foldwire.compress(self.field, "rel:1e-3", fill_value="refuse")
        foldwire.compress(np.arange(9), "rel:1e-3", fill_value="refuse")

    def test_fill_values_among_the_attributes_of_an_array_are_kept(self):
        class Marked(np.ndarray):
            """An array with attributes, as xarray's and h5py's have."""

        def marked(attributes, dtype="f4"):
            array = self.field.astype(dtype)
            array[5:9] = fill
            array = array.view(Marked)
            array.attrs = attributes
            return array

        for dtype, fill in (("f4", np.float32(1e20)), ("f8", -9999.0), ("f8", 1e36)):
            is_missing = marked({}, dtype) == fill
            for attributes in ({"_FillValue": fill}, {"missing_value": fill},
                               {"_FillValue": np.array([fill]), "missing_value": 7.0},
                               {"_FillValue": np.nan, "missing_value": fill}):
                data = foldwire.compress(marked(attributes, dtype), "rel:1e-3")
                self.assertEqual(foldwire.info(data).fill_value, float(fill))
                back = foldwire.decompress(data)
                np.testing.assert_array_equal(back == fill, is_missing)
                off = np.abs(back - self.field)[~np.asarray(is_missing)].max()
                self.assertLessEqual(off, 1.001e-3 * np.ptp(self.field))
            # Exact arrays need none, and an argument comes first.
            data = foldwire.compress(marked({"_FillValue": fill}, dtype))
            self.assertIsNone(foldwire.info(data).fill_value)
            data = foldwire.compress(marked({"_FillValue": 3.0}, dtype), "abs:1", fill_value=fill)
            self.assertEqual(foldwire.info(data).fill_value, float(fill))
        fill = 0
        for attributes in ({}, {"_FillValue": 0.0}, {"_FillValue": np.inf}, None, "text",
                           {"_FillValue": "none"}, {"_FillValue": [1.0, 2.0]}):
            data = foldwire.compress(marked(attributes), "abs:0.1")
            self.assertIsNone(foldwire.info(data).fill_value, attributes)
        data = foldwire.compress(marked({"_FillValue": 7}, "i4"), "abs:0.1")
        self.assertIsNone(foldwire.info(data).fill_value)

        class Table:
            """Has attributes and no type of its own, as pandas' tables do."""

            def __init__(self, array, attributes):
                self.array, self.attrs = array, attributes

            def __array__(self, dtype=None, copy=None):
                return np.asarray(self.array, dtype)

        fill = -9999.0
        table = np.asarray(marked({}, "f8"))
        for attributes, kept in (({}, None), ({"_FillValue": fill}, fill)):
            data = foldwire.compress(Table(table, attributes), "rel:1e-3")
            self.assertEqual(foldwire.info(data).fill_value, kept)
        try:
            import xarray
        except ImportError:
            return
        fill = 1e20
        array = xarray.DataArray(np.asarray(marked({}, "f8")), attrs={"_FillValue": fill})
        data = foldwire.compress(array, "rel:1e-3")
        self.assertEqual(foldwire.info(data).fill_value, fill)

    def test_damaged_bytes_are_an_error(self):
        data = bytearray(foldwire.compress(self.field, "rel:1e-3"))
        # The head has 56 bytes.
        for end in (0, 10, 55, len(data) - 1):
            with self.assertRaises(foldwire.Error) as raised:
                foldwire.decompress(data[:end])
            self.assertEqual(raised.exception.kind, "damaged")
        data[100] ^= 1
        with self.assertRaises(foldwire.Error):
            foldwire.decompress(data)

    def test_wrong_arguments_say_what_to_change(self):
        four = np.zeros(4)
        for arguments, kind, field in (
            ((four, "1e-3"), "argument", "bound"),
            ((four, "abs:-1"), "argument", "bound"),
            ((four, "rel:2"), "argument", "bound"),
            ((four, "abs:1", "zip"), "argument", "codec"),
            ((four, "abs:1", None), "argument", "codec"),
            ((four, None, "truncate:60"), "argument", "codec"),
            ((four, "abs:1", "auto", (3, 2)), "argument", "shape"),
            ((four, "abs:1", "auto", (-2, -2)), "argument", "shape"),
            ((four, "abs:1", "auto", "x"), "argument", "shape"),
            ((four.astype("f2"), "abs:1", "dense"), "unsupported", "codec"),
            ((four.astype("i4"), "abs:1", "dense"), "unsupported", "codec"),
            ((four.astype("c16"),), "unsupported", "dtype"),
            ((np.array(["text"]),), "unsupported", "dtype"),
            ((np.ma.masked_less(four, 1), "abs:1"), "unsupported", "array"),
        ):
            with self.assertRaises(foldwire.Error) as raised:
                foldwire.compress(*arguments)
            error = raised.exception
            self.assertEqual((error.kind, error.field), (kind, field), str(error))
            self.assertTrue(error.is_usage)

    def test_an_error_can_be_pickled(self):
        error = foldwire.Error("no", kind="mismatch", rank=3, field="count", ours="1", theirs="2")
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(again), vars(again)), (str(error), vars(error)))

    def test_bfloat16_arrays_have_the_type_of_ml_dtypes(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("bfloat16: no ml_dtypes")
        field = self.field.astype(ml_dtypes.bfloat16)
        back = foldwire.decompress(foldwire.compress(field), field.shape)
        np.testing.assert_array_equal(back.view(np.uint16), field.view(np.uint16))
        total = foldwire.run(2, lambda comm: comm.all_reduce(field, "max"))[0]
        np.testing.assert_array_equal(total.view(np.uint16), field.view(np.uint16))


if __name__ == "__main__":
    unittest.main()
