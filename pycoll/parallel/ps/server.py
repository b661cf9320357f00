"""The server of a parameter server: it averages or applies the gradients that workers push, and answers them.

Both modes of serving are generators of the messages that they wait for.  So a rank can either only serve, or serve
while it waits as a worker.

References: Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS 2013
(synchronous and stale-synchronous); Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012 (asynchronous).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.trace import phase

from ...runtime.progress import until
from ..flat import Array, empty
from ..optimizers import Optimizer

HEADER, CLOCKS, GRADIENT, REPLY = range(1, 5)  # tags; the last two grow by 2 for each dtype
LEAVES = -1  # replaces the number of the step in the header of a worker that leaves
LEFT = np.iinfo(np.int64).max  # the clock of a worker that has left


class Awaited(NamedTuple):
    """A message that a server waits for."""

    request: MPI.Request
    status: MPI.Status
    state: str  # a description of the wait, for error messages


Waiting = Iterator[Awaited]
Vectors = list[Array]  # one for each dtype
UnderWay = list[tuple[Vectors, list[MPI.Request]]]  # vectors that are being sent, and their requests


class Server:
    """One server, with its range of the parameters.

    `values` are the parameters in its range, one vector for each dtype.  Without an `optimizer` they do not change, and
    workers get averaged gradients.  `workers` lists the ranks of each worker; the first rank pushes and pulls.
    `clocks` counts the steps of each worker whose gradients have been received.
    """

    def __init__(
        self, values: Vectors, workers: Sequence[list[int]], comm: MPI.Intracomm, optimizer: Optimizer | None
    ) -> None:
        self.values, self.optimizer = values, optimizer
        self._workers, self._comm = workers, comm
        self.clocks = np.zeros(len(workers), np.int64)
        self._header = np.empty(1, np.int64)
        self._arriving = self._allocate()
        self._under_way: UnderWay = []

    def _allocate(self) -> Vectors:
        return [empty(vector, len(vector)) for vector in self.values]

    def in_steps(self) -> Waiting:
        """Serve step by step: add up the gradients of all workers in their order, average, and send the result.

        The result does not depend on the order in which gradients arrive.
        """
        working, step = list(range(len(self._workers))), 0
        while working:
            total, ranks, step = self._free_vectors(), 0, step + 1
            for worker in list(working):
                leader = self._workers[worker][0]
                state = f"in step {step} it waits for rank {leader} (worker) to push"
                yield self._receive(self._header, leader, HEADER, state)
                if self._header[0] == LEAVES:
                    working.remove(worker)
                    self.clocks[worker] = LEFT
                    continue
                into = self._arriving if ranks else total
                yield from self._gradient(into, leader, state)
                if ranks:
                    _add(total, into)
                ranks += len(self._workers[worker])
            if working:
                self.clocks[working] += 1
                self._reply(working, self._applied(total, ranks))
        yield from self._last_replies()

    def at_once(self) -> Waiting:
        """Serve asynchronously: apply each gradient when it arrives, and answer with the parameters."""
        numbers = {ranks[0]: number for number, ranks in enumerate(self._workers)}
        working, pushes = set(numbers.values()), 0
        while working:
            leaders = " or ".join(str(self._workers[worker][0]) for worker in sorted(working))
            awaited = self._receive(
                self._header,
                MPI.ANY_SOURCE,
                HEADER,
                f"after {pushes} pushes it waits for the next push, from rank {leaders} (worker)",
            )
            yield awaited
            source = awaited.status.source
            worker = numbers[source]
            if self._header[0] == LEAVES:
                working.remove(worker)
                self.clocks[worker] = LEFT
                continue
            yield from self._gradient(self._arriving, source, f"it waits for rank {source} (worker) to finish its push")
            self.clocks[worker] += 1
            pushes += 1
            self._reply([worker], self._applied(self._arriving, len(self._workers[worker])))
        yield from self._last_replies()

    def _receive(self, into: Array, source: int, tag: int, state: str) -> Awaited:
        return Awaited(pycoll.irecv(into, source, tag, comm=self._comm), MPI.Status(), state)

    def _gradient(self, into: Vectors, source: int, state: str) -> Waiting:
        for number, vector in enumerate(into):
            yield self._receive(vector, source, GRADIENT + 2 * number, state)

    @phase("apply")
    def _applied(self, gradient: Vectors, ranks: int) -> Vectors:
        """Average a sum of gradients over `ranks` ranks and apply it; return the vectors to send to the workers."""
        for vector in gradient:
            vector /= ranks
        if not self.optimizer:
            return gradient
        self.optimizer.step(keyed(gradient))
        copies = self._free_vectors()
        for to, value in zip(copies, self.values):
            np.copyto(to, value)
        return copies

    def _free_vectors(self) -> Vectors:
        return free_vectors(self._under_way) or self._allocate()

    def _reply(self, workers: list[int], vectors: Vectors) -> None:
        clocks = self.clocks.copy()
        requests = []
        for worker in workers:
            leader = self._workers[worker][0]
            requests.append(pycoll.isend(clocks, leader, CLOCKS, comm=self._comm))
            for number, vector in enumerate(vectors):
                requests.append(pycoll.isend(vector, leader, REPLY + 2 * number, comm=self._comm))
        self._under_way.append(([*vectors], requests))

    def _last_replies(self) -> Waiting:
        for _, requests in self._under_way:
            for request in requests:
                yield Awaited(request, MPI.Status(), "after the last step it waits for workers to receive its answer")
        self._under_way.clear()
        self.clocks[:] = 0


def free_vectors(under_way: UnderWay) -> Vectors | None:
    """Return vectors that have been sent and may be used again, or None."""
    for number, (vectors, requests) in enumerate(under_way):
        if pycoll.testall(requests)[0]:
            del under_way[number]
            return vectors
    return None


def keyed(vectors: Vectors) -> dict[str, Array]:
    """Return the vectors by the names of their dtypes."""
    return {str(vector.dtype): vector for vector in vectors}


def _add(total: Vectors, more: Vectors) -> None:
    for to, vector in zip(total, more):
        to += vector


class Serving:
    """Runs a server: `poll` advances it without waiting, `run` serves until the last worker has left."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._awaited: Awaited | None = None
        self._begun = False

    @property
    def state(self) -> str:
        """A description of the message that the server waits for, or an empty string."""
        return self._awaited.state if self._awaited else ""

    def poll(self) -> bool:
        """Advance as far as possible without waiting; return whether the last worker has left."""
        self._begin()
        while self._awaited and self._awaited.request.Test(self._awaited.status):
            self._awaited = next(self._waiting, None)
        return self._awaited is None

    def _begin(self) -> None:
        """Post the first receive at the first call, so that none is pending if there is no call."""
        if not self._begun:
            self._awaited, self._begun = next(self._waiting, None), True

    def run(self, call: str) -> None:
        """Serve until the last worker has left; CollectiveTimeout names `call`."""
        self._begin()
        while self._awaited:
            until(partial(self._awaited.request.Test, self._awaited.status), call, lambda: self.state)
            self._awaited = next(self._waiting, None)
