"""The schedules of all ranks run against a model of a network, for thousands of ranks: ``pycoll.simulate(...)``.

``python -m pycoll.simulate`` does the same, draws, and fits the model to a network that is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from ..base import settings
from ..base.callable_module import make_callable
from ..schedule.registry import Hosts, find_schedule
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
    as pycoll would choose them.  TypeError for arguments of a wrong type, ValueError for those that do not fit
    together.
    """
    chosen = find_schedule(primitive, algorithm)
    network = Network() if network is None else network
    if not isinstance(network, Network):
        raise TypeError(f"network={network!r} is not a pycoll.simulate.Network")
    integers = {"nbytes": nbytes, "root": root, "ranks": ranks, "ranks_per_host": ranks_per_host}
    optional = {"segments": segments, "longest": longest}
    _check_integers(integers | {name: value for name, value in optional.items() if value is not None})
    ranks, nbytes, root = int(ranks), int(nbytes), int(root)  # which may be NumPy integers
    place = _hosts(ranks, int(ranks_per_host), hosts)
    several = place is None or len(set(place)) > 1
    delays = {} if delays is None else delays
    _check_root(root, ranks)
    _check_delays(delays, ranks)
    segments = settings.segments(nbytes, several) if segments is None else segments
    run = Ranks(
        [chosen.schedule(rank, ranks, root, segments, place) for rank in range(ranks)],
        Cluster(network, ranks, place),
        sizes(chosen, ranks, nbytes, segments, place),
        settings.longest(several) if longest is None else longest,
    )
    starts = np.zeros(ranks)
    for rank, delay in delays.items():
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
    if hosts is None:
        return None if ranks_per_host == 1 else tuple(rank // ranks_per_host for rank in range(ranks))
    place = tuple(hosts) if isinstance(hosts, Iterable) else None
    if place is None or not all(isinstance(host, Integral) for host in place):
        raise TypeError(f"hosts={hosts!r} is not a sequence of integers")
    if len(place) != ranks:
        raise ValueError(f"hosts has {len(place)} numbers for {ranks} ranks")
    return tuple(map(int, place))


def _check_integers(values: dict[str, int]) -> None:
    for name, value in values.items():
        if not isinstance(value, Integral):
            raise TypeError(f"{name}={value!r} is not an integer")
        least = 0 if name in ("nbytes", "root") else 1
        if value < least:
            raise ValueError(f"{name}={value} is less than {least}")


def _check_root(root: int, ranks: int) -> None:
    if root >= ranks:
        raise ValueError(f"root={root} is not one of {ranks} ranks")


def _check_delays(delays: Mapping[int, float], ranks: int) -> None:
    pairs = delays.items() if isinstance(delays, Mapping) else [(None, None)]
    if not all(isinstance(rank, Integral) and isinstance(delay, Real) for rank, delay in pairs):
        raise TypeError(f"delays={delays!r} is not a mapping from ranks to seconds")
    for rank, delay in delays.items():
        if not 0 <= rank < ranks:
            raise ValueError(f"delays={dict(delays)!r}: there is no rank {rank}, the ranks are 0 to {ranks - 1}")
        if not 0 <= delay < float("inf"):
            raise ValueError(f"delays={dict(delays)!r}: rank {rank} cannot start {delay} s late")


make_callable(__name__, simulate)
