"""Tests of fill values in collectives: they keep their place, and count in no bound."""

import unittest
import warnings

import numpy as np

import foldwire

N = 3
FILL = 1e20


def own(rank, dtype=np.float32):
    """Depths between 0 and 2, with missing values that differ between ranks."""
    values = (1 + np.sin(np.arange(12000) * 1e-3 + rank)).astype(dtype).reshape(3, 4000)
    values[rank, 100:300] = FILL
    values[:, 500 + rank::1000] = FILL
    return values


ALL = np.stack([own(rank) for rank in range(N)])
MISSING = ALL == np.float32(FILL)


def check(case, got, expected, missing, error):
    case.assertEqual(got.shape, expected.shape)
    np.testing.assert_array_equal(got[missing], got.dtype.type(FILL))
    off = np.abs(got.astype("f8") - expected)[~missing]
    case.assertLessEqual(off.max(initial=0), error)


class FillValues(unittest.TestCase):
    def test_reductions(self):
        missing = MISSING.any(0)
        data = np.where(MISSING, np.nan, ALL.astype("f8"))

        def program(comm):
            for bound, error in (("rel:1e-3", 2e-3), ("abs:1e-3", 1e-3), (None, 1e-6)):
                for op, expected in (("sum", data.sum(0)), ("avg", data.mean(0)),
                                     ("max", data.max(0)), ("prod", data.prod(0))):
                    if op == "prod" and bound:
                        continue
                    for x in (own(comm.rank), np.asfortranarray(own(comm.rank))):
                        got = comm.all_reduce(x, op, bound, fill_value=FILL)
                        check(self, got, expected, missing, 3 * error)
                        np.testing.assert_array_equal(x, own(comm.rank))
                x = own(comm.rank)
                self.assertIs(comm.all_reduce(x, bound=bound, out=x, fill_value=FILL), x)
                check(self, x, data.sum(0), missing, 3 * error)
                got = comm.start_all_reduce(own(comm.rank), bound=bound, fill_value=FILL).wait()
                np.testing.assert_array_equal(got, x)
                got = comm.reduce(own(comm.rank), root=1, bound=bound, fill_value=FILL)
                if comm.rank == 1:
                    check(self, got, data.sum(0), missing, 3 * error)
                got = comm.reduce_scatter(own(comm.rank), bound=bound, fill_value=FILL)
                share = comm.share(data[0].size)
                check(self, got, data.sum(0).reshape(-1)[share], missing.reshape(-1)[share],
                      3 * error)
                before = data[: comm.rank + 1]
                got = comm.scan(own(comm.rank), bound=bound, fill_value=FILL)
                check(self, got, before.sum(0), np.isnan(before).any(0), 3 * error)
                got = comm.exclusive_scan(own(comm.rank), bound=bound, fill_value=FILL)
                before = before[:-1]
                check(self, got, before.sum(0), np.isnan(before).any(0), 3 * error)

        foldwire.run(N, program)

    def test_groups(self):
        missing = MISSING.any(0)
        data = np.where(MISSING, np.nan, ALL.astype("f8"))

        def program(comm):
            for bounds, error in ((None, 1e-6), ("rel:1e-3", 2e-3), (["abs:1e-3", None], 1e-3)):
                arrays = [own(comm.rank), np.asfortranarray(own(comm.rank))]
                comm.all_reduce_group(arrays, bounds=bounds, fill_value=FILL)
                for got in arrays:
                    check(self, got, data.sum(0), missing, 3 * error)
            for arguments in ({"fill_value": np.nan},
                              {"fill_value": 1, "feedback": [np.zeros(3)]}):
                with self.assertRaisesRegex(foldwire.Error, "fill"):
                    comm.all_reduce_group([np.ones(3)], bounds="abs:1", **arguments)

        foldwire.run(N, program)

    def test_without_one_the_fill_value_is_a_number_and_sets_the_range(self):
        def program(comm):
            got = comm.all_reduce(own(comm.rank), bound="rel:1e-3")
            # The bound is 1e17, so nothing is left of the depths.
            off = np.abs(got - ALL.sum(0))[~MISSING.any(0)]
            self.assertGreater(off.max(), 1)
            exact = comm.all_reduce(own(comm.rank))
            self.assertEqual(exact[0, 100], ALL[:, 0, 100].sum())

        with self.assertWarns(Warning):
            foldwire.run(N, program)

    def test_a_suspected_fill_value_is_refused_on_all_ranks(self):
        def program(comm):
            x = np.sin(np.arange(9000) * 1e-3)
            if comm.rank == 1:
                x[100:300] = FILL
            for fill, plan in (("refuse", None), (None, "fill:refuse")):
                with self.assertRaisesRegex(foldwire.Error, "sets the value range") as caught:
                    comm.all_reduce(x, bound="rel:1e-3", plan=plan, fill_value=fill)
                self.assertEqual(caught.exception.kind, "argument")
                with self.assertRaisesRegex(foldwire.Error, "sets the value range"):
                    comm.all_reduce_group([x.copy()], bounds="rel:1e-3", plan=plan,
                                          fill_value=fill)
            # Nothing is lost here.
            comm.all_reduce(x, bound="abs:1e-3", fill_value="refuse")
            comm.all_reduce(np.arange(9), fill_value="refuse")
            got = comm.all_reduce(x, "max", "rel:1e-3", plan="fill:refuse", fill_value=FILL)
            self.assertTrue((got[100:300] == FILL).all())

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            foldwire.run(3, program)

    def test_a_warning_that_is_an_error_comes_after_the_result(self):
        x = np.linspace(0, 1, 1000).reshape(10, 100)
        x[0, 5] = 1e20

        def calls(comm):
            for out in (np.zeros((10, 100)), np.zeros((10, 100), order="F")):
                yield out, lambda: comm.all_reduce(x, out=out, bound="rel:1e-3")
                yield out, lambda: comm.start_all_reduce(x, out=out, bound="rel:1e-3").wait()
                yield out, lambda: comm.all_reduce_group([out], bounds="rel:1e-3")

        def program(comm):
            for out, call in calls(comm):
                out[...] = x
                with self.assertRaisesRegex(UserWarning, "sets the value range"):
                    call()
                self.assertGreater(out[0, 5], 1e20)
                self.assertEqual(comm.report["suspected_fill"], 1e20)

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            foldwire.run(2, program)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            comm = foldwire.threads(1)[0]
            comm.all_reduce(x, bound="rel:1e-3")
            foldwire.compress(x, "rel:1e-3")
        # Warnings name the line of the program.
        self.assertEqual({one.filename for one in said}, {__file__})

    def test_movement(self):
        def program(comm):
            rank = comm.rank
            for bound, error in (("rel:1e-3", 2e-3), (None, 0)):
                wanted = {"bound": bound, "fill_value": FILL}
                got = comm.all_gather(own(rank), **wanted)
                check(self, got, ALL, MISSING, error)
                got = comm.gather(own(rank), root=2, **wanted)
                if rank == 2:
                    check(self, got, ALL, MISSING, error)
                x = own(rank)
                check(self, comm.broadcast(x, root=1, **wanted), ALL[1], MISSING[1], error)
                out = np.zeros((3, 4000), np.float32)
                comm.scatter(ALL if rank == 0 else None, out, **wanted)
                check(self, out, ALL[rank], MISSING[rank], error)
                got = comm.all_to_all(own(rank), **wanted)
                check(self, got, ALL[:, rank], MISSING[:, rank], error)
                got = comm.all_to_all_v(own(rank), [1] * N, [1] * N, **wanted)
                check(self, got, ALL[:, rank], MISSING[:, rank], error)
            # NaN of other kinds stays where it is.
            x = own(rank)
            x[1, 7] = np.nan
            got = comm.all_gather(x, fill_value=FILL)
            self.assertTrue(np.isnan(got[:, 1, 7]).all())
            # The NaN that stands for fill values on the way is a NaN like others.
            x[1, 7:8].view(np.uint32)[:] = 0x7fc0003a
            got = comm.all_gather(x, fill_value=FILL)
            self.assertTrue(np.isnan(got[:, 1, 7]).all())
            # In a plan, it applies to all calls.
            got = comm.all_gather(own(rank), bound="rel:1e-3", plan="fill:1e20")
            check(self, got, ALL, MISSING, 2e-3)

        foldwire.run(N, program)

    def test_types_and_errors(self):
        def program(comm):
            for dtype, fill in ((np.float64, -9999.0), (np.float16, 60000), (np.float32, np.inf)):
                x = np.arange(50).astype(dtype)
                x[comm.rank] = fill
                got = comm.all_reduce(x, fill_value=fill)
                expected = 2 * np.arange(50).astype(dtype)
                expected[:2] = fill
                np.testing.assert_array_equal(got, expected)
            half = np.full(4, 0x3f80, np.uint16)
            half[comm.rank] = 0xc61c  # -9984
            got = comm.all_reduce(half, dtype="bfloat16", fill_value=-9984)
            self.assertEqual(got.tolist(), [0xc61c, 0xc61c, 0x4000, 0x4000])
            for x, arguments, field in (
                (np.arange(3), {}, "fill_value"),
                (np.ones(3), {"fill_value": "none"}, "fill_value"),
                (np.ones(3), {"fill_value": np.nan}, "fill_value"),
                (np.ones(3), {"plan": "codec:truncate:16"}, "plan"),
                (np.ma.masked_array(np.ones(3), [0, 1, 0]), {}, "array"),
            ):
                with self.assertRaises(foldwire.Error) as caught:
                    comm.all_gather(x, **{"fill_value": 1, **arguments})
                self.assertEqual(caught.exception.field, field)

        foldwire.run(2, program)


if __name__ == "__main__":
    unittest.main()
