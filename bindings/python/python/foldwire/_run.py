"""Ranks that are threads of one process."""

from __future__ import annotations

import inspect
import threading
from typing import Any, Callable, List, Optional

from . import _native
from ._arguments import number, settings, whole
from ._communicator import Communicator
from ._plans import read_plan

__all__ = ["run", "threads"]


def threads(n: int, *, rate=None, timeout=None, deadline=None, lanes=None, calls: int = 8,
            bound: Optional[str] = None, plan: Optional[str] = None) -> List[Communicator]:
    """Creates the communicators of n ranks (1 to 1024), each for one thread of this process.

    :param rate: limit of each rank's link in bytes per second, in each direction; None: as fast as
        memory
    :param timeout: seconds without progress after which a call fails (default 300)
    :param deadline: seconds after which a call fails, even while it makes progress (default: none)
    :param lanes: largest number of messages of one call that a rank sends in parallel (default 4)
    :param calls: largest number of calls in progress at once
    :param bound: default error bound of calls, for example ``"rel:1e-4"``; None: exact
    :param plan: default plan of calls, for example ``"auto"``

    Raises :class:`Error` if an argument is invalid.
    """
    n, rate = whole(n, "n", 1), number(rate, "rate", "bytes per second")
    common = settings(timeout, deadline, lanes, calls)
    read_plan(bound, plan)
    made = _native.threads(n, rate, common)
    return [Communicator(native, bound, plan) for native in made]


def run(n: int, function: Callable[..., Any], *args: Any, **keywords: Any) -> List[Any]:
    """Calls ``function(comm, *args)`` on n ranks, each in its own thread. Returns their results.

    The keywords are those of :func:`threads`. If a rank raises an exception, calls of the other
    ranks fail, and this function raises the exception of the first rank.
    """
    known = inspect.getfullargspec(threads).kwonlyargs
    for name in keywords:
        if name not in known:
            raise TypeError(f"foldwire.run() has no setting {name!r}; there are "
                            f"{', '.join(known)}. Pass arguments of the function by position")
    ranks = threads(n, **keywords)
    results: List[Any] = [None] * n
    failures = []

    def rank(comm):
        try:
            results[comm.rank] = function(comm, *args)
        except BaseException as failure:  # noqa: BLE001 (it is raised below)
            # Store it before closing the communicator, so that the first entry is the cause.
            failures.append((comm.rank, failure))
        finally:
            comm.close()

    workers = [
        threading.Thread(target=rank, args=(comm,), name=f"rank {comm.rank}", daemon=True)
        for comm in ranks
    ]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            # Join with a timeout, so that Ctrl-C can interrupt the wait.
            while worker.is_alive():
                worker.join(0.1)
    except BaseException:
        for comm in ranks:
            comm.interrupt()
        raise
    if failures:
        number, failure = failures[0]
        if hasattr(failure, "add_note"):
            failure.add_note(f"raised by rank {number} of {n}")
        raise failure
    return results
