"""Tests of the hook for DistributedDataParallel, and of the process group."""

import types
import unittest
from unittest import mock

try:
    import torch
except ImportError:
    torch = None

import foldwire
from test_processes import free_port, said, start


def launched(n=2):
    """Returns the environment that torchrun sets."""
    port = free_port()
    return lambda rank: {"RANK": str(rank), "WORLD_SIZE": str(n), "LOCAL_RANK": str(rank),
                         "LOCAL_WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1",
                         "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}


TRAIN = """
    import torch, torch.distributed as dist, foldwire.torch as ft
    from torch.nn.parallel import DistributedDataParallel
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    def train(state):
        torch.manual_seed(1)
        network = torch.nn.Sequential(
            torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(),
            torch.nn.Linear(64, 1))
        model = DistributedDataParallel(network)
        if state is not None:
            model.register_comm_hook(state, ft.hook)
        descent = torch.optim.SGD(model.parameters(), 0.1)
        own = torch.Generator().manual_seed(rank)
        for _ in range(60):
            x = torch.rand(64, 2, generator=own) * 2 - 1
            loss = ((model(x) - torch.sin(3 * x[:, :1] * x[:, 1:])) ** 2).mean()
            descent.zero_grad()
            loss.backward()
            descent.step()
        return torch.cat([p.detach().reshape(-1) for p in network.parameters()])

    comm = ft.connect()
    plain = train(None)
    exact = train(ft.HookState(comm))
    assert (plain - exact).abs().max() < 1e-5, (plain - exact).abs().max()
    for settings in ({"feedback": True}, {"unbiased": True, "seed": 5}):
        state = ft.HookState(comm, "rel:0.02", **settings)
        lossy = train(state)
        off = (plain - lossy).norm() / plain.norm()
        assert 0 < off < 0.1, off
        assert state.wire_bytes < state.raw_bytes / 2, (state.wire_bytes, state.raw_bytes)
        # All ranks have the same weights.
        all = [torch.empty_like(lossy) for _ in range(2)]
        dist.all_gather(all, lossy)
        assert torch.equal(*all)
    # A bound may be a word of the plan.
    zero_to_one, off = torch.linspace(0, 1, 1000), []
    for settings in ({"bound": "rel:0.1"}, {"plan": "rel:0.1"}, {"plan": "schedule:ring,rel:0.1"}):
        state, total = ft.HookState(comm, feedback=True, **settings), torch.zeros(1000)
        assert state.feedback
        for _ in range(50):
            gradient = [zero_to_one.clone()]
            state.average(0, gradient)
            total += gradient[0]
        off.append((total / 50 - zero_to_one).abs().max())
        assert off[-1] < 0.01, off
    assert ft.HookState(comm, plan="rel:0.1", unbiased=True).unbiased
    assert not ft.HookState(comm, plan="schedule:ring", feedback=True, unbiased=True).feedback
    try:
        ft.HookState(comm, plan="nonsense")
        assert False, "no error"
    except ft.Error as error:
        assert error.field == "plan", error
    print("trained")
    dist.destroy_process_group()
"""

GROUP = """
    import torch, torch.distributed as dist, foldwire.torch as ft
    ft.configure(bound="abs:1e-3", min_bytes=1 << 16, gather_bound="abs:1e-3")
    dist.init_process_group("foldwire")
    rank, group = dist.get_rank(), dist.group.WORLD
    large, small = torch.linspace(0, 1, 40_000) + rank, torch.ones(3) * rank

    total = large.clone()
    dist.all_reduce(total)
    exact = 2 * torch.linspace(0, 1, 40_000) + 1
    assert 0 < (total - exact).abs().max() <= 2.1e-3
    assert group.n_taken == 1
    product = torch.full((40_000,), 3.0)
    dist.all_reduce(product, dist.ReduceOp.PRODUCT)
    assert product[-1] == 9 and group.n_taken == 1, "products are exact"
    dist.all_reduce(small)
    assert small.tolist() == [1, 1, 1]
    whole = torch.arange(40_000)
    dist.all_reduce(whole)
    assert whole[-1] == 2 * 39_999
    assert group.n_taken == 1, "small and integer tensors go by gloo"

    half = large.to(torch.bfloat16)
    work = dist.all_reduce(half, dist.ReduceOp.MAX, async_op=True)
    work.wait()
    assert (half.float() - torch.linspace(1, 2, 40_000)).abs().max() < 0.02 and group.n_taken == 2
    gathered = torch.empty(80_000)
    dist.all_gather_into_tensor(gathered, large)
    assert (gathered[:40_000] - torch.linspace(0, 1, 40_000)).abs().max() <= 1.1e-3
    lists = [torch.empty(40_000) for _ in range(2)]
    dist.all_gather(lists, large)
    assert torch.equal(torch.cat(lists), gathered) and group.n_taken == 4
    own = torch.empty(20_000)
    dist.reduce_scatter_tensor(own, large)
    assert (own - exact[rank * 20_000:][:20_000]).abs().max() <= 2.1e-3 and group.n_taken == 5
    dist.broadcast(large, 1)
    assert large[0] == 1
    dist.barrier()
    objects = [None, None]
    dist.all_gather_object(objects, {"rank": rank})
    assert objects[1] == {"rank": 1}
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(200, 200))
    model(torch.ones(2, 200) * rank).sum().backward()
    assert group.n_taken >= 6, group.n_taken
    print("grouped")
    dist.destroy_process_group()
"""


# Each of the following cases has its own process group, because a failure ends a group.
SAME = """
    import torch, torch.distributed as dist, foldwire.torch as ft
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group(backend=name) for name in ("gloo", "foldwire")]

    def own(n, dtype, seed=0):
        made = torch.Generator().manual_seed(rank + seed)
        return torch.randint(0, 2 if dtype == torch.bool else 9, (n,), generator=made).to(dtype)

    def all_reduce(g, t, **more): dist.all_reduce(t, group=g, **more); return t
    def reduce(g, t):
        dist.reduce(t, 1, group=g)
        return t if rank == 1 else None
    def broadcast(g, t): dist.broadcast(t, 1, group=g); return t
    def all_gather(g, t):
        out = [torch.empty_like(t) for _ in range(size)]
        dist.all_gather(out, t, group=g)
        return torch.cat(out)
    def into_tensor(g, t):
        out = t.new_empty(size * len(t))
        dist.all_gather_into_tensor(out, t, group=g)
        return out
    def gather(g, t):
        out = [torch.empty_like(t) for _ in range(size)] if rank == 1 else None
        dist.gather(t, out, 1, group=g)
        return torch.cat(out) if out else None
    def scatter(g, t):
        out = torch.empty_like(t)
        dist.scatter(out, [t + t for _ in range(size)] if rank == 1 else None, 1, group=g)
        return out
    def reduce_scatter(g, t):
        out = torch.empty_like(t)
        dist.reduce_scatter(out, [t, t], group=g)
        return out
    def scatter_tensor(g, t):
        out = t.new_empty(len(t) // 2)
        dist.reduce_scatter_tensor(out, t, group=g)
        return out
    def all_to_all(g, t):
        out = torch.empty_like(t)
        dist.all_to_all_single(out, t, group=g)
        return out
    def unequal(g, t):
        # Each rank sends all its rows to the other rank, and keeps none.
        t = t.reshape(-1, 2)
        n = len(t)
        splits = [0, n] if rank == 0 else [n, 0]
        out = torch.empty_like(t)
        dist.all_to_all_single(out, t, splits, splits, group=g)
        return out
    def later(g, t):
        work = dist.all_reduce(t, group=g, async_op=True)
        assert work.wait() and work.is_completed()
        assert work.get_future().wait()[0] is t or g is groups[0]
        return t

    moves = [broadcast, all_gather, into_tensor, gather, scatter, all_to_all, unequal]
    sums = [all_reduce, reduce, reduce_scatter, scatter_tensor, later]
    for n in (0, 2, 1000):
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8,
                      torch.uint8, torch.int32, torch.int64, torch.bool):
            for call in moves + (sums if dtype != torch.bool else []):
                if n == 0 and call not in (all_reduce, broadcast):
                    continue
                theirs, ours = [call(group, own(n, dtype)) for group in groups]
                same = theirs is ours is None or torch.equal(theirs, ours)
                assert same, (call.__name__, n, dtype, theirs, ours)
    for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT, dist.ReduceOp.BAND):
        theirs, ours = [all_reduce(group, own(9, torch.int32), op=op) for group in groups]
        assert torch.equal(theirs, ours), op
    dist.barrier(groups[1])
    scalar = torch.tensor(1.5 + rank)
    dist.all_reduce(scalar, group=groups[1])
    assert scalar.item() == 4
    # Non-contiguous tensors. Gloo writes wrong values for them.
    wide = torch.ones(5, 2)
    dist.all_reduce(wide[:, 0], group=groups[1])
    assert wide.tolist() == [[2, 1]] * 5
    got = torch.zeros(3)
    if rank == 0:
        dist.send(torch.ones(3), 1, group=groups[1])
    else:
        assert dist.recv(got, group=groups[1]) == 0 and got.sum() == 3
    print("same", flush=True)
    dist.destroy_process_group()
"""

# `said` returns the exception that a call raises, at once or when it is waited for.
FAILS = """
    import os, re, signal, sys, time
    from datetime import timedelta
    import torch, torch.distributed as dist, foldwire, foldwire.torch as ft
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()

    def said(call):
        try:
            work = call()
            if work is not None:
                work.wait()
        except dist.DistBackendError as error:
            assert isinstance(error, foldwire.Error)
            return error
        return None

    def all_fail_from_now_on(group, first):
        assert first is not None, "no error"
        small, large = torch.ones(3), torch.ones(300_000)
        for call in (lambda: dist.all_reduce(small, group=group),
                     lambda: dist.all_reduce(large, group=group, async_op=True),
                     lambda: dist.all_gather([torch.ones(3)] * size, small, group=group),
                     lambda: dist.barrier(group=group),
                     lambda: dist.send(small, (rank + 1) % size, group=group)):
            later = said(call)
            assert later is not None, "no error later"
            assert (later.kind, later.rank, later.field) == ("poisoned", first.rank, first.field), (
                first, later)

    def together(n=2, **settings):
        return dist.new_group(list(range(n)), backend="foldwire", **settings)
"""

LENGTHS = FAILS + """
    def calls(n, **more):
        ours, root = n + rank, rank == 0
        one, many = torch.ones(ours), torch.ones(size * ours)
        rows = list(many.chunk(size))
        yield lambda: dist.all_reduce(one, **more)
        yield lambda: dist.all_gather(rows, one, **more)
        yield lambda: dist.all_gather_into_tensor(many, one, **more)
        yield lambda: dist.reduce_scatter(one, rows, **more)
        yield lambda: dist.reduce_scatter_tensor(one, many, **more)
        yield lambda: dist.all_to_all_single(torch.empty_like(many), many, **more)
        yield lambda: dist.reduce(one, 0, **more)
        yield lambda: dist.broadcast(one, 0, **more)
        yield lambda: dist.gather(one, rows if root else None, 0, **more)
        yield lambda: dist.scatter(one, rows if root else None, 0, **more)

    # Arrays below, above and at the threshold between short and long ones.
    for n in (10, 300_000, (1 << 18) - 1):
        for is_async in (False, True):
            n_calls = sum(1 for _ in calls(n))
            for i in range(n_calls):
                group = together(timeout=timedelta(seconds=60))
                call = list(calls(n, group=group, async_op=is_async))[i]
                first = said(call)
                # A rank that only sends may notice the error after its call.
                first = first or said(lambda: dist.barrier(group=group))
                assert first is not None, (i, n, is_async)
                assert (first.rank, first.field) == (1 - rank, "count"), (
                    i, first, first.kind, first.rank, first.field)
                all_fail_from_now_on(group, first)
                group.shutdown()
    # Ranks with different operations, and with different types.
    for own in ([torch.ones(9), torch.ones(9, dtype=torch.float64)][rank],
                torch.ones(9, dtype=torch.int64) if rank else torch.ones(9)):
        group = together()
        first = said(lambda: dist.all_reduce(own, group=group))
        assert (first.rank, first.field) == (1 - rank, "element type"), first.field
        all_fail_from_now_on(group, first)
    print("refused", flush=True)
"""

HOOKS = FAILS + """
    group = together()
    comm = ft.connect(group)
    model = torch.nn.Sequential(torch.nn.Linear(100, 100 + 10 * rank), torch.nn.ReLU())
    # In a user's own loop, because DistributedDataParallel refuses such models itself.
    state = ft.HookState(comm, "rel:0.1")

    class Bucket:
        def __init__(self, gradient, is_last):
            self.gradient, self.last = gradient, is_last
        def index(self): return 0
        def gradients(self): return [self.gradient]
        def buffer(self): return self.gradient
        def is_last(self): return self.last

    work = ft.hook(state, Bucket(torch.ones(5000 + rank), False))
    try:
        work.wait()
        assert False, "no error"
    except RuntimeError as error:
        assert "count" in str(error), error
    for is_last in (False, True):
        later = said(lambda: ft.hook(state, Bucket(torch.ones(5000), is_last)))
        assert (later.kind, later.rank, later.field) == ("poisoned", 1 - rank, "count"), later
    print("refused", flush=True)
"""

# With the averages of the process group, and with the hook.
KILLED = FAILS + """
    by_hook = {by_hook}
    group = together(timeout=timedelta(seconds=60))
    ft.configure(min_bytes=1 << 10)
    network = torch.nn.Sequential(*[torch.nn.Linear(200, 200) for _ in range(4)])
    model = DistributedDataParallel(network, process_group=group, bucket_cap_mb=0.2)
    if by_hook:
        state = ft.HookState(ft.connect(group), "rel:0.1", feedback=True)
        model.register_comm_hook(state, ft.hook)
    n_sums = 0

    def step():
        model(torch.ones(2, 200)).sum().backward()

    def die(_):
        # During a backward pass.
        os.kill(os.getpid(), signal.SIGKILL)

    for _ in range(3):
        step()
    if rank == 1:
        network[1].weight.register_hook(die)
    for i in range(3):
        try:
            step()
            assert False, "no error"
        except RuntimeError as error:
            print("raised", type(error).__name__, getattr(error, "rank", None), flush=True)
            # In later steps DistributedDataParallel raises its own errors.
            assert i > 0 or re.search(r"[Rr]ank.1(?![0-9])", str(error)), error
    if not by_hook:
        first = said(lambda: dist.all_reduce(torch.ones(3), group=group))
        assert first.rank == 1, first
        all_fail_from_now_on(group, first)
    print("survived", flush=True)
"""

KILLED_CALLS = FAILS + """
    # Three ranks, so that a rank gets the error that did not wait for the killed one.
    def calls(group):
        large, small = torch.ones(3 << 18), torch.ones(3)
        yield lambda: dist.all_reduce(large, group=group)
        yield lambda: dist.all_reduce(large, group=group, async_op=True)
        yield lambda: dist.all_gather([torch.ones(3)] * 3, small, group=group)
        yield lambda: dist.reduce_scatter_tensor(torch.ones(1), small, group=group)
        yield lambda: dist.barrier(group=group)
        yield lambda: dist.recv(small, 2, group=group)

    n_calls = sum(1 for _ in calls(None))
    groups = [together(3, timeout=timedelta(seconds=60)) for _ in range(n_calls)]
    dist.barrier()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    for i, group in enumerate(groups):
        first = said(list(calls(group))[i])
        assert first is not None, i
        assert 2 in (first.rank, first.culprit), (i, first.kind, first.rank, first.culprit, first)
        all_fail_from_now_on(group, first)
    print("survived", flush=True)
"""

STOPPED = FAILS + """
    pids = [None] * 2
    dist.all_gather_object(pids, os.getpid())
    groups = [together(timeout=timedelta(seconds=10)) for _ in range(3)]
    by_gloo = together()
    network = torch.nn.Linear(200, 200)
    model = DistributedDataParallel(network, process_group=groups[2])
    comm = ft.connect(groups[2])
    model.register_comm_hook(ft.HookState(comm, "rel:0.1"), ft.hook)
    for _ in range(2):
        model(torch.ones(2, 200)).sum().backward()
    for group in (*groups[:2], by_gloo):
        group.set_timeout(timedelta(seconds=3))
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
        # Rank 0 has aborted meanwhile.
        for group in (*groups[:2], by_gloo):
            first = said(lambda: dist.all_reduce(torch.ones(300_000), group=group))
            assert first is not None and first.rank == 0, first
            all_fail_from_now_on(group, first)
    else:
        for group, is_async in zip(groups, (False, True)):
            began = time.monotonic()
            first = said(lambda: dist.all_reduce(torch.ones(300_000), group=group,
                                                 async_op=is_async))
            assert (first.kind, first.rank) == ("timeout", 1), (first.kind, first)
            assert 2 < time.monotonic() - began < 30
            all_fail_from_now_on(group, first)
        first = said(lambda: dist.recv(torch.ones(3), 1, group=by_gloo))
        assert (first.kind, first.rank) == ("timeout", 1), (first.kind, first)
        all_fail_from_now_on(by_gloo, first)
        first = said(lambda: model(torch.ones(2, 200)).sum().backward())
        assert (first.kind, first.rank) == ("timeout", 1), (first.kind, first)
        os.kill(pids[1], signal.SIGCONT)
    print("ended", flush=True)
"""

LIMITS = FAILS + """
    assert ft._timeout_of(dist.group.WORLD) == 60
    group = together()
    assert ft._timeout_of(group) == 1800
    store = dist.distributed_c10d._get_default_store()
    own = torch.ones(300_000)
    if rank == 1:
        store.wait(["late"], timedelta(seconds=60))
        dist.all_reduce(own, group=group)
    else:
        work = dist.all_reduce(own, group=group, async_op=True)
        try:
            work.wait(timedelta(seconds=0.3))
            assert False, "no error"
        except foldwire.Error as error:
            assert (error.kind, error.field) == ("timeout", "timeout"), error
        assert not work.is_completed()
        store.set("late", "now")
        assert work.wait(timedelta(seconds=60)) and work.is_success()
    assert own[0] == 2
    # A different timeout from here.
    dist.barrier(group=group)
    group.set_timeout(timedelta(seconds=1))
    if rank == 1:
        store.wait(["gone"], timedelta(seconds=60))
    else:
        first = said(lambda: dist.all_reduce(own, group=group))
        assert (first.kind, first.rank) == ("timeout", 1), first
        store.set("gone", "now")
    print("ended", flush=True)
"""


@unittest.skipIf(torch is None, "torch: not installed")
class Torch(unittest.TestCase):
    def check(self, program, last):
        """Both ranks reach the end. Errors of torch after that are ignored: torch 2.15 ends 1 of 20
        programs of DistributedDataParallel with "terminate called", also with gloo alone."""
        outputs = said(start(program, 2, launched()), 120)
        self.assertTrue(all(last in output.splitlines() for output in outputs), outputs)

    def test_a_hook_trains_as_uncompressed_gradients_do(self):
        self.check(TRAIN, "trained")

    def test_a_process_group_takes_large_floats_and_leaves_the_rest(self):
        self.check(GROUP, "grouped")

    def test_a_process_group_gives_what_gloo_gives(self):
        self.check(SAME, "same")

    def test_lengths_and_types_that_differ_are_named_on_every_rank(self):
        self.check(LENGTHS, "refused")
        self.check(HOOKS, "refused")

    def survive(self, program, n, last):
        """All ranks reach the end, except the last one, which is killed."""
        outputs = said(start(program, n, launched(n)), 120)[:-1]
        self.assertTrue(all(last in output.splitlines() for output in outputs), outputs)
        return outputs

    def test_who_is_killed_is_named_by_every_call(self):
        self.survive(KILLED_CALLS, 3, "survived")

    def test_a_backward_pass_raises_if_a_rank_is_killed(self):
        for by_hook, raised in ((False, "raised RuntimeError"), (True, "raised BackendError 1")):
            program = KILLED.replace("{by_hook}", str(by_hook))
            (output,) = self.survive(program, 2, "survived")
            self.assertIn(raised, output)

    def test_a_rank_that_stops_is_waited_for_as_long_as_the_group_says(self):
        self.check(STOPPED, "ended")

    def test_a_work_is_waited_for_as_long_as_the_caller_says(self):
        self.check(LIMITS, "ended")

    def test_the_limit_of_a_group_is_that_of_its_communicator(self):
        """Also with a timeout that is longer than Foldwire's default."""
        import datetime
        from unittest import mock

        import foldwire.torch as ft
        from foldwire import _torch_group

        with mock.patch.object(_torch_group, "join", wraps=foldwire.join) as join:
            group = ft.ProcessGroup(torch.distributed.HashStore(), 0, 1,
                                    datetime.timedelta(minutes=30))
        self.assertEqual(join.call_args.kwargs["timeout"], 1800)
        self.assertEqual(join.call_args.kwargs["limit"], 1800)
        group.shutdown()

    def test_gradients_of_sixteen_bits_are_averaged_with_feedback(self):
        import foldwire.torch as ft

        def program(comm):
            state = ft.HookState(comm, "abs:0.25", feedback=True)
            total = torch.zeros(100)
            for _ in range(40):
                gradient = torch.full((100,), 0.1 + 0.2 * comm.rank).to(torch.bfloat16)
                state.average(0, [gradient])
                total += gradient.float()
            return (total - 40 * 0.2).abs().max().item()

        for off in foldwire.run(2, program):
            self.assertLess(off, 1.0)


@unittest.skipIf(torch is None, "torch: not installed")
class Hook(unittest.TestCase):
    def state(self, *arguments, **keywords):
        import foldwire.torch as ft

        return ft.HookState(foldwire.threads(1)[0], *arguments, **keywords)

    def test_lists_without_tensors_and_sparse_ones(self):
        for settings in ({}, {"feedback": True}, {"unbiased": True}):
            state = self.state("rel:0.1", **settings)
            self.assertIsNone(state.average(0, []))
            sparse = torch.eye(3).to_sparse()
            with self.assertRaises(foldwire.Error) as raised:
                state.average(0, [torch.ones(3), sparse])
            self.assertEqual((raised.exception.kind, raised.exception.field),
                             ("unsupported", "gradients"))
            with self.assertRaises(foldwire.Error):
                state.average(0, [torch.ones(3, dtype=torch.complex64)])
            with self.assertRaises(foldwire.Error):
                state.average(0, [torch.ones(3), torch.ones(3, dtype=torch.float64)])

    def test_the_bound_of_the_communicator_is_not_that_of_the_hook(self):
        import foldwire.torch as ft

        def program(comm):
            comm.timeout = 7
            for bound, feedback in ((None, False), ("rel:0.1", False), ("rel:0.1", True)):
                gradient = torch.linspace(0, 1, 1000)
                state = ft.HookState(comm, bound, feedback=feedback)
                state.average(0, [gradient])
                expected = ("raw", 0.0) if bound is None else ("fz-light", 0.1)
                self.assertEqual((comm.report["codec"], comm.report["bound"]), expected)
                self.assertEqual(state._plain.timeout, 7)
                self.assertIs(state.comm, comm)

        foldwire.run(2, program, bound="rel:1e-2", plan="codec:dense")

    def test_feedback_belongs_to_parameters_whatever_the_bucket(self):
        import foldwire.torch as ft

        class Bucket:
            def __init__(self, place, *parameters):
                self.place, self.all = place, parameters

            index = lambda self: self.place  # noqa: E731
            parameters = lambda self: list(self.all)  # noqa: E731
            gradients = lambda self: [each.grad for each in self.all]  # noqa: E731
            buffer = lambda self: self.all[0].grad  # noqa: E731
            is_last = lambda self: True  # noqa: E731

        large, small = (torch.nn.Parameter(torch.ones(1000)) for _ in range(2))
        state, x = self.state("rel:0.1", feedback=True), torch.linspace(0, 1, 1000)
        n = 4
        total = torch.zeros(1000)
        for step in range(n):
            large.grad, small.grad = x * 1e3, x * 1e-6
            order = [large, small] if step % 2 else [small, large]
            ft.hook(state, Bucket(step % 3, *order)).wait()
            total += small.grad
        self.assertLess((total / n - x * 1e-6).abs().max().item(), 0.3e-6)
        self.assertEqual(len(state._residues), 2)
        # A parameter that replaces another has no part of its feedback.
        kept = set(state._residues)
        del small
        new = torch.nn.Parameter(torch.ones(1000))
        new.grad = x.clone()
        ft.hook(state, Bucket(0, new)).wait()
        self.assertEqual(len(set(state._residues) - kept), 1)

    def test_names_of_parameters_are_those_of_the_network(self):
        class Network(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.module, self.weight = torch.nn.Linear(2, 2), torch.nn.Parameter(torch.ones(2))

        state = self.state("rel:0.1", feedback=True, model=Network())
        names = ["weight", "module.weight", "module.bias"]
        self.assertEqual(list(state._parameters), names)
        self.assertEqual(list(state.state_dict()["residues"]["rank0"]), names)

    def test_objects_say_what_they_are(self):
        import datetime

        import foldwire.torch as ft

        state = self.state("rel:0.1", plan="schedule:ring", feedback=True)
        self.assertEqual(repr(state), "<foldwire.torch.HookState: 'rel:0.1', 'schedule:ring', "
                                      "feedback, of <foldwire.Communicator: rank 0 of 1>>")
        self.assertIn("HookState: exact, of", repr(self.state()))
        group = ft.ProcessGroup(torch.distributed.HashStore(), 0, 1, datetime.timedelta(minutes=1))
        self.addCleanup(group.shutdown)
        self.assertEqual(repr(group), "<foldwire.torch.ProcessGroup: rank 0 of 1>")
        self.assertEqual(repr(group.backend), "<foldwire.torch.Backend: rank 0 of 1>")
        work = group.allreduce([torch.ones(3)])
        work.wait()
        self.assertEqual(repr(work), "<foldwire.torch.Work: finished>")


@unittest.skipIf(torch is None, "torch: not installed")
class Network(unittest.TestCase):
    """Which address ranks listen on."""

    def chosen(self, hosts, variables=None, address="10.0.0.1", others="-"):
        """Returns the address that rank 0 of ranks on these hosts chooses, and the master."""
        import os

        import torch.distributed as dist

        from foldwire import _join, _torch_meeting as meeting

        store, asked = dist.PrefixStore("a", dist.HashStore()), []
        for rank, host in enumerate(hosts):
            store.set(f"foldwire/names/0/{rank}", host)
            store.set(f"foldwire/names/1/{rank}", others)
        names = meeting.names_by_store(store, 0, len(hosts))

        def own_address(master=None):
            asked.append(master)
            return address

        plain = {name: text for name, text in os.environ.items()
                 if name not in ("LOCAL_WORLD_SIZE", "WORLD_SIZE", "MASTER_ADDR",
                                 "FOLDWIRE_ADDRESS", "FOLDWIRE_IFACE")}
        with mock.patch.dict(os.environ, {**plain, **(variables or {})}, clear=True), \
                mock.patch.object(_join, "own_address", own_address), \
                mock.patch.object(meeting, "_host_of", lambda _: "master.of.store"), \
                mock.patch.object(meeting, "own_host", lambda: hosts[0]):
            meeting.choose_network(store, names)
            return os.environ.get("FOLDWIRE_ADDRESS"), asked

    def test_ranks_on_several_hosts_listen_on_the_way_to_their_master(self):
        self.assertEqual(self.chosen(["a", "b"]), ("10.0.0.1", ["master.of.store"]))
        self.assertEqual(self.chosen(["a", "a"]), (None, []))
        for alone in ({"address": "127.0.1.1"}, {"others": "other.host"}):
            with self.assertRaisesRegex(foldwire.Error, "loopback.*FOLDWIRE_IFACE") as raised:
                self.chosen(["a", "b"], **alone)
        self.assertIn("on other.host the name", str(raised.exception))
        # A launcher's job may be a part of the group, and only some ranks may have a launcher.
        one = {"LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "m"}
        self.assertEqual(self.chosen(["a", "b"], one), ("10.0.0.1", ["m"]))
        two = {"LOCAL_WORLD_SIZE": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "m"}
        self.assertEqual(self.chosen(["a", "a"], two), (None, []))
        given = {"FOLDWIRE_ADDRESS": "10.9.9.9"}
        self.assertEqual(self.chosen(["a", "b"], given), ("10.9.9.9", []))

    def test_the_host_of_a_store_is_found_below_its_prefixes(self):
        import torch.distributed as dist

        from foldwire._torch_meeting import _host_of

        store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        self.assertEqual(_host_of(dist.PrefixStore("a", dist.PrefixStore("b", store))), "localhost")
        self.assertIsNone(_host_of(dist.PrefixStore("a", dist.HashStore())))

    def test_ranks_without_a_launcher_meet(self):
        program = """
            import os, torch, torch.distributed as dist, foldwire.torch as ft
            rank = int(os.environ["N"])
            dist.init_process_group("foldwire", init_method=os.environ["AT"], rank=rank,
                                    world_size=2)
            comm, own = ft.connect(), torch.ones(3)
            dist.all_reduce(own)
            print(own.tolist(), comm.size)
            dist.destroy_process_group()
        """
        at = f"tcp://127.0.0.1:{free_port()}"
        outputs = said(start(program, 2, lambda rank: {"N": str(rank), "AT": at}), 120)
        self.assertEqual([output.splitlines()[-1] for output in outputs], ["[2.0, 2.0, 2.0] 2"] * 2)


@unittest.skipIf(torch is None, "torch's devices: no torch")
class Devices(unittest.TestCase):
    def test_numbers_stay_on_the_gpu_and_the_rest_has_a_reason(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        from foldwire._torch_tensors import is_usable, why_through_cpu
        with FakeTensorMode():
            floats = torch.empty(3, device="cuda", dtype=torch.bfloat16)
            integers = torch.empty(3, device="cuda", dtype=torch.int64)
            flags = torch.empty(3, device="cuda", dtype=torch.bool)
        with mock.patch.object(foldwire._native, "HAS_DEVICES", True):
            self.assertIsNone(why_through_cpu(floats))
            self.assertTrue(is_usable(floats))
            self.assertIsNone(why_through_cpu(integers))
            self.assertIn("kernels for torch.bool", why_through_cpu(flags))
            self.assertFalse(is_usable(flags))
            with mock.patch.object(torch.version, "hip", "6.0"):
                self.assertIn("not on hip", why_through_cpu(floats))
        with mock.patch.object(foldwire._native, "HAS_DEVICES", False):
            self.assertIn("pip install", why_through_cpu(floats))
        self.assertIn("not on meta", why_through_cpu(torch.empty(3, device="meta")))
        self.assertIsNone(why_through_cpu(torch.ones(3, dtype=torch.int64)))

    def test_lists_on_a_gpu_have_the_bound_and_are_there_when_the_call_has_finished(self):
        from foldwire._torch_calls import Calls, _deal

        class Cuda(torch.Tensor):
            """A tensor that says that it is on a GPU."""

            is_cuda, is_cpu = True, False

        def tensors(dtype=torch.float32):
            return [torch.zeros(3, dtype=dtype).as_subclass(Cuda) for _ in range(2)]

        made, synchronized = [], []
        comm = types.SimpleNamespace(
            all_reduce=lambda *_, dtype, **__: made.append(dtype),
            all_reduce_group=lambda *_, **__: self.fail("a group would be on the CPU"))

        class Group(Calls):
            def _bounded(self, op, tensor, n_bytes):
                return "bounded", n_bytes

            def _start(self, call, result, opts, tensor=None, comm_of=None):
                call(comm)
                return comm_of

        class Stream:
            def synchronize(self):
                synchronized.append([output.tolist() for output in outputs])

        self.assertEqual(Group().allreduce_coalesced(tensors()), ("bounded", 24))
        self.assertEqual(made, ["float32"] * 2)
        mixed = [tensors()[0], tensors(torch.float64)[0]]
        self.assertIsNone(Group().allreduce_coalesced(mixed))
        outputs = tensors()
        with mock.patch.object(torch.cuda, "current_stream", lambda _: Stream()):
            _deal(torch.arange(6.0), [3, 3], outputs)
        self.assertEqual(synchronized[-1], [[0, 1, 2], [3, 4, 5]])

    def test_gathers_and_lists_to_all_of_a_gpu_have_lengths(self):
        from foldwire._torch_calls import Calls

        class Cuda(torch.Tensor):
            """A tensor that says that it is on a GPU."""

            is_cuda, is_cpu = True, False

        def of(*values):
            return torch.tensor(values).as_subclass(Cuda)

        counted = []

        def all_to_all_v(array, counts, back, **_):
            counted.append((counts, back))
            return torch.Tensor(array)

        comm = types.SimpleNamespace(
            rank=0, size=2, all_to_all_v=all_to_all_v,
            gather=lambda array, root, **_: torch.cat([torch.Tensor(array)] * 2))

        class Group(Calls):
            size, rank = (lambda self: 2), (lambda self: 0)

            def _start(self, call, result, opts, tensor=None, comm_of=None):
                call(comm)

        stream = types.SimpleNamespace(synchronize=lambda: None)
        with mock.patch.object(torch.cuda, "current_stream", lambda _: stream), \
                mock.patch("foldwire._torch_tensors.why_through_cpu", lambda _: None):
            outs = [of(0.0, 0.0), of(0.0, 0.0)]
            Group().gather([outs], [of(1.0, 2.0)])
            self.assertEqual([out.tolist() for out in outs], [[1, 2], [1, 2]])
            Group().alltoall(outs, [of(3.0, 4.0), of(5.0, 6.0)])
            self.assertEqual([out.tolist() for out in outs], [[3, 4], [5, 6]])
            self.assertEqual(counted, [([2, 2], [2, 2])])
            import foldwire.torch as ft

            parameter = torch.ones(2, 3).as_subclass(Cuda).requires_grad_()
            model = types.SimpleNamespace(named_parameters=lambda: [("w", parameter)])
            state = ft.HookState(foldwire.threads(1)[0], "rel:0.1", feedback=True, model=model)
            kept = state.state_dict()["residues"]["rank0"]["w"]
            self.assertEqual((kept.tolist(), kept.dtype), ([0] * 6, torch.float32))

    def test_a_call_for_each_gradient_gives_the_bits_of_the_call_for_all(self):
        import foldwire.torch as ft

        def program(comm):
            def gradients():
                return [torch.linspace(-1, 1, n) * (comm.rank + 1) for n in range(1, 400, 17)]

            state, each, all = ft.HookState(comm, "rel:1e-3"), gradients(), gradients()
            state._average_on_device(each)
            self.assertGreater(state.raw_bytes, 0)
            state.average(0, all)
            for one, other in zip(each, all):
                self.assertTrue(torch.equal(one, other))

        foldwire.run(2, program)


if __name__ == "__main__":
    unittest.main()
