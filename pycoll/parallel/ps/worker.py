"""The worker of a parameter server: it pushes gradients, and pulls averages or parameters."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

import pycoll

from ..driver import pending
from .loans import Loans, Vectors
from .server import CLOCKS, GRADIENT, HEADER, LEAVES, REPLY

AHEAD = 1  # how many pushes may be unanswered when a step begins, if there is no bound
MOST_LENT = 4  # the most pushes whose vectors are lent at a time; memory for them is allocated in advance


def share(size: int, parts: int, number: int) -> slice:
    """Return the slice of a vector that belongs to one of several servers."""
    return slice(size * number // parts, size * (number + 1) // parts)


class Push(NamedTuple):
    """A push without an answer.  The servers write the answer to its vectors if these are lent."""

    vectors: Vectors
    lent: bool
    requests: list[MPI.Request]


class ServerLink:
    """The link of a worker to all servers.

    Each server answers every push with the clocks of all workers, and with its range of the parameters or of the
    averaged gradients.  `bound` is the number of steps by which the updates of the slowest worker may be behind when a
    step begins; None means no bound.  `spare` are vectors for gradients and answers; `allocate` returns more of them.
    `take` receives the whole vectors of an answer and returns others in exchange.  `wait` waits for requests; its
    second argument returns a description of the pending ones.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        servers: Sequence[int],
        workers: int,
        spare: list[Vectors],
        allocate: Callable[[], Vectors],
        take: Callable[[Vectors], Vectors],
        bound: int | None,
        wait: Callable[[list[MPI.Request], Callable[[], str]], object],
    ) -> None:
        self._comm, self._servers, self._bound = comm, servers, bound
        self._allocate, self._take, self._wait = allocate, take, wait
        self._loans, self._spare = Loans(comm, servers), spare
        self._incoming: Vectors = []
        self._arriving = np.zeros((len(servers), workers), np.int64)
        self._clocks = self._arriving.copy()
        self._answer: list[MPI.Request] = []  # the receives of the next answer
        self._pushed: deque[Push] = deque()
        self.step = 0

    @property
    def in_step(self) -> bool:
        """Whether no step begins before the updates of all workers in the last one have arrived."""
        return self._bound == 0

    @property
    def staleness(self) -> int:
        """The number of steps before this one whose updates from the slowest worker have not arrived."""
        return max(0, self.step - int(self._clocks.min()))

    @property
    def gradient(self) -> Vectors:
        """The vectors that the next push sends."""
        if not self._spare:
            self._spare.append(self._allocate())
        return self._spare[-1]

    def push(self) -> None:
        """Start to send the vectors of `gradient`; they must not change until they are answered."""
        vectors = self.gradient
        self._spare.pop()
        lent = self._loans.lends(vectors)
        requests = self._send_headers(self.step, vectors)
        for number, vector in enumerate(() if lent else vectors):
            for part, server in zip(self._parts(vector), self._servers):
                requests.append(pycoll.isend(part, server, GRADIENT + 2 * number, comm=self._comm))
        self._pushed.append(Push(vectors, lent, requests))
        self.step += 1
        self._expect()

    def pull(self) -> float:
        """Take the answers that have arrived, and wait until the bound is kept; return the seconds waited."""
        start, waited = time.perf_counter(), False
        while True:
            while self._answer and pycoll.testall(self._answer)[0]:
                self._take_answer()
            if len(self._pushed) <= AHEAD if self._bound is None else self.staleness <= self._bound:
                return time.perf_counter() - start if waited else 0.0
            waited = True
            self._await_answer()

    def leave(self) -> None:
        """Tell the servers that no more pushes follow, and wait for all pending messages."""
        headers = self._send_headers(LEAVES, self.gradient)
        while self._answer:
            self._await_answer()
            self._take_answer()
        self._await_sent(headers)
        self.step = 0
        self._clocks[:] = 0

    def _await_answer(self) -> None:
        step = self.step - len(self._pushed) + 1
        self._wait(self._answer, partial(self._state, self._answer, step, "answer"))

    def _await_sent(self, requests: list[MPI.Request]) -> None:
        self._wait(requests, partial(self._state, requests, self.step, "receive its pushes"))

    def _state(self, requests: list[MPI.Request], step: int, what: str) -> str:
        """Describe which servers this worker waits for; each group of requests has one request for each server."""
        pending = [self._servers[i % len(self._servers)] for i, one in enumerate(requests) if not one.Get_status()]
        ranks = ", ".join(f"rank {server} (server)" for server in dict.fromkeys(pending))
        return f"in step {step} it waits for {ranks} to {what}"

    def _send_headers(self, step: int, vectors: Vectors) -> list[MPI.Request]:
        requests = []
        for server, *parts in zip(self._servers, *map(self._parts, vectors)):
            header = np.array([step, *self._loans.positions(parts)], np.int64)
            requests.append(pycoll.isend(header, server, HEADER, comm=self._comm))
        return requests

    def _expect(self) -> None:
        """Post the receives of the next answer, if one is due and none are posted."""
        if self._answer or not self._pushed:
            return
        pending.add(self)
        for clocks, server in zip(self._arriving, self._servers):
            self._answer.append(pycoll.irecv(clocks, server, CLOCKS, comm=self._comm))
        if self._pushed[0].lent:
            self._incoming = self._pushed[0].vectors
            return
        self._incoming = self._spare.pop(0) if self._spare else self._allocate()
        for number, vector in enumerate(self._incoming):
            for part, server in zip(self._parts(vector), self._servers):
                self._answer.append(pycoll.irecv(part, server, REPLY + 2 * number, comm=self._comm))

    def _take_answer(self) -> None:
        self._answer = []
        pending.discard(self)
        push = self._pushed.popleft()
        self._await_sent(push.requests)  # does not wait long: all servers have received the push
        self._clocks[:] = self._arriving
        self._give_back(self._take(self._incoming))
        if not push.lent:
            self._give_back(push.vectors)
        self._expect()

    def _give_back(self, vectors: Vectors) -> None:
        """Keep vectors for later; those that can be lent are used first for gradients."""
        self._spare.insert(len(self._spare) if self._loans.lends(vectors) else 0, vectors)

    def _parts(self, vector: np.ndarray) -> list[np.ndarray]:
        return [vector[share(len(vector), len(self._servers), number)] for number in range(len(self._servers))]
