"""A queue that makes a communicator's calls in order, with torch's works and futures as results.
After a failed call, all later calls fail."""

import atexit
import collections
import os
import queue
import sys
import threading
import time
import weakref
from datetime import timedelta
from typing import Optional

import torch
import torch.distributed as dist

from ._errors import Error

__all__ = ["BackendError", "Line", "Work", "again", "line_of", "seconds"]

_NO_LIMIT = timedelta(0)
# Held while a work creates its future, or finishes.
_FUTURES = threading.Lock()
# Seconds that an ending program waits for calls in progress.
_PATIENCE = 10.0
# After as many calls that callers made themselves, the next one does not wake the line's thread.
_N_WAITED = 4
# As many calls wake it after one that it made.
_N_MADE = 64
# Seconds between the looks of the thread for a call that has not woken it, and for how long it
# looks after the last one.
_LOOK, _LOOKING = 0.001, 0.05


def seconds(limit) -> Optional[float]:
    """Converts a time limit of torch to seconds. None: no limit (0 in torch) or not set (-1)."""
    return limit.total_seconds() if limit is not None and limit > _NO_LIMIT else None


class BackendError(Error, dist.DistBackendError):
    """A failed call of a process group or of the hook: :class:`foldwire.Error`, and for torch's
    users ``torch.distributed.DistBackendError``."""


def _like(failure: Error, message: str, kind: str) -> BackendError:
    return BackendError(message, kind=kind, rank=failure.rank, field=failure.field,
                        ours=failure.ours, theirs=failure.theirs, culprit=failure.culprit)


def _of_backend(failure: BaseException) -> BaseException:
    """Returns the same failure as torch's users expect it."""
    if not isinstance(failure, Error) or isinstance(failure, BackendError):
        return failure
    # Programs search messages for the word.
    more = "; this is the timeout of the group" if failure.kind == "timeout" else ""
    return _like(failure, f"{failure}{more}", failure.kind).with_traceback(failure.__traceback__)


def _is_shallow() -> bool:
    """Returns whether at most half of the calls within calls that Python allows are in progress."""
    frame, n_frames = sys._getframe(), 0
    while frame is not None:
        frame, n_frames = frame.f_back, n_frames + 1
    return 2 * n_frames <= sys.getrecursionlimit()


def again(failure: Error) -> BackendError:
    """Returns the error of calls after a failed one."""
    message = f"an earlier call failed, so no more calls are possible: {failure}"
    later = _like(failure, message, "poisoned")
    later.__cause__ = failure
    return later


class Work(dist._Work):
    """A call, with torch's interface for waiting. ``wait`` raises the exception of the call."""

    def __init__(self, call, result):
        super().__init__()
        self._call, self._result = call, result
        self._failure = self._begun = self._future = None
        # The future that is to be completed.
        self._due = None
        self._has_begun = self._is_over = False
        # The jobs of the line. None if the caller makes the call itself.
        self._jobs = None
        # Locked until the call has finished. None if the caller makes the call itself.
        self._gate = None

    def __repr__(self):
        state = "in progress" if not self._is_over else "failed" if self._failure else "finished"
        return f"<foldwire.torch.Work: {state}>"

    def _run(self, line):
        """Makes the call, on the current thread."""
        failure = line.failure and again(line.failure)
        try:
            if failure is None:
                self._call()
        except Exception as raised:  # noqa: BLE001 (`wait` raises it)
            failure = _of_backend(raised)
            line.fail(failure)
        except BaseException:
            failure = BackendError("the call was interrupted", kind="interrupted")
            line.fail(failure)
            self._end(failure)
            raise
        self._end(failure)

    def _end(self, failure):
        self._call, self._failure = None, failure
        with _FUTURES:
            self._is_over, self._due = True, self._begun
        if self._gate is not None:
            self._gate.release()

    def _tell(self):
        """Completes the future, whose callbacks may make calls of the same line."""
        due, self._due = self._due, None
        if due is not None:
            due.set_result(None)

    def _outcome(self):
        if self._failure is not None:
            raise self._failure
        return self._result

    def wait(self, timeout=_NO_LIMIT):
        jobs, limit = self._jobs, seconds(timeout)
        if not self._is_over:
            jobs.entered.refuse()
            jobs.make_until(self)
        # No other thread needs to be woken if this one has nothing else to do.
        if not self._is_over and limit is None and jobs.n_unfinished == 1 and not self._has_begun:
            jobs.n_waited += jobs.make_next(self)
        if not self._is_over:
            self._wake()
            if not self._gate.acquire(timeout=-1 if limit is None else limit):
                message = f"the call did not finish within {limit} s; it continues"
                raise BackendError(message, kind="timeout", field="timeout")
            self._gate.release()
        self._outcome()
        return True

    def _wake(self):
        """Wakes the thread for this call, if it was not woken before."""
        if not self._has_begun:
            self._jobs.wakes.put(True)

    def get_future(self):
        if not self._is_over:
            self._jobs.entered.refuse()
            # Callbacks wait for futures, too. But a long chain of them, each of which starts the
            # next call, must not run within the first one.
            if _is_shallow():
                self._jobs.make_until(self)
            self._wake()
        # If Python sets an exception on a future, C++ sees it as a value, and the future as
        # successful. Only an exception that a callback raises is an error for both.
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


