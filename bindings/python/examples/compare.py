"""Times all-reduces of numpy arrays between processes of this machine: Foldwire over TCP, mpi4py,
gloo, and Foldwire's process group for torch.

    python examples/compare.py                       # 2 processes, 4 bytes to 64 MiB
    python examples/compare.py --ranks 4 --repeat 15 --json
    python examples/compare.py --beside gloo         # only the comparison with torch
    torchrun --nproc-per-node 2 examples/compare.py --as gloo --bound rel:1e-2

Libraries that are not installed are skipped. Each round times every method: 20 calls of up to 8
KiB, 4 of up to 64 KiB, else one. The table shows the median over rounds of the slowest rank's time
for a call. mpi4py runs with ``mpirun``, or with the command in ``FOLDWIRE_MPIRUN``. With ``--as``
the process is a rank of another launcher, such as ``torchrun`` or ``cargo xtask cluster run``.
"""

import argparse
import importlib.util
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import time

import numpy as np

SIZES = (4, *(4096 << shift for shift in range(0, 16, 2)))


def field(rank, n_bytes):
    """Returns values that compress like a smooth field."""
    x = np.arange(n_bytes // 4, dtype=np.float32) * np.float32(1e-3)
    return np.sin(x) + np.float32(rank) + np.float32(1e-4) * np.sin(x * 977)


def rounds(ways, rank, barrier, slowest, args):
    """Times each method for each size. Rank 0 prints the results."""
    for n_bytes in args.sizes:
        data = field(rank, n_bytes)
        n_calls = 20 if n_bytes <= 8192 else 4 if n_bytes <= 65_536 else 1
        times = {name: [] for name in ways}
        for _ in range(args.repeat + 2):
            for name, way in ways.items():
                own = data.copy()
                barrier()
                start = time.perf_counter()
                for _ in range(n_calls):
                    way(own)
                times[name].append(slowest(time.perf_counter() - start) / n_calls)
        if rank == 0:
            for name in ways:
                seconds = statistics.median(times[name][2:])
                row = {"way": name, "ranks": args.ranks, "bytes": n_bytes, "seconds": seconds}
                print(json.dumps(row), flush=True)


def ways_of_foldwire(comm, bound):
    return {
        "foldwire, exact": lambda own: comm.all_reduce(own, out=own),
        f"foldwire, {bound}": lambda own: comm.all_reduce(own, out=own, bound=bound),
        f"foldwire, auto,{bound}": lambda own: comm.all_reduce(own, out=own, plan="auto",
                                                               bound=bound),
    }


def of_mpi(args):
    from mpi4py import MPI

    import foldwire

    world = MPI.COMM_WORLD
    comm = foldwire.from_mpi(world)
    ways = {"mpi4py": lambda own: world.Allreduce(MPI.IN_PLACE, own),
            **ways_of_foldwire(comm, args.bound)}
    rounds(ways, comm.rank, world.Barrier, lambda t: world.allreduce(t, MPI.MAX), args)


def of_gloo(args):
    import torch
    import torch.distributed as dist

    import foldwire.torch

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    comm = foldwire.torch.connect()
    groups = {"gloo": None}
    for bound in (None, args.bound):
        foldwire.torch.configure(bound=bound)
        groups[f"group, {bound or 'exact'}"] = dist.new_group(backend="foldwire")

    def of(group, is_async):
        def way(own):
            # A sum of sums would overflow after some calls.
            tensor = torch.from_numpy(own)
            work = dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group, async_op=is_async)
            if is_async:
                work.wait()
        return way

    ways = {name: of(group, False) for name, group in groups.items()}
    ways.update({f"{name}, async": of(group, True) for name, group in groups.items()})
    ways.update(ways_of_foldwire(comm, args.bound))

    def slowest(seconds):
        value = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(value, dist.ReduceOp.MAX)
        return value.item()

    rounds(ways, comm.rank, dist.barrier, slowest, args)
    dist.destroy_process_group()


def of_foldwire(args):
    import foldwire

    comm = foldwire.init()
    slowest = lambda t: float(comm.all_reduce(np.array(t), "max"))  # noqa: E731
    rounds(ways_of_foldwire(comm, args.bound), comm.rank, comm.barrier, slowest, args)


def has(module):
    return importlib.util.find_spec(module) is not None


def launch(way, args):
    """Starts the processes of one comparison, and returns the rows that they print."""
    own = [sys.executable, os.path.abspath(__file__), "--as", way, "--ranks", str(args.ranks),
           "--repeat", str(args.repeat), "--bound", args.bound,
           "--sizes", *map(str, args.sizes)]
    if way == "mpi":
        mpirun = shlex.split(os.environ.get("FOLDWIRE_MPIRUN", "mpirun"))
        command = [*mpirun, "-n", str(args.ranks), *own]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        outputs = [run.stdout]
    else:
        port = str(20_000 + os.getpid() % 9000)
        processes = []
        for rank in range(args.ranks):
            size = str(args.ranks)
            variables = {"RANK": str(rank), "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size,
                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            processes.append(subprocess.Popen(own, env={**os.environ, **variables},
                                              stdout=subprocess.PIPE, text=True))
        outputs = [process.communicate()[0] for process in processes]
    return [json.loads(line) for line in outputs[0].splitlines() if line.startswith("{")]


def label(n_bytes):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if n_bytes >= unit:
            return f"{n_bytes // unit} {name}"
    return f"{n_bytes} B"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=int(os.environ.get("WORLD_SIZE", 2)))
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="BYTES")
    parser.add_argument("--bound", default="rel:1e-3")
    parser.add_argument("--json", action="store_true",
                        help="print a row of JSON for each method and size")
    parser.add_argument("--beside", choices=("mpi", "gloo"), help="run only this comparison")
    parser.add_argument("--as", dest="way", choices=("foldwire", "mpi", "gloo"),
                        help="be a rank of another launcher, and print rows of JSON")
    args = parser.parse_args()
    if args.way:
        return {"foldwire": of_foldwire, "mpi": of_mpi, "gloo": of_gloo}[args.way](args)
    contests = [("mpi", has("mpi4py") and shutil.which("mpirun")), ("gloo", has("torch"))]
    contests = [way for way, is_here in contests if is_here and args.beside in (None, way)]
    for contest in contests or ["foldwire"]:
        rows = launch(contest, args)
        if args.json:
            for row in rows:
                print(json.dumps(row))
            continue
        names = list(dict.fromkeys(row["way"] for row in rows))
        print("".join([f"{'milliseconds':<14}", *(f"{name:>25}" for name in names)]))
        for n_bytes in args.sizes:
            cells = (next(r["seconds"] for r in rows if (r["way"], r["bytes"]) == (name, n_bytes))
                     for name in names)
            print("".join([f"{label(n_bytes):<14}", *(f"{1e3 * cell:25.3f}" for cell in cells)]))
        print()


if __name__ == "__main__":
    main()
