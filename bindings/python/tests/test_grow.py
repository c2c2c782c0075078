"""Tests of groups that take in new processes."""

import signal
import tempfile
import threading
import unittest

import numpy as np

import foldwire
from test_examples import start as start_example
from test_processes import said, start

RANK = """
    import os, sys, time, numpy as np, foldwire
    store = foldwire.FileStore(os.environ["AT"])
    if "N" in os.environ:
        comm = foldwire.init(store=store, rank=int(os.environ["N"]), size=3, limit=30)
        step = 0
    else:
        comm = foldwire.rejoin(store, limit=30)
        step = int.from_bytes(comm.facts, "little")
        print("joined", comm.rank, comm.old_ranks, flush=True)
    comm.timeout = 30
    while step < 200:
        try:
            total = comm.all_reduce(np.full(1000, comm.rank + 1.0))[0]
            assert total == comm.size * (comm.size + 1) / 2, total
            step += 1
            if step == 20:
                print("ready", flush=True)
            time.sleep(0.002)
        except foldwire.Error as failure:
            assert failure.kind in ("peer_lost", "aborted", "poisoned"), failure
            comm = comm.admit(store, 3, limit=30, patience=5, facts=step.to_bytes(8, "little"))
            step = int.from_bytes(comm.facts, "little")
    print("done", comm.rank, comm.size, comm.generation, flush=True)
    comm.close()
"""


INTERRUPTED = """
    import os, signal, threading, time, foldwire
    signal.signal(signal.SIGINT, signal.default_int_handler)
    side, place = os.environ["CASE"].split()
    inner, planned = foldwire.MemoryStore(), threading.Event()

    class Store:
        wait = inner.wait
        def set(self, key, value):
            inner.set(key, value)
            if "/invite/" in key:
                planned.set()
        def get(self, key):
            return inner.get(key)

    class Absent(Store):
        def get(self, key):
            if "/plan/" in key:
                time.sleep(3600)
            return inner.get(key)

    class Pressed(Store):
        def progress(self):
            if planned.is_set():
                signal.raise_signal(signal.SIGINT)

    def admit(store):
        size = 3 if side == "rejoin" else 2
        foldwire.threads(1)[0].admit(store, size, limit=60, patience=30)

    def rejoin(store):
        foldwire.rejoin(store, limit=60)

    def press():
        planned.wait()
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    others = [(rejoin, Absent())] + ([(admit, Store())] if side == "rejoin" else [])
    for run, store in others:
        threading.Thread(target=run, args=(store,), daemon=True).start()
    if place == "elsewhere":
        threading.Thread(target=press, daemon=True).start()
    try:
        {"admit": admit, "rejoin": rejoin}[side](Pressed() if place == "progress" else Store())
    except KeyboardInterrupt:
        print("stopped", flush=True)
    os._exit(0)
"""


