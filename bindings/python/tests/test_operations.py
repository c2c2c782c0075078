"""Tests of own operations, complex numbers, and Python objects."""

import functools
import threading
import unittest

import numpy as np

import foldwire

SIZES = (1, 2, 3, 5)


def inputs(size, make):
    return [make(np.random.default_rng(rank), rank) for rank in range(size)]


class Operations(unittest.TestCase):
    def every_reduction(self, arrays, op, oracle):
        """Compares all reductions with a fold of the arrays in the order of ranks."""
        size, n = len(arrays), arrays[0].size
        whole = functools.reduce(oracle, arrays)

        def program(comm):
            mine = arrays[comm.rank]
            np.testing.assert_array_equal(comm.all_reduce(mine, op), whole)
            self.started(comm, arrays, op, oracle)
            out = np.empty_like(mine)
            self.assertIs(comm.all_reduce(mine, op, out=out), out)
            np.testing.assert_array_equal(out, whole)
            last = comm.reduce(mine, op, root=size - 1)
            self.assertEqual(last is None, comm.rank != size - 1)
            if last is not None:
                np.testing.assert_array_equal(last, whole)
            block = comm.reduce_scatter(mine, op)
            np.testing.assert_array_equal(block, whole.reshape(-1)[comm.share(n)])
            counts = [n] + [0] * (size - 1)
            block = comm.reduce_scatter(mine, op, counts=counts)
            np.testing.assert_array_equal(block, whole.reshape(-1)[: counts[comm.rank]])
            prefix = functools.reduce(oracle, arrays[: comm.rank + 1])
            np.testing.assert_array_equal(comm.scan(mine, op), prefix)
            before = comm.exclusive_scan(mine, op)
            if comm.rank:
                prefix = functools.reduce(oracle, arrays[: comm.rank])
                np.testing.assert_array_equal(before, prefix)

        foldwire.run(size, program, bound="rel:1e-3")

    def started(self, comm, arrays, op, oracle):
        """Starts all reductions at once, and waits for the last one first."""
        size, rank, mine = comm.size, comm.rank, arrays[comm.rank]
        whole, out = functools.reduce(oracle, arrays), np.empty_like(mine)
        counts = [mine.size] + [0] * (size - 1)
        calls = [
            (comm.start_all_reduce(mine, op), whole),
            (comm.start_all_reduce(mine, op, out=out), whole),
            (comm.start_reduce(mine, op, root=size - 1), whole if rank == size - 1 else None),
            (comm.start_reduce_scatter(mine, op), whole.reshape(-1)[comm.share(mine.size)]),
            (comm.start_reduce_scatter(mine, op, counts=counts),
             whole.reshape(-1)[:counts[rank]]),
            (comm.start_scan(mine, op), functools.reduce(oracle, arrays[:rank + 1])),
            (comm.start_exclusive_scan(mine, op),
             functools.reduce(oracle, arrays[:rank]) if rank else np.zeros_like(mine)),
        ]
        for request, expected in reversed(calls):
            got = request.wait()
            if expected is None:
                self.assertIsNone(got)
            else:
                np.testing.assert_array_equal(got, expected)
                self.assertIs(request.wait(), got)
        np.testing.assert_array_equal(out, whole)

    def test_bits_and_logic_are_numpys(self):
        for size in SIZES:
            for dtype in (np.int32, np.uint8, np.bool_):
                arrays = inputs(size, lambda r, _: r.integers(0, 2 if dtype is np.bool_ else 200,
                                                              (3, 5)).astype(dtype))
                for op, oracle in (("band", np.bitwise_and), ("bor", np.bitwise_or),
                                   ("bxor", np.bitwise_xor)):
                    self.every_reduction(arrays, op, oracle)
            floats = inputs(size, lambda r, _: r.integers(0, 2, 7).astype(np.float32) * 3)
            for op, oracle in (("land", np.logical_and), ("lor", np.logical_or),
                               ("lxor", np.logical_xor)):
                self.every_reduction(floats, op, lambda a, b, f=oracle: f(a, b).astype(a.dtype))

    def test_the_place_of_an_extreme_is_the_smallest_index(self):
        pair = np.dtype([("value", "f8"), ("index", "i4")])
        for size in SIZES:
            values = inputs(size, lambda r, _: r.integers(0, 3, 40).astype(float))
            values[-1][::7] = np.nan
            table = np.array(values)
            arrays = [np.empty(40, pair) for _ in values]
            for rank, array in enumerate(arrays):
                array["value"], array["index"] = values[rank], rank
            got = foldwire.run(size, lambda comm: [
                comm.all_reduce(arrays[comm.rank], op) for op in ("maxloc", "minloc")])
            for most, least in got:
                # numpy's argmax and argmin find the first, and NaN before all others.
                np.testing.assert_array_equal(most["index"], table.argmax(0))
                np.testing.assert_array_equal(least["index"], table.argmin(0))
                np.testing.assert_array_equal(most["value"], table.max(0))
                np.testing.assert_array_equal(least["value"], table.min(0))

    def test_a_function_reduces_in_the_order_of_ranks(self):
        # Composition of linear maps (a, b): x -> a x + b, modulo a prime: not commutative.
        def composed(a, b):
            return np.stack([a[..., 0] * b[..., 0] % 97, (a[..., 1] * b[..., 0] + b[..., 1]) % 97],
                            -1)

        for size in SIZES:
            arrays = inputs(size, lambda r, _: r.integers(1, 97, (6, 2)))
            whole = functools.reduce(composed, arrays)
            pair = np.dtype([("a", "i8"), ("b", "i8")])

            def on_pairs(x, y):
                shape = (*x.shape, 2)
                made = composed(x.view("i8").reshape(shape), y.view("i8").reshape(shape))
                return np.ascontiguousarray(made).view(pair)[..., 0]

            packed = [array.view(pair)[:, 0] for array in arrays]
            got = foldwire.run(size, lambda comm: comm.all_reduce(packed[comm.rank], on_pairs))
            for each in got:
                np.testing.assert_array_equal(each.view("i8").reshape(6, 2), whole)
            self.every_reduction(inputs(size, lambda r, _: r.integers(1, 60, 9)), np.gcd, np.gcd)

    def test_a_function_that_fails_fails_on_all_ranks_and_ends_nothing(self):
        def program(comm):
            def broken(a, b):
                if comm.rank == 1:
                    raise ZeroDivisionError("on purpose")
                return a + b

            for call in (comm.all_reduce, comm.scan):
                with self.assertRaises((ZeroDivisionError, foldwire.Error)) as raised:
                    call(np.arange(8), broken)
                if comm.rank != 1:
                    self.assertEqual((raised.exception.kind, raised.exception.culprit),
                                     ("aborted", 1))
            with self.assertRaisesRegex(foldwire.Error, "keep both"):
                comm.all_reduce(np.arange(8), lambda a, b: a / b)
            request = comm.start_all_reduce(np.arange(8), broken)
            if comm.rank == 1:
                with self.assertRaises(ZeroDivisionError):
                    request.wait()
            else:
                np.testing.assert_array_equal(request.wait(), 3 * np.arange(8))
            return int(comm.all_reduce(np.ones(3, int))[0])

        self.assertEqual(foldwire.run(3, program), [3, 3, 3])

    def test_ranks_that_disagree_learn_of_it(self):
        def program(comm):
            op = "band" if comm.rank else "bor"
            with self.assertRaises(foldwire.Error) as raised:
                comm.all_reduce(np.arange(4), op)
            self.assertEqual((raised.exception.kind, raised.exception.field), ("mismatch", "op"))
            with self.assertRaises(foldwire.Error) as raised:
                comm.start_all_reduce(np.arange(4), op).wait()
            self.assertEqual((raised.exception.kind, raised.exception.field), ("mismatch", "op"))
            with self.assertRaises(foldwire.Error) as raised:
                comm.all_reduce(np.arange(4 + comm.rank), "bor")
            self.assertEqual(raised.exception.kind, "mismatch")
            with self.assertRaises(foldwire.Error) as raised:
                comm.start_all_reduce(np.arange(4 + comm.rank), "bor").wait()
            self.assertIn(raised.exception.kind, ("mismatch", "aborted"))

        foldwire.run(2, program)

    def test_what_an_operation_cannot_do_is_refused(self):
        (comm,) = foldwire.threads(1)
        for array, op in ((np.ones(3), "band"), (np.ones(3), "maxloc"), (np.ones(3), "argmax"),
                          (np.ones(3, complex), "max"), (np.array([{}]), np.add)):
            with self.assertRaises(foldwire.Error) as raised:
                comm.all_reduce(array, op)
            self.assertTrue(raised.exception.is_usage)
        for array, op in ((np.ones(3), np.add), (np.ones(3, complex), "sum")):
            with self.assertRaises(foldwire.Error) as raised:
                comm.all_reduce(array, op, fill_value=1e20)
            self.assertEqual(raised.exception.field, "fill_value")
        for array, op in ((np.ones(3, int), "band"), (np.ones(3), np.add),
                          (np.ones(3, complex), "prod")):
            for keywords, field in (({"bound": "garbage"}, "plan"), ({"plan": "nonsense"}, "plan"),
                                    ({"bound": "abs:1"}, "bound"), ({"plan": "abs:1"}, "plan"),
                                    ({"plan": "codec:truncate:16"}, "plan"),
                                    ({"plan": 3}, "plan"), ({"bound": 0.1}, "bound")):
                for call in (comm.all_reduce, comm.start_scan):
                    with self.assertRaises(foldwire.Error) as raised:
                        call(array, op, **keywords)
                    self.assertTrue(raised.exception.is_usage)
                    self.assertEqual(raised.exception.field, field)
            comm.all_reduce(array, op, bound="exact")
            comm.all_reduce(array, op, plan="schedule:ring")
        for start in (comm.start_all_reduce, comm.start_scan):
            with self.assertRaises(foldwire.Error) as raised:
                start(np.ones(3), "band")
            self.assertEqual((raised.exception.kind, raised.exception.field), ("unsupported", "op"))


