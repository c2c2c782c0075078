"""The codec of numcodecs, and zarr where it is installed."""

import tempfile
import unittest

import numpy as np

try:
    import numcodecs
except ImportError:
    numcodecs = None

import foldwire


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

    def test_a_bound_that_is_none_is_refused_at_once(self):
        with self.assertRaises(foldwire.Error):
            self.codec("1e-3")

    def test_zarr_stores_arrays_by_it(self):
        try:
            import zarr
        except ImportError:
            self.skipTest("zarr: not installed")
        with tempfile.TemporaryDirectory() as folder:
            array = zarr.create_array(
                folder, shape=self.field.shape, chunks=(16, 100), dtype="f4", zarr_format=2,
                compressors=self.codec("abs:0.01"))
            array[:] = self.field
            back = zarr.open_array(folder, mode="r")[:]
        self.assertLessEqual(np.abs(back - self.field).max(), 0.01001)


if __name__ == "__main__":
    unittest.main()
