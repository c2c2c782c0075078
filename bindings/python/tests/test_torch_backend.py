"""Tests of all that gloo does through the process group, of sharded training, of the hook's state,
and of groups that lose and gain ranks."""

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

try:
    import torch
except ImportError:
    torch = None

from test_examples import EXAMPLES
from test_processes import environment, free_port, said, start
from test_torch import launched

# A function for each thing that torch's users do. It runs in the group that is the first argument.
EVERYTHING = """
    import gc, os, time, warnings
    from datetime import timedelta
    warnings.filterwarnings("ignore")
    import torch, torch.distributed as dist, foldwire.torch as ft
    import torch.distributed._functional_collectives as functional
    import torch.distributed.nn.functional as differentiable
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    dist.init_process_group("foldwire", timeout=timedelta(seconds=30))
    rank, world = dist.get_rank(), dist.group.WORLD
    ones = torch.ones

    def functional_collectives():
        assert functional.all_reduce(ones(4) * (rank + 1), "sum", world).tolist() == [3] * 4
        assert functional.all_gather_tensor(ones(2) * rank, 0, world).tolist() == [0, 0, 1, 1]
        assert functional.reduce_scatter_tensor(ones(4), "sum", 0, world).tolist() == [2, 2]
        assert functional.broadcast(ones(1) * rank, 1, world).item() == 1
        moved = functional.all_to_all_single(torch.arange(4.) + 10 * rank, [2, 2], [2, 2], world)
        assert moved.wait().tolist() == ([0, 1, 10, 11], [2, 3, 12, 13])[rank]
        one, other = functional.all_reduce_coalesced([ones(2), ones(3)], "sum", world)
        assert one.tolist() == [2] * 2 and other.tolist() == [2] * 3
        one, _ = functional.all_gather_into_tensor_coalesced([ones(1) * rank, ones(3)], world)
        assert one.tolist() == [0, 1]
        one, _ = functional.reduce_scatter_tensor_coalesced([ones(2), ones(4)], "sum", [0, 0],
                                                            world)
        assert one.tolist() == [2]

    def coalesced():
        one, other = ones(3), ones(5, dtype=torch.int64)
        with dist._coalescing_manager():
            dist.all_reduce(one)
            dist.all_reduce(other)
        assert one.tolist() == [2] * 3 and other.tolist() == [2] * 5
        outs = [torch.empty(4), torch.empty(2)]
        with dist._coalescing_manager(async_ops=True) as started:
            for out in outs:
                dist.all_gather_into_tensor(out, ones(len(out) // 2) * rank)
        started.wait()
        assert outs[0].tolist() == [0, 0, 1, 1]

    def messages():
        came = torch.empty(5)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, ones(5) * rank, 1 - rank),
                                            dist.P2POp(dist.irecv, came, 1 - rank)]):
            work.wait()
        assert came.tolist() == [1 - rank] * 5
        if rank == 0:
            for work in [dist.isend(ones(2) * tag, 1, tag=tag) for tag in (7, 8)]:
                work.wait()
            dist.send(ones(1), 1)
        else:
            one, other = torch.empty(2), torch.empty(2)
            dist.recv(other, 0, tag=8)
            dist.recv(one, 0, tag=7)
            assert (one[0], other[0]) == (7, 8)
            assert dist.recv(torch.empty(1)) == 0

    def objects():
        all = [None] * 2
        dist.all_gather_object(all, {"rank": rank})
        assert all[1] == {"rank": 1}
        one = [rank]
        dist.broadcast_object_list(one, 1)
        dist.scatter_object_list(one, ["a", "b"] if rank == 0 else None, 0)
        assert one == ["ab"[rank]]

    def sparse():
        own = torch.sparse_coo_tensor([[rank]], [1.0], (3,))
        dist.all_reduce(own)
        assert own.to_dense().tolist() == [1, 1, 0]

    def operations_and_types():
        op = dist.ReduceOp
        for op, expected in ((op.SUM, 3), (op.PRODUCT, 2), (op.MIN, 1), (op.MAX, 2), (op.BAND, 0),
                             (op.BOR, 3), (op.BXOR, 3)):
            own = torch.tensor([rank + 1])
            dist.all_reduce(own, op)
            assert own.item() == expected, op
        for dtype in (torch.complex64, torch.bool, torch.uint16, torch.float8_e4m3fn):
            own = (ones(3) * rank).to(dtype)
            out = [torch.empty_like(own) for _ in range(2)]
            dist.all_gather(out, own)
            assert torch.equal(out[1].to(torch.complex64), ones(3).to(torch.complex64)), dtype
        own = ones(3, dtype=torch.complex64) * 1j
        dist.all_reduce(own)
        assert own.tolist() == [2j] * 3
        own = torch._neg_view(ones(2))
        dist.all_reduce(own)
        assert own.tolist() == [-2] * 2

    def uneven():
        out = [torch.empty(1), torch.empty(2)]
        dist.all_gather(out, ones(rank + 1) * rank)
        assert out[1].tolist() == [1, 1]
        own = torch.empty(rank + 1)
        dist.reduce_scatter(own, [ones(1), ones(2)])
        assert own.tolist() == [2] * (rank + 1)
        out = [torch.empty(rank + 1) for _ in range(2)]
        dist.all_to_all(out, [ones(1) * rank, ones(2) * rank])
        assert out[1].tolist() == [1] * (rank + 1)

    def rows_of_other_shapes():
        # The splits of each tensor are its own rows.
        for shape in ((4, 2), (2, 4), (8,), (2, 2, 2)):
            for other in ((4, 2), (2, 4), (8,)):
                own, out = torch.arange(8.).reshape(shape) + 10 * rank, torch.zeros(other)
                dist.all_to_all_single(out, own)
                parts = [torch.arange(8.)[4 * rank:][:4] + 10 * each for each in range(2)]
                assert torch.equal(out.reshape(-1), torch.cat(parts)), (shape, other, out)
        own, out = torch.arange(6.).reshape(3, 2) + 10 * rank, torch.zeros(6 if rank else 6)
        splits = ([1, 2], [2, 1])[rank]
        back = ([2, 4], [4, 2])[rank]
        dist.all_to_all_single(out, own, back, splits)
        assert out.tolist() == ([0, 1, 10, 11, 12, 13], [2, 3, 4, 5, 14, 15])[rank], out
        for given in (([4, 3], [1, 2]), ([4, 2], [1, 1])):
            try:
                dist.all_to_all_single(out, own, *given)
                assert False, "no error"
            except dist.DistBackendError as error:
                assert (error.kind, error.field) == ("argument", "splits"), error

    def expanded_tensors():
        own = torch.full((1,), 5.0 + rank).expand(3)
        if rank == 0:
            dist.broadcast(own, 0)
        else:
            out = torch.empty(3)
            dist.broadcast(out, 0)
            assert out.tolist() == [5] * 3
        # Without any message to the other rank.
        spread = ones(1).expand(4)
        for call in (lambda: dist.broadcast(spread, 1 - rank), lambda: dist.all_reduce(spread),
                     lambda: dist.reduce(spread, rank),
                     lambda: dist.all_gather([ones(4), spread], ones(4)),
                     lambda: dist.all_gather_into_tensor(spread, ones(2)),
                     lambda: dist.reduce_scatter_tensor(spread, ones(8)),
                     lambda: dist.reduce_scatter(spread, [ones(4)] * 2),
                     lambda: dist.scatter(spread, [ones(4)] * 2 if rank == 0 else None, 0),
                     lambda: dist.gather(ones(4), [spread] * 2, rank),
                     lambda: dist.all_to_all_single(spread, ones(4)),
                     lambda: dist.all_to_all([spread] * 2, [ones(4)] * 2)):
            try:
                call()
                assert False, "no error"
            except dist.DistBackendError as error:
                assert (error.kind, error.field) == ("argument", "tensor"), error

    def limits_of_calls():
        # A limit of one call ends its group.
        group, options = dist.new_group(backend="foldwire"), dist.AllreduceOptions()
        options.timeout = timedelta(seconds=1)
        own = ones(3)
        group.allreduce([own], options).wait()
        assert own.tolist() == [2] * 3
        if rank == 0:
            began = time.monotonic()
            try:
                group.allreduce([own], options).wait()
                assert False, "no error"
            except dist.DistBackendError as error:
                assert (error.kind, error.rank) == ("timeout", 1), error
            assert 0.5 < time.monotonic() - began < 15
        dist.barrier()

    def meshes():
        mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("a", "b"))["b"]
        parts = distribute_tensor(torch.arange(8.).reshape(4, 2), mesh, [Shard(0)])
        assert parts.full_tensor().sum() == 28
        assert parts.redistribute(mesh, [Shard(1)]).to_local().shape == (4, 1)
        sums = DTensor.from_local(ones(4), mesh, [Partial()])
        assert sums.redistribute(mesh, [Shard(0)]).to_local().tolist() == [2, 2]

    def subgroups():
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            group, own = dist.new_group([0, 1]), ones(1)
            dist.all_reduce(own, group=group)
            dist.destroy_process_group(group)
            del group
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) <= before + 4
        alone, _ = dist.new_subgroups(1)
        dist.barrier(alone)
        for group in (dist.split_group(split_ranks=[[0, 1]]), merged()):
            own = ones(1)
            work = group.allreduce([own])
            assert work.wait() and own.item() == 2

    def merged():
        store = dist.PrefixStore("merged", dist.distributed_c10d._get_default_store())
        return world.merge_remote_group(store, 2, timedelta(seconds=10), "merged", "")

    def works():
        work = dist.all_reduce(ones(3), async_op=True)
        assert work.get_future().wait()[0].tolist() == [2] * 3
        assert work.is_completed() and work.is_success() and work.exception() is None
        own, out = ones(2), [torch.empty(2), torch.empty(2)]
        for work in (world.allreduce(own), world.allreduce([own], dist.ReduceOp.MAX),
                     world.broadcast(own, root=0), world.reduce(own, 0), world.allgather(out, own),
                     world.barrier(timeout=timedelta(seconds=9)), world.barrier()):
            assert work.wait()
        dist.monitored_barrier(timeout=timedelta(seconds=9), wait_all_ranks=True)
        backend = world._get_backend(torch.device("cpu"))
        assert isinstance(backend, ft.Backend) and backend.options._timeout.seconds == 30

    def gradients():
        for call in (differentiable.all_reduce, lambda x: torch.cat(differentiable.all_gather(x)),
                     lambda x: differentiable.all_to_all_single(torch.empty(2), x)):
            own = ones(2, requires_grad=True)
            call(own).sum().backward()
            assert own.grad is not None

    def resized_after_a_call():
        # As FSDP does with what it gathered.
        own = ones(4)
        dist.all_reduce(own)
        own.untyped_storage().resize_(0)

    for each in (functional_collectives, coalesced, messages, objects, sparse,
                 operations_and_types, uneven, rows_of_other_shapes, expanded_tensors,
                 limits_of_calls, meshes, subgroups, works, gradients,
                 resized_after_a_call):
        each()
        dist.barrier()
    # Beside another backend.
    mixed, own = dist.new_group(backend="cpu:foldwire,cuda:gloo"), ones(3)
    dist.all_reduce(own, group=mixed)
    assert own.tolist() == [2] * 3
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, own, 1 - rank, mixed),
                                    dist.P2POp(dist.irecv, ones(3), 1 - rank, mixed)])
    assert all(work.wait() for work in works)
    os.environ["TORCH_DIST_NAN_CHECK"] = "1"
    checked = dist.new_group(backend="foldwire")
    dist.all_reduce(own, group=checked)
    try:
        dist.all_reduce(own / 0 * 0, group=checked)
        assert False, "no error"
    except RuntimeError as error:
        assert "NaN" in str(error), error
    ft.configure(bound=["rel:0.1", None][rank])
    try:
        dist.new_group(backend="foldwire")
        assert False, "no error"
    except dist.DistBackendError as error:
        assert (error.rank, error.field) == (1 - rank, "bound"), error
    print("everything", flush=True)
    dist.destroy_process_group()
"""

