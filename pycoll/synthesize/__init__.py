"""Schedules for any network of links between ranks, found by a search: ``pycoll.synthesize(...)``.

``python -m pycoll.synthesize`` is the command line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations, product
from numbers import Integral
from pathlib import Path

from ..base import settings
from ..base.callable_module import make_callable
from ..base.files import write_text
from ..base.links import Links, Times
from ..base.progress_bar import progress_bar
from ..schedule.document import algorithm_of, algorithm_of_rounds, document_of, text_of
from ..schedule.registry import PRIMITIVES, Algorithm, Primitive, check_name, register_schedule
from ..simulate import outcome_of
from ..simulate.network import Network
from ..simulate.run import Cluster, sizes
from ..simulate.topologies import RankHosts, Topology
from ..simulate.topology_names import parse
from .bound import bandwidth_bound
from .schedules import SearchProblem
from .search import durations

__all__ = ["Synthesized", "synthesize"]

NAME = "synthesized"
SERVED = "allgather", "reduce_scatter", "allreduce", "bcast"


@dataclass(frozen=True)
class Synthesized:
    """The result of a search.

    Attributes
    ----------
    algorithm : Algorithm
        The schedule, for this number of ranks and this root.
    time : float
        Its simulated time, in seconds.
    bound : float
        The bandwidth bound, in seconds; see `pycoll.synthesize.bound`.
    """

    algorithm: Algorithm
    time: float
    bound: float

    def save(self, path: str | Path) -> None:
        """Write the schedule as JSON, which the option ``--file`` of the commands reads."""
        assert self.algorithm.only
        write_text(path, text_of(document_of(self.algorithm, *self.algorithm.only)))

    def register(self) -> None:
        """Make the schedule an algorithm of its primitive in this process, under its name."""
        register_schedule(self.algorithm)


def synthesize(
    topology: str,
    primitive: str,
    *,
    nbytes: int,
    chunks: int = 1,
    seeds: int = 4,
    root: int = 0,
    network: Network | None = None,
    name: str = NAME,
    progress: bool = False,
) -> Synthesized:
    """Search for a schedule of a collective on a network, with a rank on each host.

    Several schedules are found by matching blocks to links at random; the one with the least simulated time is
    returned.  Equal arguments give equal schedules.

    Parameters
    ----------
    topology : str
        The links between ranks: ``"torus:16x8"``, or the name of a JSON file with links; see `pycoll.simulate`.
    primitive : str
        "allgather", "reduce_scatter", "allreduce" or "bcast".
    nbytes : int
        The bytes of the whole vector, or of the blocks of all ranks together.
    chunks : int
        The number of blocks for each rank into which all-reduce and broadcast cut the vector.
    seeds : int
        The number of searches, with other random choices, for each duration of a round.
    root : int
        The rank of the root of a broadcast.
    network : Network, optional
        The other parameters of the network, for the simulation.
    name : str
        The name of the algorithm.
    progress : bool
        Whether to show the progress on stderr.

    Returns
    -------
    Synthesized
        The algorithm, its simulated time, and the bandwidth bound.

    Raises
    ------
    TypeError
        If an argument has the wrong type.
    ValueError
        If the primitive is not one of these, if pycoll has an algorithm with this name, if the topology is wrong or
        has no links from rank to rank, or if a number is out of range.
    OSError
        If the file of the topology cannot be read.

    Notes
    -----
    A reduction combines in the order in which contributions arrive, so the operation must be commutative.

    References
    ----------
    W. Won, M. Elavazhagan, S. Srinivasan, S. Gupta and T. Krishna, "TACOS: Topology-Aware Collective Algorithm
    Synthesizer for Distributed Machine Learning", MICRO 2024.
    """
    if primitive not in SERVED:
        raise ValueError(f"primitive={primitive!r} is not one of: {', '.join(SERVED)}")
    check_name(PRIMITIVES[primitive], name)
    kind, hosts, network = PRIMITIVES[primitive], parse(topology), Network() if network is None else network
    if not isinstance(network, Network):
        raise TypeError(f"network={network!r} is not a pycoll.simulate.Network")
    links = direct_links(hosts, network)
    if not links:
        raise ValueError(
            f"topology={topology!r} has no links from rank to rank; give a larger torus, or a file with links"
        )
    if not min(times.beta for times in links.values()):
        raise ValueError("network: between.beta=0.0 is a link of infinite bandwidth, for which there is no bound")
    ranks = hosts.size or 0
    _check(kind, ranks, nbytes=nbytes, chunks=chunks, seeds=seeds, root=root)
    parts = ranks * chunks
    problem = SearchProblem(kind, links, ranks, parts, nbytes / parts, root, network.gamma)
    best, least = None, math.inf
    todo = [*product(durations(links, problem.nbytes), range(seeds))]
    for duration, seed in progress_bar(todo, "synthesize", "case", shown=progress):
        if rounds := problem.rounds(duration, seed):
            found = algorithm_of_rounds(primitive, name, rounds, parts, not kind.reduces, root)
            together, cluster = sizes(found, ranks, nbytes, 1, None), Cluster(network, ranks, None, hosts)
            outcome = outcome_of([*map(iter, rounds)], cluster, together, settings.longest(True), [0.0] * ranks)
            if (seconds := float(max(outcome.ends))) < least:
                best, least = found, seconds
    assert best is not None  # with the longest duration, all links can be used
    algorithm = algorithm_of(document_of(best, ranks, root), name)
    return Synthesized(algorithm, least, bandwidth_bound(primitive, links, ranks, nbytes, root))


def direct_links(topology: Topology, network: Network) -> Links:
    """Return the links from host to host that messages between their ends take."""
    links: Links = {}
    hosts = range(topology.size or 0)
    ranks = RankHosts(network, hosts)
    for pair in permutations(hosts, 2):
        if len(hops := [*topology.route(*pair, ranks)]) == 1:
            links[pair] = Times(topology.latency(hops, network), hops[0].beta)
    return links


def _check(primitive: Primitive, ranks: int, **numbers: int) -> None:
    """Raise an error for a number that is not an integer, too small, or without meaning for the primitive."""
    for name, value in numbers.items():
        if not isinstance(value, Integral):
            raise TypeError(f"{name}={value!r} is not an integer")
        least = 0 if name == "root" else 1
        if value < least:
            raise ValueError(f"{name}={value} is less than {least}")
    chunks, root = numbers["chunks"], numbers["root"]
    if chunks > 1 and not primitive.cuts:
        raise ValueError(f"chunks={chunks}: {primitive.name} has one block for each rank")
    if root and not primitive.rooted:
        raise ValueError(f"root={root}: {primitive.name} has no root")
    if root >= ranks:
        raise ValueError(f"root={root} is not one of {ranks} ranks")


make_callable(__name__, synthesize)
