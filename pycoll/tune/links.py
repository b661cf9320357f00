"""Measures the latency and the bandwidth between all pairs of ranks, for ``python -m pycoll.tune --links``.

All ranks are busy at once, each with one other rank, as in a tournament: in p-1 rounds for an even number p of ranks,
and in p rounds for an odd one.  So ranks that share a network card or a memory measure their share of it, as they get
it in a collective in which all ranks send.  One rank that sends alone may be faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from mpi4py import MPI

from ..base.command_line import say_written
from ..base.links import Links, Times, write
from ..base.progress_bar import progress_bar
from .environment import environment

PINGS = 20  # short messages in each direction, one after the other
REPEATS = 5
SECONDS = 0.01  # the shortest time of a long message
SHORT, LONG = 256 << 10, 64 << 20  # the least and the most bytes of such a message


def opponents(rank: int, ranks: int) -> Iterator[int]:
    """Yield the partner of a rank in each round of a tournament; MPI.PROC_NULL if it has none in this round."""
    seats = ranks + ranks % 2  # the last one is empty if the number of ranks is odd
    last = seats - 1
    for number in range(last):
        if rank == last:
            other = number * (last + 1) // 2 % last
        else:
            other = (number - rank) % last
            other = last if other == rank else other
        yield other if other < ranks else MPI.PROC_NULL


def measured(comm: MPI.Intracomm) -> Links:
    """Return the links between all ranks, on rank 0; all ranks call this together."""
    comm = comm.Dup()
    found: Links = {}
    rounds = [*opponents(comm.rank, comm.size)]
    for other in progress_bar(rounds, "measure", "round", shown=comm.rank == 0):
        alpha = _seconds(comm, partial(_ping_pong, comm, other)) / (2 * PINGS)
        for first in (True, False):  # the lower rank sends first
            beta = _per_byte(comm, other, first)
            if other != MPI.PROC_NULL and first == (comm.rank < other):
                found[comm.rank, other] = Times(alpha, beta)
    everything = comm.gather(found)
    comm.Free()
    return {pair: times for each in everything or () for pair, times in each.items()}


def _seconds(comm: MPI.Intracomm, what: Callable[[], object]) -> float:
    """Return the median seconds of a call, which all pairs begin together."""
    spent = []
    for _ in range(1 + REPEATS):  # the first time is left out
        comm.Barrier()
        start = time.perf_counter()
        what()
        spent.append(time.perf_counter() - start)
    return float(np.median(spent[1:]))


def _ping_pong(comm: MPI.Intracomm, other: int) -> None:
    byte, sends = np.zeros(1, np.uint8), comm.rank < other
    for number in range(2 * PINGS):
        (comm.Send if sends == (number % 2 == 0) else comm.Recv)(byte, other)


def _per_byte(comm: MPI.Intracomm, other: int, first: bool) -> float:
    """Return the seconds per byte of a message that is long enough on all links; an answer ends it."""
    sends, nbytes = first == (comm.rank < other), SHORT
    answer = np.zeros(1, np.uint8)
    while True:
        buffer = np.zeros(nbytes, np.uint8)

        def message(buffer: np.ndarray = buffer) -> None:
            (comm.Send if sends else comm.Recv)(buffer, other)
            (comm.Recv if sends else comm.Send)(answer, other)

        spent = _seconds(comm, message)
        if nbytes >= LONG or comm.allreduce(np.inf if other == MPI.PROC_NULL else spent, MPI.MIN) >= SECONDS:
            return spent / nbytes
        nbytes *= 4


def measure_links(comm: MPI.Intracomm, output: Path) -> None:
    """Measure the links, write them, and print their extremes."""
    links, where = measured(comm), environment(comm)
    if comm.rank == 0:
        write(output, links, environment=where)
        for name, unit, values in (
            ("latency", "µs", [times.alpha * 1e6 for times in links.values()]),
            ("bandwidth", "GB/s", [1e-9 / times.beta for times in links.values()]),
        ):
            print(f"{name}: {min(values):.2f} to {max(values):.2f} {unit}")
        say_written(output)
