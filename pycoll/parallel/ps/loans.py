"""Loans: a worker lends vectors in registered memory to a server, instead of sending them.

A worker that pushes sends the positions of its vectors.  Until the server answers, the vectors belong to the server: it
reads the gradient there, and writes its answer over it.  So the two ranks exchange only the short messages
that say "pushed" and "answered"; these order the loads and stores as well, see `pycoll.runtime.registered_calls`.

Vectors that a server cannot see have the position -1.  They are sent as messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mpi4py import MPI

import pycoll

from ...arguments.memory import address, array_at
from ..flat import Array

Vectors = list[Array]  # one for each dtype


class Loans:
    """Translates between vectors and their positions in the registered memory of a communicator.

    `servers` are the ranks that this rank lends its vectors to.  It lends them only if all servers are on this host.
    """

    def __init__(self, comm: MPI.Comm, servers: Sequence[int] = ()) -> None:
        self._registered = pycoll.attach(comm).registered
        self._near = set(servers) <= set(self._registered.here)

    def positions(self, vectors: Iterable[Array]) -> list[int]:
        """The positions of vectors of this rank; -1 for those that a server cannot see."""
        return [self._registered.code(address(one), one.nbytes) if self._near else -1 for one in vectors]

    def lends(self, vectors: Vectors) -> bool:
        """Whether the servers can see all of these vectors."""
        return min(self.positions(vectors)) >= 0

    def borrowed(self, rank: int, positions: Iterable[int], like: Vectors) -> Vectors | None:
        """The vectors of another rank at these positions, or None if this rank cannot see all of them."""
        offsets = [int(position) for position in positions]
        if min(offsets) < 0:
            return None
        lender = self._registered.here.index(rank)
        starts = [self._registered.address(lender, offset) for offset in offsets]
        return [array_at(start, one.nbytes, one.dtype) for start, one in zip(starts, like)]