SHARDED = """
    import warnings
    warnings.filterwarnings("ignore")
    import torch, torch.distributed as dist, foldwire.torch as ft
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import (FullyShardedDataParallel, MixedPrecisionPolicy,
                                        fully_shard)
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ft.configure(bound="rel:0.1", min_bytes=1 << 30)
    groups = {"gloo": dist.group.WORLD, "exact": dist.new_group(backend="foldwire")}
    ft.configure(bound="rel:0.01", min_bytes=1 << 10)
    groups["bounded"] = dist.new_group(backend="foldwire")
    # For each group, those of the ranks alone.
    alone = {group: [dist.new_group([each], backend=group.name()) for each in range(2)][rank]
             for group in groups.values()}

    def mesh_of(group, *more, **how):
        # torch takes meshes with the same names of dimensions for the same, whatever their groups.
        names = tuple(f"{part}{list(alone).index(group)}" for part in ("replicas", "shards"))
        names = names if more else names[:1]
        return DeviceMesh.from_group([group, *more] if more else group, "cpu",
                                     mesh_dim_names=names, **how)

    def ddp(network, group):
        return DistributedDataParallel(network, process_group=group)

    def fsdp1(network, group):
        return FullyShardedDataParallel(network, group, device_id=torch.device("cpu"))

    def fsdp2(network, group):
        mesh = mesh_of(group)
        for layer in network:
            fully_shard(layer, mesh=mesh)
        return fully_shard(network, mesh=mesh)

    def halves(network, group):
        mesh = mesh_of(group)
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        for layer in network:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        return fully_shard(network, mesh=mesh, mp_policy=policy)

    def hybrid(network, group):
        # Two replicas of one shard.
        mesh = mesh_of(group, alone[group], mesh=[[0], [1]])
        for layer in network:
            fully_shard(layer, mesh=mesh)
        return fully_shard(network, mesh=mesh)

    def tensor_parallel(network, group):
        mesh = mesh_of(group)
        return parallelize_module(network, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})

    def train(shard, group):
        torch.manual_seed(1)
        linear = torch.nn.Linear
        model = shard(torch.nn.Sequential(linear(32, 64), torch.nn.Tanh(), linear(64, 64)), group)
        descent = torch.optim.AdamW(model.parameters(), 1e-2)
        # In tensor parallelism, ranks have the same samples.
        own = torch.Generator().manual_seed(0 if shard is tensor_parallel else rank)
        for _ in range(8):
            loss = (model(torch.rand(16, 32, generator=own)) ** 2).mean()
            descent.zero_grad()
            loss.backward()
            descent.step()
        parameters = [p.full_tensor() if isinstance(p, DTensor) else p
                      for p in model.parameters()]
        return torch.cat([p.detach().reshape(-1) for p in parameters])

    for shard in (ddp, fsdp1, fsdp2, halves, hybrid, tensor_parallel):
        theirs, exact, bounded = [train(shard, group) for group in groups.values()]
        assert torch.equal(theirs, exact), shard.__name__
        assert not torch.equal(theirs, bounded), shard.__name__
    # Parameters are gathered exactly, and with a bound of their own if asked for.
    own, out = torch.rand(5000), torch.empty(10_000)
    dist.all_gather_into_tensor(out, own, group=groups["bounded"])
    assert torch.equal(out[rank * 5000:][:5000], own)
    ft.configure(gather_bound="abs:0.1", min_bytes=1 << 10)
    dist.all_gather_into_tensor(out, own, group=dist.new_group(backend="foldwire"))
    assert 0 < (out[rank * 5000:][:5000] - own).abs().max() <= 0.1
    print("sharded", flush=True)
    dist.destroy_process_group()
"""

