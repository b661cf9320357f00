"""Where the ranks of a job meet: the store of torch.distributed, with ranks and addresses from MPI.

Nothing here imports MPI before a process group is initialized.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlparse

import psutil
import torch.distributed
from torch.distributed.constants import default_pg_timeout
from torch.distributed.rendezvous import _rendezvous_handlers

from ..base.launcher import NAMES, launched_ranks
from .children import check_rank, is_child

if TYPE_CHECKING:
    from mpi4py import MPI

CONNECT_SECONDS = 5.0  # how long a rank tries one address of rank 0

MARK = "SET_BY_PYCOLL"  # the variables that this module has set, also in the process that started this one

_set = dict(each.split("=", 1) for each in os.environ.get(MARK, "").split())


def register() -> None:
    """Register the scheme ``mpi://``, let ``env://`` ask MPI, and set the ranks that the launcher knows."""
    torch.distributed.register_rendezvous_handler("mpi", _meet)
    of_torch = _rendezvous_handlers["env"]

    def env(url: str, timeout: timedelta = default_pg_timeout, **given: Any) -> Iterator[tuple[Any, int, int]]:
        if _asks_mpi():
            _set_from_mpi(url)
        yield from of_torch(url, timeout=timeout, **given)

    _rendezvous_handlers["env"] = env
    if _asks_mpi():
        _set_variables(launched_ranks(os.environ) or dict(zip(NAMES, "0101")))


def _asks_mpi() -> bool:
    """Whether variables come from MPI: torchrun starts each process as an MPI job, and children are no ranks."""
    return "TORCHELASTIC_RUN_ID" not in os.environ and not is_child()


def _set_variables(found: dict[str, str]) -> None:
    """Set variables, unless the user did."""
    for name, value in found.items():
        if os.environ.get(name) == _set.get(name):
            os.environ[name] = _set[name] = value
    os.environ[MARK] = " ".join(f"{name}={value}" for name, value in _set.items())


def _set_from_mpi(url: str) -> None:
    """Set the variables that ``env://`` reads, unless the user did.  Collective over COMM_WORLD.

    Each initialization needs a port of its own: a rank may initialize again while others still use the first store.
    """
    if all(os.environ.get(name) != _set.get(name) for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")):
        return
    world, here = _world()
    size = parse_qs(urlparse(url).query).get("world_size", [str(world.size)])[0]
    if int(size) != world.size:
        raise RuntimeError(f"the process group has {size} ranks, and MPI {world.size}: set MASTER_ADDR and MASTER_PORT")
    address, port = _meeting_point(world, here)
    numbers = dict(zip(NAMES, map(str, (world.rank, world.size, here.index(world.rank), len(here)))))
    _set_variables({"MASTER_ADDR": address, "MASTER_PORT": str(port), **numbers})


def _meet(url: str, timeout: timedelta = default_pg_timeout, **_: Any) -> Iterator[tuple[Any, int, int]]:
    """Yield the store, the rank and the number of ranks for ``mpi://``.  Collective over COMM_WORLD."""
    check_rank()
    world, here = _world()
    address, port = _meeting_point(world, here)
    yield torch.distributed.TCPStore(address, port, world.size, world.rank == 0, timeout), world.rank, world.size
    raise RuntimeError("mpi:// cannot change the number of ranks")


def _world() -> tuple[MPI.Intracomm, list[int]]:
    """COMM_WORLD, and its ranks on the host of this rank."""
    from ..base.mpi import MPI, ranks_of_host

    return MPI.COMM_WORLD, ranks_of_host(MPI.COMM_WORLD)


def _meeting_point(comm: MPI.Intracomm, here: list[int]) -> tuple[str, int]:
    """Return an address of rank 0 that this rank can reach, and a port that is free there.  Collective over `comm`.

    `here` are the ranks on the host of this rank.
    """
    one_host = len(here) == comm.size  # on all ranks, or on none
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", 0))
        if not one_host:
            listener.listen(comm.size)
        offered = listener.getsockname()[1], ["127.0.0.1"] if one_host else _addresses()
        port, addresses = comm.bcast(offered)
        address = addresses[0] if one_host or comm.rank == 0 else _reachable(addresses, port)
        comm.Barrier()  # rank 0 listens until all have tried
    comm.Barrier()  # and they connect to its store, not to this socket
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
