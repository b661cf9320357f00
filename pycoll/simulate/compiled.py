"""The simulation of all ranks with compiled events: the same results as those of `run`, sooner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..schedule.moves import Blocks, Round
from ..schedule.registry import Algorithm
from ..schedule.symmetry import Described, symmetric_rounds
from .events import Simulation, Template
from .network import UNCUT
from .run import Cluster, Outcome
from .topologies import FatTree

CHECKED = 4  # ranks whose rounds are compared with those that symmetry gives


class CompiledRanks:
    """The state of all ranks, as `Ranks`; `rounds` has the rounds of each rank, or a template of all."""

    def __init__(
        self,
        rounds: Sequence[Iterator[Round]] | Template,
        cluster: Cluster,
        together: Callable[[Blocks], int],
        longest: int,
    ) -> None:
        network = cluster.network
        self.cluster = cluster
        self.links = [network.between, network.across, network.inside]
        self.names: list[str] = []  # of the ports, with their seconds per byte
        self.betas: list[float] = []
        self.numbers: dict[str, int] = {}
        where = self.one_switch(len(rounds))
        self.events = Simulation(
            rounds, self.links, network.hop, network.gamma, min(longest, UNCUT), together, self.betas, self.way, *where
        )

    def one_switch(self, ranks: int) -> tuple[Any, int]:
        """Return the number of the host of each rank, and of hosts; None if hosts are not on one switch."""
        topology, domains = self.cluster.topology, self.cluster.domains
        if not isinstance(topology, FatTree) or topology.width or isinstance(domains[0], tuple):
            return None, 0
        names, numbers = np.unique(np.asarray(domains), return_inverse=True)
        network = self.cluster.network
        groups = [("host", names.tolist(), network.between.beta), ("rank", range(ranks), network.inside.beta)]
        for kind, members, beta in groups if len(names) < ranks else groups[:1]:
            self.names += [f"{kind} {name} {way}" for name in members for way in ("out", "in")]
            self.betas += [beta] * (2 * len(members))
        return numbers.astype(np.int32), len(names)

    def way(self, source: int, to: int) -> tuple[int, float, list[int]]:
        """Return the number of the link between two ranks, the latency, and the numbers of the ports on the route."""
        link, alpha, ports = self.cluster.way(source, to)
        for port in ports:
            if port.name not in self.numbers:
                self.numbers[port.name] = len(self.names)
                self.names.append(port.name)
                self.betas.append(port.beta)
        number = next(number for number, each in enumerate(self.links) if each is link)
        return number, alpha, [self.numbers[port.name] for port in ports]

    def run(self, starts: Sequence[float]) -> Outcome:
        """Run all ranks from their starts until no event is left."""
        events = self.events
        events.run(starts)
        counts = events.messages, events.sent, events.received, events.combined
        traffic = zip(self.names, events.traffic())
        return Outcome(events.ends, events.busy, *counts, {name: passed for name, passed in traffic if passed})


def template(algorithm: Algorithm, ranks: int, nbytes: int) -> Template | None:
    """Return the rounds of all ranks of a symmetric schedule, after a check of some; None if it is not symmetric."""
    rounds = checked_rounds(algorithm, ranks)
    if rounds is None or algorithm.symmetry is None:
        return None
    return Template(rounds, algorithm.symmetry(ranks), *divmod(nbytes, algorithm.parts(ranks)))


def checked_rounds(algorithm: Algorithm, ranks: int) -> list[list[Described]] | None:
    """Return the rounds of rank 0 of a symmetric schedule, from which those of some ranks follow."""
    if algorithm.symmetry is None or 1 < algorithm.parts(ranks) < ranks:  # these parts are not those of ranks
        return None
    return symmetric_rounds(algorithm, ranks, {ranks * i // CHECKED + i for i in range(CHECKED)} & {*range(ranks)})


def in_groups(
    rounds: Sequence[Sequence[Described]], sides: tuple[int, ...], part: int, outer: int, inner: int
) -> Template:
    """Return the rounds of `outer` * `inner` groups of ranks that run the same symmetric schedule.

    The ranks of all groups are numbered as a grid with `outer`, the `sides` of the schedule and `inner` in C order.
    Each block has `part` bytes.
    """
    moved = [[move._replace(peer=move.peer * inner) for move in moves] for moves in rounds]
    return Template(moved, tuple(side for side in (outer, *sides, inner) if side > 1), part, 0)
