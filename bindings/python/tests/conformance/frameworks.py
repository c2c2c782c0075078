"""Trains a network with Lightning or with accelerate, through gloo and through Foldwire's group.

    python frameworks.py lightning
    python frameworks.py accelerate
    cargo xtask torch lightning accelerate     # in a fresh environment

Two ranks train three times: with gloo, with Foldwire and exact, and within a bound. The program
checks that the exact weights have gloo's bits, that the ranks agree, and that the bounded training
learns as much. It needs torch, and the framework.
"""

import argparse
import hashlib
import json
import os
import socket
import subprocess
import sys

import torch
import torch.distributed as dist

import foldwire.torch

STEPS, BATCH, RATE = 60, 64, 0.05
WAYS = (("gloo", None), ("foldwire", None), ("foldwire", "rel:1e-2"))


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))


def samples():
    generator = torch.Generator().manual_seed(5)
    x = torch.rand(2 * STEPS * BATCH, 8, generator=generator) * 2 - 1
    return torch.utils.data.TensorDataset(x, torch.sin(3 * x).sum(1, keepdim=True))


def loss_of(model, data):
    x, y = data.tensors
    with torch.no_grad():
        return ((model(x) - y) ** 2).mean().item()


def with_lightning(backend):
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    class Regression(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = network()

        def training_step(self, batch):
            x, y = batch
            return ((self.network(x) - y) ** 2).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), RATE, momentum=0.9)

    trainer = lightning.Trainer(
        strategy=DDPStrategy(process_group_backend=backend), accelerator="cpu", devices=2,
        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False)
    model = Regression()
    trainer.fit(model, torch.utils.data.DataLoader(samples(), BATCH))
    return lightning.__version__, model.network


def with_accelerate(backend):
    import accelerate

    # `Accelerator(cpu=True)` takes no other name than gloo, but a group that is there.
    dist.init_process_group(backend)
    accelerator = accelerate.Accelerator(cpu=True)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9)
    loader = torch.utils.data.DataLoader(samples(), BATCH)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(((model(x) - y) ** 2).mean())
        optimizer.step()
    return accelerate.__version__, accelerator.unwrap_model(model)


FRAMEWORKS = {"lightning": with_lightning, "accelerate": with_accelerate}


def work(args):
    """Runs one rank. Each rank prints what it trained."""
    torch.set_num_threads(1)
    foldwire.torch.configure(bound=args.bound, min_bytes=1024)
    version, model = FRAMEWORKS[args.framework](args.backend)
    values = b"".join(weight.detach().numpy().tobytes() for weight in model.parameters())
    group = dist.group.WORLD
    row = {"version": version, "backend": dist.get_backend(), "size": dist.get_world_size(),
           "bits": hashlib.sha256(values).hexdigest(), "loss": loss_of(model, samples()),
           "taken": getattr(group, "n_taken", 0)}
    print(json.dumps(row), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def train(framework, backend, bound):
    """Starts two ranks as torchrun does, and returns the rows that they print."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = [sys.executable, os.path.abspath(__file__), framework, "--backend", backend]
    own += ["--bound", bound] if bound else []
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2",
              "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "NODE_RANK": "0",
              "TORCHELASTIC_RUN_ID": "frameworks", "ACCELERATE_USE_CPU": "true"}
    ranks = [subprocess.Popen(own, stdout=subprocess.PIPE, text=True,
                              env={**os.environ, **common, "RANK": rank, "LOCAL_RANK": rank})
             for rank in "01"]
    said = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit(f"{framework} over {backend}: a rank failed")
    lines = [line for text in said for line in text.splitlines() if line.startswith("{")]
    return [json.loads(line) for line in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", choices=FRAMEWORKS)
    parser.add_argument("--backend", help=argparse.SUPPRESS)
    parser.add_argument("--bound", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.backend:
        return work(args)
    rows = []
    for backend, bound in WAYS:
        first, second = train(args.framework, backend, bound)
        assert first["bits"] == second["bits"], "ranks have different weights"
        assert (first["backend"], first["size"]) == (backend, 2), first
        assert (first["taken"] > 0) == (backend == "foldwire"), first
        print(f"{args.framework} {first['version']}, {backend}, {bound or 'exact'}: "
              f"loss {first['loss']:.5f}")
        rows.append(first)
    gloo, exact, bounded = rows
    assert exact["bits"] == gloo["bits"], "exact weights differ from gloo's"
    before = loss_of(network(), samples())
    assert bounded["loss"] < 0.5 * before, f"{bounded['loss']} from {before}"
    assert abs(bounded["loss"] - gloo["loss"]) < 0.1 * gloo["loss"], (bounded, gloo)


if __name__ == "__main__":
    main()
