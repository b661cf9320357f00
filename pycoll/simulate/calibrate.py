"""Fits a `Network` to the network that this program runs on, with a few seconds of messages between pairs of ranks.

Pairs of the first ranks of two hosts measure the link between hosts; the last of an odd number of hosts takes no part.
The first two ranks of each host measure the link inside it.  All pairs run at once, because collectives use a network
in this way.  The other ranks sleep meanwhile.  Times are medians.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from mpi4py import MPI

import pycoll

from ..base import settings
from ..base.mpi import host_names
from .network import Link, Network

REPEATS = 9
SECONDS = 0.05  # the shortest duration of a stream of messages
SHORT, LONG = 64 << 10, 256 << 20  # the least and the most bytes of such a stream
WINDOW = 2  # messages in flight in each direction, as in `pycoll.compiler.lower`
MANY = 200  # short messages in sequence
TURNS = 3  # rounds in sequence: enough to start together, few enough that the wake-up of sleeping ranks counts
NAP, PAUSE = 1e-3, 0.02
FRAME = 64 << 10  # bytes that a host passes to its link at a time, if there is no shaper


@dataclass
class _Pair:
    """One rank of a pair that exchanges messages, while the other pairs do the same."""

    comm: MPI.Intracomm  # the ranks of all pairs
    both: MPI.Intracomm  # the two ranks of this pair
    other: int
    first: bool
    longest: int

    def timed(self, what: Callable[[], object]) -> float:
        """Return the median seconds of a call on all ranks; before each call, a pause lets traffic shapers recover."""
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
        """Return on all ranks the median over the first ranks of all pairs."""
        return float(np.nanmedian(self.comm.allgather(seconds if self.first else np.nan)))

    def ping_pong(self, nbytes: int) -> float:
        """Return the seconds that a message takes in one direction."""
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
        """Return the seconds of a round of pycoll in which both ranks send a byte."""
        out, into = np.zeros(1, np.uint8), np.zeros(2, np.uint8)

        def rounds() -> None:
            for _ in range(TURNS):
                pycoll.allgather(out, into, comm=self.both, algorithm="ring")

        return self.agreed(self.timed(rounds) / TURNS)

    def exchange(self, nbytes: int) -> float:
        """Return the seconds to send `nbytes` bytes in both directions at once, in messages as pycoll cuts them."""
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
        """Return the seconds until sends of `nbytes` bytes in one direction complete; bytes may still be queued."""
        segment = min(self.longest, nbytes)
        buffer = np.zeros(segment, np.uint8)
        spent = []

        def one_way() -> None:
            start = time.perf_counter()
            for _ in range(nbytes // segment):
                (self.comm.Send if self.first else self.comm.Recv)(buffer, self.other)
            spent.append(time.perf_counter() - start)
            self.comm.sendrecv(None, self.other, source=self.other)  # wait until all messages have arrived

        self.timed(one_way)
        return self.agreed(float(np.median(spent))) * nbytes / (nbytes // segment * segment)

    def each_of_many(self) -> float:
        """Return the seconds for each of many short messages in one direction."""
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
        stream *= 4  # nearly all bytes of the stream went into buffers
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
    """Return the number of bytes that a traffic shaper lets pass at full speed; 0 if the link is not shaped."""
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
    """Return the seconds per byte that NumPy takes to combine data in cache, as segments are."""
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


def pairs_of(names: list[str]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return pairs of ranks on two hosts, and a pair of ranks inside each host that has at least two ranks."""
    hosts: dict[str, list[int]] = {}
    for rank, name in enumerate(names):
        hosts.setdefault(name, []).append(rank)
    firsts = [ranks[0] for ranks in hosts.values()]
    inside = [(ranks[0], ranks[1]) for ranks in hosts.values() if len(ranks) > 1]
    return list(zip(firsts[::2], firsts[1::2])), inside


def calibrate(comm: MPI.Intracomm) -> tuple[Network, list[str]]:
    """Measure the network of this communicator; return it and the names of links that could not be measured.

    All ranks call this together.
    """
    pycoll.attach(comm)  # before those of the pairs, because a trace is of the first communicator
    comm = comm.Dup()
    apart, together = pairs_of(host_names(comm))
    gamma = float(np.median(comm.allgather(_gamma())))
    longest = settings.longest(bool(apart))
    between = _measured(comm, apart, longest)
    inside = _measured(comm, together, longest)
    comm.Free()
    example = Network()
    missing = [name for name, link in (("between", between), ("inside", inside)) if link is None]
    return replace(example, between=between or example.between, inside=inside or example.inside, gamma=gamma), missing
