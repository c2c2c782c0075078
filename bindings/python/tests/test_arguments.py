"""Tests of invalid arguments: errors name the argument, in terms of the Python API."""

import re
import unittest

import numpy as np

import foldwire

# Terms of other languages, which messages must not contain.
FOREIGN = re.compile(r"fw[A-Z]|FW_|foldwire\.h|Some\(|Rank\(|Config::|Plan::|\bu\d+\b|\bi\d+\b"
                     r"|usize|NULL|\b0x[0-9a-f]{4}|<[a-z]+ object")


class Arguments(unittest.TestCase):
    def refused(self, call, field, *words, error=foldwire.Error):
        with self.assertRaises(error) as raised:
            call()
        said = str(raised.exception)
        self.assertNotRegex(said, FOREIGN)
        for word in words:
            self.assertIn(word, said)
        if error is foldwire.Error:
            self.assertTrue(raised.exception.is_usage, said)
            self.assertEqual(raised.exception.field, field, said)

    def test_bounds_are_text(self):
        (comm,) = foldwire.threads(1)
        array = np.arange(4.0)
        for bound, word in ((0.1, '"abs:0.1"'), (1, '"rel:1"'), (np.float32(0.5), '"rel:0.5"'),
                            (0, '"abs:0"'), ("1e-3", '"rel:1e-3"'), ("", "text"),
                            (b"rel:1", "text"), (True, "text")):
            for call in (
                lambda b=bound: comm.all_reduce(array, bound=b),
                lambda b=bound: comm.start_all_gather(array, bound=b),
                lambda b=bound: comm.send(array, 0, bound=b),
                lambda b=bound: comm.all_reduce_group([array], bounds=[b]),
                lambda b=bound: foldwire.compress(array, b),
                lambda b=bound: foldwire.threads(2, bound=b),
                lambda b=bound: foldwire.run(2, print, bound=b),
                lambda b=bound: foldwire.join(bytes(128), 0, 1, bound=b),
                lambda b=bound: foldwire.init(bound=b),
            ):
                self.refused(call, "bound", word)
        self.refused(lambda: comm.all_reduce_group([array], bounds=0.1), "bound", '"abs:0.1"')
        for plan in (1, "", b"auto"):
            self.refused(lambda p=plan: comm.all_reduce(array, plan=p), "plan", "auto")
            self.refused(lambda p=plan: foldwire.threads(2, plan=p), "plan", "auto")

    def test_texts_that_say_nothing_name_what_can_be_said(self):
        (comm,) = foldwire.threads(1)
        for bound in ("abs:-1", "rel:0", "abs:x", "psnr:"):
            self.refused(lambda b=bound: comm.all_reduce(np.zeros(3), bound=b), "bound")
            self.refused(lambda b=bound: foldwire.compress(np.zeros(3), b), "bound")
        for bound, plan in (("abs:1", "exact"), ("abs:1", "lossless"), (None, "exact,codec:dense"),
                            (None, "compress"), (None, "auto"), (None, "codec:mp3"),
                            (None, "schedule:x"), ("abs:1", "auto,abs:2"), (None, "shape:0x3")):
            self.refused(lambda b=bound, p=plan: comm.all_reduce(np.zeros(3), bound=b, plan=p),
                         "plan")

    def test_bounds_beyond_the_range_are_refused(self):
        (comm,) = foldwire.threads(1)
        for call in (lambda: comm.all_reduce(np.zeros(3), bound="rel:2"),
                     lambda: foldwire.compress(np.zeros(3), "rel:2")):
            self.assertRaisesRegex(foldwire.Error, "errors larger than the range", call)

    def test_wrong_keywords_name_the_call(self):
        comm = foldwire.threads(1)[0]
        for call, name in (
            (lambda: comm.all_reduce(np.zeros(1), bond="abs:1"), "Communicator.all_reduce() "),
            (lambda: comm.start_scan(np.zeros(1), root=1), "Communicator.scan() "),
            (lambda: foldwire.run(1, print, bond="abs:1"), "foldwire.run() has no setting 'bond'"),
            (lambda: foldwire.threads(1, bond="abs:1"), "threads() "),
        ):
            self.refused(call, None, name, error=TypeError)

    def test_numbers_are_in_their_range(self):
        comm = foldwire.threads(1)[0]
        array, id_ = np.zeros(3), foldwire.unique_id()
        for field, calls in {
            "n": (lambda v: foldwire.threads(v), lambda v: foldwire.run(v, print)),
            "lanes": (lambda v: foldwire.threads(1, lanes=v),),
            "calls": (lambda v: foldwire.threads(1, calls=v), lambda v: comm.split(0, calls=v)),
            "timeout": (lambda v: foldwire.threads(1, timeout=v),),
            "deadline": (lambda v: foldwire.threads(1, deadline=v),),
            "rate": (lambda v: foldwire.threads(1, rate=v),),
            "limit": (lambda v: foldwire.init(limit=v),),
            "link_rate": (lambda v: foldwire.init(link_rate=v),),
            "patience": (lambda v: comm.shrink(v),),
            "size": (lambda v: foldwire.join(id_, 0, v),),
            "rank": (lambda v: foldwire.join(id_, v, 2), lambda v: comm.send(array, v),
                     lambda v: comm.start_recv(array, v)),
            "root": (lambda v: comm.broadcast(array, v), lambda v: comm.reduce(array, root=v)),
            "tag": (lambda v: comm.send(array, 0, v), lambda v: comm.recv(array, 0, v)),
            "color": (lambda v: comm.split(v),),
            "n_values": (lambda v: comm.share(v),),
            "counts": (lambda v: comm.all_gather(array, counts=[v]),
                       lambda v: comm.reduce_scatter(array, counts=[v])),
            "send_counts": (lambda v: comm.all_to_all_v(array, [v], [3]),),
            "recv_counts": (lambda v: comm.all_to_all_v(array, [3], [v]),),
        }.items():
            for call in calls:
                for value in (-1, "many", float("nan"), [1, 2]):
                    self.refused(lambda c=call, v=value: c(v), field)
        self.refused(lambda: foldwire.threads(0), "n", "1 or more")
        self.refused(lambda: comm.split(0, key=2**31), "key")
        self.refused(lambda: comm.send(array, 0, 2**32), "tag")
        self.refused(lambda: comm.all_gather(array, counts=3), "counts")
        self.refused(lambda: comm.all_gather(array, counts=[1, 2]), "counts")
        self.refused(lambda: comm.all_gather(array, counts=[2]), "counts", "3")
        self.refused(lambda: comm.all_to_all_v(array, [2], [3]), "send_counts")
        self.refused(lambda: comm.all_to_all_v(array, [3], [2]), "recv_counts", "itself")
        self.refused(lambda: comm.reduce_scatter(array, counts=[2]), "counts")
        self.refused(lambda: comm.scatter(np.zeros(5), array), "array")
        self.refused(lambda: foldwire.threads(10_000), None, "1024")
        self.refused(lambda: foldwire.threads(1, lanes=9), "lanes", "8 or less")
        for timeout in ("abc", -1, float("nan")):
            self.refused(lambda t=timeout: setattr(comm, "timeout", t), "timeout")
        self.refused(lambda: comm.repro_sum(np.float64(3), axis=0), "axis", "scalar")
        self.refused(lambda: foldwire.init(job="j"), "job", "store")
        self.refused(lambda: foldwire.init(epoch=5), "epoch", "store")
        self.refused(lambda: foldwire.compress(np.zeros(1000), shape=(10.7, 100)), "shape")
        self.refused(lambda: foldwire.compress(np.zeros(1000), shape=(-10, -100)), "shape")
        self.refused(lambda: foldwire.compress(array, fill_value=np.nan), "fill_value", "NaN")
        self.refused(lambda: foldwire.compress(np.arange(3), fill_value=3), "fill_value", "int64")
        for plan in ("schedule:ring", "auto,scope:result"):
            self.refused(lambda p=plan: comm.send(array, 0, bound="abs:1", plan=p), "plan")
            self.refused(lambda p=plan: comm.start_send(array, 0, bound="abs:1", plan=p), "plan")
        self.refused(lambda: comm.all_reduce(array, ["sum"]), "op", "unknown operation")
        self.refused(lambda: foldwire.join("text", 0, 1), "id", "unique_id()")
        self.refused(lambda: foldwire.join(b"short", 0, 1), None, "128")
        self.refused(lambda: foldwire.join(bytes(128), 0, 1), None, "foldwire.unique_id")
        self.refused(lambda: foldwire.decompress("text"), "data")
        self.refused(lambda: foldwire.decompress(foldwire.compress(array), (2, 2)), "shape")
        self.refused(lambda: comm.all_reduce_group([[1.0]]), "an array of the group")
        for message in (3, (0,), (0, array, 1, None)):
            self.refused(lambda m=message: comm.exchange([m]), "message")
            self.refused(lambda m=message: comm.exchange((), [m]), "message")
        self.refused(lambda: comm.all_reduce_group([np.zeros(1, int)]), "dtype", "int64")
        self.refused(lambda: comm.all_reduce(np.zeros(1, int), "avg"), "op", "int64")
        self.refused(lambda: foldwire.compress(np.zeros(1, complex)), "dtype", "complex128")
        self.assertEqual(comm.all_reduce(array).sum(), 0)

    def test_no_bound_holds_for_a_product(self):
        (comm,) = foldwire.threads(1, bound="rel:1e-3")
        array = np.linspace(1, 2, 4)
        for call in (lambda: comm.all_reduce(array, "prod"),
                     lambda: comm.all_reduce(array, "prod", bound="abs:1"),
                     lambda: comm.scan(array, "prod", plan="schedule:chain"),
                     lambda: comm.all_reduce_group([array], "prod", ["abs:1"])):
            self.refused(call, "bound", "product", 'bound="exact"', 'plan="scope:operand"')
        for keywords in ({"bound": "exact"}, {"bound": "lossless"}, {"plan": "scope:operand"}):
            comm.all_reduce(array, "prod", **keywords)
        # Integers are always exact.
        comm.all_reduce(np.arange(4), "prod")
        comm.all_reduce(array, "max")

    def test_failures_of_other_ranks_are_told_in_words(self):
        def gone(comm):
            if comm.rank == 1:
                return None
            try:
                while True:
                    comm.all_reduce(np.zeros(5))
            except foldwire.Error as error:
                return str(error)

        said, _ = foldwire.run(2, gone)
        self.assertNotRegex(said, FOREIGN)
        self.assertIn("rank 1 is gone", said)

        def full(comm):
            request = comm.start_barrier()
            with self.assertRaises(foldwire.Error) as raised:
                comm.start_barrier()
            request.wait()
            return str(raised.exception)

        self.assertIn("calls=", foldwire.run(2, full, calls=1)[0])

        def lengths(comm):
            with self.assertRaises(foldwire.Error) as raised:
                comm.all_reduce(np.zeros(3 + comm.rank))
            return str(raised.exception)

        for said in foldwire.run(2, lengths):
            self.assertNotRegex(said, FOREIGN)


if __name__ == "__main__":
    unittest.main()
