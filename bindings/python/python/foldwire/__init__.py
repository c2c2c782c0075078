"""Collective communication of numpy arrays, with compressed messages.

>>> import foldwire, numpy as np
>>> def program(comm):
...     return comm.all_reduce(np.full(1000, comm.rank + 0.5), bound="abs:1e-3")[0]
>>> [round(float(sum), 2) for sum in foldwire.run(4, program)]
[8.0, 8.0, 8.0, 8.0]

Results are exact unless a call has an error bound. In ``foldwire.run`` ranks are threads;
``foldwire.threads`` returns only their communicators, for threads that you start. With
``foldwire.init`` ranks are processes that communicate over TCP. ``foldwire.numcodecs``,
``foldwire.torch``, ``foldwire.zarr`` and ``foldwire.ray`` are modules that need the packages of
these names.
"""

import logging

from . import _native
from ._codec import Info, compress, decompress, info
from ._communicator import Communicator, Request
from ._errors import Error
from ._join import from_mpi, init, join, rejoin, unique_id
from ._run import run, threads
from ._store import FileStore, MemoryStore, TcpStore

# Programs choose handlers; joins and shrinks are logged under this name.
logging.getLogger("foldwire").addHandler(logging.NullHandler())

__version__ = _native.VERSION
__all__ = [
    "Communicator",
    "Error",
    "FileStore",
    "Info",
    "MemoryStore",
    "Request",
    "TcpStore",
    "compress",
    "decompress",
    "from_mpi",
    "info",
    "init",
    "join",
    "rejoin",
    "run",
    "threads",
    "unique_id",
]
