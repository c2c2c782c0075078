"""Trains with few exchanges: ranks average their changes of the weights every H steps (DiLoCo).

    foldwire launch -n 4 -- python examples/diloco.py
    torchrun --nproc-per-node 4 examples/diloco.py --every 20 --bound rel:0.05

Each rank trains alone for H steps with AdamW. The ranks then average by how much their weights have
changed, and an outer step with Nesterov's momentum applies the average as if it were a gradient.
The table compares gloo, an exchange of 8-bit integers in a ring, and Foldwire within bounds with
error feedback: same seeds, same data.
"""

import argparse
import time

import torch
import torch.distributed as dist

import foldwire.torch


def network():
    torch.manual_seed(1)
    width = 384
    return torch.nn.Sequential(
        torch.nn.Linear(2, width), torch.nn.Tanh(), torch.nn.Linear(width, width),
        torch.nn.Tanh(), torch.nn.Linear(width, 1))


def sample(generator, n):
    x = torch.rand(n, 2, generator=generator) * 2 - 1
    return x, torch.sin(6 * x[:, :1]) * torch.cos(4 * x[:, 1:])


class Gloo:
    """Exact averages of 32-bit floats."""

    sent = 0

    def average(self, changes):
        n = dist.get_world_size()
        for change in changes:
            dist.all_reduce(change)
            change /= n
            self.sent += 2 * (n - 1) * change.nbytes // n


class Int8Ring:
    """A ring whose messages are 8-bit integers with a scale for each message, without error
    feedback. Sums are rounded again at each rank."""

    sent = 0

    def average(self, changes):
        n = dist.get_world_size()
        flat = torch.cat([change.reshape(-1) for change in changes])
        parts = list(flat.chunk(n))
        self._turn(parts, lambda part, came: part + came, 0)
        self._turn(parts, lambda part, came: came, 1)
        for change, average in zip(changes, flat.split([c.numel() for c in changes])):
            change.copy_(average.view_as(change) / n)

    def _turn(self, parts, combine, ahead):
        """Passes each part through all ranks."""
        rank, n = dist.get_rank(), dist.get_world_size()
        for step in range(n - 1):
            to, of = (rank + ahead - step) % n, (rank + ahead - step - 1) % n
            message = self._packed(parts[to])
            came = torch.empty(parts[of].numel() + 4, dtype=torch.uint8)
            request = dist.isend(message, (rank + 1) % n)
            dist.recv(came, (rank - 1) % n)
            request.wait()
            self.sent += message.numel()
            scale = came[:4].view(torch.float32)
            parts[of].copy_(combine(parts[of], came[4:].view(torch.int8) * scale))

    @staticmethod
    def _packed(part):
        scale = part.abs().max().clamp(min=1e-30) / 127
        codes = (part / scale).round().to(torch.int8)
        return torch.cat([scale.reshape(1).view(torch.uint8), codes.view(torch.uint8)])


class Foldwire:
    """Averages within a bound relative to the value range of each array, with error feedback."""

    def __init__(self, comm, bound):
        self.state = foldwire.torch.HookState(comm, bound, feedback=True)

    def average(self, changes):
        self.state.average(0, changes)

    @property
    def sent(self):
        return self.state.wire_bytes


def train(way, args):
    """Returns the loss for held-out values, and the seconds in averages."""
    model, rank, seconds = network(), dist.get_rank(), 0.0
    weights = list(model.parameters())
    own = torch.Generator().manual_seed(1000 + rank)
    inner = torch.optim.AdamW(weights, 2e-3, weight_decay=0.0)
    outer_weights = [torch.nn.Parameter(weight.detach().clone()) for weight in weights]
    outer = torch.optim.SGD(outer_weights, 0.7, momentum=0.9, nesterov=True)
    for _ in range(args.rounds):
        for _ in range(args.every):
            x, y = sample(own, args.batch)
            inner.zero_grad()
            ((model(x) - y) ** 2).mean().backward()
            inner.step()
        changes = [o.detach() - w.detach() for o, w in zip(outer_weights, weights)]
        dist.barrier()
        began = time.perf_counter()
        way.average(changes)
        seconds += time.perf_counter() - began
        for weight, change in zip(outer_weights, changes):
            weight.grad = change
        outer.step()
        with torch.no_grad():
            for weight, new in zip(weights, outer_weights):
                weight.copy_(new)
    x, y = sample(torch.Generator().manual_seed(2), 4096)
    with torch.no_grad():
        return ((model(x) - y) ** 2).mean().item(), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="number of outer steps")
    parser.add_argument("--every", type=int, default=10, help="inner steps between two averages")
    parser.add_argument("--batch", type=int, default=64, help="batch of a rank")
    parser.add_argument("--bound", action="append", help="may be repeated")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    comm = foldwire.torch.connect()
    ways = {"gloo": Gloo(), "8-bit ring": Int8Ring(), "foldwire, exact": Foldwire(comm, None)}
    for bound in args.bound or ["rel:0.01", "rel:0.05"]:
        ways[f"foldwire, {bound}"] = Foldwire(comm, bound)
    n_bytes = sum(weight.nbytes for weight in network().parameters())
    if dist.get_rank() == 0:
        print(f"{args.rounds} averages of {n_bytes / 1e6:.1f} MB by {dist.get_world_size()} ranks")
        print(f"{'':<20} {'loss':>9} {'sent':>10} {'averaging':>10}")
    for name, way in ways.items():
        loss, seconds = train(way, args)
        if dist.get_rank() == 0:
            print(f"{name:<20} {loss:9.5f} {way.sent / 1e6:7.2f} MB {seconds:8.2f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
