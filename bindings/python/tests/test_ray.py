"""Tests of Foldwire as a backend of Ray's collective groups."""

import importlib.util
import os
import sys
import unittest
from unittest import mock

import numpy as np

try:
    import ray
except ImportError:
    ray = None
try:
    import torch
except ImportError:
    torch = None

SIZE = 3


def _worker():
    @ray.remote
    class Worker:
        def __init__(self, rank):
            import foldwire.ray  # noqa: F401  registers the backend
            from ray.util import collective

            self.rank, self.collective = rank, collective

        def joins(self, group):
            self.collective.init_collective_group(SIZE, self.rank, "FOLDWIRE", group)
            return self.collective.get_rank(group)

        def leaves(self, group):
            self.collective.destroy_collective_group(group)

        def runs(self, program):
            return program(self.rank, self.collective)

    return Worker


def _all(rank, collective, make):
    """Makes each of Ray's calls on arrays that ``make`` creates from a list."""
    from ray.util.collective.types import ReduceOp

    got, group, size = {}, "all", SIZE
    base = [float(rank + 1), 2.0, 3.0 * rank + 1]
    for op in ReduceOp:
        array = make(base)
        collective.allreduce(array, group, op)
        got[op.name] = array
    array = make(base)
    collective.reduce(array, 1, group)
    got["reduce"] = array
    array = make(base)
    collective.broadcast(array, 2, group)
    got["broadcast"] = array
    into = [make([0.0] * 3) for _ in range(size)]
    collective.allgather(into, make(base), group)
    got["allgather"] = into
    array = make([0.0] * 3)
    collective.reducescatter(array, [make([v + r for v in base]) for r in range(size)], group)
    got["reducescatter"] = array
    collective.barrier(group)
    array = make(base)
    if rank == 0:
        collective.send(array, 1, group)
    elif rank == 1:
        collective.recv(array, 0, group)
    got["message"] = array
    return {name: [np.asarray(each, float).tolist() for each in value]
            if isinstance(value, list) else np.asarray(value, float).tolist()
            for name, value in got.items()}


def _numpy(rank, collective):
    return _all(rank, collective, np.array)


def _gaps(rank, collective):
    def make(values):
        array = np.zeros((len(values), 2))[:, 0]
        array[:] = values
        return array

    return _all(rank, collective, make)


def _torch(rank, collective):
    import torch

    return _all(rank, collective, lambda values: torch.tensor(values))


def _bfloat16(rank, collective):
    import torch

    class Values(list):
        pass

    made = []

    def make(values):
        made.append(torch.tensor(values, dtype=torch.bfloat16))
        return made[-1]

    # numpy has no bfloat16, so compare floats.
    original = np.asarray
    try:
        np.asarray = lambda value, *rest: original(
            value.float() if hasattr(value, "float") else value, *rest)
        return _all(rank, collective, make)
    finally:
        np.asarray = original


def _more(rank, collective):
    import foldwire.ray

    comm = foldwire.ray.communicator("all")
    rows = comm.gather(np.array([rank]), 0)
    return (comm.scan(np.array([rank])).tolist(), None if rows is None else rows.tolist(),
            comm.all_to_all(np.arange(SIZE) + 10 * rank).tolist(), comm.objects.allgather(rank),
            repr(collective.get_group_handle("all")))


def _bounded(rank, collective):
    import foldwire.ray

    array = np.sin(np.arange(10_000) * 1e-2) + rank
    exact, near = array.copy(), array.copy()
    collective.allreduce(exact, "all")
    foldwire.ray.configure(bound="rel:1e-3", min_bytes=1000)
    collective.allreduce(near, "all")
    ratio = foldwire.ray.communicator("all").report["ratio"]
    foldwire.ray.configure()
    return float(abs(near - exact).max()), ratio


def _wrong(rank, collective):
    import foldwire

    said = []
    for call in (
        lambda: collective.allgather([np.zeros(2)] * SIZE, np.zeros(3), "all"),
        lambda: collective.reducescatter(np.zeros(3), [np.zeros(2)] * SIZE, "all"),
        lambda: foldwire.ray.configure(bound=0.1),
    ):
        try:
            call()
        except foldwire.Error as error:
            said.append(error.field)
    return said