class Complex(unittest.TestCase):
    def test_every_collective_moves_complex_numbers(self):
        for size in SIZES:
            for dtype in (np.complex64, np.complex128):
                self.complex_numbers(size, dtype)

    def complex_numbers(self, size, dtype):
        arrays = inputs(size, lambda r, _: (r.integers(-9, 9, (2 * size, 3))
                                            + 1j * r.integers(-9, 9, (2 * size, 3))).astype(dtype))
        total, product = sum(arrays), functools.reduce(np.multiply, arrays)

        def program(comm):
            mine, same = arrays[comm.rank], np.testing.assert_array_equal
            same(comm.all_reduce(mine), total)
            same(comm.all_reduce(mine.T, out=np.empty((3, 2 * size), dtype)), total.T)
            same(comm.all_reduce(mine, "prod"), product)
            same(comm.reduce_scatter(mine), total.reshape(-1)[comm.share(total.size)])
            got = comm.reduce(mine, root=0)
            same(got if comm.rank == 0 else total, total)
            same(comm.scan(mine), sum(arrays[: comm.rank + 1]))
            same(comm.all_gather(mine), arrays)
            same(comm.broadcast(mine.copy(), size - 1), arrays[-1])
            gathered = comm.gather(mine, 0)
            same(arrays if gathered is None else gathered, arrays)
            own = np.empty((2, 3), dtype)
            root = np.array(arrays[0]) if comm.rank == 0 else None
            same(comm.scatter(root, own), arrays[0].reshape(size, 2, 3)[comm.rank])
            rows = mine.reshape(size, 2, 3)
            expected = [array.reshape(size, 2, 3)[comm.rank] for array in arrays]
            same(comm.all_to_all(rows), expected)
            same(comm.all_to_all_v(mine, [2] * size, [2] * size), np.concatenate(expected))
            self.assertEqual(comm.all_reduce(np.array(1j, dtype)).shape, ())
            into = np.empty_like(mine)
            started = [comm.start_all_reduce(mine), comm.start_all_reduce(mine, out=into),
                       comm.start_reduce_scatter(mine), comm.start_broadcast(mine.copy(), 0),
                       comm.start_reduce(mine, root=0)]
            results = [request.wait() for request in started]
            same(results[0], total)
            self.assertTrue(results[1] is into and np.array_equal(into, total))
            same(results[2], total.reshape(-1)[comm.share(total.size)])
            same(results[3], arrays[0])
            same(total if results[4] is None else results[4], total)
            self.assertEqual(started[0].wait().dtype, dtype)
            same(comm.start_all_reduce(mine, "prod").wait(), product)
            near = comm.all_reduce(mine, bound="abs:0.01")
            self.assertLess(abs((near - total).real).max(), 0.01 * size)

        foldwire.run(size, program)


