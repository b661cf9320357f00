"""The roles of ranks in a parameter server: servers, and workers of one or several ranks."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

import pycoll

from ...base.mpi import ranks_of_host


class Roles:
    """The ranks of the servers and of each worker, and the role of this rank.

    `servers` lists the ranks that serve; `server` is the index of this rank in it, or None.  `workers` lists the ranks
    of each worker; the first rank pushes and pulls for the others.  `works` is true if this rank belongs to a worker.
    `group` is the communicator of its worker.
    """

    def __init__(self, comm: MPI.Comm, servers: int, colocated: bool, ranks_per_worker: int | str) -> None:
        working = comm.size if colocated else comm.size - servers
        if servers < 1 or working < 1:
            raise ValueError(f"servers={servers} leaves {max(working, 0)} of {comm.size} ranks for workers")
        if ranks_per_worker != "host" and not (
            isinstance(ranks_per_worker, int | np.integer) and ranks_per_worker >= 1
        ):
            raise ValueError(f"ranks_per_worker={ranks_per_worker!r} is neither a positive number nor 'host'")
        self.works = comm.rank < working
        first = comm.rank  # the first rank of the worker that this rank belongs to
        if ranks_per_worker == "host":
            first = ranks_of_host(comm)[0]
        elif self.works:
            first = comm.rank - comm.rank % int(ranks_per_worker)
        firsts = pycoll.allgather(np.array([first]), comm=comm).reshape(-1)[:working]
        self.workers = [np.flatnonzero(firsts == first).tolist() for first in dict.fromkeys(firsts.tolist())]
        self.servers = [ranks[0] for ranks in self.workers[:servers]] if colocated else [*range(working, comm.size)]
        if len(self.servers) < servers:
            raise ValueError(f"servers={servers}: there are only {len(self.workers)} workers that can serve as well")
        self.server = self.servers.index(comm.rank) if comm.rank in self.servers else None
        self.group = MPI.Intracomm(comm.Split(first if self.works else comm.rank, comm.rank))
        pycoll.attach(self.group)

    @property
    def leads(self) -> bool:
        """Whether this rank pushes and pulls for its worker."""
        return self.works and self.group.rank == 0
