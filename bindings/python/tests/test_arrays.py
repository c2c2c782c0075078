"""Tests of arrays of every layout, byte order and kind: calls use them, or refuse them."""

import unittest

import numpy as np

import foldwire

N = 3


def field(rank, dtype=np.float64):
    return (np.arange(24).reshape(2, 3, 4) * (rank + 1)).astype(dtype)


def layouts(array):
    """Yields the same values with different orders of axes in memory."""
    yield np.array(array, order="C")
    yield np.array(array, order="F")
    yield np.array(array.transpose(1, 2, 0), order="C").transpose(2, 0, 1)


def layout_of(array, rank):
    """Returns one of these layouts, a different one on each rank."""
    return list(layouts(array))[rank % 3]


TOTAL = sum(field(rank) for rank in range(N))
ALL = np.stack([field(rank) for rank in range(N)])


class Layouts(unittest.TestCase):
    def refused(self, call, field=None, kind=None):
        with self.assertRaises(foldwire.Error) as raised:
            call()
        self.assertTrue(raised.exception.is_usage)
        if field:
            self.assertEqual(raised.exception.field, field)
        if kind:
            self.assertEqual(raised.exception.kind, kind)
        return str(raised.exception)

    def test_results_do_not_depend_on_the_order_of_axes_in_memory(self):
        def program(comm):
            own = layout_of(field(comm.rank), comm.rank)
            np.testing.assert_array_equal(comm.all_reduce(own), TOTAL)
            out = layout_of(np.zeros(own.shape), comm.rank)
            self.assertIs(comm.all_reduce(own, out=out), out)
            np.testing.assert_array_equal(out, TOTAL)
            same = layout_of(field(comm.rank), comm.rank)
            comm.all_reduce(same, out=same)
            np.testing.assert_array_equal(same, TOTAL)
            np.testing.assert_array_equal(comm.all_gather(own), ALL)
            out = np.zeros(ALL.shape, order="F" if comm.rank == 1 else "C")
            np.testing.assert_array_equal(comm.all_gather(own, out=out), ALL)
            for root in range(N):
                array = layout_of(field(comm.rank), comm.rank)
                self.assertIs(comm.broadcast(array, root), array)
                np.testing.assert_array_equal(array, field(root))
                out = layout_of(np.zeros(own.shape), comm.rank)
                comm.scatter(np.asfortranarray(ALL) if comm.rank == root else None, out, root)
                np.testing.assert_array_equal(out, field(comm.rank))
            array = layout_of(field(comm.rank), comm.rank)
            comm.all_reduce_group([array])
            np.testing.assert_array_equal(array, TOTAL)
            scanned = layout_of(np.zeros(own.shape), comm.rank)
            comm.exclusive_scan(own, out=scanned)
            np.testing.assert_array_equal(scanned, ALL[: comm.rank].sum(0))

        foldwire.run(N, program)

    def test_requests_and_messages_fill_arrays_of_any_order(self):
        def program(comm):
            after, before = (comm.rank + 1) % N, (comm.rank - 1) % N
            own = layout_of(field(comm.rank), comm.rank)
            out = layout_of(np.zeros(own.shape), comm.rank)
            request = comm.start_all_reduce(own, out=out)
            while not request.test():
                pass
            # The call has finished, so `out` has the result even before `wait`.
            np.testing.assert_array_equal(out, TOTAL)
            out[...] = 7
            self.assertIs(request.wait(), out)
            np.testing.assert_array_equal(out, 7)
            came = comm.start_recv(layout_of(np.zeros(own.shape), comm.rank), before)
            comm.send(own, after)
            np.testing.assert_array_equal(came.wait(), field(before))
            came = layout_of(np.zeros(own.shape), comm.rank)
            self.assertIs(comm.send_recv(own, after, came, before), came)
            np.testing.assert_array_equal(came, field(before))

        foldwire.run(N, program)

    def test_a_failed_request_is_over_and_says_so_to_who_waits(self):
        def program(comm):
            request = comm.start_all_reduce(np.zeros((2, 3 + comm.rank), order="F"),
                                            out=np.zeros((2, 3 + comm.rank), order="F"))
            while not request.test():
                pass
            with self.assertRaises(foldwire.Error):
                request.wait()

        foldwire.run(2, program)

    def test_views_with_gaps_are_read_and_not_written(self):
        def program(comm):
            whole = np.zeros((6, 8))
            whole[::2, ::-2] = comm.rank + 1
            np.testing.assert_array_equal(comm.all_reduce(whole[::2, ::-2]), np.full((3, 4), 6.0))
            for view in (whole[::2], whole[:, 1:3], np.zeros(4)[::-1]):
                said = self.refused(lambda v=view: comm.all_reduce(v, out=v), "out")
                self.assertIn("assign", said)
            # Read-only arrays are not written, either.
            fixed = np.full(3, comm.rank + 1.0)
            fixed.flags.writeable = False
            self.assertIn("read-only", self.refused(lambda: comm.broadcast(fixed), "array"))
            np.testing.assert_array_equal(comm.all_reduce(fixed), [6.0] * 3)

        foldwire.run(N, program)

    def test_byte_orders_of_what_is_read_may_differ(self):
        def program(comm):
            own = field(comm.rank, ">f4" if comm.rank == 1 else "<f4")
            total = comm.all_reduce(own)
            self.assertTrue(total.dtype.isnative)
            np.testing.assert_array_equal(total, TOTAL)
            np.testing.assert_array_equal(comm.all_gather(own.astype(">i2")), ALL)
            swapped = np.zeros(own.shape, ">f4")
            for call in (lambda: comm.broadcast(swapped), lambda: comm.recv(swapped, 0),
                         lambda: comm.all_reduce_group([swapped])):
                self.assertIn("byte order", self.refused(call, kind="unsupported"))
            self.refused(lambda: comm.all_reduce(own, out=swapped), "out")

        foldwire.run(N, program)

    def test_numbers_and_arrays_of_no_values(self):
        def program(comm):
            self.assertEqual(comm.all_reduce(1.5).shape, ())
            self.assertEqual(comm.all_reduce(np.float32(1.5)), 4.5)
            number = np.array(float(comm.rank))
            self.assertEqual(comm.broadcast(number, 2), 2.0)
            for order in "CF":
                empty = np.zeros((3, 0, 2), order=order)
                self.assertEqual(comm.all_reduce(empty).shape, (3, 0, 2))
                self.assertIs(comm.broadcast(empty), empty)
                self.assertEqual(comm.all_gather(empty).shape, (N, 3, 0, 2))

        foldwire.run(N, program)

    def test_a_result_may_lie_over_what_is_sent(self):
        def program(comm):
            line = np.arange(10.0) * (comm.rank + 1)
            total = comm.all_reduce(line[:-1], out=line[1:])
            np.testing.assert_array_equal(total, np.arange(9.0) * 6)
            # The first values of `out` are this rank's block on rank 0 only.
            row = np.zeros((N, 4))
            row[0] = comm.rank
            comm.all_gather(row[0], out=row)
            np.testing.assert_array_equal(row, np.repeat([[0.0], [1.0], [2.0]], 4, 1))
            own = np.arange(6.0)
            comm.reduce_scatter(own, out=own[:2])
            np.testing.assert_array_equal(own[:2], 3 * np.arange(6.0)[comm.share(6)])
            line = np.full(5, float(comm.rank))
            comm.send_recv(line, (comm.rank + 1) % N, line, (comm.rank - 1) % N)
            np.testing.assert_array_equal(line, float((comm.rank - 1) % N))
            pairs = np.arange(N) + 10 * comm.rank
            comm.all_to_all_v(pairs, [1] * N, [1] * N, out=pairs)
            np.testing.assert_array_equal(pairs, comm.rank + 10 * np.arange(N))

        foldwire.run(N, program)

    def test_arrays_that_are_written_together_do_not_overlap(self):
        comm = foldwire.threads(1)[0]
        array = np.zeros((4, 4), order="F")
        for arrays in ([array, array], [array, array[:, 1:]], [array, array.T]):
            self.assertIn("overlap", self.refused(lambda a=arrays: comm.all_reduce_group(a)))
        comm.all_reduce_group([array[:, :2], array[:, 2:]])


