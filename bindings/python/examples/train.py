"""Trains a small network on several ranks, with exact and with compressed gradients.

    python examples/train.py --ranks 4 --link 12.5e6          # links of 100 Mbit/s
    python examples/train.py --link 125e6 --bound rel:0.1 --no-feedback
    foldwire launch -n 4 -- python examples/train.py --join   # ranks that are processes

Each rank has the whole network and a part of each batch. One group call averages the gradients of
all layers, each within a bound relative to its own value range. Compression saves time on slow
links, but changes how the loss falls; error feedback reduces this effect. By default ranks are
threads, with links of a limited rate. With ``--join`` they are processes that a launcher started.
"""

import argparse
import json
import sys
import time
import zlib

import numpy as np

import foldwire

WIDTH = 384


class Network:
    """Two tanh layers and a linear one, which learn a function of two variables."""

    def __init__(self, seed):
        random = np.random.default_rng(seed)
        sizes = (2, WIDTH, WIDTH, 1)
        self.layers = [
            [random.normal(0, 1 / np.sqrt(n), (n, m)).astype(np.float32), np.zeros(m, np.float32)]
            for n, m in zip(sizes, sizes[1:])
        ]

    def parameters(self):
        return [array for layer in self.layers for array in layer]

    def forward(self, x):
        passed = [x]
        for at, (weights, bias) in enumerate(self.layers):
            x = x @ weights + bias
            x = np.tanh(x) if at + 1 < len(self.layers) else x
            passed.append(x)
        return passed

    def gradients(self, x, y):
        """Returns the gradients of the mean squared error, in the order of the parameters, and the
        error."""
        passed = self.forward(x)
        off = passed[-1] - y
        slope, gradients = 2 * off / len(x), []
        for at in reversed(range(len(self.layers))):
            gradients[:0] = [passed[at].T @ slope, slope.sum(0)]
            slope = slope @ self.layers[at][0].T * (1 - passed[at] ** 2)
        return [g.astype(np.float32) for g in gradients], float((off**2).mean())


def sample(random, n):
    x = random.uniform(-1, 1, (n, 2)).astype(np.float32)
    return x, np.sin(6 * x[:, :1]) * np.cos(4 * x[:, 1:])


def train(comm, steps, batch, bound, feedback, seed):
    network = Network(seed)
    own = np.random.default_rng((seed, comm.rank))
    test = sample(np.random.default_rng(seed + 1), 512)
    velocity = [np.zeros_like(p) for p in network.parameters()]
    residues = [comm.feedback_for(p) for p in velocity] if feedback and bound else None
    curve, raw, wire, averaging = [], 0, 0, 0.0
    began = time.perf_counter()
    for step in range(steps):
        gradients, _ = network.gradients(*sample(own, batch // comm.size))
        start = time.perf_counter()
        comm.all_reduce_group(gradients, "avg", bound, residues)
        averaging += time.perf_counter() - start
        raw, wire = raw + comm.report["raw_bytes"], wire + comm.report["wire_bytes"]
        for parameter, moving, gradient in zip(network.parameters(), velocity, gradients):
            moving *= 0.9
            moving += gradient
            parameter -= 0.01 * moving
        if step % max(1, steps // 40) == 0 or step + 1 == steps:
            loss = float(((network.forward(test[0])[-1] - test[1]) ** 2).mean())
            curve.append((step + 1, loss))
            if comm.rank == 0 and sys.stderr.isatty():
                print(f"\r{bound or 'exact':>10}  {step + 1:5} of {steps}  {loss:.4f}", end="",
                      file=sys.stderr, flush=True)
    weights = zlib.crc32(b"".join(p.tobytes() for p in network.parameters()))
    of_all = comm.all_gather(np.array([weights], np.int64))
    assert np.unique(of_all).size == 1, "all ranks have the same weights"
    return {"bound": bound or "exact", "feedback": bool(residues), "loss": curve[-1][1],
            "seconds": time.perf_counter() - began, "averaging_seconds": averaging,
            "ratio": raw / max(wire, 1), "curve": curve}


def plot(rows, columns=72, lines=14):
    """Prints the loss curves as text, on a logarithmic scale."""
    values = np.log10([loss for row in rows for _, loss in row["curve"]])
    low, high = values.min(), max(values.max(), values.min() + 1e-9)
    page = [[" "] * columns for _ in range(lines)]
    for mark, row in zip("#o+x*", rows):
        last = row["curve"][-1][0]
        for step, loss in row["curve"]:
            column = round((step - 1) / max(last - 1, 1) * (columns - 1))
            line = round((high - np.log10(loss)) / (high - low) * (lines - 1))
            page[line][column] = mark
    for at, line in enumerate(page):
        print(f"{10 ** (high - (high - low) * at / (lines - 1)):8.4f} |{''.join(line)}")
    names = (f"{mark} {name(row)}" for mark, row in zip("#o+x*", rows))
    print(" " * 9 + "+" + "-" * columns + "\n" + " " * 10 + ", ".join(names))


def name(row):
    return row["bound"] + (", feedback" if row["feedback"] else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=256, help="batch size of all ranks together")
    parser.add_argument("--link", type=float, default=12.5e6,
                        help="bytes per second of a rank's link, each way; 0: as fast as memory")
    parser.add_argument("--bound", action="append",
                        help="error bound of the gradients; may be repeated")
    parser.add_argument("--no-feedback", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true",
                        help="print a row of JSON for each kind of gradients")
    parser.add_argument("--join", action="store_true",
                        help="run as one rank of processes that a launcher started")
    args = parser.parse_args()

    def every_way(comm):
        return [train(comm, args.steps, args.batch, bound, not args.no_feedback, args.seed)
                for bound in [None, *(args.bound or ["rel:0.02", "rel:0.2"])]]

    if args.join:
        with foldwire.init() as comm:
            rows = every_way(comm)
            if comm.rank > 0:
                return
    else:
        rows = foldwire.run(args.ranks, every_way, rate=args.link or None)[0]
    if sys.stderr.isatty():
        print("\r" + " " * 50 + "\r", end="", file=sys.stderr)
    if args.json:
        for row in rows:
            print(json.dumps(row))
        return
    plot(rows)
    print(f"\n{'gradients':<20} {'loss':>8} {'ratio':>7} {'averaging':>10} {'in all':>9}")
    for row in rows:
        print(f"{name(row):<20} {row['loss']:8.5f} {row['ratio']:7.1f} "
              f"{row['averaging_seconds']:8.1f} s {row['seconds']:7.1f} s")


if __name__ == "__main__":
    main()
