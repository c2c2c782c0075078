"""Trains on while ranks are killed and join, with torch's ``_reconfigure`` (torch 2.14 or newer).

    python examples/elastic.py                       # 4 ranks; one is killed, later one joins
    python examples/elastic.py --kill 0 --join 0     # the same without, for comparison

Ranks meet at a store, the *lobby*, which this program keeps; a job would use torchrun's or etcd. A
rank whose call fails goes to the lobby, as a newcomer does. The first one there waits a moment for
the others, and writes the list of those who came. They form a new group, and the rank that is ahead
sends its state to the others.
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


def work(args):
    """Runs one rank."""
    store = dist.TCPStore("127.0.0.1", args.lobby, is_master=False)
    torch.set_num_threads(1)
    foldwire.torch.configure(bound=args.bound, min_bytes=1024)
    dist.init_process_group("foldwire", store=dist.HashStore(), rank=0, world_size=1,
                            enable_reconfigure=True, timeout=timedelta(seconds=10))
    lobby, training = Lobby(store), Training()

    def newcomers():
        """Returns how many have come, as all ranks know it."""
        n = torch.tensor([store.add("newcomers", 0)])
        dist.all_reduce(n, dist.ReduceOp.MAX)
        return n.item()

    def meet(least=1):
        lobby.join(least)
        training.catch_up()
        return newcomers()

    if args.late:
        store.add("newcomers", 1)
    # A newcomer waits for the others.
    seen = meet(2 if args.late else args.ranks)
    while training.step < args.steps:
        try:
            if newcomers() > seen:
                seen = meet()
            else:
                training.advance()
        except dist.DistBackendError as failure:
            print(f"step {training.step.item()}: {failure}", file=sys.stderr)
            seen = meet()
        if dist.get_rank() == 0:
            store.set("step", str(training.step.item()))
    if dist.get_rank() == 0:
        with torch.no_grad():
            loss = training.loss(7, 4096).item()
        store.set("result", json.dumps({"loss": loss, "ranks": dist.get_world_size(),
                                        "groups": lobby.epoch}))
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--kill", type=int, default=300, help="step of a rank's end; 0: none")
    parser.add_argument("--join", type=int, default=600, help="step of a newcomer; 0: none")
    parser.add_argument("--bound", default="rel:0.01")
    parser.add_argument("--lobby", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--late", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.lobby:
        return work(args)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    own = [sys.executable, os.path.abspath(__file__), "--lobby", str(store.port), "--steps",
           str(args.steps), "--bound", args.bound, "--ranks", str(args.ranks)]
    ranks = [subprocess.Popen(own) for _ in range(args.ranks)]
    for at, act in sorted([(args.kill, "kill"), (args.join, "join")]):
        if at == 0:
            continue
        while int(store.get("step")) < at:
            time.sleep(0.02)
        if act == "kill":
            ranks.pop(1).kill()
        else:
            ranks.append(subprocess.Popen([*own, "--late"]))
    result = json.loads(store.get("result"))
    for rank in ranks:
        try:
            rank.wait(10)
        except subprocess.TimeoutExpired:
            print("a newcomer came too late", file=sys.stderr)
            rank.kill()
    print(json.dumps({**result, "steps": args.steps, "bound": args.bound}))


if __name__ == "__main__":
    main()
