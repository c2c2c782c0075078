"""Tests of ranks that meet in a store."""

import os
import tempfile
import threading
import time
import unittest

import numpy as np

import foldwire
from test_processes import free_port, said, start

MEET = """
    import os, numpy as np, foldwire
    rank, kind, at = int(os.environ["N"]), os.environ["KIND"], os.environ["AT"]
    if kind == "file":
        store = foldwire.FileStore(at)
    elif kind == "tcp":
        store = foldwire.TcpStore(at, hosts=rank == 0)
    else:
        from torch.distributed import FileStore
        store = FileStore(at + "/torch", 3)
    comm = foldwire.init(store=store, rank=rank, size=3, job="job-1", limit=30)
    print(int(comm.all_reduce(np.full(10, comm.rank + 1))[0]), comm.rank, comm.size)
"""


class DictStore:
    """A store as a user would write it, without ``wait``."""

    values = {}

    def set(self, key, value):
        self.values[key] = value

    def get(self, key):
        return self.values[key]


def threads(size, open_store, **keywords):
    """Lets threads meet, and returns their results or errors."""
    ends = [None] * size

    def rank(rank):
        try:
            with foldwire.init(store=open_store(), rank=rank, size=size, **keywords) as comm:
                ends[rank] = int(comm.all_reduce(np.ones(5))[0])
        except Exception as raised:
            ends[rank] = raised

    all_ranks = [threading.Thread(target=rank, args=(n,)) for n in range(size)]
    for thread in all_ranks:
        thread.start()
    for thread in all_ranks:
        thread.join(60)
    return ends