# Hooks of torch whose callbacks make calls of the group, and wait for them.
CALLBACKS = """
    import faulthandler, warnings
    warnings.filterwarnings("ignore")
    import torch, torch.distributed as dist, foldwire.torch as ft
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
    from torch.nn.parallel import DistributedDataParallel

    faulthandler.dump_traceback_later(100, exit=True)
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    def train(group):
        torch.manual_seed(1)
        linear = torch.nn.Linear
        model = DistributedDataParallel(torch.nn.Sequential(linear(64, 64), linear(64, 64)),
                                        process_group=group)
        state = power.PowerSGDState(group, 1, start_powerSGD_iter=2, min_compression_rate=1)
        model.register_comm_hook(state, power.powerSGD_hook)
        descent = torch.optim.SGD(model.parameters(), 0.1)
        own = torch.Generator().manual_seed(rank)
        for _ in range(6):
            descent.zero_grad()
            (model(torch.rand(8, 64, generator=own)) ** 2).mean().backward()
            descent.step()
        return torch.cat([p.detach().reshape(-1) for p in model.parameters()])

    theirs, ours = train(dist.group.WORLD), train(dist.new_group(backend="foldwire"))
    assert torch.equal(theirs, ours), (theirs - ours).abs().max()
    print("called back", flush=True)
    dist.destroy_process_group()
"""

