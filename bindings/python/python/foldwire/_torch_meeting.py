"""How ranks of torch's process groups reach each other."""

import itertools
import os
import uuid
from typing import Optional

import torch.distributed as dist

from ._join import choose_address, own_address, own_host
from ._torch_line import BackendError

__all__ = ["Meeting", "choose_network", "gloo", "names_by_store"]


class Meeting:
    """A store that other ranks can reach, and its address.

    ``handle`` names the host, the port and this store. Ranks exchange their handles by means of
    their own.
    """

    def __init__(self):
        host = own_address()
        self._store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
        self.handle = f"foldwire/{host}/{self._store.port}/{uuid.uuid4().hex}"

    def of(self, handles, meeting: int, limit):
        """Returns this rank, the number of ranks, and a store of the ranks with these handles. The
        order of a list is that of ranks; a set is sorted."""
        handles = list(handles) if isinstance(handles, (list, tuple)) else sorted(handles)
        if self.handle not in handles or len(set(handles)) != len(handles):
            message = "handles must have this rank's handle, and each handle once"
            raise BackendError(message, kind="usage", field="handles")
        rank, store = handles.index(self.handle), self._store
        if rank > 0:
            try:
                _, host, port, _ = handles[0].split("/")
                store = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False,
                                      timeout=limit)
            except (ValueError, RuntimeError) as failure:
                message = f"rank 0 does not answer at {handles[0]}: {failure}"
                raise BackendError(message, kind="peer_lost", rank=0) from failure
        store = dist.PrefixStore(f"{meeting}", store)
        store.set_timeout(limit)
        return rank, len(handles), store


def choose_network(store, names_of_hosts) -> None:
    """Lets ranks on several hosts listen on the way to torch's `MASTER_ADDR`, or else to the host
    of the store, unless the environment names an address or an interface.

    ``names_of_hosts`` exchanges the hosts' names: all ranks take part, whatever launched them. It
    takes this host's name and returns those of all ranks, at least each once.
    """
    hosts = names_of_hosts(own_host())
    choose_address(hosts, os.environ.get("MASTER_ADDR") or _host_of(store), names_of_hosts)


def gloo(store, rank: int, size: int, timeout):
    """Returns a group of gloo, on Foldwire's network if the environment names none for gloo.

    By itself, gloo listens on the address of this host's name, which other hosts may not reach.
    """
    kind = dist.ProcessGroupGloo
    address, interface = (os.environ.get(f"FOLDWIRE_{name}", "") for name in ("ADDRESS", "IFACE"))
    if os.environ.get("GLOO_SOCKET_IFNAME") or not (address or interface):
        return kind(store, rank, size, timeout)
    options = kind._Options()
    options._devices = [kind.create_device(hostname=address) if address
                        else kind.create_device(interface=interface)]
    options._timeout, options._threads = timeout, 2
    return kind(store, rank, size, options)


def names_by_store(store, rank: int, size: int):
    """Returns a function that exchanges names in a store. Rank 0 reads all of them, and the others
    read what it has found."""
    rounds = itertools.count()

    def exchanged(name):
        key = f"foldwire/names/{next(rounds)}"
        store.set(f"{key}/{rank}", name)
        if rank == 0:
            names = {bytes(store.get(f"{key}/{each}")) for each in range(size)}
            store.set(key, b"\n".join(sorted(names)))
        return bytes(store.get(key)).decode().split("\n")

    return exchanged


def _host_of(store) -> Optional[str]:
    """Returns the host of a store of torch, or None if it has none."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return getattr(store, "host", None)
