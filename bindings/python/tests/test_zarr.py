"""Tests of the codec of zarr format 3."""

import tempfile
import unittest
import warnings

import numpy as np

try:
    import zarr
    # The codec needs zarr 3.
    zarr = zarr if hasattr(zarr, "create_array") else None
except ImportError:
    zarr = None

import foldwire


@unittest.skipIf(zarr is None, "zarr: no version 3")
class Zarr(unittest.TestCase):
    def setUp(self):
        import foldwire.zarr

        self.codec = foldwire.zarr.Foldwire
        self.field = np.cumsum(np.random.default_rng(2).normal(size=(64, 100)), 1)

    def stored(self, array, codec, **how):
        """Writes an array with zarr and a codec, and returns what zarr reads."""
        with tempfile.TemporaryDirectory() as folder:
            made = zarr.create_array(folder, shape=array.shape, dtype=array.dtype, zarr_format=3,
                                     serializer=codec, compressors=None, **how)
            made[...] = array
            opened = zarr.open_array(folder, mode="r")
            self.assertEqual(opened.serializer, codec)
            return opened[...]

    def test_arrays_of_all_types_are_stored(self):
        # 40 does not divide the shape.
        for how in ({"chunks": (40, 40)}, {"chunks": (16, 25), "shards": (32, 50)}):
            for dtype in ("f4", ">f4", "f8", "f2", "i1", "u2", "i4", ">i8", bool):
                for bound in (None, "abs:0.5"):
                    array = self.field.astype(dtype)
                    back = self.stored(array, self.codec(bound), **how)
                    self.assertEqual(back.dtype.newbyteorder("="), array.dtype.newbyteorder("="))
                    is_exact = bound is None or array.dtype.kind != "f"
                    np.testing.assert_allclose(back, array, rtol=0, atol=0 if is_exact else 0.501)

    def test_lossless_refuses_a_codec_that_loses_bits(self):
        with self.assertRaisesRegex(foldwire.Error, "lossy"):
            self.codec("lossless", "truncate:16")

    def test_numbers_empty_arrays_and_views_are_stored(self):
        for array in (np.array(1.5), np.zeros((0, 3)), np.asfortranarray(self.field),
                      self.field[::2, ::-3]):
            chunks = tuple(max(1, n) for n in array.shape)
            np.testing.assert_array_equal(self.stored(array, self.codec(), chunks=chunks), array)

    def test_wrong_arguments_are_refused_at_once(self):
        for arguments in (("1e-3",), ("rel:2",), (0.1,), ("abs:1", "zip")):
            with self.assertRaises(foldwire.Error):
                self.codec(*arguments)
        for dtype, arguments in (("c8", ("abs:1",)), ("f2", ("abs:1", "dense"))):
            with self.assertRaises(foldwire.Error):
                zarr.create_array({}, shape=(4,), dtype=dtype, serializer=self.codec(*arguments))

    def test_fill_values_of_all_types_of_numbers_are_stored(self):
        field = self.field.astype("f4")
        field[3:7] = 1e20
        for fill in (np.float32(1e20), np.float64(1e20), np.array(1e20, "f4"), 10**20):
            codec = self.codec("rel:1e-3", fill_value=fill)
            back = self.stored(field, codec, chunks=(64, 100))
            np.testing.assert_array_equal(back == field[3, 0], field == field[3, 0])
            np.testing.assert_allclose(back[8:], field[8:], rtol=0,
                                       atol=1.01e-3 * np.ptp(self.field))

    def test_a_suspected_fill_value_is_refused(self):
        codec = self.codec("rel:1e-3", fill_value="refuse")
        np.testing.assert_allclose(self.stored(self.field, codec), self.field,
                                   atol=1.01e-3 * np.ptp(self.field))
        holes = self.field.copy()
        holes[3:7] = 1e20
        with self.assertRaisesRegex(foldwire.Error, "sets the value range"):
            self.stored(holes, codec)
        # The array's own fill value is no longer suspected.
        back = self.stored(holes, codec, fill_value=1e20)
        np.testing.assert_array_equal(back == 1e20, holes == 1e20)

    def test_damaged_chunks_are_errors(self):
        store = {}
        made = zarr.create_array(store, shape=(100,), chunks=(100,), dtype="f4", name="a",
                                 serializer=self.codec("abs:0.1"), compressors=None)
        made[...] = np.arange(100)
        key = next(key for key in store if "/c/" in key)
        chunk = store[key].to_bytes()
        from zarr.core.buffer import default_buffer_prototype

        put = default_buffer_prototype().buffer.from_bytes
        for damaged in (chunk[:-1], chunk + b"x", chunk[:60] + b"?" + chunk[61:],
                        foldwire.compress(np.arange(100.0)),
                        foldwire.compress(np.zeros((10, 10), "f4"))):
            store[key] = put(damaged)
            with self.assertRaises(foldwire.Error) as raised:
                made[...]
            self.assertEqual(raised.exception.kind, "damaged")

    def test_xarray_stores_data_sets_with_the_codec(self):
        try:
            import xarray
        except ImportError:
            self.skipTest("xarray: not installed")
        field = self.field.astype("f4")
        holes = np.where(field > 0, field, np.nan)
        data = xarray.Dataset({"t": (("y", "x"), field), "holes": (("y", "x"), holes)},
                              {"x": np.arange(100)})
        codec = self.codec("abs:0.01")
        encoding = {name: {"serializer": codec, "compressors": None} for name in data.data_vars}
        with tempfile.TemporaryDirectory() as folder:
            data.to_zarr(folder, zarr_format=3, consolidated=False, encoding=encoding)
            back = xarray.open_zarr(folder, consolidated=False).load()
        for name in data.data_vars:
            np.testing.assert_allclose(back[name], data[name], atol=0.0101)
        np.testing.assert_array_equal(back["x"], np.arange(100))

    def test_fill_values_that_xarray_names_are_kept(self):
        try:
            import xarray
        except ImportError:
            self.skipTest("xarray: not installed")
        field = self.field.astype("f4")
        is_missing = np.zeros(field.shape, bool)
        is_missing[10:20, 30:60] = is_missing[::7, 3] = True
        holes = np.where(is_missing, np.float32(1e20), field)
        attributes = {"_FillValue": np.float32(1e20)}
        raw = xarray.Dataset({"t": (("y", "x"), holes, attributes)})
        masked = xarray.Dataset({"t": (("y", "x"), np.where(is_missing, np.nan, field))})
        codec = {"serializer": self.codec("rel:1e-3"), "compressors": None}
        most = 1.01e-3 * np.ptp(field[~is_missing])
        named = {"fill_value": 1e20}
        with tempfile.TemporaryDirectory() as folder:
            # xarray keeps `_FillValue` as an attribute, which no codec sees.
            with self.assertWarnsRegex(UserWarning, "sets the value range"):
                raw.to_zarr(folder, zarr_format=3, consolidated=False, encoding={"t": codec})
        for data, more in ((raw, named), (masked, {"_FillValue": np.float32(1e20), **named})):
            with tempfile.TemporaryDirectory() as folder:
                # The fill value does not set the range, so that no warning comes.
                with warnings.catch_warnings():
                    warnings.filterwarnings("error", "(?s).*value range")
                    data.to_zarr(folder, zarr_format=3, consolidated=False,
                                 encoding={"t": {**codec, **more}})
                stored = xarray.open_zarr(folder, consolidated=False, mask_and_scale=False).load()
                decoded = xarray.open_zarr(folder, consolidated=False).load()
            values = stored["t"].values
            np.testing.assert_array_equal(values == np.float32(1e20), is_missing)
            self.assertEqual(stored["t"].attrs["_FillValue"], np.float32(1e20))
            np.testing.assert_allclose(values[~is_missing], field[~is_missing], rtol=0, atol=most)
            self.assertTrue((values[~is_missing] != field[~is_missing]).any())
            np.testing.assert_array_equal(np.isnan(decoded["t"]), is_missing)


if __name__ == "__main__":
    unittest.main()
