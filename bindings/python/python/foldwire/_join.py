"""Ranks that are processes and communicate over TCP."""

from __future__ import annotations

import functools
import logging
import os
import socket
import time
from typing import Any, Optional

from . import _native
from ._arguments import number, seconds, settings, whole
from ._communicator import Communicator
from ._errors import Error, warn
from ._plans import read_plan
from ._store import as_store

__all__ = ["from_mpi", "init", "join", "rejoin", "unique_id"]

_LOG = logging.getLogger("foldwire")


def init(*, store=None, rank: Optional[int] = None, size: Optional[int] = None,
         job: str = "foldwire", epoch: int = 0, limit: float = 60.0, timeout=None, deadline=None,
         lanes=None, link_rate=None, calls: int = 8, bound: Optional[str] = None,
         plan: Optional[str] = None) -> Communicator:
    """Joins the processes that a launcher started together, and returns this rank's communicator.

    The launcher is ``foldwire launch``, torchrun, Slurm, Flux or ``mpirun``, or the user sets
    ``FOLDWIRE_RANK``, ``FOLDWIRE_SIZE`` and ``FOLDWIRE_ROOT``. Without such variables this process
    is the only rank. Between machines, set ``FOLDWIRE_TOKEN`` to the same secret on all ranks;
    ``FOLDWIRE_ADDRESS`` or ``FOLDWIRE_IFACE`` choose the network. ``FOLDWIRE_STREAMS``,
    ``FOLDWIRE_ENCRYPT`` and ``FOLDWIRE_SHARE_MEMORY`` configure TCP.

    With ``store``, the processes meet there instead, and each passes its ``rank`` and the
    ``size``. A store is a :class:`FileStore`, :class:`TcpStore` or :class:`MemoryStore`, a store of
    torch (``torch.distributed.TCPStore``), or any object with ``set(key, value)``, ``get(key)``
    (bytes, or None) and ``wait(key, seconds)``.

    :param job: name of the job, if other jobs use the store
    :param epoch: number of times that the job was started before with this store
    :param limit: longest wait for all ranks, in seconds
    :param link_rate: bytes per second of a rank's link in each direction, an input of
        ``plan="auto"``

    The other arguments are those of :func:`foldwire.threads`.

    Warns, once in a process, of variables with the prefix ``FOLDWIRE_`` that nothing reads.

    Raises :class:`Error` of kind ``"timeout"`` if a rank is missing after ``limit``, and
    ``"mismatch"`` if ranks have different settings.
    """
    terms = dict(limit=limit, timeout=timeout, deadline=deadline, lanes=lanes,
                 link_rate=link_rate, calls=calls, bound=bound, plan=plan)
    if store is not None:
        place = whole(rank, "rank"), whole(size, "size", 1), str(job), whole(epoch, "epoch")
        return _joined(lambda *given: _native.meet(as_store(store), place, *given), **terms)
    for value, name, default in ((rank, "rank", None), (size, "size", None),
                                 (job, "job", "foldwire"), (epoch, "epoch", 0)):
        if value != default:
            message = f"{name} needs a store; without one, the launcher says who meets"
            raise Error(message, field=name)
    return _joined(lambda *given: _native.join(None, 1, 0, *given), **terms)


def rejoin(store: Any, *, limit: float = 60.0, job: str = "foldwire", timeout=None, deadline=None,
           calls: int = 8, bound: Optional[str] = None,
           plan: Optional[str] = None) -> Communicator:
    """Waits until a group admits this process (:meth:`Communicator.admit`), and returns the
    communicator of the new group.

    The process needs the same store, job, ``calls``, ``FOLDWIRE_TOKEN`` and settings of TCP as the
    group. The communicator has the group's lanes and link rate, its ``generation``, ``facts`` and
    ``old_ranks``. The other arguments are those of :func:`init`.

    Raises :class:`Error` of kind ``"timeout"`` if no group has admitted the process after
    ``limit`` seconds.
    """
    return _joined(
        lambda limit, common, _: _native.rejoin(as_store(store), str(job), limit, common),
        limit=limit, timeout=timeout, deadline=deadline, calls=calls, bound=bound, plan=plan,
        make=Communicator._grown)


@functools.lru_cache(maxsize=None)
def _warn_of_variables() -> None:
    """Warns once of environment variables that nothing reads, because they are misspelled."""
    said = _native.unknown_variables()
    if said:
        warn("; ".join(said))