# A signal handler during a call of the group.
HANDLED = """
    import faulthandler, os, signal, sys, threading, time
    from datetime import timedelta
    import torch, torch.distributed as dist, foldwire.torch as ft

    faulthandler.dump_traceback_later(100, exit=True)
    dist.init_process_group("foldwire", timeout=timedelta(seconds=60))
    rank, is_async = dist.get_rank(), os.environ["WITH_THREAD"] == "1"
    if is_async:
        # Starts the thread of the group.
        dist.all_reduce(torch.ones(3), async_op=True).wait()
    dist.barrier()

    def handler(*_):
        try:
            dist.all_reduce(torch.ones(3))
            print("no error", flush=True)
        except dist.DistBackendError as error:
            print(error.kind, flush=True)
        dist.destroy_process_group()

    began = time.monotonic()
    if rank == 0:
        signal.signal(signal.SIGUSR1, handler)
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
        try:
            dist.all_reduce(torch.ones(3))
        except dist.DistBackendError as error:
            print(error.kind, flush=True)
    else:
        time.sleep(1)
        try:
            dist.all_reduce(torch.ones(3))
        except dist.DistBackendError as error:
            print(error.kind, error.rank, flush=True)
    print(time.monotonic() - began < 15, flush=True)
"""

RESUMED = """
    import io, tempfile, warnings
    warnings.filterwarnings("ignore")
    import torch, torch.distributed as dist, foldwire, foldwire.torch as ft
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint import DefaultLoadPlanner
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    rank, comm = dist.get_rank(), ft.connect()

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = torch.nn.Linear(200, 200), torch.nn.Linear(200, 200)

        def forward(self, x, with_other=True):
            return self.other(self.one(x)) if with_other else self.one(x)

    def fresh(unbiased=False):
        torch.manual_seed(1)
        model = DistributedDataParallel(Network(), bucket_cap_mb=0.2, find_unused_parameters=True)
        state = ft.HookState(comm, "rel:0.05", feedback=True, unbiased=unbiased, model=model)
        model.register_comm_hook(state, ft.hook)
        return model, state

    def train(model, state, n, own, **more):
        descent = torch.optim.SGD(model.parameters(), 0.5)
        for _ in range(n):
            descent.zero_grad()
            (model(torch.rand(8, 200, generator=own), **more) ** 2).mean().backward()
            descent.step()
        return torch.cat([p.detach().reshape(-1) for p in model.parameters()])

    for unbiased in (False, True):
        whole = train(*fresh(unbiased), 6, torch.Generator().manual_seed(rank))
        own = torch.Generator().manual_seed(rank)
        model, state = fresh(unbiased)
        train(model, state, 3, own)
        saved = io.BytesIO()
        torch.save({"model": model.state_dict(), "hook": state.state_dict()}, saved)
        saved.seek(0)
        saved = torch.load(saved)
        model, state = fresh(unbiased)
        model.load_state_dict(saved["model"])
        state.load_state_dict(saved["hook"])
        assert torch.equal(train(model, state, 3, own), whole)
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, 0)
    checkpoint.save({"model": model, "hook": state}, checkpoint_id=folder[0])
    before, (model, state) = state.state_dict(), fresh()
    checkpoint.load({"model": model, "hook": state}, checkpoint_id=folder[0])
    after = state.state_dict()
    mine = f"rank{rank}"
    assert all(torch.equal(after["residues"][mine][key], kept)
               for key, kept in before["residues"][mine].items())
    # A checkpoint of fewer ranks.
    fewer = {"step": torch.tensor(7), "residues": {"rank0": before["residues"][mine]}}

    class Saved:
        def state_dict(self): return fewer
        def load_state_dict(self, loaded): pass

    if rank == 0:
        checkpoint.save({"hook": Saved()}, checkpoint_id=folder[0] + "/fewer", no_dist=True)
    dist.barrier()
    _, state = fresh()
    try:
        checkpoint.load({"hook": state}, checkpoint_id=folder[0] + "/fewer")
        assert False, "no error"
    except checkpoint.CheckpointException as error:
        assert "Missing key" in str(error), error
    checkpoint.load({"hook": state}, checkpoint_id=folder[0] + "/fewer",
                    planner=DefaultLoadPlanner(allow_partial_load=True))
    after = state.state_dict()
    assert after["step"] == 7
    assert any(kept.any() for kept in after["residues"][mine].values()) == (rank == 0)
    model, state = fresh()
    train(model, state, 2, own)
    # What a step does not use waits, and is not sent.
    kept = state._residues["other.weight"].copy()
    assert kept.any()
    state.raw_bytes = state.wire_bytes = 0
    train(model, state, 2, own, with_other=False)
    assert (state._residues["other.weight"] == kept).all()
    assert state.raw_bytes > 8 * state.wire_bytes, (state.raw_bytes, state.wire_bytes)
    # Without a model, feedback belongs to buckets, which torch makes anew.
    model = DistributedDataParallel(Network())
    state = ft.HookState(comm, "rel:0.05", feedback=True)
    model.register_comm_hook(state, ft.hook)
    train(model, state, 1, own)
    try:
        state.state_dict()
        assert False, "no error"
    except foldwire.Error as error:
        assert error.field == "model", error
    # Both ranks refuse sparse gradients.
    model = DistributedDataParallel(torch.nn.Embedding(10, 3, sparse=True))
    model.register_comm_hook(ft.HookState(comm, "rel:0.05"), ft.hook)
    try:
        model(torch.tensor([rank, 5])).sum().backward()
        assert False, "no error"
    except foldwire.Error as error:
        assert (error.kind, error.field) == ("unsupported", "gradients"), error
    print("resumed", flush=True)
    dist.destroy_process_group()
"""

