"""Tests of calls that do not block, and of calls that fail."""

import asyncio
import gc
import threading
import time
import unittest
import weakref

import numpy as np

import foldwire
from test_processes import said, start


class Requests(unittest.TestCase):
    def test_requests_end_in_any_order(self):
        def program(comm):
            started = [comm.start_all_reduce(np.full(500, float(i))) for i in range(6)]
            for i in (3, 0, 5, 1, 4, 2):
                np.testing.assert_array_equal(started[i].wait(), 3.0 * i)
                self.assertEqual(started[i].wait()[0], 3.0 * i)
                self.assertEqual(started[i].report["codec"], "raw")
            last = comm.start_barrier()
            while not last.test():
                time.sleep(1e-4)
            self.assertIsNone(last.wait())

        foldwire.run(3, program)

    def test_more_calls_than_there_may_be_are_refused(self):
        def program(comm):
            first = comm.start_all_reduce(np.ones(3))
            with self.assertRaises(foldwire.Error) as raised:
                comm.start_all_reduce(np.ones(3))
            self.assertEqual(raised.exception.kind, "too_many_calls")
            self.assertEqual(first.wait()[0], 2)

        foldwire.run(2, program, calls=1)

    def test_a_request_without_references_is_dropped_at_once(self):
        gc.disable()
        self.addCleanup(gc.enable)
        for op in ("sum", np.add, "band", "prod"):
            dtype = np.complex128 if op == "prod" else np.int64
            one, other = foldwire.threads(2, timeout=60)
            started = one.start_all_reduce(np.ones(1000, dtype), op)
            memory = weakref.ref(started._out.array)
            del started
            self.assertIsNone(memory(), op)
            with self.assertRaises(foldwire.Error) as raised:
                other.start_all_reduce(np.ones(1000, dtype), op).wait()
            self.assertEqual((raised.exception.kind, raised.exception.rank), ("aborted", 0), op)

    def test_a_request_that_is_dropped_during_a_call_is_aborted_after_it(self):
        comm, other = foldwire.threads(2, timeout=10)
        request = comm.start_all_reduce(np.ones(1_000_000))
        receiver = threading.Thread(target=comm.recv, args=(np.empty(3), 1))
        receiver.start()
        time.sleep(0.2)
        del request
        other.send(np.ones(3), 0)
        receiver.join(60)
        with self.assertRaises(foldwire.Error) as raised:
            other.all_reduce(np.ones(1_000_000))
        self.assertEqual(raised.exception.kind, "aborted")

    def test_a_signal_handler_closes_and_asks_its_communicator(self):
        script = """
            import os, signal, sys, threading, numpy as np, foldwire
            own, other = foldwire.threads(2, timeout=60)

            def handler(*_):
                {act}

            signal.signal(signal.SIGUSR1, handler)
            threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
            try:
                {call}
            except foldwire.Error as error:
                print(error.kind, end=" ")
            try:
                own.barrier()
            except foldwire.Error as error:
                print(error.kind, end=" ")
            try:
                other.barrier()
            except foldwire.Error as error:
                print("too" if error.kind in ("peer_lost", "mismatch", "aborted") else error.kind)
        """
        calls = ("own.all_reduce(np.ones(3))", "own.start_all_reduce(np.ones(3)).wait()",
                 "own.split(0)")
        acts = [("own.close()", "interrupted closed too")]
        acts += [(act, "usage closed too") for act in (
            "own.close(); own.is_poisoned", "own.close(); own.progress()")]
        for call in calls:
            for act, expected in acts if call == calls[0] else acts[:1]:
                program = script.replace("{act}", act).replace("{call}", call)
                with self.subTest(call=call, act=act):
                    self.assertEqual(said(start(program, 1, lambda _: {}), 60), [expected + "\n"])
        # Questions alone are errors, too, and the call goes on if the handler ignores them.
        program = """
            import os, signal, threading, time, numpy as np, foldwire
            own, other = foldwire.threads(2, timeout=60)
            kinds = []

            def handler(*_):
                for ask in (lambda: own.is_poisoned, own.progress, own.barrier, first.test,
                            first.wait):
                    try:
                        ask()
                    except foldwire.Error as error:
                        kinds.append(error.kind)

            def later():
                time.sleep(0.5)
                os.kill(os.getpid(), signal.SIGUSR1)
                time.sleep(0.5)
                second = other.start_all_reduce(np.ones(3))
                other.all_reduce(np.ones(3))
                second.wait()

            signal.signal(signal.SIGUSR1, handler)
            first = own.start_all_reduce(np.ones(3))
            threading.Thread(target=later).start()
            print(own.all_reduce(np.ones(3))[0], first.wait()[0], kinds == ["usage"] * 5)
        """
        self.assertEqual(said(start(program, 1, lambda _: {}), 60), ["2.0 2.0 True\n"])

    def test_messages_match_in_any_order(self):
        def program(comm):
            after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
            long = np.linspace(0.0, 1.0, 50_000) + comm.rank
            came = [comm.start_recv(np.empty(50_000), before, tag=1),
                    comm.start_recv(np.empty(50_000), before, tag=1),
                    comm.start_recv(np.empty(3, np.int32), before, tag=2)]
            total = comm.start_all_reduce(np.ones(5))
            sent = [comm.start_send(np.full(3, comm.rank, np.int32), after, tag=2),
                    comm.start_send(long, after, tag=1, bound="abs:1e-3"),
                    comm.start_send(long + 7, after, tag=1)]
            first, second, short = came[0].wait(), came[1].wait(), came[2].wait()
            np.testing.assert_allclose(first, np.linspace(0.0, 1.0, 50_000) + before, atol=1e-3)
            np.testing.assert_array_equal(second, np.linspace(0.0, 1.0, 50_000) + before + 7)
            self.assertEqual(short.tolist(), [before] * 3)
            self.assertLess(came[0].report["bound"], 1.01e-3)
            self.assertEqual([request.wait() for request in sent], [None] * 3)
            self.assertLess(sent[1].report["wire_bytes"], long.nbytes / 3)
            # Blocking messages match non-blocking ones.
            came = comm.start_recv(np.empty(4), before, tag=5)
            comm.send(np.full(4, 1.0 + comm.rank), after, tag=5)
            self.assertEqual(came.wait()[0], 1.0 + before)
            self.assertEqual(total.wait()[0], comm.size)

        for size in (1, 2, 3):
            foldwire.run(size, program)

    def test_messages_can_be_awaited(self):
        async def rank(comm):
            other = 1 - comm.rank
            came = comm.start_recv(np.empty(1000), other)
            await comm.start_send(np.full(1000, float(comm.rank)), other)
            return (await came)[999]

        async def main():
            return await asyncio.gather(*map(rank, foldwire.threads(2)))

        self.assertEqual(asyncio.run(main()), [1.0, 0.0])

    def test_a_message_of_another_length_ends_the_communicator(self):
        def program(comm):
            with self.assertRaises(foldwire.Error) as raised:
                if comm.rank == 0:
                    comm.send(np.zeros(4), 1)
                    comm.barrier()
                else:
                    comm.start_recv(np.zeros(5), 0).wait()
            self.assertTrue(comm.is_poisoned)
            return raised.exception.kind, raised.exception.field

        kinds = foldwire.run(2, program)
        self.assertEqual(kinds[0][0], "aborted")
        self.assertEqual(kinds[1], ("mismatch", "count"))

    def test_so_many_messages_may_be_under_way(self):
        def program(comm):
            came = [comm.start_recv(np.zeros(1), 0, tag=tag) for tag in range(1024)]
            with self.assertRaises(foldwire.Error) as raised:
                comm.start_recv(np.zeros(1), 0)
            self.assertEqual(raised.exception.kind, "too_many_calls")
            for tag in reversed(range(1024)):
                comm.start_send(np.full(1, float(tag)), 0, tag=tag).wait()
            self.assertEqual([request.wait()[0] for request in came], list(range(1024)))

        foldwire.run(1, program)

    def test_all_ranks_can_live_in_one_event_loop(self):
        async def rank(comm):
            one = comm.start_all_reduce(np.arange(1000.0), bound="abs:1e-3")
            two = comm.start_all_gather(np.array([comm.rank]))
            gathered, total = await asyncio.gather(two, one)
            return gathered.ravel().tolist(), float(total[999])

        async def main():
            return await asyncio.gather(*map(rank, foldwire.threads(4)))

        for gathered, total in asyncio.run(main()):
            self.assertEqual(gathered, [0, 1, 2, 3])
            self.assertAlmostEqual(total, 4 * 999.0, delta=0.01)

    def test_the_gil_is_free_while_a_rank_waits(self):
        def program(comm):
            if comm.rank == 1:
                began = time.monotonic()
                while time.monotonic() - began < 0.2:
                    sum(range(1000))
            comm.barrier()
            return comm.report["waiting_seconds"]

        waited = foldwire.run(2, program)
        self.assertGreater(waited[0], 0.1)

    def test_another_thread_may_wait_for_a_request(self):
        def program(comm):
            request = comm.start_all_reduce(np.ones(10))
            results = []
            thread = threading.Thread(target=lambda: results.append(request.wait()[0]))
            thread.start()
            thread.join()
            return results

        self.assertEqual(foldwire.run(2, program), [[2.0], [2.0]])

    def test_several_threads_may_wait_for_the_same_request(self):
        def program(comm):
            request, results = comm.start_all_reduce(np.ones(10)), []
            threads = [threading.Thread(target=lambda: results.append(request.wait()[0]))
                       for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return results

        self.assertEqual(foldwire.run(2, program), [[2.0] * 4] * 2)

    def test_another_thread_can_end_a_call(self):
        comm, _other = foldwire.threads(2)
        timer = threading.Timer(0.2, comm.interrupt)
        timer.start()
        with self.assertRaises(foldwire.Error) as raised:
            comm.barrier()
        self.assertEqual(raised.exception.kind, "interrupted")

    def test_an_array_stays_while_its_call_needs_it(self):
        def program(comm):
            request = comm.start_all_reduce(np.full(200_000, 1.0))
            gc.collect()
            np.ones(200_000)
            return request.wait().min()

        self.assertEqual(foldwire.run(3, program), [3.0] * 3)


class Failures(unittest.TestCase):
    def test_what_a_rank_raises_ends_the_others_and_is_raised(self):
        def program(comm):
            if comm.rank == 1:
                raise KeyError("mine")
            while True:
                comm.barrier()

        with self.assertRaisesRegex(KeyError, "mine"):
            foldwire.run(3, program)

    def test_ranks_that_disagree_are_told_in_what(self):
        def program(comm):
            with self.assertRaises(foldwire.Error) as raised:
                comm.all_reduce(np.zeros(10), "sum" if comm.rank == 0 else "max")
            return raised.exception

        errors = foldwire.run(2, program)
        told = [error for error in errors if error.kind == "mismatch"]
        self.assertTrue(told)
        for error in told:
            self.assertEqual(error.field, "operation")
            self.assertEqual({error.ours, error.theirs}, {"sum", "max"})
        self.assertTrue(all(error.kind in ("mismatch", "aborted") for error in errors))

    def test_a_wrong_call_leaves_the_communicator_usable(self):
        def program(comm):
            wrong = (
                (lambda: comm.all_reduce(np.zeros(3), "median"), "op"),
                (lambda: comm.all_reduce(np.zeros(3), out=np.zeros(4)), "out"),
                (lambda: comm.all_reduce(np.zeros(3), out=np.zeros(3, np.float32)), "out"),
                (lambda: comm.all_reduce(np.zeros(3), out=np.zeros((3, 2))[:, 0]), "out"),
                (lambda: comm.broadcast(np.broadcast_to(1.0, 3)), "array"),
                (lambda: comm.broadcast([1.0, 2.0]), "array"),
                (lambda: comm.start_all_reduce(np.zeros(3, complex), "max"), "op"),
                (lambda: comm.all_reduce(np.zeros(3), bound="rel:0"), None),
                (lambda: comm.all_reduce(np.zeros(3), plan="codec:mp3"), None),
                (lambda: comm.reduce(np.zeros(3), root=2), "root"),
                (lambda: comm.all_reduce(np.zeros(3, int), "avg"), None),
                (lambda: comm.all_to_all(np.zeros(5)), "array"),
                (lambda: comm.all_gather(np.zeros(5), counts=[4, 4]), "counts"),
                (lambda: comm.send(np.zeros(5), 9), "rank"),
                (lambda: comm.start_recv(np.zeros(5), -1), "rank"),
            )
            for call, field in wrong:
                try:
                    call()
                except foldwire.Error as error:
                    self.assertTrue(error.is_usage, error)
                    if field:
                        self.assertEqual(error.field, field)
                else:
                    self.fail(f"line {call.__code__.co_firstlineno} passed")
            return comm.all_reduce(np.ones(1))[0]

        self.assertEqual(foldwire.run(2, program), [2.0, 2.0])

    def test_limits_of_time_end_a_call(self):
        def program(comm):
            if comm.rank == 1:
                time.sleep(0.5)
                return None
            with self.assertRaises(foldwire.Error) as raised:
                comm.barrier()
            return raised.exception.kind, raised.exception.rank

        began = time.monotonic()
        self.assertEqual(foldwire.run(2, program, timeout=0.1)[0], ("timeout", 1))
        self.assertLess(time.monotonic() - began, 3)

    def test_the_timeout_of_a_communicator_is_that_of_all_its_collectives(self):
        for call in (
            lambda comm: comm.all_reduce_group([np.ones(3)], bounds=["abs:1"]),
            lambda comm: comm.repro_sum(np.ones(3)),
            lambda comm: comm.split(0),
            lambda comm: comm.duplicate(),
            lambda comm: comm.all_reduce(np.ones(3), np.add),
        ):
            came = threading.Event()

            def program(comm):
                if comm.rank == 1:
                    came.wait(30)
                    return None
                comm.timeout = 0.1
                try:
                    with self.assertRaises(foldwire.Error) as raised:
                        call(comm)
                finally:
                    came.set()
                return raised.exception.kind

            began = time.monotonic()
            self.assertEqual(foldwire.run(2, program, timeout=20)[0], "timeout")
            self.assertLess(time.monotonic() - began, 10)

    def test_a_timeout_of_one_call_is_not_that_of_the_next(self):
        def program(comm):
            comm.timeout = 0.05
            comm.repro_sum(np.ones(3))
            comm.timeout = None
            if comm.rank == 1:
                time.sleep(0.5)
            return comm.repro_sum(np.ones(3))

        self.assertEqual(foldwire.run(2, program, timeout=20), [6.0, 6.0])

    def test_a_closed_communicator_says_so(self):
        comm, other = foldwire.threads(2)
        request = comm.start_barrier()
        comm.close()
        for call in (comm.barrier, request.wait, lambda: comm.split(0)):
            with self.assertRaises(foldwire.Error) as raised:
                call()
            self.assertEqual(raised.exception.kind, "closed")
        with self.assertRaises(foldwire.Error) as raised:
            other.barrier()
        self.assertIn(raised.exception.kind, ("peer_lost", "aborted"))


if __name__ == "__main__":
    unittest.main()
