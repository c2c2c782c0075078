"""Calls of a communicator one after the other, in the order in which they are asked for, as works
and futures of torch's; and what becomes of all calls after one that has failed."""

import atexit
import queue
import threading
import weakref
from datetime import timedelta
from typing import Optional

import torch
import torch.distributed as dist

from ._errors import Error

__all__ = ["Line", "Work", "again", "line_of", "seconds"]

_NO_LIMIT = timedelta(0)
# Held while a work gets a future, or is over.
_FUTURES = threading.Lock()
# How long a program that ends waits for calls that it has not waited for.
_PATIENCE = 10.0


def seconds(limit) -> Optional[float]:
    """A limit of time of torch's, which has none as 0 and unset as -1."""
    return limit.total_seconds() if limit is not None and limit > _NO_LIMIT else None


def again(failure: Error) -> Error:
    """The failure of a call that comes after one that has failed."""
    later = Error(f"no call can be made any more: {failure}", kind="poisoned", rank=failure.rank,
                  field=failure.field, ours=failure.ours, theirs=failure.theirs,
                  culprit=failure.culprit)
    later.__cause__ = failure
    return later


class Work(dist._Work):
    """A call, as torch waits for it: what the call raised, ``wait`` raises."""

    def __init__(self, call, result):
        super().__init__()
        self._call, self._result = call, result
        self._failure = self._begun = self._future = None
        self._is_over = False
        # Closed until it is over; of calls that are made at once there is none.
        self._gate = None

    def _run(self, line):
        """Makes the call, on whatever thread."""
        failure = line.failure and again(line.failure)
        try:
            if failure is None:
                self._call()
        except Exception as raised:  # noqa: BLE001 (it is the work's)
            line.fail(raised)
            failure = raised
        except BaseException:
            failure = Error("the call was interrupted", kind="interrupted")
            line.fail(failure)
            self._end(failure)
            raise
        self._end(failure)

    def _end(self, failure):
        self._call, self._failure = None, failure
        with _FUTURES:
            self._is_over, begun = True, self._begun
        if self._gate is not None:
            self._gate.release()
        if begun is not None:
            begun.set_result(None)

    def _outcome(self):
        if self._failure is not None:
            raise self._failure
        return self._result

    def wait(self, timeout=_NO_LIMIT):
        if not self._is_over:
            limit = seconds(timeout)
            if not self._gate.acquire(timeout=-1 if limit is None else limit):
                raise Error(f"the call is not over after {limit} s; it goes on", kind="timeout",
                            field="timeout")
            self._gate.release()
        self._outcome()
        return True

    def get_future(self):
        # A future that Python ends by an exception has it as its value, and C++ sees a success:
        # only what a callback raises is an error to both.
        with _FUTURES:
            is_new = self._future is None
            if is_new:
                self._begun = torch.futures.Future()
                self._future = self._begun.then(lambda _: self._outcome())
            is_over = self._is_over
        if is_new and is_over:
            self._begun.set_result(None)
        return self._future

    def is_completed(self):
        return self._is_over

    def is_success(self):
        return self._is_over and self._failure is None

    def exception(self):
        return self._failure

    def result(self):
        self.wait()
        return self._result

    def synchronize(self):
        self.wait()


class _Jobs:
    """What a line shares with its thread, which so does not keep the line."""

    def __init__(self):
        self.waiting = queue.SimpleQueue()
        self.lock = threading.Lock()
        # Held while a call is made.
        self.turn = threading.Lock()
        self.n_unfinished = 0
        self.thread = None

    def work(self):
        for work, line in iter(self.waiting.get, None):
            with self.turn:
                work._run(line)
            self.finish()
            # The next one may be long in coming.
            del work, line

    def finish(self):
        with self.lock:
            self.n_unfinished -= 1

    def end(self, interrupt):
        """Waits a little for what is under way, and ends it then."""
        self.waiting.put(None)
        if self.thread in (None, threading.current_thread()):
            return
        self.thread.join(_PATIENCE)
        if self.thread.is_alive():
            interrupt()
            self.thread.join(_PATIENCE)


class Line:
    """Makes calls in the order in which they come; a call that its caller would only wait for is
    made by the caller, if no other is before it, and those of others by a thread, as torch's other
    groups have it. After a failure of which a communicator does not recover, no call is made any
    more: each fails, and names the same rank and field."""

    def __init__(self, interrupt):
        self.failure: Optional[Error] = None
        self._jobs = _Jobs()
        self.end = weakref.finalize(self, self._jobs.end, interrupt)
        # That of `finalize` is too late where other threads may need the interpreter.
        self.end.atexit = False
        _LINES.add(self)

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way or waits."""
        return self._jobs.n_unfinished == 0

    def fail(self, failure: BaseException) -> None:
        """Has all later calls fail, if this is no mistake of a single call."""
        if self.failure is None and isinstance(failure, Error) and not failure.is_usage:
            self.failure = failure

    def check(self) -> None:
        """Raises if a call has failed."""
        if self.failure is not None:
            raise again(self.failure)

    def start(self, call, result, is_async: bool = True) -> Work:
        """Makes a call, or has it made; ``result`` is what its future will have."""
        self.check()
        work, jobs = Work(call, result), self._jobs
        with jobs.lock:
            is_now = not is_async and jobs.n_unfinished == 0
            jobs.n_unfinished += 1
            if is_now:
                # Nobody has it, and who comes next finds a call before it.
                jobs.turn.acquire()
            else:
                if jobs.thread is None:
                    jobs.thread = threading.Thread(target=jobs.work, name="foldwire", daemon=True)
                    jobs.thread.start()
                work._gate = threading.Lock()
                work._gate.acquire()
                jobs.waiting.put((work, self))
        if is_now:
            try:
                work._run(self)
            finally:
                jobs.turn.release()
                jobs.finish()
        return work


_LINES = weakref.WeakSet()
_OF_COMMUNICATORS = weakref.WeakKeyDictionary()


@atexit.register
def _end_all():
    for line in list(_LINES):
        line.end()


def line_of(comm) -> Line:
    """The line of a communicator's calls."""
    line = _OF_COMMUNICATORS.get(comm)
    if line is None:
        line = _OF_COMMUNICATORS.setdefault(comm, Line(comm._native.interrupt))
    return line