# The calls that are refused are made by the root alone, which sends nothing.
CHECKED = """
    from datetime import timedelta
    import torch, torch.distributed as dist, foldwire.torch as ft

    dist.init_process_group("foldwire", timeout=timedelta(seconds=30))
    rank, world, ones = dist.get_rank(), dist.group.WORLD, torch.ones

    def refused(call, field="count"):
        try:
            call().wait()
        except dist.DistBackendError as error:
            assert error.field == field, error
        else:
            assert False, "no error"

    if rank == 0:
        for outs in ([ones(3)], [ones(3)] * 4, [ones(3), ones(2)], [ones(5)] * 2):
            refused(lambda: world.gather([outs], [ones(3)]))
            refused(lambda: world.scatter([ones(3)], [outs]))
        refused(lambda: world.gather([[ones(5), ones(5)]], [ones(1)]))
        refused(lambda: world.gather_single(ones(5), ones(3)))
        refused(lambda: world.gather_single(None, ones(3)), "output")
    # Tensors with gaps get the result.
    for shape in ((3, 2), (2, 3)):
        out = torch.zeros(shape).t()
        world.gather_single(out if rank == 0 else None, ones(3) * (rank + 7)).wait()
        assert rank or out.reshape(-1).tolist() == [7] * 3 + [8] * 3, out
    for dtype in (torch.bfloat16, torch.complex64, torch.bool):
        out = torch.zeros(6, dtype=dtype)
        world.gather_single(out if rank == 0 else None, (ones(3) * rank).to(dtype)).wait()
        assert rank or out.to(torch.complex64).tolist() == [0] * 3 + [1] * 3, out
    # Conjugate views are sent as what they stand for, and get what came.
    pair = torch.tensor([1 + 2j, 3 - 4j])
    for call, wanted in (
        (lambda t, out: world.broadcast(t, 0).wait() and out[0].copy_(t), [pair.conj(), None]),
        (lambda t, out: world.allgather(out, t).wait(), [pair.conj(), 2 * pair.conj()]),
        (lambda t, out: world.gather([out] if rank == 0 else [], [t]).wait(), None),
        (lambda t, out: world.alltoall(out, [t, t]).wait(), [pair.conj(), 2 * pair.conj()]),
    ):
        own = (pair * (rank + 1)).conj()
        assert own.is_conj()
        out = [torch.zeros(2, dtype=torch.complex64).conj() for _ in range(2)]
        call(own, out)
        if wanted is None:
            wanted = [pair.conj(), 2 * pair.conj()] if rank == 0 else [None, None]
        for got, expected in zip(out, wanted):
            assert expected is None or torch.equal(got, expected), (out, wanted)
    # Each of these calls ends its group.
    for lengths in ([1, 4], [4, 1]):
        group = dist.new_group(backend="foldwire", timeout=timedelta(seconds=10))
        outs = [[torch.zeros(lengths[each == rank])] for each in range(2)]
        own = ones(lengths[1])
        try:
            group.allgather_coalesced(outs, [own]).wait()
            assert False, "no error"
        except dist.DistBackendError as error:
            assert error.kind in ("mismatch", "aborted"), error
    ft.configure(bound="rel:1e-3", min_bytes=[1024, 1 << 20][rank])
    try:
        dist.new_group(backend="foldwire", timeout=timedelta(seconds=10))
        assert False, "no error"
    except dist.DistBackendError as error:
        assert (error.kind, error.rank) == ("mismatch", 1 - rank), error
    # Without a bound, it does not matter.
    ft.configure(min_bytes=[1024, 1 << 20][rank])
    dist.all_reduce(ones(10_000), group=dist.new_group(backend="foldwire"))
    print("checked", flush=True)
    dist.destroy_process_group()
"""

