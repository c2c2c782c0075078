"""Python objects: the lower-case methods of mpi4py, as ``comm.objects``."""

from __future__ import annotations

import pickle
from typing import Any, Callable, List, Optional, Sequence

import numpy as np

from ._errors import Error

__all__ = ["Objects"]

_UNPICKLED = -1


class Objects:
    """Collectives and messages of Python objects, with the names and arguments of mpi4py.

    ``comm.objects.bcast(obj)`` and the others pickle (protocol 5) and move the bytes exactly.

    .. warning::
       Receiving unpickles what other ranks sent, and a pickle can run any code. Objects are as
       trusted as the ranks are: over a network, use a token that only the job's ranks know, and
       ``FOLDWIRE_ENCRYPT=1`` where others could change packets.

    An object that cannot be pickled is an error on its rank, and for collectives an error of kind
    ``"aborted"`` on every other rank that would get it; the communicator stays usable.
    """

    def __init__(self, communicator):
        self._comm = communicator

    def __repr__(self):
        return f"<objects of {self._comm!r}>"

    def bcast(self, obj: Any = None, root: int = 0) -> Any:
        """Returns the object of rank ``root``, on all ranks."""
        comm = self._comm
        pickled, failure = self._pickled(obj) if comm._root(root) else (None, None)
        length = np.array([_UNPICKLED if pickled is None else pickled.size], np.int64)
        self._refuse(comm.broadcast(length, root), failure, [root])
        if pickled is None:
            pickled = np.empty(int(length[0]), np.uint8)
        comm.broadcast(pickled, root)
        return obj if comm.rank == root else _restored(pickled)

    def gather(self, obj: Any, root: int = 0) -> Optional[List[Any]]:
        """Returns the list of all ranks' objects on rank ``root``, and None on the others."""
        self._comm._root(root)
        pickled, lengths = self._shared(obj)
        got = self._comm.gather(pickled, root, counts=lengths)
        return None if got is None else _parts(got, lengths)

    def allgather(self, obj: Any) -> List[Any]:
        """Returns the list of all ranks' objects, on all ranks."""
        pickled, lengths = self._shared(obj)
        return _parts(self._comm.all_gather(pickled, counts=lengths), lengths)

    def scatter(self, objs: Optional[Sequence[Any]] = None, root: int = 0) -> Any:
        """Returns element r of rank ``root``'s sequence on rank r."""
        comm = self._comm
        pickled, failure = None, None
        lengths = np.full(comm.size, _UNPICKLED, np.int64)
        if comm._root(root):
            try:
                pickled = [_pickle(obj) for obj in self._each(objs)]
                lengths = np.array([part.size for part in pickled], np.int64)
            except Exception as raised:
                failure = raised
        self._refuse(comm.broadcast(lengths, root), failure, [root] * comm.size)
        own = np.empty(int(lengths[comm.rank]), np.uint8)
        parts = None if pickled is None else np.concatenate(pickled)
        return _restored(comm.scatter(parts, own, root, counts=[int(n) for n in lengths]))

    def alltoall(self, objs: Sequence[Any]) -> List[Any]:
        """Sends element r to rank r. Returns the list of what each rank sent to this one."""
        comm = self._comm
        pickled, failure = [np.empty(0, np.uint8)] * comm.size, None
        lengths = np.full(comm.size, _UNPICKLED, np.int64)
        try:
            pickled = [_pickle(obj) for obj in self._each(objs)]
            lengths = np.array([part.size for part in pickled], np.int64)
        except Exception as raised:
            failure = raised
        table = comm.all_gather(lengths)
        self._refuse(table[:, 0], failure, range(comm.size))
        come = [int(n) for n in table[:, comm.rank]]
        got = comm.all_to_all_v(np.concatenate(pickled), [int(n) for n in lengths], come)
        return _parts(got, come)

    def allreduce(self, obj: Any, op: Optional[Callable[[Any, Any], Any]] = None) -> Any:
        """Returns ``op(op(obj0, obj1), obj2) …`` over the ranks' objects, by default their sum."""
        return _folded(self.allgather(obj), op)

    def reduce(self, obj: Any, op: Optional[Callable[[Any, Any], Any]] = None,
               root: int = 0) -> Any:
        """Returns the result of :meth:`allreduce` on rank ``root``, and None on the others."""
        got = self.gather(obj, root)
        return None if got is None else _folded(got, op)

    def scan(self, obj: Any, op: Optional[Callable[[Any, Any], Any]] = None) -> Any:
        """Returns the reduction over the ranks up to this one."""
        return _folded(self.allgather(obj)[: self._comm.rank + 1], op)

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Sends an object to rank ``dest``, which calls :meth:`recv` with the same tag.

        An object is two messages of this tag; array messages between them would be mistaken.
        """
        pickled = _pickle(obj)
        self._comm.send(np.array([pickled.size], np.int64), dest, tag)
        self._comm.send(pickled, dest, tag)

    def recv(self, source: int, tag: int = 0) -> Any:
        """Returns the next object that rank ``source`` sends with this tag."""
        length = self._comm.recv(np.empty(1, np.int64), source, tag)[0]
        return _restored(self._comm.recv(_room(length, source), source, tag))

    def sendrecv(self, obj: Any, dest: int, source: int, tag: int = 0) -> Any:
        """Sends an object to rank ``dest`` while receiving one from rank ``source``."""
        pickled, length = _pickle(obj), np.empty(1, np.int64)
        self._comm.send_recv(np.array([pickled.size], np.int64), dest, length, source, tag)
        room = _room(length[0], source)
        return _restored(self._comm.send_recv(pickled, dest, room, source, tag))

    def barrier(self) -> None:
        """Waits until all ranks have called it."""
        self._comm.barrier()

    def _each(self, objs):
        objs = list(objs) if objs is not None else []
        if len(objs) != self._comm.size:
            message = f"there are {len(objs)} objects for {self._comm.size} ranks"
            raise Error(message, field="objs")
        return objs

    @staticmethod
    def _pickled(obj):
        try:
            return _pickle(obj), None
        except Exception as raised:
            return None, raised

    def _shared(self, obj):
        """Returns the pickled object, and the lengths of all ranks' objects."""
        pickled, failure = self._pickled(obj)
        length = _UNPICKLED if pickled is None else pickled.size
        lengths = self._comm.all_gather(np.array([length], np.int64))[:, 0]
        self._refuse(lengths, failure, range(self._comm.size))
        return pickled, [int(n) for n in lengths]

    @staticmethod
    def _refuse(lengths, failure, ranks):
        """Raises an error if a rank could not pickle its object."""
        if failure is not None:
            raise failure
        for length, rank in zip(lengths, ranks):
            if length < 0:
                message = f"rank {rank} could not pickle its object; its own error says why"
                raise Error(message, kind="aborted", rank=rank, culprit=rank)


def _pickle(obj):
    return np.frombuffer(bytearray(pickle.dumps(obj, protocol=5)), np.uint8)


def _room(length, source):
    """Returns room for a message whose length rank ``source`` has sent."""
    try:
        return np.empty(int(length), np.uint8)
    except (ValueError, MemoryError):
        message = (f"rank {source} announced an object of {int(length)} bytes; do its sends and "
                   "this rank's receives match?")
        raise Error(message, kind="mismatch", rank=source, field="length") from None


def _restored(pickled):
    return pickle.loads(pickled)


def _parts(got, lengths):
    ends = np.cumsum(lengths)
    return [_restored(got[end - n:end]) for n, end in zip(lengths, ends)]


def _folded(objs, op):
    result, *others = objs
    for obj in others:
        result = result + obj if op is None else op(result, obj)
    return result
