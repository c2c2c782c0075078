"""Ranks that are processes, over TCP."""

from __future__ import annotations

import os
import socket
from typing import Optional

from . import _native
from ._arguments import number, seconds, settings, whole
from ._communicator import Communicator, read_plan
from ._errors import Error

__all__ = ["from_mpi", "init", "join", "unique_id"]


def init(*, limit: float = 60.0, timeout=None, deadline=None, lanes=None, link_rate=None,
         calls: int = 8, bound: Optional[str] = None, plan: Optional[str] = None) -> Communicator:
    """This process's rank among those that a launcher has started: ``foldwire launch``, torchrun,
    Slurm, ``mpirun``, or somebody who set ``FOLDWIRE_RANK``, ``FOLDWIRE_SIZE``, ``FOLDWIRE_ROOT``.
    A process that nobody has started so is alone.

    Between machines ``FOLDWIRE_TOKEN`` holds a secret that all ranks know, and ``FOLDWIRE_ADDRESS``
    or ``FOLDWIRE_IFACE`` says where this one listens. ``FOLDWIRE_STREAMS`` and ``FOLDWIRE_ENCRYPT``
    are those of Foldwire's TCP. ``limit`` is the longest wait for all ranks, in seconds;
    ``link_rate`` the bytes per second of a rank's link each way, which ``plan="auto"`` weighs; the
    rest as for :func:`foldwire.threads`.
    """
    return _joined(None, 1, 0, limit, timeout, deadline, lanes, link_rate, calls, bound, plan)


def _joined(id_, size, rank, limit, timeout, deadline, lanes, link_rate, calls, bound, plan):
    if limit is None:
        raise Error("limit is None; give seconds", field="limit")
    timeout, deadline, lanes, calls = settings(timeout, deadline, lanes, calls)
    link_rate = number(link_rate, "link_rate", "bytes per second")
    # Before other ranks hear of this one.
    read_plan(bound, plan)
    native = _native.join(id_, size, rank, seconds(limit, "limit"), timeout, deadline, lanes,
                          link_rate, calls)
    return Communicator(native, bound, plan)


def unique_id() -> bytes:
    """What ranks need to find each other: one rank's process makes it, the program carries its
    bytes to the others, and all give it to :func:`join`, rank 0 in the process that made it."""
    return bytes(_native.unique_id())


def join(id: bytes, rank: int, size: int, *, limit: float = 60.0, timeout=None, deadline=None,
         lanes=None, link_rate=None, calls: int = 8, bound: Optional[str] = None,
         plan: Optional[str] = None) -> Communicator:
    """The rank ``rank`` of the ``size`` ranks that come with this id; see :func:`init`."""
    try:
        id = bytes(memoryview(id))
    except TypeError:
        message = f"id is the bytes that unique_id() made, and not of type {type(id).__name__}"
        raise Error(message, field="id") from None
    size, rank = whole(size, "size", 1), whole(rank, "rank")
    return _joined(id, size, rank, limit, timeout, deadline, lanes, link_rate, calls, bound, plan)


def reachable(hosts, root: str) -> None:
    """Has this process listen where the others reach it, unless the environment says where."""
    if os.environ.get("FOLDWIRE_ADDRESS") or os.environ.get("FOLDWIRE_IFACE"):
        return
    if len(set(hosts)) == 1:
        return
    # No packet is sent: the system only says from which address it would be.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect((root, 9))
        os.environ["FOLDWIRE_ADDRESS"] = asked.getsockname()[0]


def from_mpi(comm, **keywords) -> Communicator:
    """A communicator of the ranks of one of mpi4py's: MPI carries the id, TCP the data.

    Keywords are those of :func:`join`. On several hosts each listens at the address by which it
    reaches rank 0's host, unless ``FOLDWIRE_ADDRESS`` or ``FOLDWIRE_IFACE`` says another.
    """
    hosts = comm.allgather(socket.gethostname())
    failure, id_ = None, None
    try:
        others = [host for host in hosts if host != socket.gethostname()]
        # Of rank 0's host, any other will do.
        root = hosts[0] if hosts[0] in others else next(iter(others), hosts[0])
        reachable(hosts, root)
        if comm.rank == 0:
            id_ = unique_id()
    except (Error, OSError) as raised:
        failure = raised
    # A rank that fails alone would leave the others waiting.
    for rank, said in enumerate(comm.allgather(None if failure is None else str(failure))):
        if said is not None:
            raise failure or Error(f"rank {rank}: {said}", kind="transport", rank=rank)
    return join(comm.bcast(id_), comm.rank, comm.size, **keywords)
