"""Ranks that are threads of this process."""

from __future__ import annotations

import inspect
import threading
from typing import Any, Callable, List, Optional

from . import _native
from ._arguments import number, settings, whole
from ._communicator import Communicator, read_plan

__all__ = ["run", "threads"]


def threads(n: int, *, rate=None, timeout=None, deadline=None, lanes=None, calls: int = 8,
            bound: Optional[str] = None, plan: Optional[str] = None) -> List[Communicator]:
    """The communicators of n ranks, each for a thread of this process.

    ``rate`` limits their links, in bytes per second each way; ``timeout`` is the seconds without
    any progress after which a call fails (300), ``deadline`` those that it may take, ``lanes`` the
    parts of a call that are under way side by side (4), ``calls`` how many calls may be under way
    at once, ``bound`` and ``plan`` those of calls that give none.
    """
    n, rate = whole(n, "n", 1), number(rate, "rate", "bytes per second")
    common = settings(timeout, deadline, lanes, calls)
    read_plan(bound, plan)
    made = _native.threads(n, rate, *common)
    return [Communicator(native, bound, plan) for native in made]


def run(n: int, function: Callable[..., Any], *args: Any, **keywords: Any) -> List[Any]:
    """Calls ``function(comm, *args)`` on n ranks, each in a thread of its own; what they returned.

    Keywords are those of :func:`threads`. If a rank raises, the others' calls end, and what it
    raised is raised here.
    """
    known = inspect.getfullargspec(threads).kwonlyargs
    for name in keywords:
        if name not in known:
            raise TypeError(f"foldwire.run() has no setting {name!r}, but {', '.join(known)}; "
                            "give arguments of the function by position")
    ranks = threads(n, **keywords)
    results: List[Any] = [None] * n
    failures = []

    def rank(comm):
        try:
            results[comm.rank] = function(comm, *args)
        except BaseException as failure:  # noqa: BLE001 (it is raised below)
            # Before the others can notice: the first one here is the cause.
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
            # With a limit, or Ctrl-C is not heard.
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
