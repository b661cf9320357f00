"""The worker of a parameter server: it pushes gradients, and pulls averages or parameters."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from mpi4py import MPI

import pycoll

from .server import CLOCKS, GRADIENT, HEADER, LEAVES, REPLY, UnderWay, Vectors, free_vectors

AHEAD = 1  # how many pushes may be unanswered when a step begins, if there is no bound


def share(size: int, parts: int, number: int) -> slice:
    """Return the slice of a vector that belongs to one of several servers."""
    return slice(size * number // parts, size * (number + 1) // parts)


class Link:
    """The link of a worker to all servers.

    Each server answers every push with the clocks of all workers, and with its range of the parameters or of the
    averaged gradients.  `bound` is the number of steps by which the updates of the slowest worker may be behind when a
    step begins; None means no bound.  `take` receives the whole vectors of an answer and returns vectors for the next
    one.  `wait` waits for requests; its second argument returns a description of the pending ones.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        servers: Sequence[int],
        workers: int,
        allocate: Callable[[], Vectors],
        take: Callable[[Vectors], Vectors],
        bound: int | None,
        wait: Callable[[list[MPI.Request], Callable[[], str]], object],
    ) -> None:
        self._comm, self._servers, self._bound = comm, servers, bound
        self._allocate, self._take, self._wait = allocate, take, wait
        self._incoming, self._arriving = allocate(), np.zeros((len(servers), workers), np.int64)
        self._clocks = self._arriving.copy()
        self._answer: list[MPI.Request] = []  # the receives of the next answer
        self._pushed: UnderWay = []
        self._due = 0  # answers to come
        self.step = 0

    @property
    def staleness(self) -> int:
        """The number of steps before this one whose updates from the slowest worker have not arrived."""
        return max(0, self.step - int(self._clocks.min()))

    def free_vectors(self) -> Vectors:
        """Return vectors that are not being sent."""
        return free_vectors(self._pushed) or self._allocate()

    def push(self, gradient: Vectors) -> None:
        """Start to send a gradient; it must not change until it has been sent."""
        requests = self._send_header(self.step)
        for number, vector in enumerate(gradient):
            for part, server in zip(self._parts(vector), self._servers):
                requests.append(pycoll.isend(part, server, GRADIENT + 2 * number, comm=self._comm))
        self._pushed.append((gradient, requests))
        self.step += 1
        self._due += 1
        self._expect()

    def pull(self) -> float:
        """Take the answers that have arrived, and wait until the bound is kept; return the seconds waited."""
        start, waited = time.perf_counter(), False
        while True:
            while self._answer and pycoll.testall(self._answer)[0]:
                self._take_answer()
            if self._due <= AHEAD if self._bound is None else self.staleness <= self._bound:
                return time.perf_counter() - start if waited else 0.0
            waited = True
            self._await_answer()

    def leave(self) -> None:
        """Tell the servers that no more pushes follow, and wait for all pending messages."""
        headers = self._send_header(LEAVES)
        while self._answer:
            self._await_answer()
            self._take_answer()
        for requests in (headers, *(requests for _, requests in self._pushed)):
            self._wait(requests, partial(self._state, requests, self.step, "receive its pushes"))
        self.step = 0
        self._clocks[:] = 0

    def _await_answer(self) -> None:
        step = self.step - self._due + 1
        self._wait(self._answer, partial(self._state, self._answer, step, "answer"))

    def _state(self, requests: list[MPI.Request], step: int, what: str) -> str:
        """Describe which servers this worker waits for; each group of requests has one request for each server."""
        pending = [self._servers[i % len(self._servers)] for i, one in enumerate(requests) if not one.Get_status()]
        ranks = ", ".join(f"rank {server} (server)" for server in dict.fromkeys(pending))
        return f"in step {step} it waits for {ranks} to {what}"

    def _send_header(self, header: int) -> list[MPI.Request]:
        message = np.array([header], np.int64)
        return [pycoll.isend(message, server, HEADER, comm=self._comm) for server in self._servers]

    def _expect(self) -> None:
        """Post the receives of the next answer, if one is due and none are posted."""
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