class Keys(unittest.TestCase):
    """Keys in Ray's store, with stand-ins for Ray's modules."""

    def test_groups_of_two_jobs_have_keys_of_their_own(self):
        import foldwire

        base = "ray.util.collective"
        names = ("ray", "ray.experimental", "ray.util", base, f"{base}.backend_registry",
                 f"{base}.collective_group", f"{base}.types",
                 f"{base}.collective_group.base_collective_group")
        modules = {name: mock.MagicMock() for name in names}
        modules[names[-1]].BaseGroup = object
        kept = {}
        store = modules["ray.experimental"].internal_kv
        store._internal_kv_put = lambda key, value, overwrite: kept.setdefault(key, value)
        store._internal_kv_get = kept.get
        store._internal_kv_del = lambda key: None
        modules["ray"].util.get_node_ip_address = lambda: "127.0.0.1"
        path = os.path.join(os.path.dirname(foldwire.__file__), "ray.py")
        spec = importlib.util.spec_from_file_location("foldwire._ray_alone", path)
        made = importlib.util.module_from_spec(spec)
        with mock.patch.dict(sys.modules, modules), mock.patch.dict(os.environ):
            spec.loader.exec_module(made)
            for job in ("01000000", "02000000"):
                modules["ray"].get_runtime_context().get_job_id = lambda job=job: job
                made._joined(1, 0, "sums").close()
        self.assertEqual(list(kept), [b"foldwire/group/01000000/sums",
                                      b"foldwire/group/02000000/sums"])


@unittest.skipIf(ray is None, "no ray")
class Ray(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import warnings

        warnings.simplefilter("ignore")
        # Actors unpickle the functions of this file by value.
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        ray.init(num_cpus=SIZE, include_dashboard=False, log_to_driver=False,
                 configure_logging=False)
        import foldwire.ray  # noqa: F401

        worker = _worker().options(num_cpus=0)
        cls.workers = [worker.remote(rank) for rank in range(SIZE)]
        # The last ranks come first.
        joining = [each.joins.remote("all") for each in reversed(cls.workers)]
        assert ray.get(joining) == list(reversed(range(SIZE)))

    @classmethod
    def tearDownClass(cls):
        ray.shutdown()

    def on_all(self, program):
        return ray.get([each.runs.remote(program) for each in self.workers])

    def test_every_call_of_rays_works(self):
        table = np.array([[r + 1.0, 2.0, 3.0 * r + 1] for r in range(SIZE)])
        programs = [_numpy, _gaps] + ([_torch, _bfloat16] if torch else [])
        for program in programs:
            for rank, got in enumerate(self.on_all(program)):
                for name, whole in (("SUM", table.sum(0)), ("PRODUCT", table.prod(0)),
                                    ("MIN", table.min(0)), ("MAX", table.max(0))):
                    self.assertEqual(got[name], whole.tolist(), (program, name))
                expected = table.sum(0) if rank == 1 else table[rank]
                self.assertEqual(got["reduce"], expected.tolist())
                self.assertEqual(got["broadcast"], table[2].tolist())
                self.assertEqual(got["allgather"], table.tolist())
                self.assertEqual(got["reducescatter"], (table.sum(0) + SIZE * rank).tolist())
                self.assertEqual(got["message"], table[0 if rank < 2 else 2].tolist())

    def test_what_ray_lacks_is_on_the_communicator(self):
        for rank, (scan, rows, columns, ranks, text) in enumerate(self.on_all(_more)):
            self.assertEqual(scan, [sum(range(rank + 1))])
            self.assertEqual(rows, [[r] for r in range(SIZE)] if rank == 0 else None)
            self.assertEqual(columns, [10 * r + rank for r in range(SIZE)])
            self.assertEqual(ranks, list(range(SIZE)))
            self.assertIn("'all'", text)

    def test_a_bound_compresses(self):
        for error, ratio in self.on_all(_bounded):
            self.assertGreater(error, 0)
            self.assertLess(error, SIZE * 4e-3)
            self.assertGreater(ratio, 2)

    def test_wrong_arguments_name_what_is_wrong(self):
        for said in self.on_all(_wrong):
            self.assertEqual(said, ["tensor_list", "tensor_list", "bound"])

    def test_a_name_can_be_used_again(self):
        for _ in range(2):
            ray.get([each.joins.remote("again") for each in self.workers])
            ray.get([each.leaves.remote("again") for each in self.workers])


if __name__ == "__main__":
    unittest.main()