class Kinds(unittest.TestCase):
    refused = Layouts.refused

    def test_masks_are_refused_and_never_lost(self):
        masked = np.ma.masked_greater(np.arange(4.0), 2)

        class Variable:
            """Array-like object, such as a variable of a file."""

            def __array__(self, dtype=None, copy=None):
                return masked

        comm = foldwire.threads(1)[0]
        for array in (masked, [masked, masked], [1.0, np.ma.masked], Variable()):
            for call in (comm.all_reduce, comm.all_gather, comm.reduce_scatter,
                         comm.start_all_reduce, foldwire.compress, lambda a: comm.send(a, 0)):
                said = self.refused(lambda c=call, a=array: c(a), "array", "unsupported")
                self.assertIn("filled", said)
        for call in (lambda: comm.broadcast(masked), lambda: comm.recv(masked, 0),
                     lambda: comm.all_reduce_group([masked]),
                     lambda: comm.all_reduce(np.zeros(4), out=masked)):
            self.refused(call, kind="unsupported")
        np.testing.assert_array_equal(comm.all_reduce(masked.filled(9)), [0, 1, 2, 9])

    def test_booleans_are_added_as_numpy_adds_them(self):
        # A sum of 256 ones is 0 in 8 bits.
        for n in (2, 256):
            own = [np.array([True, True, False, rank == 1]) for rank in range(n)]
            expected = {
                "sum": np.logical_or.reduce(own), "max": np.logical_or.reduce(own),
                "prod": np.logical_and.reduce(own), "min": np.logical_and.reduce(own),
            }

            def program(comm):
                for op, result in expected.items():
                    total = comm.all_reduce(own[comm.rank], op, bound="rel:1e-3")
                    self.assertEqual(total.dtype, bool)
                    np.testing.assert_array_equal(total.view("u1"), result.view("u1"), op)
                if n == 2:
                    scanned = comm.scan(np.array([True]))
                    self.assertEqual(scanned.view("u1"), 1)
                    own_bits = own[comm.rank].view("u1")
                    np.testing.assert_array_equal(
                        comm.all_reduce(own_bits, dtype="bool"), expected["sum"])
                    self.assertIn("average", self.refused(
                        lambda: comm.all_reduce(own[0], "avg"), "op", "unsupported"))

            foldwire.run(n, program)

    def test_what_is_not_moved_is_refused(self):
        comm = foldwire.threads(1)[0]
        # Collectives take complex numbers as pairs.
        self.refused(lambda: foldwire.compress(np.zeros(2, complex)), "dtype", "unsupported")
        for values in (np.zeros(2, "f4,i4"), np.zeros(2, "M8[s]"), np.array(["a"]),
                       np.array([None]), np.zeros(2, np.longdouble)):
            for call in (comm.all_reduce, comm.all_gather, comm.broadcast, foldwire.compress):
                self.refused(lambda c=call, v=values: c(v), "dtype", "unsupported")
        for dtype in ("float32", np.float32, "text"):
            self.refused(lambda d=dtype: comm.all_reduce(np.zeros(2, "i8"), dtype=d), "dtype")


if __name__ == "__main__":
    unittest.main()
