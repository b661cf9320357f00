"""Simulation of a collective on thousands of ranks, with a model of a network: ``pycoll.simulate(...)``.

``python -m pycoll.simulate`` is the command line.  It can also plot, and fit the model to a real network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from ..base import settings
from ..base.callable_module import make_callable
from ..base.domains import KINDS
from ..primitives.direct import find_schedule
from ..schedule.endless import timed
from ..schedule.hosts import Hosts, in_order, without_domains
from ..schedule.moves import Blocks, Round
from ..schedule.neighborhood import neighborhood
from .network import Link, Network
from .run import Cluster, Outcome, Ranks, check_size, sizes, sizes_between_neighbors
from .topology_names import check_hosts, parse

try:
    from . import compiled as _compiled
except ImportError:  # without a compiler, and in the playground
    _compiled = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Link", "Network", "Passed", "Simulated", "simulate"]
MOST = 1 << 62  # bytes of a message


@dataclass(frozen=True)
class Passed:
    """The traffic in one direction of a link.

    Attributes
    ----------
    nbytes : int
        The bytes that passed.
    busy : float
        The time in which the link was busy, in seconds.
    """

    nbytes: int
    busy: float


@dataclass(frozen=True, eq=False)
class Simulated:
    """The result of a simulation.  All arrays have one element for each rank.

    Attributes
    ----------
    time : float
        The time from the start of the first rank to the end of the last rank, in seconds.
    ends : numpy.ndarray
        The time at which each rank ends, in seconds.
    busy : numpy.ndarray
        The seconds that the processor spends on messages and on combining.
    waiting : numpy.ndarray
        The remaining seconds between the start and the end of each rank.
    messages : numpy.ndarray
        The number of messages sent; a message that is cut into segments counts once.
    sent, received, combined : numpy.ndarray
        The bytes sent, received and combined.
    links : dict of str to Passed
        The traffic of each link that is used, in one direction, for example "host 3 out", "switch 0 up",
        "host 3 to host 4" or "group 0 to group 1".
    """

    time: float
    ends: np.ndarray
    busy: np.ndarray
    waiting: np.ndarray
    messages: np.ndarray
    sent: np.ndarray
    received: np.ndarray
    combined: np.ndarray
    links: dict[str, Passed]


def simulate(
    primitive: str,
    *,
    algorithm: str,
    ranks: int | None = None,
    nbytes: int,
    network: Network | None = None,
    root: int = 0,
    segments: int | None = None,
    ranks_per_host: int | None = None,
    hosts: Sequence[int] | None = None,
    domains_per_host: int = 1,
    topology: str | None = None,
    delays: Mapping[int, float] | None = None,
    longest: int | None = None,
    dims: Sequence[int] | None = None,
    periods: Sequence[bool] | bool | None = None,
    offsets: Sequence[Sequence[int]] | None = None,
    edges: Sequence[tuple[int, int]] | None = None,
) -> Simulated:
    """Simulate the schedule of a collective on all ranks, as discrete events.

    Parameters
    ----------
    primitive : str
        The collective, for example "allreduce".
    algorithm : str
        The name of one of its algorithms, see `pycoll.algorithms`; with "@registered" appended, its schedule for
        registered buffers.
    ranks : int, optional
        The number of ranks; for a collective between neighbors, the default is the size of the grid or graph.
    nbytes : int
        The bytes of the whole vector, or of the blocks of all ranks together; for all-to-all, of the send buffer of one
        rank; between neighbors, of the block for one neighbor.
    network : Network, optional
        The parameters of the network.
    root : int
        The rank of the root.
    segments : int, optional
        The number of segments of a pipelined algorithm, by default as pycoll chooses it.
    ranks_per_host : int, optional
        The number of ranks on each host, by default 1, or as the topology says; consecutive ranks share a host.
    hosts : sequence of int, optional
        The host of each rank; replaces `ranks_per_host`.
    domains_per_host : int
        The number of domains of each host, such as sockets, with equally many consecutive ranks.  The links between
        them are `Network.across`.
    topology : str, optional
        The links between hosts, by default one switch, or switches of `Network.hosts_per_switch` hosts:

        - ``"torus:8x8x8"``, in any number of dimensions;
        - ``"fat-tree:16x8:2"``, 16 leaf switches of 8 hosts, with uplinks of half the bandwidth of the hosts;
        - ``"dragonfly:9x4x8:2"``, 9 groups of 4 routers of 8 hosts, with half the bandwidth between groups;
        - ``"rails:16x8"``, 16 hosts of 8 ranks, each with a network card on the switch of its rail;
        - ``"links.json"``, a file with the latency and the bandwidth of each link.
    delays : mapping of int to float, optional
        The seconds by which ranks start late.
    longest : int, optional
        The longest message in bytes, by default as pycoll chooses it.
    dims : sequence of int, optional
        Between neighbors: the sides of a grid.
    periods : sequence of bool, or bool, optional
        Whether each dimension of the grid is periodic; by default, none is.
    offsets : sequence of tuple of int, optional
        The positions of the neighbors in the grid, relative to a rank; by default both in each dimension.
    edges : sequence of tuple of int, optional
        Between neighbors: the edges of a graph, each from one rank to another, instead of a grid.

    Returns
    -------
    Simulated
        Times and counts.

    Raises
    ------
    TypeError
        If an argument has the wrong type.
    ValueError
        If the primitive or the algorithm is unknown, a number is out of range, or arguments do not match.
    OSError
        If the file of the topology cannot be read.
    RuntimeError
        If the schedule deadlocks.
    """
    chosen = find_schedule(primitive, algorithm)
    network = Network() if network is None else network
    if not isinstance(network, Network):
        raise TypeError(f"network={network!r} is not a pycoll.simulate.Network")
    links = None if topology is None else parse(topology)
    described = (dims, periods, offsets, edges)
    near = neighborhood(ranks, *described) if chosen.primitive.near else None
    if near:
        near.check(chosen)
        ranks = near.size
    elif any(each is not None for each in described):
        raise ValueError(f"dims, periods, offsets and edges are for collectives between neighbors, not for {primitive}")
    if ranks is None:
        raise TypeError("ranks=None: the number of ranks is missing")
    if ranks_per_host is None:
        ranks_per_host = links.ranks_per_host if links else 1
    integers = {"nbytes": nbytes, "root": root, "ranks": ranks, "ranks_per_host": ranks_per_host}
    integers |= {"domains_per_host": domains_per_host}
    optional = {"segments": segments, "longest": longest}
    _check_integers(integers | {name: value for name, value in optional.items() if value is not None})
    ranks, nbytes, root = int(ranks), int(nbytes), int(root)  # they may be NumPy integers
    check_size("ranks", ranks)
    host_of = _hosts(ranks, int(ranks_per_host), hosts)
    if links:
        _check_switches(topology, network)
        check_hosts(topology, links, host_of or range(ranks))
    several = host_of is None or len(set(host_of)) > 1
    placed: Hosts = host_of
    seen: Hosts = host_of  # by the schedule
    if domains_per_host > 1:
        from ..selection.select import CommFacts  # which the playground does not have

        domains = _domains(host_of or tuple(range(ranks)), int(domains_per_host))
        facts = CommFacts(without_domains(domains), domains=tuple((domain,) * len(KINDS) for _, domain in domains))
        placed, seen = domains, facts.hosts_for(chosen)
    delays = {} if delays is None else delays
    _check_root(root, ranks)
    _check_delays(delays, ranks)
    segments = settings.segments(nbytes, several) if segments is None else segments
    starts = [float(delays.get(rank, 0.0)) for rank in range(ranks)]
    cluster = Cluster(network, ranks, placed, links)
    known = near.known_to(chosen, seen) if near else None
    together = sizes_between_neighbors(known, nbytes) if known else sizes(chosen, ranks, nbytes, segments, seen)
    longest = settings.longest(several, chosen.primitive.reduces) if longest is None else longest

    rounds: Any = _compiled.template(chosen, ranks, nbytes) if _compiled else None
    if rounds is None:
        edges_of = enumerate(known or [None] * ranks)
        rounds = [timed(chosen.schedule(rank, ranks, root, segments, seen, edges)) for rank, edges in edges_of]
    return _result(outcome_of(rounds, cluster, together, longest, starts), starts)


def outcome_of(
    rounds: Sequence[Iterator[Round]],
    cluster: Cluster,
    together: Callable[[Blocks], int],
    longest: int,
    starts: Sequence[float],
) -> Outcome:
    """Run the rounds of all ranks, with compiled events if there are any."""
    ranks: Any = _compiled.CompiledRanks if _compiled else Ranks
    outcome: Outcome = ranks(rounds, cluster, together, longest).run(starts)
    return outcome


def _result(outcome: Outcome, given: Sequence[float]) -> Simulated:
    import numpy as np  # here, because the playground imports this package where there is no NumPy

    starts, ends, busy = np.array(given), np.array(outcome.ends), np.array(outcome.busy)
    if stuck := np.flatnonzero(np.isnan(ends)).tolist():
        raise RuntimeError(f"deadlock: ranks {stuck[:8]} wait forever")
    return Simulated(
        time=float(ends.max() - starts.min()),
        ends=ends,
        busy=busy,
        waiting=np.maximum(0.0, ends - starts - busy),  # negative only by rounding
        messages=np.array(outcome.messages),
        sent=np.array(outcome.sent),
        received=np.array(outcome.received),
        combined=np.array(outcome.combined),
        links={name: Passed(*passed) for name, passed in outcome.traffic.items()},
    )


def _hosts(ranks: int, ranks_per_host: int, hosts: Sequence[int] | None) -> tuple[int, ...] | None:
    if hosts is None:
        return in_order(ranks, ranks_per_host)
    host_of = tuple(hosts) if isinstance(hosts, Iterable) else None
    if host_of is None or not all(isinstance(host, Integral) for host in host_of):
        raise TypeError(f"hosts={hosts!r} is not a sequence of integers")
    if len(host_of) != ranks:
        raise ValueError(f"hosts has {len(host_of)} numbers for {ranks} ranks")
    return tuple(map(int, host_of))


def _domains(hosts: tuple[int, ...], domains_per_host: int) -> tuple[tuple[int, int], ...]:
    """Return the host and the domain of each rank; raise ValueError if a host cannot be divided evenly."""
    counts, before = Counter(hosts), Counter[int]()
    if uneven := [host for host in counts if counts[host] % domains_per_host]:
        raise ValueError(f"domains_per_host={domains_per_host} does not divide the {counts[uneven[0]]} ranks of a host")
    found = []
    for host in hosts:
        found.append((host, before[host] * domains_per_host // counts[host]))
        before[host] += 1
    return tuple(found)


def _check_switches(topology: str | None, network: Network) -> None:
    if network.hosts_per_switch:
        raise ValueError(
            f"topology={topology!r} replaces hosts_per_switch={network.hosts_per_switch}; give one of them"
        )


def _check_integers(values: dict[str, int]) -> None:
    for name, value in values.items():
        if not isinstance(value, Integral):
            raise TypeError(f"{name}={value!r} is not an integer")
        least = 0 if name in ("nbytes", "root") else 1
        if value < least:
            raise ValueError(f"{name}={value} is less than {least}")
        if value > MOST:
            raise ValueError(f"{name}={value} is more than {MOST}")


def _check_root(root: int, ranks: int) -> None:
    if root >= ranks:
        raise ValueError(f"root={root} is not one of {ranks} ranks")


def _check_delays(delays: Mapping[int, float], ranks: int) -> None:
    pairs = delays.items() if isinstance(delays, Mapping) else [(None, None)]
    if not all(isinstance(rank, Integral) and isinstance(delay, Real) for rank, delay in pairs):
        raise TypeError(f"delays={delays!r} is not a mapping from ranks to seconds")
    for rank, delay in delays.items():
        if not 0 <= rank < ranks:
            raise ValueError(f"delays={dict(delays)!r}: there is no rank {rank}; the ranks are 0 to {ranks - 1}")
        if not 0 <= delay < float("inf"):
            raise ValueError(f"delays={dict(delays)!r}: rank {rank} cannot start {delay} s late")


make_callable(__name__, simulate)
