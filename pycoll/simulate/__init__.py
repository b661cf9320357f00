"""The schedules of all ranks run against a model of a network, for thousands of ranks: ``pycoll.simulate(...)``.

``python -m pycoll.simulate`` does the same, draws, and fits the model to a network that is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..base import settings
from ..base.callable_module import make_callable
from ..schedule.registry import Hosts, find
from .network import Link, Network
from .run import Cluster, Ranks, sizes

__all__ = ["Link", "Network", "Passed", "Simulated", "simulate"]


@dataclass(frozen=True)
class Passed:
    """What passed one direction of a link."""

    nbytes: int
    busy: float  # seconds


@dataclass(frozen=True, eq=False)
class Simulated:
    """What a simulation says, in seconds and bytes; the arrays have an element for each rank."""

    time: float  # from the first rank's start to the last one's end
    ends: np.ndarray
    busy: np.ndarray  # time that its processor spent on messages and on combining
    waiting: np.ndarray  # the rest, from its start to its end
    messages: np.ndarray  # sent; those that are cut into segments count once
    sent: np.ndarray
    received: np.ndarray
    combined: np.ndarray
    links: dict[str, Passed]  # by the names of the ports that anything passed: "host 3 out", "switch 0 up", ...


def simulate(
    primitive: str,
    *,
    algorithm: str,
    ranks: int,
    nbytes: int,
    network: Network | None = None,
    root: int = 0,
    segments: int | None = None,
    ranks_per_host: int = 1,
    hosts: Sequence[int] | None = None,
    delays: Mapping[int, float] | None = None,
    longest: int | None = None,
) -> Simulated:
    """Run a collective's schedule on all ranks as discrete events.

    `nbytes` are those of the whole vector, all ranks' blocks together (for all-to-all, of one rank's send buffer).
    `hosts` gives the host of each rank; without it each host has `ranks_per_host`, one after the other.  `delays` are
    the seconds by which ranks start late.  `segments` of pipelined algorithms and the `longest` message in bytes are
    as pycoll would choose them.  ValueError for what does not fit together.
    """
    chosen = find(primitive, algorithm)
    place = _hosts(ranks, ranks_per_host, hosts)
    several = place is None or len(set(place)) > 1
    _check(ranks, nbytes, root, delays or {}, longest)
    network = network or Network()
    segments = settings.segments(nbytes, several) if segments is None else segments
    if segments < 1:
        raise ValueError(f"segments={segments} is less than 1")
    run = Ranks(
        [chosen.schedule(rank, ranks, root, segments, place) for rank in range(ranks)],
        Cluster(network, ranks, place),
        sizes(chosen, ranks, nbytes, segments, place),
        settings.longest(several) if longest is None else longest,
    )
    starts = np.zeros(ranks)
    for rank, delay in (delays or {}).items():
        starts[rank] = delay
    run.run(starts.tolist())
    return _result(run, starts)


def _result(run: Ranks, starts: np.ndarray) -> Simulated:
    stuck = [rank for rank, end in enumerate(run.ends) if end is None]
    if stuck:
        raise RuntimeError(f"deadlock: ranks {stuck[:8]} wait for ever")
    ends, busy = np.array(run.ends, float), np.array(run.busy)
    return Simulated(
        time=float(ends.max() - starts.min()),
        ends=ends,
        busy=busy,
        waiting=np.maximum(0.0, ends - starts - busy),  # but for rounding
        messages=np.array(run.messages),
        sent=np.array(run.sent),
        received=np.array(run.received),
        combined=np.array(run.combined),
        links={port.name: Passed(port.nbytes, port.busy) for port in run.cluster.ports.values()},
    )


def _hosts(ranks: int, ranks_per_host: int, hosts: Sequence[int] | None) -> Hosts:
    if hosts is not None:
        if len(hosts) != ranks:
            raise ValueError(f"hosts has {len(hosts)} numbers for {ranks} ranks")
        return tuple(hosts)
    if ranks_per_host < 1:
        raise ValueError(f"ranks_per_host={ranks_per_host} is less than 1")
    return None if ranks_per_host == 1 else tuple(rank // ranks_per_host for rank in range(ranks))


def _check(ranks: int, nbytes: int, root: int, delays: Mapping[int, float], longest: int | None) -> None:
    if ranks < 1:
        raise ValueError(f"ranks={ranks} is less than 1")
    if nbytes < 0:
        raise ValueError(f"nbytes={nbytes} is negative")
    if not 0 <= root < ranks:
        raise ValueError(f"root={root} is not one of {ranks} ranks")
    for rank, delay in delays.items():
        if not 0 <= rank < ranks or not 0 <= delay < float("inf"):
            raise ValueError(f"delays={dict(delays)!r}: rank {rank} of {ranks}, {delay} s")
    if longest is not None and longest < 1:
        raise ValueError(f"longest={longest} is less than 1")


make_callable(__name__, simulate)