class Stores(unittest.TestCase):
    def meet(self, kind, at):
        variables = lambda rank: {"N": str(rank), "KIND": kind, "AT": at}  # noqa: E731
        self.assertEqual(said(start(MEET, 3, variables)), [f"6 {n} 3\n" for n in range(3)])

    def test_processes_meet_in_a_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            self.meet("file", folder)

    def test_processes_meet_over_tcp(self):
        self.meet("tcp", f"127.0.0.1:{free_port()}")

    def test_processes_meet_in_a_store_of_torch(self):
        try:
            import torch.distributed  # noqa: F401
        except ImportError:
            self.skipTest("torch is not installed")
        with tempfile.TemporaryDirectory() as folder:
            self.meet("torch", folder)

    def test_processes_meet_and_are_admitted_in_a_store_of_torch_over_tcp(self):
        try:
            import torch.distributed as dist
        except ImportError:
            self.skipTest("torch is not installed")
        host = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        program = """
            import os, numpy as np, foldwire, torch.distributed as dist
            store = dist.TCPStore("127.0.0.1", int(os.environ["AT"]), is_master=False)
            store = dist.PrefixStore("jobs", dist.PrefixStore("mine", store))
            if "N" in os.environ:
                comm = foldwire.init(store=store, rank=int(os.environ["N"]), size=2, limit=60)
                assert comm.all_reduce(np.ones(3))[0] == 2
                comm = comm.admit(store, 3, limit=60, facts=b"seven")
            else:
                comm = foldwire.rejoin(store, limit=60)
                assert comm.facts == b"seven", comm.facts
            print(int(comm.all_reduce(np.full(10, comm.rank + 1))[0]), comm.rank, comm.size)
            comm.close()
        """
        port = str(host.port)
        ranks = start(program, 2, lambda rank: {"AT": port, "N": str(rank)})
        ranks += start(program, 1, lambda _: {"AT": port})
        # torch may warn of names of hosts before.
        lines = [output.splitlines()[-1] for output in said(ranks)]
        self.assertEqual(lines, [f"6 {n} 3" for n in range(3)])

    def test_stores_say_what_they_are(self):
        at = f"127.0.0.1:{free_port()}"
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(repr(foldwire.FileStore(folder)), f"<foldwire.FileStore: {folder!r}>")
        self.assertEqual(repr(foldwire.MemoryStore()), "<foldwire.MemoryStore>")
        host = foldwire.TcpStore(at, hosts=True, token="a secret of many letters")
        self.assertEqual(repr(host), f"<foldwire.TcpStore: hosted here at {at!r}>")

    def test_threads_meet_in_memory_and_in_any_object(self):
        memory = foldwire.MemoryStore()
        self.assertEqual(threads(3, lambda: memory), [3, 3, 3])
        self.assertEqual(threads(2, DictStore, job="mine", epoch=7), [2, 2])
        self.assertIn("mine/7/0", DictStore.values)

    def test_a_wait_keeps_no_other_thread_out(self):
        with tempfile.TemporaryDirectory() as folder:
            for store in (foldwire.MemoryStore(), foldwire.FileStore(folder),
                          foldwire.TcpStore(f"127.0.0.1:{free_port()}", hosts=True, token="")):
                start = time.monotonic()
                self.assertEqual(threads(3, lambda s=store: s, limit=60), [3, 3, 3])
                self.assertLess(time.monotonic() - start, 10, type(store).__name__)

    def test_ctrl_c_ends_a_wait(self):
        for waiting in (
            "foldwire.MemoryStore().wait('key', 600)",
            "foldwire.init(limit=600)",
            "foldwire.init(store=foldwire.MemoryStore(), rank=0, size=2, limit=600)",
            "foldwire.rejoin(foldwire.MemoryStore(), limit=600)",
        ):
            script = f"""
                import foldwire, os, signal, threading
                threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                try:
                    {waiting}
                except KeyboardInterrupt:
                    print("stopped")
            """
            launched = lambda rank: {"FOLDWIRE_RANK": "0", "FOLDWIRE_SIZE": "2",  # noqa: E731
                                     "FOLDWIRE_ROOT": f"127.0.0.1:{free_port()}"}
            self.assertEqual(said(start(script, 1, launched), 60), ["stopped\n"], waiting)

    def test_ctrl_c_ends_the_wait_for_a_host_that_does_not_answer(self):
        program = """
            import foldwire, os, signal, socket, threading
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with socket.create_server(("127.0.0.1", 0)) as silent:
                store = foldwire.TcpStore(f"127.0.0.1:{silent.getsockname()[1]}", token="")
                # Another thread waits for the same store.
                threading.Thread(target=store.get, args=("key",), daemon=True).start()
                for call in (lambda: store.get("key"), lambda: store.set("key", b"value"),
                             lambda: store.wait("key", 60)):
                    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                    try:
                        call()
                    except KeyboardInterrupt:
                        print("stopped", flush=True)
                os._exit(0)
        """
        self.assertEqual(said(start(program, 1, lambda _: {}), 20), ["stopped\n" * 3])

    def test_threads_share_a_store_that_another_process_hosts(self):
        at = f"127.0.0.1:{free_port()}"
        host = foldwire.TcpStore(at, hosts=True, token="")
        store, waited, is_over = foldwire.TcpStore(at, token=""), [], threading.Event()

        def serve():
            while not is_over.is_set():
                host.progress()
                time.sleep(0.001)

        def wait():
            waited.append(store.wait("late", 30))

        threads = [threading.Thread(target=each) for each in (serve, wait)]
        for thread in threads:
            thread.start()
        began = time.monotonic()
        store.set("early", b"1")
        self.assertEqual(store.get("early"), b"1")
        self.assertLess(time.monotonic() - began, 10)
        store.set("late", b"2")
        threads[1].join(60)
        is_over.set()
        threads[0].join(60)
        self.assertEqual(waited, [b"2"])

    def test_an_error_of_the_store_is_raised_as_it_is(self):
        class Broken(DictStore):
            def get(self, key):
                raise ConnectionError("the store is on fire")

        class Wrong(DictStore):
            def get(self, key):
                return "text"

        for end in threads(2, Broken, limit=1):
            self.assertIsInstance(end, ConnectionError)
        for end in threads(2, Wrong, limit=1):
            self.assertIsInstance(end, foldwire.Error)
            self.assertEqual(end.field, "store")

    def test_a_missing_rank_and_wrong_arguments_are_named(self):
        store = foldwire.MemoryStore()
        with self.assertRaisesRegex(foldwire.Error, "rank 1 of 2") as raised:
            foldwire.init(store=store, rank=0, size=2, limit=0.2)
        self.assertEqual(raised.exception.kind, "timeout")
        for arguments in ({"rank": 2, "size": 2}, {"rank": 0, "size": 1, "job": "two words"},
                          {"rank": None, "size": 1}, {"rank": 0, "size": None}):
            with self.assertRaises(foldwire.Error) as raised:
                foldwire.init(store=store, **arguments)
            self.assertEqual(raised.exception.kind, "argument")
        with self.assertRaisesRegex(foldwire.Error, "methods"):
            foldwire.init(store=3, rank=0, size=1)
        with self.assertRaisesRegex(foldwire.Error, "needs a store"):
            foldwire.init(rank=0)

    def test_a_store_keeps_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            for store in (foldwire.MemoryStore(), foldwire.FileStore(folder),
                          foldwire.TcpStore(f"127.0.0.1:{free_port()}", hosts=True, token="")):
                store.progress()
                self.assertIsNone(store.get("a/b"))
                self.assertIsNone(store.wait("a/b", 0.01))
                store.set("a/b", b"\0\xff")
                self.assertEqual(store.get("a/b"), b"\0\xff")
                self.assertEqual(store.wait("a/b", 10), b"\0\xff")
                with self.assertRaisesRegex(foldwire.Error, "letters"):
                    store.set("a b", b"")
            self.assertEqual(len(os.listdir(folder)), 1)


if __name__ == "__main__":
    unittest.main()
