"""Trains on while ranks are killed and join, with torch's ``_reconfigure`` (torch 2.14 or newer).

    python examples/elastic.py                       # 4 ranks; one is killed, later one joins
    python examples/elastic.py --kill 0 --join 0     # the same without, for comparison
    foldwire launch -n 4 examples/elastic.py         # one process for each node; so with torchrun
    cargo xtask cluster run -- python examples/elastic.py     # the same on the emulated cluster

Ranks meet at a store, the *lobby*, which this program keeps; a job would use torchrun's or etcd. A
rank whose call fails goes to the lobby, as a newcomer does. The first one there waits a moment for
the others, and writes the list of those who came. They form a new group, and the rank that is ahead
sends its state to the others.

Started as one process for each node, by a launcher that sets FOLDWIRE_RANK, FOLDWIRE_SIZE and
FOLDWIRE_ROOT or torchrun's variables, each process starts a rank on its node and watches over it,
as torchrun's agents do. The process of node 0 keeps the lobby. That of node 1 kills its rank, and
later starts another one.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import foldwire.torch

# Seconds that the first rank in the lobby waits for others.
GRACE = 0.5
BATCH = 240


class Lobby:
    """Where ranks agree on the members of the next group, which has a number."""

    def __init__(self, store):
        self.store, self.epoch = store, 0

    def join(self, least=1):
        """Forms a group of all ranks that come here now, ``least`` of them or more."""
        handle = c10d._get_reconfigure_handle()
        while True:
            self.epoch = max(self.epoch, self.store.add("epoch", 0)) + 1
            place = self.store.add(f"{self.epoch}/n", 1) - 1
            self.store.set(f"{self.epoch}/{place}", handle)
            if place == 0:
                while self.store.add(f"{self.epoch}/n", 0) < least:
                    time.sleep(0.01)
                time.sleep(GRACE)
                n = self.store.add(f"{self.epoch}/n", 0)
                came = [self.store.get(f"{self.epoch}/{at}").decode() for at in range(n)]
                self.store.set(f"{self.epoch}/list", json.dumps(came))
                self.store.add("epoch", self.epoch - self.store.add("epoch", 0))
            try:
                self.store.wait([f"{self.epoch}/list"], timedelta(seconds=60))
                members = json.loads(self.store.get(f"{self.epoch}/list"))
                if handle in members:
                    c10d._reconfigure(self.epoch, members, timeout=timedelta(seconds=5)).wait()
                    return
            except RuntimeError as failure:
                print(f"group {self.epoch}: {failure}", file=sys.stderr)


class Training:
    """A network that learns a function of two variables, and all that a newcomer needs of it."""

    def __init__(self):
        torch.manual_seed(1)
        width = 256
        self.network = torch.nn.Sequential(
            torch.nn.Linear(2, width), torch.nn.Tanh(), torch.nn.Linear(width, width),
            torch.nn.Tanh(), torch.nn.Linear(width, 1))
        self.weights = [weight.data for weight in self.network.parameters()]
        self.momenta = [torch.zeros_like(weight) for weight in self.weights]
        self.step = torch.zeros(1, dtype=torch.int64)

    def catch_up(self):
        """Takes over the state of the rank that is ahead. Others may lack its last step."""
        steps = [torch.empty_like(self.step) for _ in range(dist.get_world_size())]
        dist.all_gather(steps, self.step)
        first = max(range(len(steps)), key=lambda rank: steps[rank].item())
        for tensor in (*self.weights, *self.momenta, self.step):
            dist.broadcast(tensor, group_src=first)

    def loss(self, seed, n):
        x = torch.rand(n, 2, generator=torch.Generator().manual_seed(seed)) * 2 - 1
        y = torch.sin(6 * x[:, :1]) * torch.cos(4 * x[:, 1:])
        return ((self.network(x) - y) ** 2).mean()

    def advance(self):
        """Makes a step. If a call fails, the step is not made."""
        rank, size = dist.get_rank(), dist.get_world_size()
        self.network.zero_grad()
        self.loss(1000 * self.step.item() + rank, BATCH // size).backward()
        gradients = [weight.grad for weight in self.network.parameters()]
        for gradient in gradients:
            dist.all_reduce(gradient, dist.ReduceOp.AVG)
        for weight, momentum, gradient in zip(self.weights, self.momenta, gradients):
            momentum.mul_(0.9).add_(gradient)
            weight.sub_(0.03 * momentum)
        self.step += 1


def store_at(host, port, is_kept=False):
    """Returns the store of the lobby, which the caller keeps or somebody else."""
    store = dist.TCPStore(host, int(port), is_master=is_kept, wait_for_workers=False,
                          timeout=timedelta(hours=1))
    return store, dist.PrefixStore("lobby", store)


def work(args):
    """Runs one rank."""
    _, store = store_at(*args.lobby.rsplit(":", 1))
    torch.set_num_threads(1)
    foldwire.torch.configure(bound=args.bound, min_bytes=1024)
    dist.init_process_group("foldwire", store=dist.HashStore(), rank=0, world_size=1,
                            enable_reconfigure=True, timeout=timedelta(seconds=10))
    lobby, training = Lobby(store), Training()

    def newcomers():
        """Returns how many have come, and how many were started, as all ranks know it."""
        n = torch.tensor([store.add("newcomers", 0), store.add("started", 0)])
        dist.all_reduce(n, dist.ReduceOp.MAX)
        return n.tolist()

    def meet(least=1):
        lobby.join(least)
        training.catch_up()
        return newcomers()[0]

    if args.late:
        store.add("newcomers", 1)
    # A newcomer waits for the others.
    seen = meet(2 if args.late else args.ranks)
    # Time of the last step, and number of its group.
    last, epoch = None, lobby.epoch
    while True:
        try:
            n_came, n_started = newcomers()
            if n_came > seen:
                seen = meet()
            elif training.step >= args.steps:
                if n_came == n_started:
                    break
                # One is on its way.
                time.sleep(0.05)
            else:
                training.advance()
                now = time.monotonic()
                if last is not None and epoch != lobby.epoch:
                    store.set(f"pause/{lobby.epoch}", str(now - last))
                last, epoch = now, lobby.epoch
        except dist.DistBackendError as failure:
            print(f"step {training.step.item()}: {failure}", file=sys.stderr)
            seen = meet()
        if dist.get_rank() == 0:
            store.set("step", str(training.step.item()))
    dist.barrier()
    if dist.get_rank() == 0:
        with torch.no_grad():
            loss = training.loss(7, 4096).item()
        keys = [key for at in range(lobby.epoch + 1) if store.check([key := f"pause/{at}"])]
        pauses = [round(float(store.get(key)), 2) for key in keys]
        store.set("result", json.dumps({"loss": loss, "ranks": dist.get_world_size(),
                                        "groups": lobby.epoch, "pauses": pauses}))
    dist.barrier()
    dist.destroy_process_group()


class Ranks:
    """The ranks that this process starts and watches over."""

    def __init__(self, args, lobby, n):
        self._args = [sys.executable, os.path.abspath(__file__), "--lobby", lobby, "--steps",
                      str(args.steps), "--bound", args.bound, "--ranks", str(args.ranks)]
        self._environment = {"MASTER_ADDR": lobby.rsplit(":", 1)[0], **os.environ}
        self._running = []
        for _ in range(n):
            self.start()

    def start(self, *more):
        self._running.append(subprocess.Popen([*self._args, *more], env=self._environment))

    def replace_one(self, store, args):
        """Kills a rank at a step, and starts another one at a later step."""
        for at, act in sorted([(args.kill, "kill"), (args.join, "join")]):
            if at == 0:
                continue
            while int(store.get("step")) < at:
                time.sleep(0.02)
            if act == "join":
                store.add("started", 1)
                self.start("--late")
            else:
                self._running.pop().kill()

    def wait(self):
        for rank in self._running:
            rank.wait()


def launched():
    """Returns this process's number, the number of processes, and the address of the first one, if
    a launcher has started them."""
    for names in (("FOLDWIRE_RANK", "FOLDWIRE_SIZE"), ("RANK", "WORLD_SIZE")):
        if all(name in os.environ for name in names):
            numbers = [int(os.environ[name]) for name in names]
            address = (os.environ.get("FOLDWIRE_ROOT")
                       or "{MASTER_ADDR}:{MASTER_PORT}".format(**os.environ))
            return *numbers, address
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--kill", type=int, default=300, help="step of a rank's end; 0: none")
    parser.add_argument("--join", type=int, default=600, help="step of a newcomer; 0: none")
    parser.add_argument("--bound", default="rel:0.01")
    parser.add_argument("--lobby", help=argparse.SUPPRESS)
    parser.add_argument("--late", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.lobby:
        return work(args)
    node = launched()
    if node is None:
        kept, store = store_at("127.0.0.1", 0, is_kept=True)
        ranks = Ranks(args, f"127.0.0.1:{kept.port}", args.ranks)
        ranks.replace_one(store, args)
    else:
        number, args.ranks, address = node
        # torchrun keeps a store there itself.
        is_kept = number == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        kept, store = store_at(*address.rsplit(":", 1), is_kept=is_kept)
        ranks = Ranks(args, address, 1)
        if number == min(1, args.ranks - 1):
            ranks.replace_one(store, args)
    result = json.loads(store.get("result"))
    ranks.wait()
    if node is None or number == 0:
        print(json.dumps({**result, "steps": args.steps, "bound": args.bound}))
    if node is not None:
        # The store must outlive all who ask it.
        store.add("ended", 1)
        while is_kept and store.add("ended", 0) < args.ranks:
            time.sleep(0.02)


if __name__ == "__main__":
    main()