class _Entered:
    """The threads that make a call, or are about to. A signal handler that interrupts such a thread
    cannot make one: it would wait for its own thread. Nor can a fork, which has no other threads
    and whose locks nobody may release."""

    def __init__(self):
        self.threads = set()
        self.is_forked = False

    def __contains__(self, thread):
        return thread in self.threads

    def refuse_fork(self):
        """Raises in a fork of the process."""
        if self.is_forked:
            message = ("this process was forked from a rank of the group; make calls there, or "
                       "create a group after the fork")
            raise BackendError(message, kind="closed")

    def refuse(self):
        """Raises in a fork, and if the current thread is one of them."""
        self.refuse_fork()
        if threading.get_ident() in self.threads:
            message = ("this thread is in a call of the group: a signal handler can only shut the "
                       "group down, or abort it")
            raise BackendError(message, kind="usage", field="group")

    def __enter__(self):
        self.refuse()
        self.threads.add(threading.get_ident())

    def __exit__(self, *_):
        self.threads.discard(threading.get_ident())


class _Jobs:
    """State that a line shares with its thread, so that the thread does not keep the line alive."""

    def __init__(self):
        self.entered = _Entered()
        # Works that nobody has begun, and their lines, in order. Only who has the turn takes one.
        self.queued = collections.deque()
        # Held during a call.
        self.turn = threading.Lock()
        # Guards the number of unfinished works, and their order.
        self.lock = threading.Lock()
        self.n_unfinished = 0
        self.thread = None
        # Wakes the thread for queued works. None ends it.
        self.wakes = queue.SimpleQueue()
        # Whether the thread looks for works without being woken.
        self.is_looking = False
        # Time of the last queued work.
        self.last = 0.0
        # Number of calls that callers made since the thread made one.
        self.n_waited = 0

    def work(self):
        woken = True
        while woken is not None:
            try:
                woken = self.wakes.get(timeout=self.pause())
            except queue.Empty:
                pass
            try:
                while self.make_next():
                    self.n_waited = -_N_MADE
            except SystemExit:
                # A call has exited. It failed, and the thread goes on with the others.
                continue

    def pause(self):
        """Returns the seconds after which the thread looks for works without being woken, if it
        does."""
        with self.lock:
            # Nobody wakes the thread for a work that was queued after its last look.
            if self.queued:
                return 0
            is_recent = time.monotonic() - self.last < _LOOKING
            self.is_looking = is_recent and self.n_waited >= _N_WAITED
            return _LOOK if self.is_looking else None

    def queue(self, work, line):
        """Queues a work. If callers have made the last calls, this one will probably do so, too.
        Then the thread finds it when it looks next, because waking it would take time from this
        rank and, where cores are few, from others. The caller holds the lock."""
        self.queued.append((work, line))
        self.last = time.monotonic()
        if not self.is_looking or self.n_unfinished > 1:
            self.wakes.put(True)

    def make_next(self, only=None) -> bool:
        """Makes the next queued call, if there is one and it is ``only``, if given. Then completes
        its future: callbacks make calls. Returns whether it made one."""
        work = None
        try:
            with self.entered, self.turn:
                if self.queued and only in (None, self.queued[0][0]):
                    work, line = self.queued.popleft()
                    work._has_begun = True
                    self.run(work, line)
        finally:
            if work is not None:
                work._tell()
        return work is not None

    def make_until(self, work):
        """Makes all queued calls up to one, if the current thread is the one that makes them: a
        callback waits, and nobody else does."""
        if threading.current_thread() is not self.thread:
            return
        while not work._is_over and self.make_next():
            pass

    def run(self, work, line):
        try:
            work._run(line)
        finally:
            with self.lock:
                self.n_unfinished -= 1

    def end(self, interrupt):
        """Waits up to ``_PATIENCE`` for calls in progress, and then interrupts them. In a signal
        handler during a call of this thread, interrupts it at once."""
        self.wakes.put(None)
        if threading.get_ident() in self.entered:
            interrupt()
            return
        if self.thread in (None, threading.current_thread()):
            return
        self.thread.join(_PATIENCE)
        if self.thread.is_alive():
            interrupt()
            self.thread.join(_PATIENCE)


