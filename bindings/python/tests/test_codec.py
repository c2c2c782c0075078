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

    def test_arrays_of_any_layout_are_accepted(self):
        view = self.field[::2, ::-1, 1]
        back = foldwire.decompress(foldwire.compress(view), view.shape)
        np.testing.assert_array_equal(back, view)
        swapped = view.astype(">f8")
        np.testing.assert_array_equal(foldwire.decompress(foldwire.compress(swapped)), view.ravel())
        self.assertEqual(foldwire.decompress(foldwire.compress(np.zeros((0, 3)))).shape, (0,))
        self.assertEqual(foldwire.decompress(foldwire.compress(1.5)), 1.5)

    def test_info_reads_type_count_and_bound(self):
        info = foldwire.info(foldwire.compress(self.field, "abs:0.5"))
        self.assertEqual((info.dtype, info.n_values), (np.float64, self.field.size))
        self.assertLessEqual(info.bound, 0.5)

    def test_damaged_bytes_are_an_error(self):
        data = bytearray(foldwire.compress(self.field, "rel:1e-3"))
        # The header has 40 bytes.
        for end in (0, 10, 39, len(data) - 1):
            with self.assertRaises(foldwire.Error) as raised:
                foldwire.decompress(data[:end])
            self.assertEqual(raised.exception.kind, "damaged")
        data[100] ^= 1
        with self.assertRaises(foldwire.Error):
            foldwire.decompress(data)

    def test_wrong_arguments_say_what_to_change(self):
        for array, bound, kind in (
            (np.zeros(4), "1e-3", "argument"),
            (np.zeros(4), "abs:-1", "argument"),
            (np.zeros(4, np.int32), None, "unsupported"),
            (np.array(["text"]), None, "unsupported"),
        ):
            with self.assertRaises(foldwire.Error) as raised:
                foldwire.compress(array, bound)
            self.assertEqual(raised.exception.kind, kind)
            self.assertTrue(raised.exception.is_usage)

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
