"""Tests of calls of torch's process group that differ between ranks, so that only some of them
have the bound: they end at once, with an error that names the difference."""

import unittest

try:
    import torch
except ImportError:
    torch = None

from test_processes import said, start
from test_torch import launched

# The last rank makes another call than the others.
DIFFERENT = """
    import time
    from datetime import timedelta
    import torch, torch.distributed as dist, foldwire.torch as ft
    from torch.distributed import ReduceOp

    SIZE = {n}
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    is_odd = rank == SIZE - 1
    ft.configure(bound="rel:1e-3", min_bytes=40_000, gather_bound="rel:1e-3")

    def reduce(n=60_000, dtype=torch.float32, op=ReduceOp.SUM, how=dist.all_reduce):
        return lambda group: how(torch.ones(n, dtype=dtype), op, group=group)

    def scatter(n=60_000, dtype=torch.float32, op=ReduceOp.SUM):
        one = torch.ones(n, dtype=dtype)
        return lambda group: dist.reduce_scatter_tensor(one[:n // SIZE].clone(), one, op, group)

    def gather(n=60_000, dtype=torch.float32):
        one = torch.ones(n, dtype=dtype)
        return lambda group: dist.all_gather_into_tensor(one, one[:n // SIZE].clone(), group)

    def coalesced(n=60_000, dtype=torch.float32, op=ReduceOp.SUM):
        def call(group):
            with dist._coalescing_manager(group):
                for _ in range(2):
                    dist.all_reduce(torch.ones(n, dtype=dtype), op, group)
        return call

    def later(n=60_000, dtype=torch.float32, op=ReduceOp.SUM):
        # The others repeat a call that they have made.
        def call(group):
            for _ in range(4):
                reduce()(group)
            reduce(n, dtype, op)(group)
        return call

    for kind in (reduce, scatter, gather, coalesced, later):
        for field, other in (("count", dict(n=6000)),
                             ("element type", dict(dtype=torch.int32)),
                             ("operation", dict(op=ReduceOp.PRODUCT))):
            if (kind, field) == (gather, "operation"):
                continue
            # Either the others have the bound and this rank not, or the reverse.
            for call in (kind(**other if is_odd else {{}}), kind(**{{}} if is_odd else other)):
                group = dist.new_group(backend="foldwire", timeout=timedelta(seconds=60))
                begin = time.monotonic()
                try:
                    call(group)
                except dist.DistBackendError as error:
                    said = (kind.__name__, rank, error.kind, error.field, str(error))
                    # A rank may learn of it from another one.
                    assert error.kind in ("mismatch", "aborted"), said
                    # A group with the bound begins with ranges of all its arrays: with doubles.
                    assert error.field in (field, kind is coalesced and "element type"), said
                else:
                    raise AssertionError((kind.__name__, rank, field))
                assert time.monotonic() - begin < 10, (kind.__name__, field)
                dist.barrier()
    print("different", flush=True)
    dist.destroy_process_group()
"""


@unittest.skipIf(torch is None, "torch: not installed")
class Differences(unittest.TestCase):
    def test_ranks_of_which_only_some_have_the_bound_learn_on_what_they_differ(self):
        for n in (2, 3):
            outputs = said(start(DIFFERENT.format(n=n), n, launched(n)), 240)
            self.assertTrue(all("different" in output.splitlines() for output in outputs), outputs)
