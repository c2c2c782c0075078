"""Tests of every collective against numpy, on ranks that are threads."""

import unittest

import numpy as np

import foldwire

SIZES = (1, 2, 3, 5)
INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)


def of(rank, shape=(7, 3), dtype=np.float64):
    """Input of a rank: small whole numbers, whose sums are exact in every type."""
    return np.random.default_rng(rank).integers(0, 6, shape).astype(dtype)


def all_of(n, *args):
    return np.stack([of(rank, *args) for rank in range(n)])


class Collectives(unittest.TestCase):
    def each(self, program):
        """Runs a program with several numbers of ranks. It gets its communicator and all inputs."""
        for n in SIZES:
            with self.subTest(ranks=n):
                foldwire.run(n, program, all_of(n))

    def test_all_reduce(self):
        def program(comm, all):
            for op, expected in (
                ("sum", all.sum(0)),
                ("avg", all.mean(0)),
                ("min", all.min(0)),
                ("max", all.max(0)),
                ("prod", all.prod(0)),
            ):
                own = of(comm.rank)
                np.testing.assert_allclose(comm.all_reduce(own, op), expected, rtol=1e-14)
                np.testing.assert_array_equal(own, of(comm.rank))
                self.assertIs(comm.all_reduce(own, op, out=own), own)
                np.testing.assert_allclose(own, expected, rtol=1e-14)

        self.each(program)

    def test_every_type(self):
        def program(comm):
            for dtype in (*INTEGERS, np.float16, np.float32, np.float64):
                own = of(comm.rank, (11,), dtype)
                total = comm.all_reduce(own)
                self.assertEqual(total.dtype, dtype)
                np.testing.assert_array_equal(total, all_of(3, (11,), dtype).sum(0, dtype))
                np.testing.assert_array_equal(comm.all_gather(own), all_of(3, (11,), dtype))

        foldwire.run(3, program)

    def test_reduce_and_scans(self):
        def program(comm, all):
            root = comm.size - 1
            total = comm.reduce(of(comm.rank), root=root)
            if comm.rank == root:
                np.testing.assert_array_equal(total, all.sum(0))
            else:
                self.assertIsNone(total)
            np.testing.assert_array_equal(comm.scan(of(comm.rank)), all[: comm.rank + 1].sum(0))
            before = comm.exclusive_scan(of(comm.rank))
            np.testing.assert_array_equal(before, all[: comm.rank].sum(0))

        self.each(program)

    def test_reduce_scatter(self):
        def program(comm, all):
            total = all.sum(0).ravel()
            own = comm.reduce_scatter(of(comm.rank))
            np.testing.assert_array_equal(own, total[comm.share(total.size)])
            counts = [0] * comm.size
            counts[0], counts[-1] = 20, counts[-1] + 1
            counts[0] = total.size - sum(counts[1:])
            own = comm.reduce_scatter(of(comm.rank), counts=counts)
            start = sum(counts[: comm.rank])
            np.testing.assert_array_equal(own, total[start : start + counts[comm.rank]])

        self.each(program)

    def test_gathers(self):
        def program(comm, all):
            np.testing.assert_array_equal(comm.all_gather(of(comm.rank)), all)
            gathered = comm.gather(of(comm.rank), root=0)
            if comm.rank == 0:
                np.testing.assert_array_equal(gathered, all)
            counts = [rank % 3 for rank in range(comm.size)]
            rows = np.concatenate([all[rank][:count] for rank, count in enumerate(counts)])
            own = of(comm.rank)[: counts[comm.rank]]
            np.testing.assert_array_equal(comm.all_gather(own, counts=counts), rows)
            gathered = comm.gather(own, root=comm.size - 1, counts=counts)
            if comm.rank == comm.size - 1:
                np.testing.assert_array_equal(gathered, rows)
            whole = np.zeros_like(all)
            whole[comm.rank] = of(comm.rank)
            gathered = comm.gather(whole[comm.rank], out=whole if comm.rank == 0 else None)
            if comm.rank == 0:
                self.assertIs(gathered, whole)
                np.testing.assert_array_equal(whole, all)

        self.each(program)

    def test_broadcast_and_scatter(self):
        def program(comm, all):
            root = comm.size // 2
            array = of(comm.rank)
            self.assertIs(comm.broadcast(array, root), array)
            np.testing.assert_array_equal(array, all[root])
            out = np.empty(all.shape[1:])
            comm.scatter(all if comm.rank == root else None, out, root)
            np.testing.assert_array_equal(out, all[comm.rank])
            counts = [1 + rank % 2 for rank in range(comm.size)]
            rows = np.arange(sum(counts) * 3.0).reshape(-1, 3)
            out = np.empty((counts[comm.rank], 3))
            comm.scatter(rows if comm.rank == 0 else None, out, counts=counts)
            start = sum(counts[: comm.rank])
            np.testing.assert_array_equal(out, rows[start : start + len(out)])

        self.each(program)

    def test_all_to_all(self):
        def program(comm, _):
            n, rank = comm.size, comm.rank
            pairs = np.array([[10.0 * rank + to] * 2 for to in range(n)])
            back = comm.all_to_all(pairs)
            np.testing.assert_array_equal(back[:, 0], 10.0 * np.arange(n) + rank)
            # Rank a sends a + b rows to rank b.
            counts = [rank + other for other in range(n)]
            rows = np.repeat(np.arange(n) + 100 * rank, counts)
            back = comm.all_to_all_v(rows, counts, counts)
            np.testing.assert_array_equal(back, np.repeat(100 * np.arange(n) + rank, counts))

        self.each(program)

    def test_messages(self):
        def program(comm, all):
            after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
            out = np.empty(all.shape[1:])
            comm.send_recv(of(comm.rank), after, out, before, tag=7)
            np.testing.assert_array_equal(out, all[before])
            if comm.size > 1 and comm.rank < 2:
                if comm.rank == 0:
                    comm.send(out, 1, bound="abs:0.25")
                else:
                    got = comm.recv(np.empty_like(out), 0)
                    self.assertLessEqual(np.abs(got - all[-1]).max(), 0.25)
            comm.barrier()

        self.each(program)

    def test_a_bound_is_kept_and_reported(self):
        fields = [np.cumsum(np.random.default_rng(r).normal(size=20_000)) for r in range(4)]

        def program(comm):
            own = fields[comm.rank].astype(np.float32)
            for plan in (None, "schedule:ring", "auto", "codec:dense"):
                total = comm.all_reduce(own, bound="abs:0.01", plan=plan)
                worst = comm.report["worst_case"]
                self.assertLessEqual(worst, 4 * 0.01 * 1.001)
                exact = sum(field.astype(np.float32).astype(np.float64) for field in fields)
                self.assertLessEqual(np.abs(total - exact).max(), worst + 1e-3)
            self.assertEqual(comm.report["codec"], "dense")
            self.assertGreater(comm.report["ratio"], 2)
            gathered = comm.all_gather(own, bound="lossless")
            np.testing.assert_array_equal(gathered, np.stack(fields).astype(np.float32))
            return total.tobytes()

        self.assertEqual(len(set(foldwire.run(4, program))), 1)

    def test_a_fill_value_that_sets_the_range_is_warned_of(self):
        def program(comm):
            own = np.sin(np.arange(20_000) * 1e-3).astype(np.float32)
            comm.all_reduce(own, bound="rel:1e-3")
            self.assertIsNone(comm.report["suspected_fill"])
            own[300:400] = -9999 if comm.rank == 1 else 0
            comm.all_reduce(own, bound="rel:1e-3")
            return comm.report["suspected_fill"]

        with self.assertWarnsRegex(UserWarning, "-9999.0 sets the value range"):
            self.assertEqual(foldwire.run(2, program), [None, -9999.0])

    def test_a_communicator_can_have_a_bound(self):
        def program(comm):
            array = np.linspace(0, 1, 5000)
            comm.all_reduce(array)
            self.assertEqual(comm.report["codec"], "fz-light")
            comm.all_reduce(array, bound="exact")
            self.assertEqual((comm.report["codec"], comm.report["worst_case"]), ("raw", 0.0))
            comm.all_reduce(np.arange(5000))
            self.assertEqual(comm.report["codec"], "raw")
            self.assertEqual(comm.split(0).bound, "rel:1e-3")

        foldwire.run(2, program, bound="rel:1e-3")

    def test_errors_fed_back_do_not_add_up(self):
        steps, values = 50, np.linspace(0.01, 1.0, 300, dtype=np.float32)

        def program(comm):
            total = {True: np.zeros(300), False: np.zeros(300)}
            feedback = [comm.feedback_for(values)]
            for _ in range(steps):
                for is_fed in total:
                    array = values.copy()
                    comm.all_reduce_group([array], "avg", "abs:0.3", feedback if is_fed else None)
                    total[is_fed] += array
            return [np.abs(total[is_fed] - steps * values).max() for is_fed in (True, False)]

        for fed, alone in foldwire.run(2, program):
            self.assertLess(fed, 1.0)
            self.assertGreater(alone, 5.0)

    def test_a_group_call_gives_the_bits_of_single_ones(self):
        def program(comm):
            arrays = [of(comm.rank, shape) / 7 for shape in ((5,), (40, 40), (1,), (300,))]
            bounds = ["abs:1e-3", "rel:1e-3", "rel:1e-2", "abs:0.1"]
            single = [comm.all_reduce(a, bound=bound) for a, bound in zip(arrays, bounds)]
            together = comm.all_reduce_group([a.copy() for a in arrays], bounds=bounds)
            for one, other in zip(single, together):
                np.testing.assert_array_equal(one, other)

        foldwire.run(3, program)

    def test_none_in_the_bounds_of_a_group_is_exact(self):
        # No bit is lost, however the values add up.
        def program(comm):
            arrays = [of(comm.rank, shape) / 7 for shape in ((500,), (40, 40), (300,), (7,))]
            exact = [comm.all_reduce(array) for array in arrays]
            for bounds in (["rel:1e-2", None, "rel:1e-3", "exact"],
                           [None, "rel:1e-2", "lossless", "abs:0.5"], [None] * 4):
                feedback = [comm.feedback_for(array) for array in arrays]
                for fed in (None, feedback):
                    got = comm.all_reduce_group([a.copy() for a in arrays], bounds=bounds,
                                                feedback=fed)
                    for one, sum, bound, residue in zip(got, exact, bounds, feedback):
                        is_exact = bound in (None, "exact", "lossless")
                        self.assertEqual(np.array_equal(one, sum), is_exact, bounds)
                        self.assertEqual(residue.any(), fed is not None and not is_exact)
                self.assertEqual(comm.report["raw_bytes"] > 0, comm.size > 1)
            # A bound of the communicator holds for None, as in other calls.
            comm.bound = "abs:0.5"
            got = comm.all_reduce_group([a.copy() for a in arrays],
                                        bounds=[None, "exact", "rel:1e-3", "exact"])
            self.assertEqual([np.array_equal(*pair) for pair in zip(got, exact)],
                             [False, True, False, True])
            self.assertGreater(abs(got[0] - exact[0]).max(), abs(got[2] - exact[2]).max())
            products = [np.full(500, 1.01), np.full(9, 1.01)]
            comm.all_reduce_group(products, "prod", bounds=[None, None], plan="scope:operand")
            with self.assertRaisesRegex(foldwire.Error, "product"):
                comm.all_reduce_group(products, "prod", bounds=["exact", "abs:1"])

        foldwire.run(2, program)

    def test_arrays_of_a_group_that_overlap_are_refused(self):
        comm = foldwire.threads(1)[0]
        array = np.zeros(10)
        for arrays in ([array, array], [array[:6], array[5:]]):
            for bounds in ("abs:1", ["abs:1", None]):
                with self.assertRaisesRegex(foldwire.Error, "overlap"):
                    comm.all_reduce_group(arrays, bounds=bounds)
        comm.all_reduce_group([array[:5], array[5:], array[:0]], bounds="abs:1")
        self.assertEqual(comm.report["bound"], 1.0)

    def test_a_group_with_a_wrong_array_sends_nothing(self):
        def program(comm):
            arrays = [np.full(100, 1.0), np.full(7, 2.0)]
            # Only one rank makes an invalid call.
            if comm.rank == 0:
                for wrong, bounds in (
                    ([arrays[0], np.array([1, 2])], ["abs:1", "abs:1"]),
                    (arrays, ["abs:1e-3", "abs:-1"]),
                    (arrays, ["abs:1e-3"]),
                    ([arrays[0], np.zeros(4, complex)], ["abs:1", "abs:1"]),
                ):
                    with self.assertRaises((foldwire.Error, TypeError, ValueError)):
                        comm.all_reduce_group(wrong, bounds=bounds)
            together = comm.all_reduce_group(arrays, bounds="abs:1e-3")
            np.testing.assert_allclose(together[0], comm.size, atol=0.01)
            np.testing.assert_allclose(together[1], 2 * comm.size, atol=0.01)

        foldwire.run(3, program)

    def test_split_and_shrink(self):
        def program(comm):
            half = comm.split(comm.rank % 2, key=-comm.rank)
            members = [rank for rank in range(5) if rank % 2 == comm.rank % 2][::-1]
            gathered = half.all_gather(np.array([comm.rank]))
            self.assertEqual(gathered.ravel().tolist(), members)
            others = comm.split(None if comm.rank == 0 else 1)
            self.assertEqual(others and others.size, None if comm.rank == 0 else 4)
            again = comm.duplicate()
            total, other = comm.start_all_reduce(np.ones(3)), again.start_all_reduce(np.ones(3))
            self.assertEqual(other.wait()[0] + total.wait()[0], 10)

        foldwire.run(5, program)

        def survive(comm):
            if comm.rank == 1:
                return None
            with self.assertRaises(foldwire.Error) as raised:
                comm.all_reduce(np.ones(100))
                comm.all_reduce(np.ones(100))
            self.assertIn(raised.exception.kind, ("peer_lost", "aborted"))
            self.assertTrue(comm.is_poisoned)
            rest = comm.shrink(1.0)
            return rest.size, float(rest.all_reduce(np.ones(1))[0])

        self.assertEqual(foldwire.run(3, survive), [(2, 2.0), None, (2, 2.0)])


if __name__ == "__main__":
    unittest.main()
