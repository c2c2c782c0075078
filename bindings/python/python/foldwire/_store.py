"""Stores in which processes meet, and the adapter for stores of other libraries."""

from __future__ import annotations

import datetime
import os
import time
from typing import Optional

from . import _native
from ._errors import Error

__all__ = ["FileStore", "MemoryStore", "TcpStore"]

_PAUSE = 0.01


class _Store:
    """A store of bytes by key. No store has a thread of its own. Threads may share one: a wait
    keeps no other thread out, and Ctrl-C ends it."""

    def __init__(self, native):
        self._native = native
        self.is_hosted_here: bool = native.is_hosted_here()

    def set(self, key: str, value: bytes) -> None:
        """Sets the value of a key: letters, digits and ``. - _ /``."""
        self._native.set(key, value)

    def get(self, key: str) -> Optional[bytes]:
        """Returns the value of a key, or None if it was not set."""
        return self._native.get(key)

    def wait(self, key: str, seconds: float) -> Optional[bytes]:
        """Waits until a key is set, and returns its value; None after ``seconds``."""
        return self._native.wait(key, seconds)

    def progress(self) -> None:
        """Serves other processes, without waiting, if this process hosts the store."""
        self._native.progress()


class MemoryStore(_Store):
    """A store in this process, for ranks that are threads."""

    def __init__(self):
        super().__init__(_native.Store.memory())

    def __repr__(self):
        return "<foldwire.MemoryStore>"


class FileStore(_Store):
    """A store in a folder that all processes see.

    Values stay when a job ends. So use a new folder, or another job name, for each job.
    """

    def __init__(self, folder):
        self.folder = os.fspath(folder)
        super().__init__(_native.Store.file(self.folder))

    def __repr__(self):
        return f"<foldwire.FileStore: {self.folder!r}>"


class TcpStore(_Store):
    """A store in one process, which others reach at ``"HOST:PORT"``.

    :param hosts: True in the process that hosts the store. It serves the others during its own
        calls of the store and in :meth:`progress`, and must not end while others need the store
    :param token: secret that all processes know; the default is ``FOLDWIRE_TOKEN``. Without one,
        the store is for processes of one machine
    :param limit: longest wait for an answer of the host, in seconds
    """

    def __init__(self, address: str, *, hosts: bool = False, token: Optional[str] = None,
                 limit: float = 60.0):
        token = os.environ.get("FOLDWIRE_TOKEN") if token is None else token
        super().__init__(_native.Store.tcp(address, bool(hosts), token, limit))
        self.address = address

    def __repr__(self):
        place = "hosted here at" if self.is_hosted_here else "at"
        return f"<foldwire.TcpStore: {place} {self.address!r}>"


class _TorchStore:
    """torch's stores (``torch.distributed.Store``): their ``get`` blocks, and ``wait`` raises."""

    def __init__(self, store):
        self._store = store

    def set(self, key, value):
        # A store of torch may return values only as text.
        self._store.set(key, value.hex())

    def get(self, key):
        if not self._store.check([key]):
            return None
        return bytes.fromhex(bytes(self._store.get(key)).decode())

    def wait(self, key, seconds):
        try:
            self._store.wait([key], datetime.timedelta(seconds=max(seconds, 0.001)))
        except Exception:
            # torch's own error has no type of its own for a time limit. If the store itself is
            # gone, `check` raises.
            if not self._store.check([key]):
                return None
        return self.get(key)


class _ObjectStore:
    """An object with ``set(key, value)`` and ``get(key)``, and perhaps ``wait(key, seconds)``."""

    def __init__(self, store):
        self._store = store
        self._waits = callable(getattr(store, "wait", None))
        self.is_hosted_here = bool(getattr(store, "is_hosted_here", False))
        if callable(getattr(store, "progress", None)):
            self.progress = store.progress

    def set(self, key, value):
        self._store.set(key, value)

    def get(self, key):
        try:
            value = self._store.get(key)
        except KeyError:
            return None
        if value is not None and not isinstance(value, (bytes, bytearray, memoryview)):
            kind = type(value).__name__
            raise Error(f"store.get() returned {kind}; it must return bytes, or None",
                        field="store")
        return None if value is None else bytes(value)

    def wait(self, key, seconds):
        if self._waits:
            self._store.wait(key, seconds)
            return self.get(key)
        end = time.monotonic() + seconds
        while True:
            value = self.get(key)
            if value is not None or time.monotonic() >= end:
                return value
            time.sleep(_PAUSE)


def as_store(store):
    """Returns an object whose ``get`` and ``wait`` return bytes or None."""
    if isinstance(store, _Store):
        return store
    if all(callable(getattr(store, name, None)) for name in ("set", "get", "wait", "check")):
        return _TorchStore(store)
    if all(callable(getattr(store, name, None)) for name in ("set", "get")):
        return _ObjectStore(store)
    message = (f"store must have the methods set(key, value), get(key) and wait(key, seconds); "
               f"{type(store).__name__} has not")
    raise Error(message, field="store")