# Rank 1 is killed, rank 3 joins later.
RECONFIGURED = """
    import os
    from datetime import timedelta
    import torch, torch.distributed as dist, foldwire.torch as ft
    from torch.distributed import distributed_c10d as c10d

    me, port = int(os.environ["RANK"]), int(os.environ["LOBBY"])
    lobby = dist.TCPStore("127.0.0.1", port, is_master=me == 0, wait_for_workers=False)
    dist.init_process_group("foldwire", store=dist.HashStore(), rank=0, world_size=1,
                            enable_reconfigure=True, timeout=timedelta(seconds=30))

    def fails(kind, rank=None):
        try:
            dist.all_reduce(torch.ones(1))
        except dist.DistBackendError as error:
            assert (error.kind, error.rank) == (kind, rank), error
        else:
            assert False, "no error"

    def meet(epoch, members):
        lobby.set(f"{epoch}/{me}", c10d._get_reconfigure_handle())
        handles = [lobby.get(f"{epoch}/{member}").decode() for member in members]
        c10d._reconfigure(epoch, handles).wait()
        assert (dist.get_rank(), dist.get_world_size()) == (members.index(me), len(members))
        own = torch.ones(100_000) * (me + 1)
        dist.all_reduce(own)
        assert own[-1] == sum(members) + len(members), own

    fails("usage")
    if me < 3:
        meet(1, [0, 1, 2])
    if me == 2:
        old = dist.irecv(torch.empty(1), 0)
    if me == 1:
        os._exit(1)
    if me in (0, 2):
        fails("peer_lost", 1)
        fails("poisoned", 1)
        meet(2, [2, 0])
    if me == 2:
        # A message of the first group leaves the present one alone.
        try:
            old.wait()
            assert False, "no error"
        except dist.DistBackendError as error:
            assert (error.kind, error.rank) == ("poisoned", 1), error
    meet(3, [0, 2, 3])
    try:
        c10d._reconfigure(4, ["foldwire/127.0.0.1/1/of-nobody"])
        assert False, "no error"
    except dist.DistBackendError as error:
        assert error.field == "handles", error
    print("joined", flush=True)
    dist.barrier()
    dist.destroy_process_group()
"""

