"""Nonblocking consensus: messages between ranks of which only the senders know who receives.

A rank that has handed over its messages enters a barrier, and goes on receiving until all ranks are there (Hoefler,
Siebert and Lumsdaine, "Scalable communication protocols for dynamic sparse data exchange", PPoPP 2010).
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np
from mpi4py import MPI

from ..base.counters import count


class Exchange:
    """The messages of one rank: each is a header with dtype and shape, and then the elements."""

    def __init__(self, comm: MPI.Intracomm, tags: tuple[int, int], to: Sequence[int], arrays: Sequence[np.ndarray]):
        self._comm, self._tags = comm, tags
        self.received: list[tuple[int, np.ndarray]] = []
        self._sends: list[MPI.Request] = []
        self._receives: list[MPI.Request] = []
        self._barrier: MPI.Request | None = None
        for rank, array in zip(to, arrays):
            if rank == comm.rank:
                self.received.append((rank, array.copy()))
                continue
            header = pickle.dumps((array.dtype, array.shape))
            # synchronous, so that they are complete only after their receiver has found them
            self._sends += [comm.Issend(header, rank, tags[0]), comm.Issend(_bytes_of(array), rank, tags[1])]
            count(array.nbytes)

    def advance(self) -> bool:
        """Receive what has arrived; return whether the exchange is complete."""
        status = MPI.Status()
        while message := self._comm.Improbe(MPI.ANY_SOURCE, self._tags[0], status):
            header = bytearray(status.Get_count(MPI.BYTE))
            message.Recv(header)
            dtype, shape = pickle.loads(header)
            array = np.empty(shape, dtype)
            self._receives.append(self._comm.Irecv(_bytes_of(array), status.source, self._tags[1]))
            self.received.append((status.source, array))
        if self._barrier is None and MPI.Request.Testall(self._sends):
            self._barrier = self._comm.Ibarrier()
        return self._barrier is not None and self._barrier.Test() and MPI.Request.Testall(self._receives)


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)
