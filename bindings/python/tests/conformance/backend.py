"""Runs torch's own test of a backend, as it is installed, with Foldwire's group in gloo's place.

    python backend.py                    # 4 ranks, all tests that run without GPUs
    python backend.py test_all_reduce_sum test_broadcast     # only these
    cargo xtask torch backend            # in a fresh environment

The tests are those of ``torch/testing/_internal/distributed/distributed_test.py``. Where they ask
for gloo, they get Foldwire, under gloo's name. It needs torch, numpy and expecttest. Exits with an
error if a test fails that is not in ``EXPECTED``.
"""

import multiprocessing
import os
import sys
import time
import unittest

os.environ["BACKEND"] = "gloo"
os.environ.setdefault("WORLD_SIZE", "4")
# A temporary folder that the tests replace by one of their own.
os.environ.setdefault("TEMP_DIR", os.path.dirname(os.path.abspath(__file__)))

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.testing._internal.distributed import distributed_test

import foldwire.torch  # noqa: F401 (registers the backend)

# Failures that are no faults of the group, and why.
EXPECTED = {
    "test_ddp_logging_data_cpu": "DDP's log has the name of the group's C++ class, not `gloo`",
}


def put_in_gloos_place():
    """Makes groups of gloo groups of Foldwire that say that they are gloo's."""
    def asked(make):
        def made(*args, **kwargs):
            args = ["foldwire" if given == "gloo" else given for given in args]
            kwargs = {name: "foldwire" if name == "backend" and given == "gloo" else given
                      for name, given in kwargs.items()}
            return make(*args, **kwargs)

        return made

    def named(get):
        def got(*args, **kwargs):
            name = get(*args, **kwargs)
            return "gloo" if name == "foldwire" else name

        return got

    for name, wrap in (("init_process_group", asked), ("new_group", asked),
                       ("get_backend", named)):
        theirs = wrap(getattr(c10d, name))
        for module in (c10d, dist, distributed_test):
            if hasattr(module, name):
                setattr(module, name, theirs)
    # The group records no events for the profiler.
    for name in ("PROFILING_SUPPORTED_BACKENDS", "CUDA_PROFILING_SUPPORTED_BACKENDS",
                 "SEND_RECV_PROFILING_SUPPORTED_BACKENDS"):
        setattr(distributed_test, name, [])


# The ranks of a test are new processes, which import this file first.
put_in_gloos_place()


class Rank(multiprocessing.get_context("forkserver").Process):
    """A process with this one's environment. It is a fork of one that has imported torch, which
    takes longer than most tests."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._environment = dict(os.environ)

    def run(self):
        os.environ.clear()
        os.environ.update(self._environment)
        super().run()


class TestBackend(distributed_test.TestDistBackend,
                  distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(Rank)


def skips_itself(test):
    """Returns whether a test would start its ranks only to find that they are too few, or that
    there are no GPUs."""
    n_gpus = torch.cuda.device_count()
    while test is not None:
        names = getattr(getattr(test, "__code__", None), "co_consts", ())
        if "small_worldsize" in names or not n_gpus and {"no_cuda", "no_accelerator"} & set(names):
            return True
        if getattr(test, "_min_gpus_required", 0) > n_gpus:
            return True
        test = getattr(test, "__wrapped__", None)
    return False


class Result(unittest.TextTestResult):
    """Result that knows which tests passed."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.n_passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.n_passed += 1


def main(names):
    multiprocessing.set_forkserver_preload([distributed_test.__name__, "foldwire.torch"])
    all_ = unittest.defaultTestLoader.getTestCaseNames(TestBackend)
    chosen = names or [name for name in all_ if not skips_itself(getattr(TestBackend, name))]
    start = time.monotonic()
    suite = unittest.TestSuite(TestBackend(name) for name in chosen)
    result = unittest.TextTestRunner(sys.stdout, resultclass=Result, verbosity=2).run(suite)
    failed = [test._testMethodName for test, _ in result.failures + result.errors]
    surprises = [name for name in failed if name not in EXPECTED]
    print(f"torch {torch.__version__}, {os.environ['WORLD_SIZE']} ranks: {result.n_passed} passed, "
          f"{len(result.skipped)} skipped themselves, {len(failed)} failed, "
          f"{len(all_) - len(chosen)} left out; {time.monotonic() - start:.0f} s")
    for name in failed:
        print(f"failed: {name}: {EXPECTED.get(name, 'not expected')}")
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
