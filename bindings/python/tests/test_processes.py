"""Tests of ranks that are processes, over TCP."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import unittest
from unittest import mock

import numpy as np

import foldwire

LAUNCHERS = ("FOLDWIRE_", "OMPI_", "PMI", "SLURM_", "FLUX_", "RANK", "WORLD_SIZE", "MASTER_",
             "LOCAL_", "TORCHELASTIC")


def environment(**more):
    """Returns this process's environment without variables of launchers."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
    return {**plain, "PYTHONDONTWRITEBYTECODE": "1", **more}


def free_port():
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start(program, n, variables):
    """Starts n processes of a program. ``variables`` returns the environment of a rank."""
    program = textwrap.dedent(program)
    return [
        subprocess.Popen([sys.executable, "-c", program], env=environment(**variables(rank)),
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(n)
    ]


def said(processes, limit=60):
    return [process.communicate(timeout=limit)[0] for process in processes]


def by_hand(n):
    port = free_port()
    return lambda rank: {"FOLDWIRE_RANK": str(rank), "FOLDWIRE_SIZE": str(n),
                         "FOLDWIRE_ROOT": f"127.0.0.1:{port}"}


SUM = """
    import numpy as np, foldwire
    with foldwire.init(bound="abs:1e-3") as comm:
        total = comm.all_reduce(np.linspace(0, comm.rank, 100_000))
        assert abs(total[-1] - sum(range(comm.size))) <= comm.size * 1e-3, total[-1]
        assert comm.size == 1 or comm.report["ratio"] > 2, comm.report
        half = comm.split(comm.rank % 2)
        ranks = half.all_gather(np.array([comm.rank])).ravel().tolist()
        print(comm.rank, comm.size, ranks)
"""


class Processes(unittest.TestCase):
    def test_a_misspelled_variable_is_warned_of_once(self):
        program = """
            import warnings, foldwire
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                for _ in range(3):
                    foldwire.init().close()
            print([str(one.message) for one in said], {one.filename for one in said})
        """
        words = "nothing reads the variable FOLDWIRE_TOKN; do you mean FOLDWIRE_TOKEN?"
        for variables, expected in (({"FOLDWIRE_TOKN": "x"}, f"['{words}'] {{'<string>'}}\n"),
                                    ({"FOLDWIRE_TOKEN": "x" * 32}, "[] set()\n")):
            self.assertEqual(said(start(program, 1, lambda rank, v=variables: v)), [expected])

    def test_ranks_find_each_other_by_the_environment(self):
        for variables in (
            by_hand(3),
            lambda rank, port=free_port(): {"RANK": str(rank), "WORLD_SIZE": "3",
                                            "LOCAL_WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1",
                                            "MASTER_PORT": str(port)},
        ):
            outputs = said(start(SUM, 3, variables))
            self.assertEqual(
                outputs, ["0 3 [0, 2]\n", "1 3 [1]\n", "2 3 [0, 2]\n"])

    def test_a_process_alone_is_one_rank(self):
        self.assertTrue(said(start(SUM, 1, lambda _: {}))[0].startswith("0 1 "))

    def test_a_unique_id_is_carried_by_the_program(self):
        id_ = foldwire.unique_id()
        self.assertEqual(len(id_), 128)
        program = """
            import os, numpy as np, foldwire
            comm = foldwire.join(bytes.fromhex(os.environ["ID"]), 1, 2, limit=20)
            print(comm.recv(np.empty(4), 0).tolist())
            comm.close()
        """
        (other,) = start(program, 1, lambda _: {"ID": id_.hex()})
        comm = foldwire.join(id_, 0, 2, limit=20)
        comm.send(np.arange(4.0), 1)
        self.assertEqual(said([other]), ["[0.0, 1.0, 2.0, 3.0]\n"])
        with self.assertRaises(foldwire.Error) as raised:
            comm.barrier()
            comm.barrier()
        self.assertEqual(raised.exception.kind, "peer_lost")
        self.assertEqual(raised.exception.rank, 1)

    def test_who_does_not_come_is_an_error(self):
        began = time.monotonic()
        with self.assertRaises(foldwire.Error):
            foldwire.join(foldwire.unique_id(), 0, 2, limit=0.3)
        with self.assertRaises(foldwire.Error) as raised:
            foldwire.join(b"short", 0, 2)
        self.assertEqual(raised.exception.kind, "argument")
        self.assertLess(time.monotonic() - began, 10)

    def test_a_rank_that_is_killed_is_named(self):
        program = """
            import os, signal, numpy as np, foldwire
            comm = foldwire.init()
            comm.barrier()
            if comm.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                while True:
                    comm.barrier()
            except foldwire.Error as error:
                print(error.kind, error.rank)
            rest = comm.shrink(2.0)
            print(rest.size, rest.all_reduce(np.ones(1)))
            rest.close()
        """
        outputs = said(start(program, 3, by_hand(3)))
        for output in (outputs[0], outputs[2]):
            first, second = output.splitlines()
            self.assertIn(first.split()[0], ("peer_lost", "aborted"))
            self.assertEqual(second, "2 [2.]")

    def test_ctrl_c_ends_a_call(self):
        # Programs that a shell runs in the background ignore Ctrl-C, and so do their children.
        program = """
            import foldwire, signal
            signal.signal(signal.SIGINT, signal.default_int_handler)
            comm = foldwire.init()
            comm.barrier()
            print("now", flush=True)
            try:
                comm.barrier() if comm.rank == 0 else input()
            except KeyboardInterrupt:
                print("stopped")
        """
        port = free_port()
        zero, one = [
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(program)], text=True,
                env=environment(FOLDWIRE_RANK=str(rank), FOLDWIRE_SIZE="2",
                                FOLDWIRE_ROOT=f"127.0.0.1:{port}"),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            for rank in range(2)
        ]
        self.assertEqual(zero.stdout.readline(), "now\n")
        time.sleep(0.1)
        zero.send_signal(signal.SIGINT)
        self.assertEqual(zero.communicate(timeout=20)[0], "stopped\n")
        one.communicate("\n", timeout=20)

    def test_ranks_of_mpi4py_listen_on_the_way_to_another_host(self):
        from foldwire import _join

        def chosen(rank, ranks, address="10.0.0.1", others="-"):
            """Returns where a rank listens, and the names of hosts on the way to which it does.
            ``ranks`` has each rank's network and name."""
            asked = []
            world = mock.Mock(rank=rank, size=len(ranks), bcast=lambda id_: id_)
            answers = {tuple: lambda _: ranks, str: lambda own: [own, others]}
            world.allgather = lambda own: answers.get(type(own), lambda _: [None])(own)

            def own_address(root):
                asked.append(root)
                return address

            with mock.patch.dict(os.environ, environment(), clear=True), \
                    mock.patch.multiple(_join, join=mock.DEFAULT, unique_id=mock.DEFAULT), \
                    mock.patch.object(_join, "own_address", own_address), \
                    mock.patch.object(_join, "own_host", lambda: ranks[rank][0]):
                _join.from_mpi(world)
                return os.environ.get("FOLDWIRE_ADDRESS"), asked

        two = [("1", "a"), ("1", "a"), ("2", "b")]
        self.assertEqual(chosen(0, two), ("10.0.0.1", ["b"]))
        self.assertEqual(chosen(1, two), ("10.0.0.1", ["b"]))
        self.assertEqual(chosen(2, two), ("10.0.0.1", ["a"]))
        # Containers of one image.
        self.assertEqual(chosen(0, [("1", "a"), ("2", "a")]), ("10.0.0.1", ["a"]))
        # Names that are of loopback or of nothing.
        for alone in ({"address": "127.0.1.1"}, {"others": "other.host"}):
            with self.assertRaisesRegex(foldwire.Error, "loopback.*FOLDWIRE_IFACE") as raised:
                chosen(0, two, **alone)
        self.assertIn("on other.host the name", str(raised.exception))
        # One network under two names.
        self.assertEqual(chosen(1, [("1", "a"), ("1", "b")]), (None, []))

    def test_a_communicator_of_mpi4py(self):
        try:
            import mpi4py  # noqa: F401
        except ImportError:
            self.skipTest("mpi4py: not installed")
        mpirun = shutil.which("mpirun")
        if mpirun is None:
            self.skipTest("mpi4py: no mpirun")
        program = textwrap.dedent("""
            from mpi4py import MPI
            import numpy as np, foldwire
            world = MPI.COMM_WORLD
            comm = foldwire.from_mpi(world)
            own = np.random.default_rng(world.rank).normal(size=5000)
            ours, theirs = comm.all_reduce(own), np.empty_like(own)
            world.Allreduce(own, theirs)
            assert np.allclose(ours, theirs)
            print("same", comm.rank == world.rank and comm.size == 2)
        """)
        run = subprocess.run(
            [mpirun, *(["--allow-run-as-root", "--oversubscribe"] if _is_open_mpi(mpirun) else []),
             "-n", "2", sys.executable, "-c", program],
            env=environment(), capture_output=True, text=True, timeout=60)
        if run.returncode != 0 and "libmpi" in run.stderr:
            self.skipTest("mpi4py: built for another MPI library")
        # Both processes write to one pipe, in pieces.
        self.assertEqual((run.returncode, run.stdout.count("True")), (0, 2), run.stderr)


def _is_open_mpi(mpirun):
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True)
    return "Open MPI" in version.stdout + version.stderr


if __name__ == "__main__":
    unittest.main()
