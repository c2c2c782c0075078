"""Ranks that are processes and communicate over TCP."""

from __future__ import annotations

import logging
import os
import socket
import time
from typing import Optional

from . import _native
from ._arguments import number, seconds, settings, whole
from ._communicator import Communicator
from ._errors import Error
from ._plans import read_plan

__all__ = ["from_mpi", "init", "join", "unique_id"]

_LOG = logging.getLogger("foldwire")


def init(*, limit: float = 60.0, timeout=None, deadline=None, lanes=None, link_rate=None,
         calls: int = 8, bound: Optional[str] = None, plan: Optional[str] = None) -> Communicator:
    """Joins the processes that a launcher started together, and returns this rank's communicator.

    The launcher is ``foldwire launch``, torchrun, Slurm, Flux or ``mpirun``, or the user sets
    ``FOLDWIRE_RANK``, ``FOLDWIRE_SIZE`` and ``FOLDWIRE_ROOT``. Without such variables this process
    is the only rank. Between machines, set ``FOLDWIRE_TOKEN`` to the same secret on all ranks;
    ``FOLDWIRE_ADDRESS`` or ``FOLDWIRE_IFACE`` choose the network. ``FOLDWIRE_STREAMS`` and
    ``FOLDWIRE_ENCRYPT`` configure TCP.

    :param limit: longest wait for all ranks, in seconds
    :param link_rate: bytes per second of a rank's link in each direction, an input of
        ``plan="auto"``

    The other arguments are those of :func:`foldwire.threads`.

    Raises :class:`Error` of kind ``"timeout"`` if a rank is missing after ``limit``, and
    ``"mismatch"`` if ranks have different settings.
    """
    return _joined(None, 1, 0, limit, timeout, deadline, lanes, link_rate, calls, bound, plan)


def _joined(id_, size, rank, limit, timeout, deadline, lanes, link_rate, calls, bound, plan):
    if limit is None:
        raise Error("limit must be a number of seconds, not None", field="limit")
    timeout, deadline, lanes, calls = settings(timeout, deadline, lanes, calls)
    link_rate = number(link_rate, "link_rate", "bytes per second")
    # Check the plan before connecting to other ranks.
    read_plan(bound, plan)
    start = time.monotonic()
    try:
        native = _native.join(id_, size, rank, seconds(limit, "limit"), timeout, deadline, lanes,
                              link_rate, calls)
    except Error as failure:
        _LOG.error("cannot join: %s", failure)
        raise
    _LOG.info("joined as rank %d of %d in %.3f s", native.rank, native.size,
              time.monotonic() - start)
    return Communicator(native, bound, plan)


def unique_id() -> bytes:
    """Creates the 128-byte id of a new communicator.

    The process of rank 0 calls this function, and the program sends the bytes to the other ranks.
    Every rank passes them to :func:`join`. The id is a secret, because everyone who has it can
    join. It is valid for one communicator.
    """
    return bytes(_native.unique_id())


def join(id: bytes, rank: int, size: int, *, limit: float = 60.0, timeout=None, deadline=None,
         lanes=None, link_rate=None, calls: int = 8, bound: Optional[str] = None,
         plan: Optional[str] = None) -> Communicator:
    """Joins as rank ``rank`` of the ``size`` ranks that pass the same id. Returns the communicator.

    Rank 0 must be in the process that called :func:`unique_id`. The other arguments and errors are
    those of :func:`init`. Raises :class:`Error` of kind ``"peer_lost"`` if rank 0 no longer waits
    for ranks of this id.
    """
    try:
        id = bytes(memoryview(id))
    except TypeError:
        message = f"id must be the bytes from unique_id(), not {type(id).__name__}"
        raise Error(message, field="id") from None
    size, rank = whole(size, "size", 1), whole(rank, "rank")
    return _joined(id, size, rank, limit, timeout, deadline, lanes, link_rate, calls, bound, plan)


def reachable(hosts, root: str) -> None:
    """Sets ``FOLDWIRE_ADDRESS`` to the address that reaches ``root``, if ranks are on several hosts
    and the environment names no address or interface."""
    if os.environ.get("FOLDWIRE_ADDRESS") or os.environ.get("FOLDWIRE_IFACE"):
        return
    if len(set(hosts)) == 1:
        return
    # Connecting a UDP socket sends no packet. It only selects the local address.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect((root, 9))
        os.environ["FOLDWIRE_ADDRESS"] = asked.getsockname()[0]


def from_mpi(comm, **keywords) -> Communicator:
    """Creates a communicator of the ranks of an mpi4py communicator.

    MPI sends only the unique id; data goes over TCP. All ranks of ``comm`` call this function. The
    keywords are those of :func:`join`. On several hosts, each rank listens on the address that
    reaches the host of rank 0, unless ``FOLDWIRE_ADDRESS`` or ``FOLDWIRE_IFACE`` is set.
    """
    hosts = comm.allgather(socket.gethostname())
    failure, id_ = None, None
    try:
        others = [host for host in hosts if host != socket.gethostname()]
        # On the host of rank 0, the route to any other host selects the address.
        root = hosts[0] if hosts[0] in others else next(iter(others), hosts[0])
        reachable(hosts, root)
        if comm.rank == 0:
            id_ = unique_id()
    except (Error, OSError) as raised:
        failure = raised
    # Share errors, because a rank that fails alone would leave the others waiting.
    for rank, said in enumerate(comm.allgather(None if failure is None else str(failure))):
        if said is not None:
            raise failure or Error(f"rank {rank}: {said}", kind="transport", rank=rank)
    return join(comm.bcast(id_), comm.rank, comm.size, **keywords)
