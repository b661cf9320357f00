"""The worker's side of a parameter server: push gradients, pull what the servers make of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from mpi4py import MPI

import pycoll

from .server import CLOCKS, GRADIENT, HEADER, LEAVES, REPLY, UnderWay, Vectors, free_room

AHEAD = 1  # pushes that may be without an answer when a worker that is not bound begins a step


def share(size: int, parts: int, number: int) -> slice:
    """Which elements of a vector belong to one of several servers."""
    return slice(size * number // parts, size * (number + 1) // parts)


class Link:
    """A worker's link to all servers.

    Every push has one answer from each server: the clocks of all workers, and the server's range of the parameters or
    of the averaged gradients.  `bound` is how many steps the slowest worker's updates may be behind when a step begins;
    None if that does not matter.  `take` gets the whole vectors of an answer, and returns some to receive the next in.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        servers: Sequence[int],
        workers: int,
        room: Callable[[], Vectors],
        take: Callable[[Vectors], Vectors],
        bound: int | None,
        wait: Callable[[list[MPI.Request]], object],
    ) -> None:
        self._comm, self._servers, self._bound = comm, servers, bound
        self._room, self._take, self._wait = room, take, wait
        self._incoming, self._arriving = room(), np.zeros((len(servers), workers), np.int64)
        self._clocks = self._arriving.copy()
        self._answer: list[MPI.Request] = []  # the one that is awaited
        self._pushed: UnderWay = []
        self._due = 0  # answers to come, with the one that is awaited
        self.step = 0

    @property
    def staleness(self) -> int:
        """How many steps the updates of the slowest worker are behind those of all steps before this one."""
        return max(0, self.step - int(self._clocks.min()))

    def free_room(self) -> Vectors:
        """Vectors that are not being sent."""
        return free_room(self._pushed) or self._room()

    def push(self, gradient: Vectors) -> None:
        """Start to send a gradient, which must stay as it is."""
        requests = self._tell(self.step)
        for number, vector in enumerate(gradient):
            for part, server in zip(self._parts(vector), self._servers):
                requests.append(pycoll.isend(part, server, GRADIENT + 2 * number, comm=self._comm))
        self._pushed.append((gradient, requests))
        self.step += 1
        self._due += 1
        self._expect()

    def pull(self) -> float:
        """Take the answers that have come, waiting as far as the bound asks; the seconds waited."""
        start, waited = time.perf_counter(), False
        while True:
            while self._answer and pycoll.testall(self._answer)[0]:
                self._take_answer()
            if self._due <= AHEAD if self._bound is None else self.staleness <= self._bound:
                return time.perf_counter() - start if waited else 0.0
            waited = True
            self._wait(self._answer)

    def leave(self) -> None:
        """Tell the servers that no more will come, and wait for what is under way."""
        told = self._tell(LEAVES)
        while self._answer:
            self._wait(self._answer)
            self._take_answer()
        self._wait(told)
        for _, requests in self._pushed:
            self._wait(requests)
        self.step = 0
        self._clocks[:] = 0

    def _tell(self, header: int) -> list[MPI.Request]:
        message = np.array([header], np.int64)
        return [pycoll.isend(message, server, HEADER, comm=self._comm) for server in self._servers]

    def _expect(self) -> None:
        """Get ready for the next answer, if one is due and none is awaited."""
        if self._answer or not self._due:
            return
        for clocks, server in zip(self._arriving, self._servers):
            self._answer.append(pycoll.irecv(clocks, server, CLOCKS, comm=self._comm))
        for number, vector in enumerate(self._incoming):
            for part, server in zip(self._parts(vector), self._servers):
                self._answer.append(pycoll.irecv(part, server, REPLY + 2 * number, comm=self._comm))

    def _take_answer(self) -> None:
        self._answer = []
        self._due -= 1
        self._clocks[:] = self._arriving
        self._incoming = self._take(self._incoming)
        self._expect()

    def _parts(self, vector: np.ndarray) -> list[np.ndarray]:
        return [vector[share(len(vector), len(self._servers), number)] for number in range(len(self._servers))]