class InPlace(unittest.TestCase):
    def test_a_function_may_write_its_first_argument(self):
        def add_to(a, b):
            return np.add(a, b, out=a)

        def program(comm):
            mine = np.full(7, comm.rank + 1)
            for name in ("scan", "exclusive_scan", "all_reduce", "reduce_scatter"):
                whole = getattr(comm, name)(mine, np.add)
                for call in (getattr(comm, name), getattr(comm, f"start_{name}")):
                    got = call(mine, add_to)
                    got = got.wait() if isinstance(got, foldwire.Request) else got
                    np.testing.assert_array_equal(got, whole, name)

        foldwire.run(3, program)


class Objects(unittest.TestCase):
    def test_objects_move_as_with_mpi4py(self):
        for size in SIZES:
            def program(comm):
                objects, rank = comm.objects, comm.rank
                made = [{"rank": r, "text": "x" * 100 * r} for r in range(size)]
                self.assertEqual(objects.allgather(made[rank]), made)
                self.assertEqual(objects.gather(made[rank], size - 1),
                                 made if rank == size - 1 else None)
                self.assertEqual(objects.bcast(made if rank == 0 else None), made)
                self.assertEqual(objects.scatter(made if rank == 0 else None), made[rank])
                self.assertEqual(objects.alltoall([(rank, to) for to in range(size)]),
                                 [(come, rank) for come in range(size)])
                self.assertEqual(objects.allreduce(rank), size * (size - 1) // 2)
                self.assertEqual(objects.allreduce(str(rank), lambda a, b: a + b),
                                 "".join(map(str, range(size))))
                self.assertEqual(objects.reduce({rank}, set.union, root=0),
                                 set(range(size)) if rank == 0 else None)
                self.assertEqual(objects.scan([rank]), list(range(rank + 1)))
                to, source = (rank + 1) % size, (rank - 1) % size
                self.assertEqual(objects.sendrecv(made[rank], to, source, 7), made[source])
                if size > 1 and rank < 2:
                    if rank == 0:
                        objects.send(made[1], 1, tag=3)
                        objects.send(None, 1, tag=3)
                    else:
                        self.assertEqual(objects.recv(0, 3), made[1])
                        self.assertIsNone(objects.recv(0, 3))
                objects.barrier()

            foldwire.run(size, program, bound="rel:1e-2")

    def test_what_cannot_be_pickled_is_an_error_on_all_ranks(self):
        def program(comm):
            objects = comm.objects
            mine = threading.Lock() if comm.rank == 1 else 1
            for call in (
                lambda: objects.allgather(mine),
                lambda: objects.gather(mine),
                lambda: objects.bcast(mine, 1),
                lambda: objects.scatter([mine] * 3 if comm.rank == 1 else None, 1),
                lambda: objects.alltoall([mine] * 3),
            ):
                with self.assertRaises((TypeError, foldwire.Error)) as raised:
                    call()
                if comm.rank != 1:
                    self.assertEqual(raised.exception.culprit, 1)
            with self.assertRaises(foldwire.Error):
                objects.alltoall([1, 2])
            return objects.allreduce(1)

        self.assertEqual(foldwire.run(3, program), [3, 3, 3])


if __name__ == "__main__":
    unittest.main()