def _joined(connect, *, limit, timeout, deadline, calls, bound, plan, lanes=None, link_rate=None,
            make=Communicator) -> Communicator:
    """Returns the communicator that ``connect`` makes, and logs how that went. ``connect`` takes
    the time limit, the settings of a communicator and the rate of links."""
    if limit is None:
        raise Error("limit must be a number of seconds, not None", field="limit")
    common = settings(timeout, deadline, lanes, calls)
    link_rate = number(link_rate, "link_rate", "bytes per second")
    # Check the plan before connecting to other ranks.
    read_plan(bound, plan)
    _warn_of_variables()
    start = time.monotonic()
    try:
        comm = make(connect(seconds(limit, "limit"), common, link_rate), bound, plan)
    except Error as failure:
        _LOG.error("cannot join: %s", failure)
        raise
    _LOG.info("joined as rank %d of %d in %.3f s", comm.rank, comm.size, time.monotonic() - start)
    return comm


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
    return _joined(lambda *given: _native.join(id, size, rank, *given), limit=limit,
                   timeout=timeout, deadline=deadline, lanes=lanes, link_rate=link_rate,
                   calls=calls, bound=bound, plan=plan)


def own_host() -> str:
    """Returns a name that is the same for ranks that reach each other over loopback."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return socket.gethostname()


def own_address(root: Optional[str] = None) -> str:
    """Returns the address of this host on the way to a root, by default that of torch's launcher,
    or the one that ``FOLDWIRE_ADDRESS`` says. That of loopback if there is no way."""
    given = os.environ.get("FOLDWIRE_ADDRESS")
    if given:
        return given
    # Connecting a UDP socket sends no packet. It only selects the local address.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect((root or os.environ.get("MASTER_ADDR", "127.0.0.1"), 9))
        except OSError:
            return "127.0.0.1"
        return asked.getsockname()[0]


def choose_address(hosts, root: Optional[str], exchanged) -> None:
    """Lets this rank listen on the way to ``root``, if ranks are on several hosts
    (:func:`own_host`) and the environment names no address or interface.

    All ranks fail if that is loopback for one of them. ``exchanged`` takes a text and returns those
    of all ranks, at least each once."""
    if len(set(hosts)) == 1:
        return
    given = os.environ.get("FOLDWIRE_ADDRESS") or os.environ.get("FOLDWIRE_IFACE")
    address = given or own_address(root)
    is_alone = not given and address.startswith("127.")
    alone = sorted(set(exchanged(socket.gethostname() if is_alone else "-")) - {"-"})
    if alone:
        message = (f"ranks are on several hosts, but on {', '.join(alone)} the name of the host "
                   "where they meet is of a loopback address, as 127.0.1.1 in /etc/hosts; set "
                   "FOLDWIRE_IFACE or FOLDWIRE_ADDRESS to choose the network")
        raise Error(message, field="FOLDWIRE_ADDRESS")
    if not given:
        os.environ["FOLDWIRE_ADDRESS"] = address


def from_mpi(comm, **keywords) -> Communicator:
    """Creates a communicator of the ranks of an mpi4py communicator.

    MPI sends only the unique id; data goes over TCP. All ranks of ``comm`` call this function. The
    keywords are those of :func:`join`. Without one loopback interface for all ranks, each rank
    listens on its address on the way to the host of rank 0, unless ``FOLDWIRE_ADDRESS`` or
    ``FOLDWIRE_IFACE`` is set. All ranks fail if that is loopback for one of them.
    """
    own = own_host()
    hosts, names = zip(*comm.allgather((own, socket.gethostname())))
    # On the host of rank 0, the way to any other host selects the address.
    others = [name for host, name in zip(hosts, names) if host != own]
    root = names[0] if hosts[0] != own else next(iter(others), None)
    choose_address(hosts, root, comm.allgather)
    failure, id_ = None, None
    try:
        if comm.rank == 0:
            id_ = unique_id()
    except Error as raised:
        failure = raised
    # Share errors, because a rank that fails alone would leave the others waiting.
    for rank, said in enumerate(comm.allgather(None if failure is None else str(failure))):
        if said is not None:
            raise failure or Error(f"rank {rank}: {said}", kind="transport", rank=rank)
    return join(comm.bcast(id_), comm.rank, comm.size, **keywords)
