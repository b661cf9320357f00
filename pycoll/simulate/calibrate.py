"""Fits a `Network` to the one that this program runs on, by a few seconds of messages between two ranks.

Two ranks on different hosts give the link between hosts, two on one host that inside it; the others sleep meanwhile.
Times are medians.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from mpi4py import MPI

from .. import settings
from .network import Link, Network

REPEATS = 9
SECONDS = 0.05  # that a stream of messages takes at least
SHORT, LONG = 64 << 10, 256 << 20  # bytes of such a stream at least, and at most
WINDOW = 2  # messages in flight each way, as in the engine
MANY = 200  # short messages in a row
NAP, PAUSE = 1e-3, 0.02
FRAME = 64 << 10  # what a host hands to its link at a time, where there is no shaper


@dataclass
class _Pair:
    """One of the two ranks that send each other messages."""

    comm: MPI.Intracomm
    other: int
    first: bool
    longest: int

    def timed(self, what: Callable[[], object]) -> float:
        """The median seconds of what both do, each time after a pause, in which shapers forget what was before."""
        spent = []
        for _ in range(REPEATS):
            self.comm.sendrecv(None, self.other, source=self.other)
            time.sleep(PAUSE)
            self.comm.sendrecv(None, self.other, source=self.other)
            start = time.perf_counter()
            what()
            spent.append(time.perf_counter() - start)
        return float(np.median(spent))

    def agreed(self, seconds: float) -> float:
        """The first rank's number, on both."""
        others = self.comm.sendrecv(seconds, self.other, source=self.other)
        return seconds if self.first else others

    def ping_pong(self, nbytes: int) -> float:
        """Seconds that a message takes one way."""
        buffer = np.zeros(nbytes, np.uint8)

        def there_and_back() -> None:
            if self.first:
                self.comm.Send(buffer, self.other)
                self.comm.Recv(buffer, self.other)
            else:
                self.comm.Recv(buffer, self.other)
                self.comm.Send(buffer, self.other)

        return self.agreed(self.timed(there_and_back) / 2)

    def exchange(self, nbytes: int) -> float:
        """Seconds that so many bytes take in both directions at once, in messages as the engine cuts them."""
        segment = min(self.longest, nbytes)
        out, into = np.zeros(segment, np.uint8), np.zeros((WINDOW, segment), np.uint8)
        messages = max(1, nbytes // segment)

        def stream() -> None:
            flying: list[tuple[MPI.Request, MPI.Request]] = []
            for number in range(messages):
                if len(flying) == WINDOW:
                    MPI.Request.Waitall(list(flying.pop(0)))
                receive = self.comm.Irecv(into[number % WINDOW], self.other)
                flying.append((receive, self.comm.Isend(out, self.other)))
            for both in flying:
                MPI.Request.Waitall(list(both))

        return self.agreed(self.timed(stream)) * nbytes / (messages * segment)

    def sending(self, nbytes: int) -> float:
        """Seconds until the sends of so many bytes one way are complete, wherever the bytes are then."""
        segment = min(self.longest, nbytes)
        buffer = np.zeros(segment, np.uint8)
        spent = []

        def one_way() -> None:
            start = time.perf_counter()
            for _ in range(nbytes // segment):
                (self.comm.Send if self.first else self.comm.Recv)(buffer, self.other)
            spent.append(time.perf_counter() - start)
            self.comm.sendrecv(None, self.other, source=self.other)  # until all has come

        self.timed(one_way)
        return self.agreed(float(np.median(spent))) * nbytes / (nbytes // segment * segment)

    def each_of_many(self) -> float:
        """Seconds for each of many short messages one way."""
        buffer = np.zeros(8, np.uint8)

        def one_way() -> None:
            for _ in range(MANY):
                (self.comm.Send if self.first else self.comm.Recv)(buffer, self.other)
            self.comm.sendrecv(None, self.other, source=self.other)

        return self.agreed(self.timed(one_way) / MANY)


def _link(pair: _Pair) -> Link:
    shortest = pair.ping_pong(1)
    stream = SHORT
    while (spent := pair.exchange(stream)) < SECONDS and stream < LONG:
        stream *= 4
    beta = spent / stream
    overhead = min(pair.each_of_many(), shortest / 2)
    left_behind = stream - pair.sending(stream) / beta
    frame = _frame(pair, shortest, beta)
    return Link(
        alpha=shortest - 2 * overhead,
        beta=beta,
        overhead=overhead,
        buffer=max(0, int(left_behind)),
        frame=frame or FRAME,
        shaped=frame > 0,
    )


def _frame(pair: _Pair, shortest: float, beta: float) -> int:
    """Up to how many bytes pass at once although their link is slow, as shapers let them; 0 if it is not shaped."""

    def at_once(nbytes: int) -> bool:
        return pair.ping_pong(nbytes) - shortest < nbytes * beta / 2

    low, high = 4 << 10, 64 << 10
    if not at_once(low) or low * beta < shortest:
        return 0
    while high - low > 512:
        middle = (low + high) // 2
        low, high = (middle, high) if at_once(middle) else (low, middle)
    return low


def _gamma() -> float:
    """Seconds per byte that NumPy takes to combine what is in the caches, as segments are."""
    vector, result = np.ones(1 << 16, np.float32), np.ones(1 << 16, np.float32)
    spent = []
    for _ in range(REPEATS * 10):
        start = time.perf_counter()
        np.add(vector, result, out=result)
        spent.append(time.perf_counter() - start)
    return float(np.median(spent)) / vector.nbytes


def _measured(comm: MPI.Intracomm, ranks: tuple[int, int] | None, longest: int) -> Link | None:
    """The link between two ranks, told to all; the others sleep until then."""
    if ranks is None:
        return None
    link = None
    if comm.rank in ranks:
        other = ranks[1] if comm.rank == ranks[0] else ranks[0]
        link = _link(_Pair(comm, other, comm.rank == ranks[0], longest))
    done = comm.Ibarrier()
    while not done.Test():
        time.sleep(NAP)
    return comm.bcast(link, ranks[0])


def calibrate(comm: MPI.Intracomm) -> tuple[Network, list[str]]:
    """The network of this communicator, and which of its parts could not be measured; all ranks together."""
    comm = comm.Dup()
    names = comm.allgather(MPI.Get_processor_name())
    away = next((rank for rank, name in enumerate(names) if name != names[0]), None)
    near = next(((names.index(name), rank) for rank, name in enumerate(names) if names.index(name) < rank), None)
    gamma = float(np.median(comm.allgather(_gamma())))
    longest = settings.longest(away is not None)
    between = _measured(comm, None if away is None else (0, away), longest)
    inside = _measured(comm, near, longest)
    comm.Free()
    example = Network()
    missing = [name for name, link in (("between", between), ("inside", inside)) if link is None]
    return replace(example, between=between or example.between, inside=inside or example.inside, gamma=gamma), missing
