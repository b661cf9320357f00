"""The server of a parameter server: it averages or applies the gradients that workers push, and answers them.

Both modes of serving are generators of the messages that they wait for.  So a rank can either only serve, or serve
while it waits as a worker.

References: Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS 2013
(synchronous and stale-synchronous); Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012 (asynchronous).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.trace import phase

from ...runtime.progress import until
from ..driver import pending
from ..flat import Array, empty
from ..optimizers import Optimizer
from .loans import Loans, Vectors

HEADER, CLOCKS, GRADIENT, REPLY = range(1, 5)  # tags; the last two grow by 2 for each dtype
LEAVES = -1  # replaces the number of the step in the header of a worker that leaves
LEFT = np.iinfo(np.int64).max  # the clock of a worker that has left


class AwaitedRequest(NamedTuple):
    """A message that a server waits for."""

    request: MPI.Request | NextPush
    state: str  # a description of the wait, for error messages


Waiting = Iterator[AwaitedRequest]


class NextPush:
    """The next push of any worker, by a receive from each, which are tested in turn.

    One receive from any source may never complete in MPICH, if it sends messages of a rank to itself past its network
    module.
    """

    def __init__(self, receive: Callable[[Array, int], MPI.Request], headers: dict[int, Array]) -> None:
        self._receive, self.headers = receive, headers
        self._requests: dict[int, MPI.Request] = {}
        self.leader = -1  # the rank whose push has arrived
        for leader in headers:
            self.expect(leader)

    def expect(self, leader: int) -> None:
        """Post the receive of the next push from a rank, which is tested after those of the others."""
        self._requests[leader] = self._receive(self.headers[leader], leader)

    def Test(self) -> bool:
        """Whether a push has arrived."""
        for leader, request in self._requests.items():
            if request.Test():
                del self._requests[leader]
                self.leader = leader
                return True
        return False


class Server:
    """One server, with its range of the parameters.

    `values` are the parameters in its range, one vector for each dtype.  Without an `optimizer` they do not change, and
    workers get averaged gradients.  `workers` lists the ranks of each worker; the first rank pushes and pulls.
    `clocks` counts the steps of each worker whose gradients have been received.  Gradients in memory that this rank can
    see are not received, and the answers are written over them.  `steps` counts the steps of the slowest worker
    whose gradients have been applied, also those before the workers left.  `updated` is called after each update.
    """

    def __init__(
        self, values: Vectors, workers: Sequence[list[int]], comm: MPI.Comm, optimizer: Optimizer | None
    ) -> None:
        self.values, self.optimizer = values, optimizer
        self._workers, self._comm = workers, comm
        self.clocks = np.zeros(len(workers), np.int64)
        self.steps = 0
        self.updated: Callable[[], object] = lambda: None
        self._header = np.empty(1 + len(values), np.int64)  # the number of the step, and the positions of the vectors
        self._loans = Loans(comm)
        self._borrowed: dict[int, Vectors] = {}  # by worker, until it is answered
        self._arriving = self._allocate()
        self._under_way: list[tuple[Vectors, list[MPI.Request]]] = []  # vectors that are being sent

    def _allocate(self) -> Vectors:
        return [empty(vector, len(vector)) for vector in self.values]

    def in_steps(self) -> Waiting:
        """Serve step by step: add up the gradients of all workers in their order, average, and send the result.

        The result does not depend on the order in which gradients arrive.
        """
        working, step = list(range(len(self._workers))), 0
        while working:
            total, ranks, step = self._free_vectors(), 0, step + 1
            gradient = total
            for worker in list(working):
                leader = self._workers[worker][0]
                state = f"in step {step} it waits for rank {leader} (worker) to push"
                yield self._receive(self._header, leader, HEADER, state)
                if self._header[0] == LEAVES:
                    working.remove(worker)
                    self.clocks[worker] = LEFT
                    continue
                more = yield from self._gradient(self._arriving if ranks else total, worker, self._header, state)
                gradient = _add(gradient, more, total) if ranks else more
                ranks += len(self._workers[worker])
            if working:
                self.clocks[working] += 1
                answer = self._applied(gradient, ranks, total)
                self.steps += 1
                self.updated()
                self._reply(working, answer, total)
        yield from self._last_replies()

    def at_once(self) -> Waiting:
        """Serve asynchronously: apply each gradient when it arrives, and answer with the parameters."""
        numbers = {ranks[0]: number for number, ranks in enumerate(self._workers)}
        working, pushes, before = set(numbers.values()), 0, self.steps
        arriving = NextPush(
            lambda header, leader: pycoll.irecv(header, leader, HEADER, comm=self._comm),
            {leader: np.empty_like(self._header) for leader in numbers},
        )
        while working:
            leaders = " or ".join(str(self._workers[worker][0]) for worker in sorted(working))
            yield AwaitedRequest(
                arriving, f"after {pushes} pushes it waits for the next push, from rank {leaders} (worker)"
            )
            leader = arriving.leader
            worker, header = numbers[leader], arriving.headers[leader]
            if header[0] == LEAVES:
                working.remove(worker)
                self.clocks[worker] = LEFT
                self._count(before, working)
                continue
            mean = self._free_vectors()
            state = f"it waits for rank {leader} (worker) to finish its push"
            gradient = yield from self._gradient(mean, worker, header, state)
            self.clocks[worker] += 1
            pushes += 1
            answer = self._applied(gradient, len(self._workers[worker]), mean)
            self._count(before, working)
            self.updated()
            self._reply([worker], answer, mean)
            arriving.expect(leader)
        yield from self._last_replies()

    def _count(self, before: int, working: Collection[int]) -> None:
        if working:
            self.steps = before + int(min(self.clocks[worker] for worker in working))

    def _receive(self, into: Array, source: int, tag: int, state: str) -> AwaitedRequest:
        return AwaitedRequest(pycoll.irecv(into, source, tag, comm=self._comm), state)

    def _gradient(
        self, into: Vectors, worker: int, header: Array, state: str
    ) -> Generator[AwaitedRequest, None, Vectors]:
        """Receive the gradient that the header has announced, and return it; return borrowed vectors as they are."""
        leader = self._workers[worker][0]
        borrowed = self._loans.borrowed(leader, header[1:], into)
        if borrowed:
            self._borrowed[worker] = borrowed
            return borrowed
        for number, vector in enumerate(into):
            yield self._receive(vector, leader, GRADIENT + 2 * number, state)
        return into

    @phase("apply")
    def _applied(self, gradient: Vectors, ranks: int, mean: Vectors) -> Vectors:
        """Average a sum of gradients over `ranks` ranks and apply it; return the answer to the workers."""
        for vector, to in zip(gradient, mean):
            np.divide(vector, ranks, out=to)
        if not self.optimizer:
            return mean
        self.optimizer.step(keyed(mean))
        return self.values

    def _free_vectors(self) -> Vectors:
        """Return vectors that are not being sent."""
        for number, (vectors, requests) in enumerate(self._under_way):
            if pycoll.testall(requests)[0]:
                del self._under_way[number]
                return vectors
        return self._allocate()

    def _reply(self, workers: list[int], answer: Vectors, sent: Vectors) -> None:
        """Write the answer to the borrowed vectors of the workers; send others a copy of it in the vectors `sent`."""
        clocks = self.clocks.copy()
        borrowed = {worker: self._borrowed.pop(worker, None) for worker in workers}
        if answer is not sent and None in borrowed.values():
            _copy(sent, answer)
        requests = []
        for worker, vectors in borrowed.items():
            leader = self._workers[worker][0]
            if vectors:
                _copy(vectors, answer)
            requests.append(pycoll.isend(clocks, leader, CLOCKS, comm=self._comm))
            for number, vector in enumerate(() if vectors else sent):
                requests.append(pycoll.isend(vector, leader, REPLY + 2 * number, comm=self._comm))
        self._under_way.append((sent, requests))
        pending.add(self)

    def _last_replies(self) -> Waiting:
        for _, requests in self._under_way:
            for request in requests:
                yield AwaitedRequest(request, "after the last step it waits for workers to receive its answer")
        self._under_way.clear()
        pending.discard(self)
        self.clocks[:] = 0


def keyed(vectors: Vectors) -> dict[str, Array]:
    """Return the vectors by the names of their dtypes."""
    return {str(vector.dtype): vector for vector in vectors}


def _add(one: Vectors, other: Vectors, total: Vectors) -> Vectors:
    for first, second, to in zip(one, other, total):
        np.add(first, second, out=to)
    return total


def _copy(to: Vectors, source: Vectors) -> None:
    for vector, values in zip(to, source):
        np.copyto(vector, values)


class Serving:
    """Runs a server: `poll` advances it without waiting, `run` serves until the last worker has left."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._awaited: AwaitedRequest | None = None
        self._begun = False

    @property
    def state(self) -> str:
        """A description of the message that the server waits for, or an empty string."""
        return self._awaited.state if self._awaited else ""

    def poll(self) -> bool:
        """Advance as far as possible without waiting; return whether the last worker has left."""
        self._begin()
        while self._awaited and self._awaited.request.Test():
            self._go_on()
        return self._awaited is None

    def _begin(self) -> None:
        """Post the first receive at the first call, so that none is pending if there is no call."""
        if not self._begun:
            self._begun = True
            pending.add(self)
            self._go_on()

    def _go_on(self) -> None:
        self._awaited = next(self._waiting, None)
        if self._awaited is None:
            pending.discard(self)

    def run(self, call: str) -> None:
        """Serve until the last worker has left; CollectiveTimeout names `call`."""
        self._begin()
        while self._awaited:
            until(self._awaited.request.Test, call, lambda: self.state)
            self._go_on()