# As with versions of torch whose backends cannot be written in Python.
OLDER = """
    import torch._C._distributed_c10d as native

    def refuse(*_):
        raise TypeError("no constructor")

    theirs, native.Backend.__init__ = native.Backend.__init__, refuse
    import torch, torch.distributed as dist, foldwire.torch as ft
    assert ft.Backend.__mro__[-2] is not native.Backend, ft.Backend.__mro__
    native.Backend.__init__ = theirs
    dist.init_process_group("foldwire")
    own = torch.ones(3)
    dist.all_reduce(own)
    out = torch.empty(6)
    dist.all_gather_into_tensor(out, own)
    assert out.tolist() == [2] * 6
    print("older", flush=True)
    dist.destroy_process_group()
"""


@unittest.skipIf(torch is None, "torch: not installed")
class Backend(unittest.TestCase):
    def check(self, program, last, n=2, but=None, **more):
        variables = launched(n)
        outputs = said(start(program, n, lambda rank: {**variables(rank), **more}), 120)
        outputs = [output for rank, output in enumerate(outputs) if rank != but]
        self.assertTrue(all(last in output.splitlines() for output in outputs), outputs)

    def test_everything_that_gloo_does(self):
        self.check(EVERYTHING, "everything")

    def test_exact_training_is_that_of_gloo_however_it_is_sharded(self):
        self.check(SHARDED, "sharded")

    def test_numbers_and_lengths_of_tensors_are_checked(self):
        self.check(CHECKED, "checked")

    def test_error_feedback_is_saved_and_waits_for_parameters_that_are_used(self):
        self.check(RESUMED, "resumed")

    def test_a_group_goes_on_without_a_killed_rank_and_with_a_new_one(self):
        self.check(RECONFIGURED, "joined", 4, but=1, LOBBY=str(free_port()))

    def test_callbacks_of_futures_make_calls(self):
        self.check(CALLBACKS, "called back")

    def test_a_signal_handler_ends_a_group_during_a_call(self):
        for with_thread in "01":
            variables = launched(2)
            ranks = start(HANDLED, 2, lambda rank: {**variables(rank), "WITH_THREAD": with_thread})
            outputs = [output.splitlines() for output in said(ranks, 120)]
            self.assertEqual(outputs[0][:3], ["usage", "interrupted", "True"], outputs)
            self.assertIn(outputs[1][0], ("peer_lost 0", "aborted 0"), outputs)

    def test_real_torchrun_starts_ranks(self):
        program = """
            import torch, torch.distributed as dist, foldwire.torch
            dist.init_process_group("foldwire")
            own = torch.ones(3)
            dist.all_reduce(own)
            # In one piece, because both ranks write here.
            print(f"rank {dist.get_rank()} {own.tolist()}\\n", end="", flush=True)
            dist.destroy_process_group()
        """
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w") as file:
                file.write(textwrap.dedent(program))
            run = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone",
                                  "--nproc-per-node", "2", path], env=environment(),
                                 capture_output=True, text=True, timeout=120)
        lines = [line for line in run.stdout.splitlines() if line.startswith("rank")]
        self.assertEqual(sorted(lines), [f"rank {n} [2.0, 2.0, 2.0]" for n in range(2)],
                         run.stderr)

    def test_training_goes_on_while_ranks_are_killed_and_join(self):
        example = os.path.join(EXAMPLES, "elastic.py")
        run = subprocess.run([sys.executable, example, "--ranks", "3", "--steps", "400", "--kill",
                              "60", "--join", "120"], env=environment(OMP_NUM_THREADS="1"),
                             capture_output=True, text=True, timeout=300)
        self.assertTrue(run.stdout.startswith("{"), run.stderr)
        result = json.loads(run.stdout)
        self.assertEqual((result["steps"], result["ranks"]), (400, 3), run.stderr)
        self.assertGreaterEqual(result["groups"], 3)
        self.assertLess(result["loss"], 0.3)

    def test_processes_of_nodes_watch_over_ranks_that_are_killed_and_join(self):
        variables, example = launched(3), os.path.join(EXAMPLES, "elastic.py")
        nodes = [subprocess.Popen([sys.executable, example, "--steps", "150", "--kill", "30",
                                   "--join", "60"],
                                  env=environment(**variables(node)),
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                 for node in range(3)]
        outputs = said(nodes, 300)
        results = [line for line in outputs[0].splitlines() if line.startswith("{")]
        self.assertEqual(len(results), 1, outputs)
        result = json.loads(results[0])
        self.assertEqual((result["steps"], result["ranks"], result["groups"] >= 3), (150, 3, True))

    def test_rare_averages_learn_as_with_gloo(self):
        variables, example = launched(2), os.path.join(EXAMPLES, "diloco.py")
        ranks = [subprocess.Popen([sys.executable, example, "--rounds", "20", "--every", "8"],
                                  env=environment(**variables(rank)), stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True) for rank in range(2)]
        output = said(ranks, 120)[0]
        rows = dict(re.findall(r"^(gloo|foldwire, \S+) +([\d.]+) ", output, re.M))
        self.assertEqual(list(rows), ["gloo", "foldwire, exact", "foldwire, rel:0.01",
                                      "foldwire, rel:0.05"], output)
        self.assertEqual(rows["gloo"], rows["foldwire, exact"])
        for loss in rows.values():
            self.assertAlmostEqual(float(loss), float(rows["gloo"]), delta=0.05)

    def test_a_process_group_alone_serves_versions_without_backends_in_python(self):
        self.check(OLDER, "older")


if __name__ == "__main__":
    unittest.main()
