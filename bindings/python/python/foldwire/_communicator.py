"""Communicators: collectives and messages of numpy arrays."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Optional

from . import _native
from ._arguments import FOREVER, U32, plan_text, seconds, whole
from ._collectives import Collectives
from ._errors import Error
from ._messages import Messages
from ._objects import Objects
from ._plans import parse_plan
from ._requests import Request
from ._store import as_store
from ._sums import Sums

if TYPE_CHECKING:
    from typing import Any, Dict, List, Union

    from ._types import Text

__all__ = ["Communicator", "Request"]

_LOG = logging.getLogger("foldwire")


class Communicator(Collectives, Messages, Sums):
    """One rank of a communicator. All ranks make the same collectives in the same order.

    Create one with :func:`foldwire.run`, :func:`foldwire.threads`, :func:`foldwire.init`,
    :func:`foldwire.join` or :func:`foldwire.from_mpi`.

    *Arrays* are numpy arrays, or objects that convert to one (DLPack, lists). Types are floats of
    16 to 64 bits, bfloat16 of ml_dtypes, integers of 8 to 64 bits, and bool. Integers and bool are
    always exact.

    *Devices.* Collectives also take torch's CUDA tensors, CuPy's arrays, and others with the CUDA
    array interface, contiguous, of floats or integers. They stay on the device, and the call keeps
    to the order of the current stream. All arrays of a call are on the CPU, or all on one device; a
    new result is of the same kind. Messages and :meth:`all_reduce_group` need numpy arrays.

    *Bounds.* Calls are exact unless ``bound`` is set, as an argument or for all calls
    (:attr:`bound`): ``"rel:1e-4"`` (a fraction of the value range over all ranks), ``"abs:0.1"``
    (in the unit of the data), ``"psnr:60"`` (dB), or ``"lossless"``, which compresses and keeps
    every bit. By default the bound applies to each rank's input.

    *Fill values.* ``fill_value=1e20``, on all ranks, says that this value stands for missing data
    in arrays of floats. It does not count in the range of a bound, and moves with all its bits. A
    reduction with a missing value is missing: the result is the fill value where the value of any
    rank is the fill value or NaN, or where infinities cancel. Without ``fill_value``, it is a
    number like others. In a plan, ``"fill:1e20"`` says the same, and ``"fill:1e20:number"`` that
    reductions take it as a number, which does not count in the range either. Without one, a value
    that seems to be one and sets the range causes a warning on the ranks that have it; with
    ``fill_value="refuse"``, an error on all ranks, before any data are sent.

    *Plans.* ``plan`` sets more: ``"auto"``, ``"codec:dense,shape:64x64x64"``, ``"schedule:ring"``,
    ``"lanes:1"`` (at most so many of the communicator's lanes), ``"scope:result"``. All ranks pass
    the same bound and plan.

    *Threads.* Calls release the GIL. Until a call has finished, no other thread may write an array
    that it reads, nor use an array that it writes. Several threads may share a communicator; their
    calls run one after the other. In a fork of the process, calls raise errors of kind
    ``"closed"``.

    Calls raise :class:`foldwire.Error`.
    """

    def __init__(self, native: _native.Comm, bound: Text = None, plan: Text = None):
        self._native = native
        self.rank: int = native.rank
        self.size: int = native.size
        self.bound = bound
        """Default error bound of calls; None: exact."""
        self.plan = plan
        """Default plan of calls."""
        self._timeout: Optional[float] = None
        self._report: Union[_native.Report, Dict[str, Any], None] = None
        self.generation: int = 0
        """Number of times that the group has grown (:meth:`admit`). It rises from admission to
        admission. Two halves of a network that splits count on their own."""
        self.facts: bytes = b""
        """Bytes that the survivors gave to the newcomers when the group grew."""
        self.old_ranks: Optional[List[Optional[int]]] = None
        """For each rank, its rank in the group before it grew, or None for a newcomer."""

    @property
    def report(self) -> Optional[Dict[str, Any]]:
        """Statistics of this rank's last successful call: codec, schedule, sizes in bytes, ratio,
        absolute bound, worst-case error, times in seconds."""
        if isinstance(self._report, _native.Report):
            self._report = self._report.to_dict()
        return self._report

    @report.setter
    def report(self, report: Union[_native.Report, Dict[str, Any], None]) -> None:
        self._report = report

    @property
    def timeout(self) -> Optional[float]:
        """Seconds without progress after which a collective fails; None: the timeout with which the
        communicator was created."""
        return self._timeout

    @timeout.setter
    def timeout(self, value: Optional[float]) -> None:
        self._timeout = seconds(value, "timeout")

    def __repr__(self):
        return f"<foldwire.Communicator: rank {self.rank} of {self.size}>"

    def _text(self, bound, plan):
        bound = self.bound if bound is None else bound
        plan = self.plan if plan is None else plan
        return "exact" if bound is None and plan is None else plan_text(bound, plan)

    def _plan(self, bound, plan):
        return parse_plan(self._text(bound, plan))

    @property
    def objects(self) -> Objects:
        """Collectives and messages of Python objects, as mpi4py's lower-case methods:
        ``comm.objects.bcast(obj)``. Objects from other ranks are trusted as pickle is."""
        return Objects(self)

    def share(self, n_values: int) -> slice:
        """Returns the slice of this rank's block in an array of ``n_values`` values.

        The lengths of the ranks' blocks differ by at most one.
        """
        return slice(*self._native.share(whole(n_values, "n_values")))

    # Communicators

    def split(self, color: Optional[int], key: int = 0,
              calls: Optional[int] = None) -> Optional[Communicator]:
        """Returns a communicator of the ranks that pass the same color, or None for color None.

        All ranks call it. Ranks are ordered by key, and for equal keys by their rank here.
        ``calls`` is the largest number of calls in progress at once (default: as here).

        The communicator inherits ``bound`` and ``plan``. A communicator without references frees
        its channels. Raises :class:`Error` of kind ``"no_room"`` if too few channels are free, and
        of kind ``"mismatch"`` if ``calls`` differs between ranks of a color; this communicator
        stays usable.
        """
        if color is not None:
            color = whole(color, "color", 0, U32)
        key = whole(key, "key", -2**31, 2**31 - 1)
        calls = self._native.n_calls if calls is None else whole(calls, "calls", 1)
        made = self._native.split(color, key, calls, self.timeout)
        return None if made is None else Communicator(made, self.bound, self.plan)

    def duplicate(self) -> Communicator:
        """Returns another communicator of the same ranks. Calls on the two do not interfere."""
        made = self.split(0)
        assert made is not None, "a rank with a color gets a communicator"
        return made

    def shrink(self, patience: Optional[float] = 5.0) -> Communicator:
        """Returns a communicator of the ranks that call this, after a failure or without one.

        A rank that does not answer for ``patience`` seconds is excluded; with None, only ranks that
        are known to be lost. This communicator becomes unusable.
        """
        patience = seconds(patience, "patience")
        made = self._native.shrink(FOREVER if patience is None else patience)
        _LOG.warning("rank %d of %d goes on as rank %d of %d", self.rank, self.size, made.rank,
                     made.size)
        return Communicator(made, self.bound, self.plan)

    def admit(self, store: Any, size: Optional[int] = None, *, limit: float = 60.0,
              patience: float = 5.0, facts: bytes = b"",
              job: str = "foldwire") -> Communicator:
        """Returns a communicator of the ranks that call this and of newcomers
        (:func:`foldwire.rejoin`) that wait in the store.

        All ranks call it at the same place of their program, after a failure or without one. Ranks
        that are lost or silent are left out. A rank keeps its number if the new group has it, and
        newcomers take the free ones. This communicator becomes unusable, except after an error of
        kind ``"argument"``.

        :param store: as in :func:`foldwire.init`, the same for all ranks and newcomers
        :param size: number of ranks that the group should have; it waits for newcomers for at most
            ``limit`` seconds, and goes on with those that came. None: those that wait already
        :param limit: None: no limit
        :param patience: seconds after which a silent rank is left out; None: only ranks that are
            known to be lost
        :param facts: at most 64 KiB for the newcomers, such as the step from which to go on; those
            of the lowest rank count
        :param job: name of the job, if other jobs use the store

        The new communicator has :attr:`generation`, :attr:`facts` and :attr:`old_ranks`. Raises
        :class:`Error` of kind ``"excluded"`` if the others go on without this rank, which may then
        rejoin.
        """
        n_ranks = 0 if size is None else whole(size, "size", 1)
        try:
            facts = bytes(memoryview(facts))
        except TypeError:
            message = f"facts must be bytes, not {type(facts).__name__}"
            raise Error(message, field="facts") from None
        given = seconds(limit, "limit"), seconds(patience, "patience")
        times = tuple(FOREVER if time is None else time for time in given)
        grown = self._native.admit(as_store(store), job, n_ranks, times, self.generation, facts)
        comm = Communicator._grown(grown, self.bound, self.plan)
        _LOG.warning("rank %d of %d goes on as rank %d of %d, generation %d", self.rank, self.size,
                     comm.rank, comm.size, comm.generation)
        return comm

    @classmethod
    def _grown(cls, grown, bound, plan):
        native, generation, facts, old_ranks = grown
        comm = cls(native, bound, plan)
        comm.generation, comm.facts, comm.old_ranks = generation, bytes(facts), old_ranks
        return comm

    @property
    def is_poisoned(self) -> bool:
        """True if an earlier call has failed; then only :meth:`shrink` is possible."""
        return self._native.is_poisoned()

    def progress(self) -> None:
        """Advances all calls of this rank that are in progress."""
        self._native.progress()

    def interrupt(self) -> None:
        """Stops running calls of other threads on this rank, and all later calls.

        They raise errors of kind ``"interrupted"``. Calls of the other ranks fail, too.
        """
        self._native.interrupt()

    def close(self) -> None:
        """Ends this rank, on this communicator and all others that were split from the same one.

        Calls of other ranks that need this rank fail. Waits for calls of other threads, and up to a
        minute until messages have arrived; Ctrl-C ends the wait. Does nothing in a fork of the
        process. A communicator without references waits alike, but Ctrl-C does not end that.
        """
        self._native.close()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
