"""The groups of a mesh of ranks, and the times of their collectives.

All groups along an axis communicate at the same time, as in a training step, and share the links of the network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from ...base import settings
from ...primitives.direct import find_schedule
from ...schedule.endless import timed
from ...schedule.hosts import in_order
from ...schedule.moves import Blocks, Recv, Reduce, Round, Send
from ...schedule.registry import Algorithm, algorithms_of
from ...schedule.symmetry import Described
from .. import _compiled, outcome_of
from ..network import Network
from ..run import Cluster, check_size, sizes
from ..topologies import FatTree, Torus
from ..topology_names import parse

AXES = "dp", "fsdp", "pp", "tp"
MOST_PEERS = 64  # an algorithm with more peers of a rank is no candidate: it is slow to simulate, and for short blocks
RUN = 16  # equal rounds in sequence: that many, and twice as many, are simulated, and the others extrapolated
SMALL = 64  # up to this number of ranks, algorithms whose ranks do different things are candidates too


class GroupCollective(NamedTuple):
    """A collective of all groups of an axis, with its time in seconds; a message has no algorithm."""

    axis: str
    primitive: str
    nbytes: int
    algorithm: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.primitive}.{self.algorithm}"


@dataclass
class Groups:
    """The ranks of a mesh on their hosts.

    Parameters
    ----------
    mesh : dict of str to int
        The size of each axis.  The ranks of the last axis are neighbors, then those of the axis before it, as in
        `pycoll.parallel.Mesh`.
    network : Network
        The parameters of the network.
    ranks_per_host : int, optional
        The number of consecutive ranks on each host, by default 1, or as the topology says.
    topology : str, optional
        The links between hosts, as in `pycoll.simulate`.
    algorithms : dict of str to str
        The algorithm of the collectives along an axis; by default, the fastest one for each size.

    Raises
    ------
    ValueError
        If the mesh is not valid, or its ranks do not fit on the hosts of the topology.
    """

    mesh: dict[str, int]
    network: Network = field(default_factory=Network)
    ranks_per_host: int | None = None
    topology: str | None = None
    algorithms: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self.mesh)
        if unknown := [axis for axis in self.algorithms if axis not in self.mesh]:
            raise ValueError(f"an algorithm for {unknown[0]!r}: the axes of the mesh are {', '.join(self.mesh)}")
        self.links = parse(self.topology) if self.topology else None
        default = self.links.ranks_per_host if self.links else 1
        self.per_host = default if self.ranks_per_host is None else self.ranks_per_host
        if self.per_host < 1:
            raise ValueError(f"ranks_per_host={self.per_host} is not positive")
        self.ranks = math.prod(self.mesh.values())
        check_size(",".join(f"{axis}={size}" for axis, size in self.mesh.items()) + ": ranks", self.ranks)
        self.hosts = in_order(self.ranks, self.per_host) or tuple(range(self.ranks))
        if self.links and self.links.size and self.hosts[-1] >= self.links.size:
            raise ValueError(
                f"the mesh has {self.ranks} ranks, but topology={self.topology!r} has {self.links.size} hosts of "
                f"{self.per_host} ranks"
            )
        self.found: dict[tuple[str, str, int], GroupCollective] = {}

    def size(self, axis: str) -> int:
        """Return the number of ranks of a group; 1 if the mesh has no such axis."""
        return self.mesh.get(axis, 1)

    def stride(self, axis: str) -> int:
        """Return the distance between neighbors of a group."""
        names = list(self.mesh)
        return math.prod(self.mesh[name] for name in names[names.index(axis) + 1 :])

    def collective(self, axis: str, primitive: str, nbytes: int) -> GroupCollective:
        """Return a collective in all groups of an axis, or a "message" to the next rank of each group."""
        key = axis, primitive, nbytes
        if self.size(axis) == 1 or not nbytes:
            return GroupCollective(*key, "", 0.0)
        if key not in self.found:
            find = self._message if primitive == "message" else self._fastest
            self.found[key] = GroupCollective(*key, *find(*key))
        return self.found[key]

    def _message(self, axis: str, primitive: str, nbytes: int) -> tuple[str, float]:
        size, stride = self.size(axis), self.stride(axis)
        rounds = []
        for rank in range(self.ranks):
            at = rank // stride % size
            sends = (Send(rank + stride, [0]),) if at < size - 1 else ()
            rounds.append(iter([(*sends, Recv(rank - stride, [0])) if at else sends]))
        return "", self._run(rounds, lambda blocks: nbytes * len(blocks), self._hosts(axis))

    def _fastest(self, axis: str, primitive: str, nbytes: int) -> tuple[str, float]:
        """Return the fastest algorithm and its time.

        Candidates are the algorithms whose ranks all do the same; on a few ranks, also those whose ranks do different
        things.  A candidate is not run if its bound exceeds the best time.
        """
        if axis in self.algorithms:
            chosen = find_schedule(primitive, self.algorithms[axis])
            return chosen.name, self._time(chosen, axis, nbytes)
        candidates = []
        for each in algorithms_of(primitive).values():
            if each.symmetry and each.symmetry(self.size(axis)):
                candidates.append((self._bound(each, axis, nbytes), each.name, each))
            elif self.ranks <= SMALL and not each.pipelined and not each.levels:
                candidates.append((0.0, each.name, each))
        best = ("", math.inf)
        for bound, name, each in sorted(candidates, key=lambda one: one[:2]):
            if bound < best[1] and (seconds := self._time(each, axis, nbytes)) < best[1]:
                best = name, seconds
        return best

    def _bound(self, algorithm: Algorithm, axis: str, nbytes: int) -> float:
        """Return the least time of an algorithm whose ranks all do the same, from the rounds of rank 0.

        It is infinite for algorithms with several messages in a round, which are for tori, and for those with many
        peers.
        """
        size, hosts, torus = self.size(axis), self._hosts(axis), isinstance(self.links, Torus)
        inside, between = len(set(hosts)) < size, len(set(hosts)) > 1
        links = [self.network.inside] * inside + [self.network.between] * between
        first, beta = min(link.alpha + link.overhead for link in links), min(link.beta for link in links)
        if not inside and (self.links is None or isinstance(self.links, FatTree)):
            beta *= self.per_host  # all ranks of a host send over its link
        segments = settings.segments(nbytes, between)
        together = sizes(algorithm, size, nbytes, segments, hosts)
        total, peers = 0.0, set()
        for moves in timed(algorithm.schedule(0, size, 0, segments, hosts)):
            sends = [move for move in moves if isinstance(move, Send)]
            peers |= {move.to for move in sends}
            if len(sends) > 1 and not torus:
                return math.inf
            total += first + max(together(move.blocks) for move in sends) * beta if sends else 0.0
        return math.inf if len(peers) > MOST_PEERS else total

    def _hosts(self, axis: str) -> tuple[int, ...]:
        """Return the hosts of the ranks of the first group."""
        return self.hosts[: self.size(axis) * self.stride(axis) : self.stride(axis)]

    def _time(self, algorithm: Algorithm, axis: str, nbytes: int) -> float:
        size, stride = self.size(axis), self.stride(axis)
        hosts = self._hosts(axis)
        segments = settings.segments(nbytes, len(set(hosts)) > 1)
        together = sizes(algorithm, size, nbytes, segments, hosts)
        rounds = _compiled.checked_rounds(algorithm, size) if _compiled else None
        if rounds is None or algorithm.symmetry is None:
            every = [self._rounds(algorithm, rank, axis, segments) for rank in range(self.ranks)]
            return self._run(every, together, hosts, algorithm.primitive.reduces)
        part = -(-nbytes // algorithm.parts(size, segments, hosts))

        def seconds(most: int | None) -> float:
            """Run no more than `most` of equal rounds in sequence."""
            shorter = [each for run in runs for each in run[:most]]
            grid = _compiled.in_groups(shorter, sides, part, self.ranks // (size * stride), stride)
            return self._run(grid, together, hosts, algorithm.primitive.reduces)

        sides = algorithm.symmetry(size)
        runs = [list(run) for _, run in groupby(rounds, _shape)]
        lengths = {len(run) for run in runs if len(run) > 2 * RUN}
        if len(lengths) != 1:
            return seconds(None)
        before, after = seconds(RUN), seconds(2 * RUN)
        return before + (after - before) * (lengths.pop() - RUN) / RUN

    def _rounds(self, algorithm: Algorithm, rank: int, axis: str, segments: int) -> Iterator[Round]:
        """Yield the rounds of a rank, with the numbers of the ranks in the mesh."""
        size, stride = self.size(axis), self.stride(axis)
        at = rank // stride % size
        first = rank - at * stride
        hosts = self.hosts[first : first + size * stride : stride]
        for moves in timed(algorithm.schedule(at, size, 0, segments, hosts)):
            yield tuple(_moved(move, first, stride) for move in moves)

    def _run(
        self, rounds: Any, together: Callable[[Blocks], int], hosts: Sequence[int], reduces: bool = False
    ) -> float:
        """Run the rounds of all ranks; `hosts` are those of a group."""
        cluster = Cluster(self.network, self.ranks, self.hosts, self.links)
        longest = settings.longest(len(set(hosts)) > 1, reduces)
        return float(max(outcome_of(rounds, cluster, together, longest, [0.0] * self.ranks).ends))


def _shape(moves: Sequence[Described]) -> list[tuple[int, int, int]]:
    """Return what equal rounds have in common."""
    return [(move.kind, move.peer, len(move.blocks)) for move in moves]


def _moved(move: Any, first: int, stride: int) -> Any:
    if isinstance(move, Send):
        return move._replace(to=first + move.to * stride)
    if isinstance(move, (Recv, Reduce)):
        return move._replace(source=first + move.source * stride)
    return move


def _check(mesh: dict[str, int]) -> None:
    if unknown := [axis for axis in mesh if axis not in AXES]:
        raise ValueError(f"the mesh has an axis {unknown[0]!r}, which is not one of: {', '.join(AXES)}")
    if "dp" in mesh and "fsdp" in mesh:
        raise ValueError("the mesh has the axes dp and fsdp: parameters are either replicated or sharded")
    for axis, size in mesh.items():
        if size < 1:
            raise ValueError(f"{axis}={size} is not a positive number of ranks")
    if not mesh:
        raise ValueError("the mesh has no axis")