class Growing(unittest.TestCase):
    def test_a_new_process_takes_the_place_of_a_killed_one(self):
        for killed in (0, 2):
            with tempfile.TemporaryDirectory() as folder:
                ranks = start(RANK, 3, lambda rank: {"AT": folder, "N": str(rank)})
                self.assertEqual(ranks[killed].stdout.readline(), "ready\n")
                ranks[killed].send_signal(signal.SIGKILL)
                ranks[killed].communicate()
                (new,) = start(RANK, 1, lambda _: {"AT": folder})
                others = [n for n in range(3) if n != killed]
                outputs = said([ranks[n] for n in others] + [new])
                for n, output in zip(others, outputs):
                    self.assertTrue(output.endswith(f"done {n} 3 1\n"), output)
                old = [n if n != killed else None for n in range(3)]
                self.assertIn(f"joined {killed} {old}\n", outputs[-1])
                self.assertTrue(outputs[-1].endswith(f"done {killed} 3 1\n"), outputs[-1])

    def test_threads_grow_in_a_store_in_memory(self):
        store, ends = foldwire.MemoryStore(), {}

        def newcomer():
            with foldwire.rejoin(store, limit=30, job="mine") as comm:
                ends["new"] = comm.rank, comm.facts, float(comm.all_reduce(np.ones(3))[0])

        thread = threading.Thread(target=newcomer)
        thread.start()
        alone = foldwire.threads(1)[0]
        comm = alone.admit(store, 2, limit=30, facts=b"seven", job="mine")
        self.assertEqual((comm.rank, comm.size, comm.generation), (0, 2, 1))
        self.assertEqual(comm.old_ranks, [0, None])
        self.assertEqual(comm.all_reduce(np.ones(3))[0], 2)
        thread.join(60)
        self.assertEqual(ends["new"], (1, b"seven", 2.0))
        with self.assertRaises(foldwire.Error) as raised:
            alone.all_reduce(np.ones(3))
        self.assertEqual(raised.exception.kind, "closed")
        # Nobody waits: the group is as it was, on new connections.
        comm.close()

    def test_calls_in_progress_end_when_the_group_grows(self):
        store, ends = foldwire.MemoryStore(), [None, None]

        def rank(comm):
            derived = comm.duplicate()
            mine = [comm.start_all_reduce(np.ones(1000)) for _ in range(2 + comm.rank)]
            # The other rank has not started the last call of rank 1.
            grown = comm.admit(store, 2, limit=30, patience=5, job="busy")
            kinds = set()
            for request in mine:
                try:
                    kinds.add(request.wait()[0])
                except foldwire.Error as error:
                    kinds.add(error.kind)
            try:
                derived.barrier()
            except foldwire.Error as error:
                kinds.add(error.kind)
            ends[comm.rank] = kinds, grown.all_reduce(np.ones(3))[0], grown.size

        threads = [threading.Thread(target=rank, args=(comm,)) for comm in foldwire.threads(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for kinds, total, size in ends:
            self.assertEqual((total, size), (2, 2))
            self.assertLessEqual(kinds, {2.0, "peer_lost", "aborted", "closed", "poisoned"}, kinds)
            self.assertTrue(kinds - {2.0}, kinds)

    def test_nobody_waits_for_ever_and_errors_are_typed(self):
        store = foldwire.MemoryStore()
        with self.assertRaises(foldwire.Error) as raised:
            foldwire.rejoin(store, limit=0.2)
        self.assertEqual(raised.exception.kind, "timeout")
        comm = foldwire.threads(1)[0]
        for wrong in ({"facts": "text"}, {"size": 0}, {"patience": -1}, {"job": "two words"},
                      {"facts": bytes((64 << 10) + 1)}):
            with self.assertRaises(foldwire.Error) as raised:
                comm.admit(store, **wrong)
            self.assertEqual(raised.exception.kind, "argument", wrong)
        alone = comm.admit(store, patience=1)
        self.assertEqual((alone.size, alone.old_ranks), (1, [0]))

        class Broken:
            def set(self, *_):
                raise ConnectionError("the store is on fire")

            get = wait = set

        with self.assertRaises(ConnectionError):
            alone.admit(Broken(), 2, patience=1)

    def test_a_member_that_reads_the_plan_late_is_not_voted_out(self):
        """A planned member never comes. Another one reads the plan late, and so waits for that one
        until later than the survivor does."""
        store, ends, over = foldwire.MemoryStore(), {}, threading.Event()
        patience, limit = 0.5, 15

        class Late:
            def __init__(self, delay):
                self.delay, self.set, self.wait = delay, store.set, store.wait

            def get(self, key):
                if "/plan/" in key:
                    over.wait(self.delay)
                return store.get(key)

        def newcomer(delay):
            try:
                with foldwire.rejoin(Late(delay), limit=limit, job="late") as comm:
                    ends[delay] = comm.size, float(comm.all_reduce(np.ones(3))[0])
            except foldwire.Error as failure:
                ends[delay] = failure

        late, never = 2.6 * patience, 3 * limit
        threads = [threading.Thread(target=newcomer, args=(delay,)) for delay in (late, never)]
        for thread in threads:
            thread.start()
        comm = foldwire.threads(1)[0].admit(store, 3, limit=30, patience=patience, job="late")
        try:
            self.assertEqual((comm.size, float(comm.all_reduce(np.ones(3))[0])), (2, 2))
        finally:
            over.set()
            for thread in threads:
                thread.join(60)
        self.assertEqual(ends[late], (2, 2))

    def test_whatever_progress_raises_is_raised_whenever_it_comes(self):
        class Breaking:
            def __init__(self, at):
                store = foldwire.MemoryStore()
                self.set, self.get, self.wait, self.left = store.set, store.get, store.wait, at

            def progress(self):
                self.left -= 1
                if self.left == 0:
                    raise KeyboardInterrupt

        n_raised = 0
        while True:
            store = Breaking(n_raised + 1)
            try:
                foldwire.threads(1)[0].admit(store, 1, patience=1).close()
                break
            except KeyboardInterrupt:
                n_raised += 1
        self.assertGreater(store.left, 0)
        self.assertGreater(n_raised, 2)

    def test_ctrl_c_ends_the_wait_for_a_member_that_does_not_come(self):
        for side in ("admit", "rejoin"):
            for place in ("progress", "elsewhere"):
                ranks = start(INTERRUPTED, 1, lambda _, c=f"{side} {place}": {"CASE": c})
                self.assertEqual(said(ranks, 20), ["stopped\n"], (side, place))

    def test_the_example(self):
        said_, errors = start_example("rejoin.py").communicate(timeout=120)
        self.assertIn("killed rank 1", said_, errors)
        for rank in range(4):
            self.assertIn(f"rank {rank} of 4", said_, errors)


if __name__ == "__main__":
    unittest.main()
