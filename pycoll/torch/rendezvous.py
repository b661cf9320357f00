"""Where the ranks of a job meet: the store of torch.distributed, with ranks and addresses from MPI."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psutil
import torch.distributed
from mpi4py import MPI
from torch.distributed.constants import default_pg_timeout

from ..base.mpi import ranks_of_host
from .children import check_rank, is_child

CONNECT_SECONDS = 5.0  # how long a rank tries one address of rank 0


_set: dict[str, str] = {}  # the variables that this module has set


def register() -> None:
    """Register the scheme ``mpi://``, and set the variables that ``env://`` reads, where they are not set."""
    torch.distributed.register_rendezvous_handler("mpi", _meet)
    if "TORCHELASTIC_RUN_ID" not in os.environ and not is_child():  # torchrun starts each process as an MPI job
        set_variables()


def set_variables() -> None:
    """Set the variables that ``env://`` reads, unless the user did.  Collective over COMM_WORLD.

    Each initialization needs a port of its own: a rank may initialize again while others still use the first store.
    """
    world = MPI.COMM_WORLD
    here = ranks_of_host(world)
    address, port = _meeting_point(world, here)
    given = {"MASTER_ADDR": address, "MASTER_PORT": port, "RANK": world.rank, "WORLD_SIZE": world.size}
    for name, value in {**given, "LOCAL_RANK": here.index(world.rank), "LOCAL_WORLD_SIZE": len(here)}.items():
        if os.environ.get(name) == _set.get(name):
            os.environ[name] = _set[name] = str(value)


def _meet(url: str, timeout: timedelta = default_pg_timeout, **_: Any) -> Iterator[tuple[Any, int, int]]:
    """Yield the store, the rank and the number of ranks for ``mpi://``.  Collective over COMM_WORLD."""
    check_rank()
    world = MPI.COMM_WORLD
    address, port = _meeting_point(world, ranks_of_host(world))
    yield torch.distributed.TCPStore(address, port, world.size, world.rank == 0, timeout), world.rank, world.size
    raise RuntimeError("mpi:// cannot change the number of ranks")


def _meeting_point(comm: MPI.Intracomm, here: list[int]) -> tuple[str, int]:
    """Return an address of rank 0 that this rank can reach, and a port that is free there.  Collective over `comm`.

    `here` are the ranks on the host of this rank.
    """
    one_host = len(here) == comm.size  # on all ranks, or on none
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", 0))
        listener.listen(comm.size)
        offered = listener.getsockname()[1], ["127.0.0.1"] if one_host else _addresses()
        port, addresses = comm.bcast(offered)
        address = addresses[0] if one_host or comm.rank == 0 else _reachable(addresses, port)
        comm.Barrier()  # rank 0 listens until all have tried
    return address, port


def _addresses() -> list[str]:
    """The IPv4 addresses of this host that other hosts may reach."""
    interfaces = psutil.net_if_addrs().values()
    found = [each.address for addresses in interfaces for each in addresses if each.family == socket.AF_INET]
    return [address for address in found if not address.startswith("127.")]


def _reachable(addresses: list[str], port: int) -> str:
    """Return the first address that accepts a connection."""
    for address in addresses:
        try:
            socket.create_connection((address, port), CONNECT_SECONDS).close()
        except OSError:
            continue
        return address
    raise RuntimeError(f"no address of rank 0 can be reached: {', '.join(addresses) or 'it has none'}; set MASTER_ADDR")