class Line:
    """Makes calls in the order of their submission.

    The caller makes a blocking call itself, if no other call is queued. A thread makes all other
    calls, as in torch's other process groups, unless a caller waits for the next call before the
    thread has begun it: then that caller makes it. Whoever makes a call runs the callbacks of its
    future, after the call: they may make calls, and wait for them. After an error that makes the
    communicator unusable, all later calls fail, with the same rank and field."""

    def __init__(self, interrupt):
        self.failure: Optional[Error] = None
        self._jobs = _Jobs()
        self.end = weakref.finalize(self, self._jobs.end, interrupt)
        # The exit handler of `finalize` runs too late, when other threads can no longer run.
        self.end.atexit = False
        _LINES.add(self)

    @property
    def is_idle(self) -> bool:
        """True if no call is running or queued."""
        return self._jobs.n_unfinished == 0

    def fail(self, failure: BaseException) -> None:
        """Makes all later calls fail, unless only the arguments of this call were invalid."""
        if self.failure is None and isinstance(failure, Error) and not failure.is_usage:
            self.failure = failure

    def refuse_fork(self) -> None:
        """Raises in a fork of the process."""
        self._jobs.entered.refuse_fork()

    def check(self) -> None:
        """Raises if a call has failed, and in a fork of the process."""
        self.refuse_fork()
        if self.failure is not None:
            raise again(self.failure)

    def start(self, call, result, is_async: bool = True) -> Work:
        """Makes or queues a call. ``result`` becomes the value of its future."""
        self.check()
        work, jobs = Work(call, result), self._jobs
        with jobs.entered:
            with jobs.lock:
                is_now = not is_async and jobs.n_unfinished == 0
                if not is_now and jobs.thread is None:
                    thread = threading.Thread(target=jobs.work, name="foldwire", daemon=True)
                    # The system may refuse to start one.
                    thread.start()
                    jobs.thread = thread
                jobs.n_unfinished += 1
                if is_now:
                    # Whoever still has the turn has finished.
                    jobs.turn.acquire()
                else:
                    work._gate = threading.Lock()
                    work._gate.acquire()
                    work._jobs = jobs
                    jobs.queue(work, self)
            if is_now:
                try:
                    jobs.run(work, self)
                finally:
                    jobs.turn.release()
        return work


_LINES = weakref.WeakSet()
_OF_COMMUNICATORS = weakref.WeakKeyDictionary()


@atexit.register
def _end_all():
    for line in list(_LINES):
        line.end()


def _leave_to_parent():
    """Leaves all lines to the process that this one was forked from."""
    global _FUTURES
    _FUTURES = threading.Lock()
    for line in list(_LINES):
        line._jobs.entered.is_forked = True
        line.end.detach()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def line_of(comm) -> Line:
    """Returns the queue of a communicator's calls."""
    line = _OF_COMMUNICATORS.get(comm)
    if line is None:
        line = _OF_COMMUNICATORS.setdefault(comm, Line(comm._native.interrupt))
    return line
