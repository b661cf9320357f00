"""Fits a `Network` to the one that this program runs on, by a few seconds of messages between pairs of ranks.

The first ranks of the hosts, two by two, give the link between hosts, but for the last of an odd number; the first two
of each host that inside it.  All pairs at once, since that is how collectives use a network; the others sleep
meanwhile.  Times are medians.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from mpi4py import MPI

import pycoll

from ..base import settings
from .network import Link, Network

REPEATS = 9
SECONDS = 0.05  # that a stream of messages takes at least
SHORT, LONG = 64 << 10, 256 << 20  # bytes of such a stream at least, and at most
WINDOW = 2  # messages in flight each way, as in the engine
MANY = 200  # short messages in a row
TURNS = 3  # rounds in a row: enough that they start together, few enough that it counts when ranks had been asleep
NAP, PAUSE = 1e-3, 0.02
FRAME = 64 << 10  # what a host hands to its link at a time, where there is no shaper


@dataclass
class _Pair:
    """One of a pair of ranks that exchange messages, while the other pairs do the same."""

    comm: MPI.Intracomm  # of all pairs
    both: MPI.Intracomm  # of the two
    other: int
    first: bool
    longest: int

    def timed(self, what: Callable[[], object]) -> float:
        """The median seconds of a call, made by all ranks, each after a pause, in which traffic shapers recover."""
        spent = []
        for _ in range(REPEATS):
            self.comm.Barrier()
            time.sleep(PAUSE)
            self.comm.Barrier()
            start = time.perf_counter()
            what()
            spent.append(time.perf_counter() - start)
        return float(np.median(spent))

    def agreed(self, seconds: float) -> float:
        """The median over the first ranks of all pairs, on all ranks."""
        return float(np.nanmedian(self.comm.allgather(seconds if self.first else np.nan)))

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

    def one_round(self) -> float:
        """Seconds that a round of pycoll takes in which both send a byte."""
        out, into = np.zeros(1, np.uint8), np.zeros(2, np.uint8)

        def rounds() -> None:
            for _ in range(TURNS):
                pycoll.allgather(out, into, comm=self.both, algorithm="ring")

        return self.agreed(self.timed(rounds) / TURNS)

    def exchange(self, nbytes: int) -> float:
        """Seconds that so many bytes take in both directions at once, in messages as pycoll cuts them."""
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
    stream = SHORT
    while (spent := pair.exchange(stream)) < SECONDS and stream < LONG:
        stream *= 4
    beta = spent / stream
    one_round = pair.one_round()
    overhead = min(pair.each_of_many(), one_round / 2)
    while (left_behind := stream - pair.sending(stream) / beta) > 0.9 * stream and stream < LONG:
        stream *= 4  # of which nearly all went into buffers
    frame = _frame(pair, beta)
    return Link(
        alpha=one_round - 2 * overhead,
        beta=beta,
        overhead=overhead,
        buffer=max(0, int(left_behind)),
        frame=frame or FRAME,
        shaped=frame > 0,
    )


def _frame(pair: _Pair, beta: float) -> int:
    """Up to how many bytes pass at once although their link is slow, as shapers let them; 0 if it is not shaped."""
    shortest = pair.ping_pong(1)

    def at_once(nbytes: int) -> bool:
        return pair.ping_pong(nbytes) - shortest < nbytes * beta / 2

    low, high = 8 << 10, 64 << 10
    if not at_once(low) or low * beta < shortest:
        return 0
    while high - low > 512:
        middle = (low + high) // 2
        low, high = (middle, high) if at_once(middle) else (low, middle)
    return low


def _gamma() -> float:
    """Seconds per byte that NumPy takes to combine data in the caches, where segments are."""
    vector, result = np.ones(1 << 16, np.float32), np.ones(1 << 16, np.float32)
    spent = []
    for _ in range(REPEATS * 10):
        start = time.perf_counter()
        np.add(vector, result, out=result)
        spent.append(time.perf_counter() - start)
    return float(np.median(spent)) / vector.nbytes


def _measured(comm: MPI.Intracomm, pairs: list[tuple[int, int]], longest: int) -> Link | None:
    """Measure the link between the ranks of these pairs, and return it on all ranks; the others sleep meanwhile."""
    if not pairs:
        return None
    ranks = [rank for pair in pairs for rank in pair]
    taking_part = comm.rank in ranks
    order = ranks.index(comm.rank) if taking_part else 0
    among = MPI.Intracomm(comm.Split(0 if taking_part else MPI.UNDEFINED, order))
    link = None
    if taking_part:
        both = MPI.Intracomm(among.Split(among.rank // 2))
        link = _link(_Pair(among, both, among.rank ^ 1, among.rank % 2 == 0, longest))
        both.Free()
        among.Free()
    done = comm.Ibarrier()
    while not done.Test():
        time.sleep(NAP)
    found: Link | None = comm.bcast(link, ranks[0])
    return found


def _pairs(names: list[str]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Pairs of ranks of different hosts, one of each host, and of one host, for each that has two ranks."""
    hosts: dict[str, list[int]] = {}
    for rank, name in enumerate(names):
        hosts.setdefault(name, []).append(rank)
    firsts = [ranks[0] for ranks in hosts.values()]
    inside = [(ranks[0], ranks[1]) for ranks in hosts.values() if len(ranks) > 1]
    return list(zip(firsts[::2], firsts[1::2])), inside


def calibrate(comm: MPI.Intracomm) -> tuple[Network, list[str]]:
    """The network of this communicator, and which of its parts could not be measured; all ranks together."""
    pycoll.attach(comm)  # before the pairs': a trace is of the first
    comm = comm.Dup()
    apart, together = _pairs(comm.allgather(MPI.Get_processor_name()))
    gamma = float(np.median(comm.allgather(_gamma())))
    longest = settings.longest(bool(apart))
    between = _measured(comm, apart, longest)
    inside = _measured(comm, together, longest)
    comm.Free()
    example = Network()
    missing = [name for name, link in (("between", between), ("inside", inside)) if link is None]
    return replace(example, between=between or example.between, inside=inside or example.inside, gamma=gamma), missing
