"""Tests of forks of a rank's process: nothing in a fork reaches the other ranks."""

import os
import textwrap
import unittest

try:
    import torch
except ImportError:
    torch = None

from test_processes import by_hand, said, start
from test_torch import launched

# Rank 0 forks each of the children. After each one, both ranks make calls.
PROGRAM = """
    import gc, multiprocessing, os, sys, numpy as np, foldwire
    comm = foldwire.init(limit=20, timeout=20)
    half = comm.split(0)
    for name, child in {children!r}.items():
        request = comm.start_all_reduce(np.full(4, comm.rank + 1.0))
        if comm.rank == 0:
            pid = os.fork()
            if pid == 0:
                exec(child)
                sys.exit(0)
            assert os.waitpid(pid, 0)[1] == 0, name
        assert request.wait()[0] == 3.0
        for group in (comm, half):
            total = group.all_reduce(np.full(1000, group.rank + 1.0))
            assert (total == 3.0).all(), (name, total)
    if comm.rank == 0:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(abs, [-1, -2]) == [1, 2]
    comm.barrier()
    print("right", comm.rank, flush=True)
    comm.close()
"""

# Programs of children, by name.
CHILDREN = {
    "ends": "pass",
    "ends without a word": "os._exit(0)",
    "closes it": "comm.close()",
    "leaves its block": "comm.__exit__(None, None, None)",
    "lets go of it": "comm = half = request = None; gc.collect()",
    "lets go of a request": "request = None; gc.collect()",
    "raises": "raise SystemExit(0)",
    "lets go of all and ends": "del comm, half, request; gc.collect(); os._exit(0)",
    "calls": """
        calls = (comm.barrier, lambda: comm.all_reduce(np.ones(4)), comm.start_barrier,
                 lambda: half.send(np.ones(1), 1), lambda: comm.recv(np.ones(1), 1), request.wait,
                 request.test, comm.progress, comm.interrupt, comm.duplicate, comm.shrink,
                 lambda: comm.share(3), lambda: comm.is_poisoned)
        for call in calls:
            try:
                call()
            except foldwire.Error as error:
                assert error.kind == "closed" and "forked" in str(error), error
            else:
                os._exit(3)
        assert (comm.rank, comm.size) == (0, 2)
        # A communicator of the child is usable.
        alone = foldwire.threads(1)[0]
        assert alone.all_reduce(np.ones(1)) == 1
    """,
}

# Rank 0 forks while an asynchronous call waits for rank 1, and then while no call is in progress.
GROUP = """
    import os, signal, sys, warnings
    from datetime import timedelta
    warnings.filterwarnings("ignore")
    import torch, torch.distributed as dist, foldwire.torch as ft
    dist.init_process_group("foldwire", timeout=timedelta(seconds=30))
    rank, ones = dist.get_rank(), torch.ones

    def fork(*calls):
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            for at, call in enumerate(calls):
                try:
                    call()
                    os._exit(10 + at)
                except ft.Error as error:
                    if error.kind != "closed" or "forked" not in str(error):
                        os._exit(20 + at)
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0

    def of_group():
        return (lambda: dist.all_reduce(ones(3)), lambda: dist.all_reduce(ones(3), async_op=True),
                lambda: dist.barrier(), lambda: dist.send(ones(1), 1), dist.monitored_barrier)

    dist.all_reduce(ones(3), async_op=True).get_future().wait()
    if rank == 0:
        work, message = dist.all_reduce(ones(3), async_op=True), dist.irecv(ones(1), 1)
        fork(work.wait, work.get_future, message.wait, *of_group())
        dist.send(ones(1), 1)
        work.wait()
        message.wait()
        fork(*of_group())
    else:
        dist.recv(ones(1), 0)
        dist.send(ones(1), 0)
        dist.all_reduce(ones(3))
    dist.barrier()
    print("right", flush=True)
    dist.destroy_process_group()
"""


@unittest.skipUnless(hasattr(os, "fork"), "forks: none on this system")
class Forks(unittest.TestCase):
    def test_a_fork_leaves_the_communicator_to_its_parent(self):
        children = {name: textwrap.dedent(child) for name, child in CHILDREN.items()}
        outputs = said(start(PROGRAM.format(children=children), 2, by_hand(2)))
        self.assertEqual(outputs, ["right 0\n", "right 1\n"])

    def test_a_fork_of_ranks_that_are_threads_says_so_too(self):
        program = """
            import os, numpy as np, foldwire
            comm, other = foldwire.threads(2)
            pid = os.fork()
            if pid == 0:
                try:
                    comm.barrier()
                except foldwire.Error as error:
                    print(error.kind, flush=True)
                comm.close()
                os._exit(0)
            os.waitpid(pid, 0)
            both = [one.start_all_reduce(np.ones(1)) for one in (comm, other)]
            while not all([one.test() for one in both]):
                pass
            print(*[one.wait() for one in both])
        """
        self.assertEqual(said(start(program, 1, lambda _: {})), ["closed\n[2.] [2.]\n"])

    def test_ranks_may_be_forks_of_the_process_that_made_the_id(self):
        program = """
            import os, numpy as np, foldwire
            id_ = foldwire.unique_id()
            children = []
            for rank in range(3):
                pid = os.fork()
                if pid == 0:
                    with foldwire.join(id_, rank, 3, limit=20) as comm:
                        assert comm.all_reduce(np.ones(1)) == 3
                    os._exit(7)
                children.append(pid)
            print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
        """
        self.assertEqual(said(start(program, 1, lambda _: {})), ["[7, 7, 7]\n"])

    @unittest.skipIf(torch is None, "torch: not installed")
    def test_a_fork_leaves_a_process_group_to_its_parent(self):
        for output in said(start(GROUP, 2, launched()), 120):
            self.assertEqual(output.splitlines()[-1], "right", output)


if __name__ == "__main__":
    unittest.main()
