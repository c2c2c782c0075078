"""Tests of reproducible sums against math.fsum, which rounds once, too."""

import math
import unittest

import numpy as np

import foldwire


def values(n, seed=0):
    """Values of both signs from 1e-12 to 1e12."""
    random = np.random.default_rng(seed)
    return random.standard_normal(n) * 10.0 ** random.uniform(-12, 12, n)


class Sums(unittest.TestCase):
    def test_bits_do_not_depend_on_ranks_and_order(self):
        whole = values(3000)
        expected = math.fsum(whole)
        for n in (1, 2, 3, 7):
            np.random.default_rng(n).shuffle(whole)
            dealt = np.array_split(whole, n)

            def program(comm):
                self.assertEqual(comm.repro_sum(dealt[comm.rank]), expected)
                self.assertGreaterEqual(comm.report["raw_bytes"], 0)

            foldwire.run(n, program)

    def test_axes(self):
        def program(comm):
            # The ranks' arrays differ in length along the summed axis.
            own = values((4 + comm.rank) * 30).reshape(4 + comm.rank, 5, 6)
            all_own = [values((4 + r) * 30).reshape(4 + r, 5, 6) for r in range(comm.size)]
            whole = np.concatenate(all_own)
            first = comm.repro_sum(own, axis=0)
            self.assertEqual((first.shape, first.dtype), ((5, 6), np.float64))
            for at in np.ndindex(5, 6):
                self.assertEqual(first[at], math.fsum(whole[(slice(None), *at)]))
            for axis in ((0, 1), (-2, 0)):
                sums = comm.repro_sum(own, axis=axis)
                np.testing.assert_array_equal(
                    sums, [math.fsum(whole[:, :, k].ravel()) for k in range(6)])
            moved = np.asfortranarray(np.moveaxis(own, 0, 1))
            np.testing.assert_array_equal(comm.repro_sum(moved, axis=1), first)
            each = comm.repro_sum(own[:4], axis=())
            self.assertEqual(each.shape, (4, 5, 6))
            three = [one[:4] for one in all_own]
            self.assertEqual(each[3, 4, 5], math.fsum(one[3, 4, 5] for one in three))

        foldwire.run(3, program)

    def test_special_values_and_types(self):
        def program(comm):
            for own, expected in (
                ([1e308, 1e308, -1e308, -1e308, 1.5], 3.0),
                ([1e308, 1e308], math.inf),
                ([math.inf, -math.inf], math.nan),
                ([math.nan], math.nan),
                ([5e-324], 1e-323),
                ([], 0.0),
            ):
                np.testing.assert_equal(comm.repro_sum(own), expected)
            self.assertEqual(math.copysign(1, comm.repro_sum([-0.0])), -1)
            self.assertEqual(comm.repro_sum(np.float32(0.1)), 2 * float(np.float32(0.1)))
            self.assertEqual(comm.repro_sum(np.ones((3, 2), np.float16)), 12)
            self.assertEqual(comm.repro_sum(np.full(9, 0x3f80, np.uint16), dtype="bfloat16"), 18)
            self.assertEqual(comm.repro_sum(np.ones((0, 3)), axis=0).tolist(), [0, 0, 0])
            self.assertEqual(comm.repro_sum(np.ones((0, 3)), axis=1).shape, (0,))
            self.assertEqual(comm.repro_sum(np.arange(4.0)[::-2].astype(">f8")), 8)

        foldwire.run(2, program)

    def test_errors(self):
        def program(comm):
            for arguments, field in (
                (([1, 2],), "dtype"),
                ((np.ma.masked_array([1.0, 2.0], [0, 1]),), "array"),
                ((np.ones(3), 1), "axis"),
                ((np.ones(3), -2), "axis"),
                ((np.ones((3, 3)), (1, -1)), "axis"),
                ((np.ones(3), 0.5), "axis"),
                ((np.float64(1), 0), "axis"),
            ):
                with self.assertRaises(foldwire.Error) as caught:
                    comm.repro_sum(*arguments)
                self.assertEqual(caught.exception.field, field)
            self.assertEqual(comm.repro_sum(np.ones(3)), 3.0 * comm.size)

        foldwire.run(2, program)


if __name__ == "__main__":
    unittest.main()
