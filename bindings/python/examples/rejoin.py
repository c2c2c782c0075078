"""A rank is killed, and a new process takes its place while the others go on.

    python rejoin.py

This program starts four ranks that meet in a folder, kills one, and starts another process. Every
rank averages an array in each step. After a failure, the survivors admit the newcomer, tell it the
step, and send it their state.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

import foldwire

SIZE, STEPS, VALUES = 4, 40, 10_000
MARK = "steps-are-being-made"


def catch_up(comm, state):
    """Returns the step and the state of the lowest survivor, whose step the others were told."""
    survivors = [(old, rank) for rank, old in enumerate(comm.old_ranks) if old is not None]
    own = np.empty(VALUES) if state is None else state.copy()
    return int.from_bytes(comm.facts, "little"), comm.broadcast(own, root=min(survivors)[1])


def work(comm, store, state):
    """Makes the remaining steps. After a failure, goes on with a whole group."""
    step, has_grown = 0, state is None
    while step < STEPS:
        try:
            if has_grown:
                step, state = catch_up(comm, state)
                print(f"rank {comm.rank}: generation {comm.generation}, step {step}", flush=True)
                has_grown = False
            mean = comm.all_reduce(state + comm.rank, op="mean", bound="abs:1e-3")
        except foldwire.Error as failure:
            # A newcomer without the state cannot go on as a survivor.
            if failure.kind == "argument" or state is None:
                raise
            facts = step.to_bytes(8, "little")
            comm, has_grown = comm.admit(store, SIZE, limit=30, patience=5, facts=facts), True
            continue
        state, step = mean - (comm.size - 1) / 2, step + 1
        if step == 5 and comm.rank == 0:
            open(os.path.join(store.folder, MARK), "w").close()
        time.sleep(0.02)
    print(f"rank {comm.rank} of {comm.size}: {state[0]:.2f} after {step} steps", flush=True)
    comm.close()


def start(folder, *rank):
    return subprocess.Popen([sys.executable, __file__, folder, *map(str, rank)])


def main():
    with tempfile.TemporaryDirectory() as folder:
        ranks = [start(folder, rank) for rank in range(SIZE)]
        while not os.path.exists(os.path.join(folder, MARK)):
            time.sleep(0.05)
        ranks[1].send_signal(signal.SIGKILL)
        ranks[1].wait()
        print("killed rank 1", flush=True)
        ranks[1] = start(folder)
        sys.exit(max(rank.wait(timeout=60) for rank in ranks))


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    shared = foldwire.FileStore(sys.argv[1])
    if len(sys.argv) == 3:
        member = foldwire.init(store=shared, rank=int(sys.argv[2]), size=SIZE)
        work(member, shared, np.zeros(VALUES))
    else:
        work(foldwire.rejoin(shared, limit=30), shared, None)
