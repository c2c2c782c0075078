"""Tests of the queue of a process group's calls: which thread makes a call, and in which order."""

import contextlib
import threading
import time
import unittest
import unittest.mock

try:
    import torch
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "torch: not installed")
class LineTest(unittest.TestCase):
    def setUp(self):
        from foldwire._torch_line import Line

        self.line, self.made = Line(lambda: None), []

    def tearDown(self):
        self.line.end()

    def start(self, name, is_async=True, before=None):
        def call():
            if before is not None:
                before.wait(60)
            self.made.append((name, threading.current_thread()))

        return self.line.start(call, name, is_async)

    def names(self):
        return [name for name, _ in self.made]

    @contextlib.contextmanager
    def idle_thread(self):
        """Keeps the thread from making calls for a while."""
        jobs, make_next, is_idle = self.line._jobs, self.line._jobs.make_next, threading.Event()

        def of_others(only=None):
            if threading.current_thread() is not jobs.thread:
                return make_next(only)
            is_idle.set()
            return False

        jobs.make_next = of_others
        if jobs.thread is not None:
            # It may still look for a call of before.
            jobs.wakes.put(True)
            self.assertTrue(is_idle.wait(60))
        try:
            yield
        finally:
            jobs.make_next = make_next
            jobs.wakes.put(True)

    def test_a_caller_that_waits_makes_the_next_call_before_the_thread_begins_it(self):
        self.start("first").wait()
        with self.idle_thread():
            work = self.start("second")
            self.assertFalse(work.is_completed())
            self.assertTrue(work.wait())
        self.assertEqual(self.made[-1], ("second", threading.current_thread()))
        self.assertTrue(work.is_completed() and self.line.is_idle)
        # The thread is woken later, and finds nothing.
        self.assertEqual(self.start("third").get_future().wait(), "third")
        self.assertEqual(self.names(), ["first", "second", "third"])

    def look(self):
        """Makes calls until the thread looks for calls without being woken."""
        end = time.monotonic() + 60
        while not self.line._jobs.is_looking:
            self.assertLess(time.monotonic(), end)
            self.start("waited for").wait()
            time.sleep(0.001)

    def test_the_thread_finds_a_call_that_it_was_not_woken_for(self):
        jobs, end = self.line._jobs, time.monotonic() + 60
        wakes, puts = jobs.wakes, [True]
        while puts:
            puts.clear()
            self.look()
            jobs.wakes = unittest.mock.Mock(put=puts.append, get=wakes.get)
            work = self.start("deferred")
            jobs.wakes = wakes
            wakes.put(True) if puts else None
        self.completes(work)
        self.assertEqual(self.made[-1], ("deferred", jobs.thread))
        self.assertLess(jobs.n_waited, 0, "later calls wake it")

    def completes(self, work):
        """Waits for a work as a program does that only asks whether it is complete."""
        end = time.monotonic() + 60
        while not work.is_completed():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.001)

    def test_a_call_after_an_idle_time_is_made_although_nobody_waits(self):
        for n_waited in (8, 0, 1, 80):
            for _ in range(n_waited):
                self.start("short").wait()
            # Longer than the thread looks for calls.
            time.sleep(0.1)
            self.completes(self.start("after a pause"))

    def test_a_call_after_a_long_call_is_made_although_nobody_waits(self):
        for _ in range(8):
            self.start("short").wait()
        long = self.line.start(lambda: time.sleep(0.1), "long")
        self.completes(long)
        self.completes(self.start("next"))

    def test_a_call_that_is_queued_after_the_last_look_is_made(self):
        jobs, works = self.line._jobs, []
        pause = jobs.pause

        def late():
            if jobs.is_looking and not works:
                works.append(self.start("late"))
            return pause()

        jobs.pause = late
        self.look()
        end = time.monotonic() + 60
        while not works:
            self.assertLess(time.monotonic(), end)
            self.look()
        self.completes(works[0])

    def test_the_thread_goes_on_after_a_call_that_exits(self):
        def exits():
            raise SystemExit

        failed = self.line.start(exits, None)
        later = self.start("later")
        self.completes(failed)
        self.completes(later)
        self.assertIsInstance(failed.exception(), Exception)
        self.assertIsInstance(later.exception(), Exception, "calls after a failed one fail")

    def test_a_line_whose_thread_cannot_be_started_makes_blocking_calls(self):
        with unittest.mock.patch("threading.Thread.start", side_effect=RuntimeError("no thread")):
            with self.assertRaisesRegex(RuntimeError, "no thread"):
                self.start("first")
        self.assertTrue(self.line.is_idle)
        self.assertTrue(self.start("second", is_async=False).wait())
        self.completes(self.start("third"))

    def test_calls_keep_their_order_if_one_was_deferred(self):
        for finish in (lambda work: work.get_future().wait(), lambda work: work.wait()):
            self.look()
            self.made.clear()
            works = [self.start(n, is_async=n < 3) for n in range(4)]
            finish(works[0])
            for work in works:
                work.wait()
            self.assertEqual(self.names(), [0, 1, 2, 3])

    def test_the_end_makes_a_call_that_was_deferred(self):
        self.look()
        work = self.start("last")
        self.line.end()
        self.assertTrue(work.is_completed())

    def test_calls_are_made_in_order_whoever_waits(self):
        for _ in range(100):
            self.made.clear()
            gate = threading.Event()
            works = [self.start(0, before=gate)] + [self.start(n) for n in range(1, 5)]
            threads = [threading.Thread(target=work.wait) for work in reversed(works)]
            for thread in threads:
                thread.start()
            gate.set()
            self.start(5, is_async=False).wait()
            for thread in threads:
                thread.join(60)
            self.assertEqual(self.names(), [0, 1, 2, 3, 4, 5])
            self.assertTrue(self.line.is_idle)

    def test_many_callers_that_wait_at_once_end(self):
        def calls(name):
            for n in range(200):
                self.start((name, n), is_async=n % 3 > 0).wait()

        threads = [threading.Thread(target=calls, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertTrue(self.line.is_idle)
        for name in range(4):
            own = [n for made, n in self.names() if made == name]
            self.assertEqual(own, list(range(200)))

    def test_a_wait_with_a_limit_does_not_make_the_call(self):
        from datetime import timedelta

        from foldwire._torch_line import BackendError

        gate = threading.Event()
        work = self.start("slow", before=gate)
        with self.assertRaises(BackendError) as raised:
            work.wait(timedelta(milliseconds=20))
        self.assertEqual(raised.exception.kind, "timeout")
        gate.set()
        self.assertTrue(work.wait(timedelta(seconds=60)))
        self.assertIsNot(self.made[0][1], threading.current_thread())

    def test_a_caller_that_makes_the_next_call_keeps_the_order(self):
        test = self

        class SlowTurn:
            """Before the caller has the turn, another thread makes a call."""

            def __init__(self, turn):
                self.turn, self.is_first = turn, True

            def __enter__(self):
                if self.is_first and threading.current_thread() is caller:
                    self.is_first = False
                    idle.close()
                    other = threading.Thread(target=lambda: test.start("second").wait())
                    other.start()
                    other.join(60)
                self.turn.acquire()

            def __exit__(self, *_):
                self.turn.release()

        self.start("first").wait()
        caller, jobs = threading.current_thread(), self.line._jobs
        with contextlib.ExitStack() as idle:
            idle.enter_context(self.idle_thread())
            jobs.turn = SlowTurn(jobs.turn)
            self.assertTrue(self.start("next").wait())
        self.assertFalse(jobs.turn.is_first)
        self.assertEqual(self.names(), ["first", "next", "second"])
        self.assertTrue(self.line.is_idle)

    def in_time(self, program):
        """Runs a program that may wait for ever, and returns its result."""
        came = []
        thread = threading.Thread(target=lambda: came.append(program()), daemon=True)
        thread.start()
        thread.join(20)
        self.assertTrue(came, "the program waits for ever")
        return came[0]

    def test_a_callback_makes_calls_and_waits_for_them(self):
        def waits(name):
            return self.start(name).wait()

        def is_blocking(name):
            return self.start(name, is_async=False).wait()

        def by_future(name):
            return self.start(name).get_future().wait() == name

        for wait in (waits, is_blocking, by_future):
            def chained():
                gate = threading.Event()
                first, second = self.start("a", before=gate), self.start("b")

                def then(future):
                    # The second call is queued before.
                    return [future.value(), wait("c"), wait("d"), second.wait()]

                future = first.get_future().then(then)
                later = second.get_future().then(lambda future: wait("e"))
                gate.set()
                return future.wait(), later.wait()

            self.made.clear()
            came, later = self.in_time(chained)
            self.assertEqual((came, later), (["a", True, True, True], True))
            self.assertEqual(sorted(self.names()), list("abcde"))
            self.assertEqual(self.names()[:2], ["a", "b"])
            self.assertTrue(self.line.is_idle)

    def test_a_callback_waits_for_calls_while_the_line_ends(self):
        gate, came = threading.Event(), []

        def then(_):
            first, second = self.start("a"), self.start("b")
            came.append((first.wait(), second.wait()))

        def ended():
            future = self.start("first", before=gate).get_future().then(then)
            ending = threading.Thread(target=self.line.end)
            ending.start()
            gate.set()
            future.wait()
            ending.join()
            return came

        self.assertEqual(self.in_time(ended), [(True, True)])
        self.assertEqual(self.names(), ["first", "a", "b"])

    def test_a_long_chain_of_callbacks_makes_all_calls(self):
        n_links, end = 2000, threading.Event()

        def then(_):
            if len(self.made) == n_links:
                end.set()
            else:
                self.start(len(self.made)).get_future().then(then)

        self.start(0).get_future().then(then)
        self.assertTrue(end.wait(60), f"{len(self.made)} calls were made")
        self.assertEqual(self.names(), list(range(n_links)))

    def test_a_signal_handler_never_waits_for_its_own_thread(self):
        from foldwire._torch_line import BackendError

        class Interrupted:
            """A lock whose holder is interrupted by a handler that makes a call."""

            def __init__(self, lock, start):
                self.lock, self.start, self.failures = lock, start, []

            def acquire(self):
                with self.lock:
                    self.handle()
                return self.lock.acquire()

            def release(self):
                self.lock.release()
                self.handle()

            def handle(self):
                if threading.current_thread() is caller:
                    for is_async in (False, True):
                        try:
                            self.start("handler", is_async)
                        except BackendError as failure:
                            self.failures.append(failure.kind)

            def __enter__(self):
                self.acquire()

            def __exit__(self, *_):
                self.release()

        self.start("first").wait()
        caller, jobs = threading.current_thread(), self.line._jobs
        for name in ("lock", "turn"):
            whole = getattr(jobs, name)
            lock = Interrupted(whole, self.start)
            setattr(jobs, name, lock)
            with self.idle_thread():
                self.start("made by who waits").wait()
            self.start("at once", is_async=False)
            setattr(jobs, name, whole)
            self.assertGreaterEqual(len(lock.failures), 8)
            self.assertEqual(set(lock.failures), {"usage"})
        self.assertNotIn("handler", self.names())

    def test_a_call_within_a_call_is_refused(self):
        from foldwire._torch_line import BackendError

        # As a signal handler makes it.
        for act in (lambda: self.start("inner"), lambda: self.start("inner", is_async=False)):
            for is_async in (True, False):
                work = self.line.start(act, None, is_async)
                with self.assertRaises(BackendError) as raised:
                    work.wait()
                self.assertEqual(raised.exception.kind, "usage")
        self.assertTrue(self.start("later").wait())

    def test_an_error_keeps_its_type_in_a_pickle(self):
        import copy
        import pickle

        import torch.distributed as dist

        from foldwire._torch_line import BackendError

        error = BackendError("late", kind="timeout", rank=1, field="timeout")
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            self.assertIs(type(again), BackendError)
            self.assertIsInstance(again, dist.DistBackendError)
            self.assertEqual((str(again), again.kind, again.rank), ("late", "timeout", 1))
        self.assertTrue(repr(error).startswith("BackendError("))
        gate = threading.Event()
        work = self.start("x", before=gate)
        self.assertIn("in progress", repr(work))
        gate.set()
        work.wait()
        self.assertIn("finished", repr(work))

    def test_the_error_of_a_call_reaches_the_caller_that_made_it(self):
        self.start("first").wait()

        def fails():
            raise ValueError("no such rank")

        with self.idle_thread():
            work = self.line.start(fails, None)
            with self.assertRaisesRegex(ValueError, "no such rank"):
                work.wait()
        self.assertIsInstance(work.exception(), ValueError)
        self.assertTrue(self.start("later").wait())


if __name__ == "__main__":
    unittest.main()
