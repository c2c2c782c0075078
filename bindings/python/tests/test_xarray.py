"""Tests of data sets of xarray in stores of zarr, formats 2 and 3."""

import tempfile
import unittest
import warnings

import numpy as np

try:
    import xarray
    import zarr
    # The codecs need zarr 3.
    xarray = xarray if hasattr(zarr, "create_array") else None
except ImportError:
    xarray = None

import foldwire
import foldwire.xarray

FILL = np.float32(1e20)


@unittest.skipIf(xarray is None, "xarray: it or zarr 3 is missing")
class DataSets(unittest.TestCase):
    def setUp(self):
        self.field = np.cumsum(np.random.default_rng(2).normal(size=(64, 100)), 1).astype("f4")
        self.is_missing = np.zeros(self.field.shape, bool)
        self.is_missing[10:20, 30:60] = self.is_missing[::7, 3] = True
        self.most = 1.01e-3 * np.ptp(self.field[~self.is_missing])

    def variable(self, is_masked, attributes=None, how=None):
        hole = np.float32(np.nan) if is_masked else FILL
        values = np.where(self.is_missing, hole, self.field)
        return xarray.Variable(("y", "x"), values, attributes, how)

    def stored(self, data, form, *arguments, **how):
        """Writes a data set, and returns it as it is stored and as xarray decodes it."""
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.filterwarnings("error", "(?s).*value range")
            made = foldwire.xarray.encoding(data, *arguments, zarr_format=form, **how)
            data.to_zarr(folder, zarr_format=form, consolidated=False, encoding=made)
            n_bytes = {name: array.nbytes_stored() for name, array in zarr.open(folder).arrays()}
            raw = xarray.open_zarr(folder, consolidated=False, mask_and_scale=False).load()
            return raw, xarray.open_zarr(folder, consolidated=False).load(), n_bytes

    def test_fill_values_of_attributes_and_of_encodings_are_followed(self):
        data = xarray.Dataset({
            "raw": self.variable(False, {"_FillValue": FILL}),
            "old": self.variable(False, {"missing_value": FILL}),
            "masked": self.variable(True, None, {"_FillValue": FILL}),
            "old_masked": self.variable(True, None, {"missing_value": FILL, "_FillValue": FILL}),
            "nan": self.variable(True),
        })
        for form in (2, 3):
            for fill in (None, "refuse", 1e20):
                raw, decoded, n_bytes = self.stored(data, form, "rel:1e-3", fill_value=fill)
                for name in data:
                    values, seen = raw[name].values, decoded[name].values
                    hole = np.isnan(values) if name == "nan" else values == FILL
                    np.testing.assert_array_equal(hole, self.is_missing, f"{name} {form}")
                    np.testing.assert_allclose(values[~hole], self.field[~hole], rtol=0,
                                               atol=self.most)
                    np.testing.assert_array_equal(np.isnan(seen), self.is_missing)
                    self.assertTrue((values[~hole] != self.field[~hole]).any())
                    self.assertLess(n_bytes[name], self.field.nbytes / 2)

    def test_a_fill_value_that_nothing_names_is_suspected(self):
        data = xarray.Dataset({"t": self.variable(False)})
        for form in (2, 3):
            with self.assertRaisesRegex(UserWarning, "sets the value range"):
                self.stored(data, form, "rel:1e-3")
            with self.assertRaisesRegex(foldwire.Error, "sets the value range"):
                self.stored(data, form, "rel:1e-3", fill_value="refuse")
            self.stored(data, form, "rel:1e-3", fill_value=1e20)

    def test_data_sets_that_were_read_are_written_again(self):
        packed = {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -32768, "chunks": (16, 100)}
        data = xarray.Dataset({
            "t": self.variable(True, {"units": "K"}, {"_FillValue": FILL, "chunks": (32, 50)}),
            "packed": self.variable(True, None, packed),
            "name": ("n", np.array(["a", "b"])),
            "when": ("n", np.array(["2026-01-01", "2026-01-02"], "M8[ns]")),
        })
        for form in (2, 3):
            _, once, _ = self.stored(data, form, "abs:0.01")
            _, twice, _ = self.stored(once, form, "abs:0.01")
            for decoded in (once, twice):
                self.assertEqual(decoded["t"].encoding["chunks"], (32, 50))
                np.testing.assert_array_equal(np.isnan(decoded["t"]), self.is_missing)
                np.testing.assert_allclose(decoded["packed"], data["packed"], atol=0.0051)
                np.testing.assert_array_equal(decoded["name"], data["name"])
                np.testing.assert_array_equal(decoded["when"], data["when"])
            np.testing.assert_allclose(twice["t"], data["t"], atol=0.0202)

    def test_packed_values_without_a_sign_stay_as_they_were(self):
        raw = xarray.Dataset({"t": ("x", np.array([60000 - 65536, 10, -1], "i2"), {
            "_FillValue": np.int16(-1), "_Unsigned": "true", "scale_factor": 0.1,
            "grid_mapping": "crs"}), "crs": ((), 0)})
        for form in (2, 3):
            data = xarray.decode_cf(raw, decode_coords="all")
            np.testing.assert_allclose(data["t"], [6000, 1, np.nan])
            stored, decoded, _ = self.stored(data, form, "rel:1e-3")
            np.testing.assert_array_equal(stored["t"], raw["t"])
            np.testing.assert_array_equal(decoded["t"], data["t"])
            self.assertEqual(stored["t"].attrs, raw["t"].attrs, form)

    def test_values_of_one_byte_are_stored(self):
        how = {"dtype": "u1", "scale_factor": 0.5, "_FillValue": 255}
        data = xarray.Dataset({
            "i1": ("x", np.arange(-3, 3, dtype="i1")),
            "u1": ("x", np.arange(6, dtype="u1")),
            "bool": ("x", np.arange(6) % 2 == 0),
            "packed": ("x", np.arange(6) / 2, None, how),
        })
        for form in (2, 3):
            stored, decoded, _ = self.stored(data, form, "rel:1e-3")
            xarray.testing.assert_equal(decoded, data)
            self.assertEqual(stored["packed"].dtype, np.uint8)

    def test_a_codec_for_floats_leaves_integers_to_an_exact_one(self):
        packed = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}
        data = xarray.Dataset({
            "t": self.variable(True),
            "i8": ("n", np.arange(6)),
            "bool": ("n", np.arange(6) % 2 == 0),
            "packed": ("n", np.arange(6) / 2, None, packed),
        })
        for form in (2, 3):
            for codec in ("dense", "fz-light"):
                _, decoded, n_bytes = self.stored(data, form, "rel:1e-3", codec=codec)
                xarray.testing.assert_equal(decoded.drop_vars("t"), data.drop_vars("t"))
                np.testing.assert_allclose(decoded["t"], data["t"], rtol=0, atol=self.most)
                self.assertLess(n_bytes["t"], self.field.nbytes / 2)

    def test_how_values_are_stored_in_zarr_stays(self):
        how = {"chunks": (16, 50), "shards": (32, 100), "fill_value": FILL}
        data = xarray.Dataset({"t": self.variable(False, None, how)})
        seen = self.stored(data, 3, "rel:1e-3")[0]["t"].encoding
        self.assertEqual({key: seen[key] for key in how}, how)
        data["t"].encoding["zlib"] = True   # as from netCDF
        seen = self.stored(data, 2, "rel:1e-3", fill_value=1e20)[0]["t"].encoding
        self.assertEqual(seen["chunks"], (16, 50))


if __name__ == "__main__":
    unittest.main()
