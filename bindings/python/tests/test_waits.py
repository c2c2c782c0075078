"""Tests of waits: for another thread's call, and for messages to arrive before a rank ends."""

import threading
import time
import unittest

import numpy as np

import foldwire
from test_processes import said, start

# Ctrl-C after half a second. Programs in the background ignore it, and so do their children.
CTRL_C = """
    import foldwire, numpy as np, os, signal, threading, time
    signal.signal(signal.SIGINT, signal.default_int_handler)
    def pressed(call):
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        try:
            call()
        except KeyboardInterrupt:
            print("stopped" if time.monotonic() - began < 10 else "late", flush=True)
"""


class Waits(unittest.TestCase):
    def test_ctrl_c_ends_a_wait_for_a_call_of_another_thread(self):
        for call in ("comm.barrier", "comm.close", "request.wait", "request.test"):
            program = CTRL_C + f"""
    comm, other = foldwire.threads(2)
    request = comm.start_barrier()
    receiver = threading.Thread(target=comm.recv, args=(np.empty(3), 1))
    receiver.start()
    time.sleep(0.2)
    pressed({call})
    # The communicator is as it was.
    other.send(np.ones(3), 0)
    receiver.join()
    both = request, other.start_barrier()
    while not all([one.test() for one in both]):
        pass
    print([one.wait() for one in both])
            """
            outputs = said(start(program, 1, lambda _: {}))
            self.assertEqual(outputs, ["stopped\n[None, None]\n"], call)

    def test_an_interrupt_ends_a_wait_for_a_call_of_another_thread(self):
        comm, other = foldwire.threads(2)
        kinds = []

        def ends(call):
            try:
                call()
            except foldwire.Error as error:
                kinds.append(error.kind)

        calls = (lambda: comm.recv(np.empty(3), 1), comm.barrier, comm.barrier)
        threads = [threading.Thread(target=ends, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        comm.interrupt()
        for thread in threads:
            thread.join(20)
        self.assertEqual(kinds, ["interrupted"] * 3)
        comm.close()

    def test_threads_take_turns(self):
        comm, other = foldwire.threads(2)
        sent = threading.Thread(target=lambda: [other.send(np.ones(1), 0) for _ in range(800)])
        receive = lambda: [comm.recv(np.empty(1), 1) for _ in range(100)]  # noqa: E731
        threads = [sent, *(threading.Thread(target=receive) for _ in range(8))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertFalse(any(thread.is_alive() for thread in threads))

    def test_the_gil_is_free_while_a_rank_without_references_ends(self):
        store, began, seconds = foldwire.MemoryStore(), time.monotonic(), []

        def rank(n):
            comm = foldwire.init(store=store, rank=n, size=2, limit=20, timeout=20)
            if n == 0:
                for _ in range(4):
                    comm.send(np.ones(4), 1)
                return
            time.sleep(1)
            for _ in range(4):
                comm.recv(np.empty(4), 0)
            seconds.append(time.monotonic() - began)
            comm.close()

        threads = [threading.Thread(target=rank, args=(n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertLess(seconds[0], 10)

    def test_a_signal_handler_may_call_another_rank(self):
        program = """
            import foldwire, numpy as np, signal, threading
            (comm, other), alone, sums = foldwire.threads(2), foldwire.threads(1)[0], []
            handler = lambda *_: sums.append(float(alone.all_reduce(np.ones(2))[0]))
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            threading.Timer(1, other.barrier).start()
            comm.barrier()
            print(sums)
        """
        self.assertEqual(said(start(program, 1, lambda _: {})), ["[1.0]\n"])

    def test_ctrl_c_ends_the_wait_for_messages_to_arrive(self):
        program = CTRL_C + """
    store, is_over = foldwire.MemoryStore(), threading.Event()
    def receiver():
        other = foldwire.init(store=store, rank=1, size=2, limit=20)
        is_over.wait()
        for _ in range(4):
            other.recv(np.empty(4), 0)
        print("received")
        other.close()
    thread = threading.Thread(target=receiver)
    thread.start()
    comm = foldwire.init(store=store, rank=0, size=2, limit=20)
    for _ in range(4):
        comm.send(np.ones(4), 1)
    pressed(comm.close)
    is_over.set()
    thread.join()
        """
        self.assertEqual(said(start(program, 1, lambda _: {})), ["stopped\nreceived\n"])


if __name__ == "__main__":
    unittest.main()
