"""Topologies of a simulated network: the links that a message passes from one host to another.

Each direction of a link is a link of its own, with the time per byte of the link of a host, unless said otherwise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from .network import Network


class Hop(NamedTuple):
    """One direction of a link on a route, with its seconds per byte, and its latency if each link has its own."""

    name: str
    beta: float
    alpha: float = 0.0


class RankHosts:
    """The ranks on their hosts: `hosts` has the host of each rank."""

    def __init__(self, network: Network, hosts: Sequence[int]) -> None:
        self.network, self.hosts = network, hosts

    @cached_property
    def members(self) -> dict[int, list[int]]:
        """The ranks of each host."""
        members: dict[int, list[int]] = {}
        for rank, host in enumerate(self.hosts):
            members.setdefault(host, []).append(rank)
        return members

    @cached_property
    def positions(self) -> dict[int, int]:
        """The number of each rank among the ranks of its host."""
        return {rank: position for ranks in self.members.values() for position, rank in enumerate(ranks)}


class Topology(ABC):
    """The links between hosts."""

    @property
    @abstractmethod
    def size(self) -> int | None:
        """The number of hosts; None for any number."""

    @property
    def ranks_per_host(self) -> int:
        """The number of ranks on each host, unless another is given."""
        return 1

    @abstractmethod
    def route(self, source: int, to: int, ranks: RankHosts) -> Iterator[Hop]:
        """Yield the links from one rank to another rank on another host."""

    def latency(self, hops: Sequence[Hop], network: Network) -> float:
        """Return the latency of a route."""
        return network.between.alpha + (len(hops) - 1) * network.hop


@dataclass(frozen=True)
class FatTree(Topology):
    """Hosts on leaf switches, which a core without contention connects.

    The uplink of a leaf switch is one link, with the bandwidth of its hosts divided by `taper`.  With `width` 0, all
    hosts are on one switch.
    """

    leaves: int
    width: int
    taper: float = 1.0

    @property
    def size(self) -> int | None:
        """The number of hosts."""
        return self.leaves * self.width or None

    def route(self, source: int, to: int, ranks: RankHosts) -> Iterator[Hop]:
        """Yield the link out of the host, the links between switches, and the link into the other host."""
        here, there, beta = ranks.hosts[source], ranks.hosts[to], ranks.network.between.beta
        yield Hop(f"host {here} out", beta)
        if self.width and here // self.width != there // self.width:
            trunk = beta * self.taper / self.width
            yield Hop(f"switch {here // self.width} up", trunk)
            yield Hop(f"switch {there // self.width} down", trunk)
        yield Hop(f"host {there} in", beta)


@dataclass(frozen=True)
class Torus(Topology):
    """Hosts on a grid that is closed in each dimension, with links to both neighbors in each dimension.

    Hosts are numbered like the elements of an array in C order.  A message passes the dimensions from the first to the
    last, each in the shorter direction; if both are equal, up from even coordinates and down from odd ones.  In a
    dimension of two hosts, both neighbors are the same host, and there is one link.
    """

    sizes: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of hosts."""
        return math.prod(self.sizes)

    def route(self, source: int, to: int, ranks: RankHosts) -> Iterator[Hop]:
        """Yield the links to the next hosts on the way."""
        here, there, beta = ranks.hosts[source], ranks.hosts[to], ranks.network.between.beta
        stride = self.size
        for size in self.sizes:
            stride //= size
            position = here // stride % size
            ahead = (there // stride - position) % size
            up = 2 * ahead < size or (2 * ahead == size and position % 2 == 0)
            for _ in range(ahead if up else size - ahead):
                following = (position + (1 if up else -1)) % size
                before, here, position = here, here + (following - position) * stride, following
                yield Hop(f"host {before} to host {here}", beta)


@dataclass(frozen=True)
class Dragonfly(Topology):
    """Groups of routers: each router has hosts and a link to each router of its group; all groups are connected.

    The links of a group to all other groups together have the bandwidth of its hosts divided by `taper`.  Those between
    two groups are one link, from one router of each; consecutive groups have theirs at consecutive routers.  Routes are
    minimal.  (Kim, Dally, Scott and Abts, ISCA 2008.)
    """

    groups: int
    routers: int
    width: int
    taper: float = 1.0

    @property
    def size(self) -> int:
        """The number of hosts."""
        return self.groups * self.routers * self.width

    def route(self, source: int, to: int, ranks: RankHosts) -> Iterator[Hop]:
        """Yield the links of the two hosts, and those between routers and between groups."""
        here, there, beta = ranks.hosts[source], ranks.hosts[to], ranks.network.between.beta
        router, last = here // self.width, there // self.width
        group, other = router // self.routers, last // self.routers
        yield Hop(f"host {here} out", beta)
        if group != other:
            gate = self.gate(group, other)
            if router != gate:
                yield Hop(f"router {router} to router {gate}", beta)
            hosts = self.routers * self.width
            yield Hop(f"group {group} to group {other}", beta * self.taper * (self.groups - 1) / hosts)
            router = self.gate(other, group)
        if router != last:
            yield Hop(f"router {router} to router {last}", beta)
        yield Hop(f"host {there} in", beta)

    def gate(self, group: int, other: int) -> int:
        """Return the router of a group that has the link to another group."""
        return group * self.routers + ((other - group) % self.groups - 1) % self.routers


@dataclass(frozen=True)
class Rails(Topology):
    """Hosts whose ranks each have their own network card; cards of equal numbers are on one switch, a rail.

    A message to a rank with another number passes the memory of the sender's host to the rank on its rail first.
    """

    hosts: int
    ranks: int

    @property
    def size(self) -> int:
        """The number of hosts."""
        return self.hosts

    @property
    def ranks_per_host(self) -> int:
        """The number of ranks on each host, unless another is given."""
        return self.ranks

    def route(self, source: int, to: int, ranks: RankHosts) -> Iterator[Hop]:
        """Yield the links of two network cards of equal numbers, and those inside the hosts, if any."""
        mates, others = ranks.members[ranks.hosts[source]], ranks.members[ranks.hosts[to]]
        position = ranks.positions[to]
        sender = (
            mates[position] if position < len(mates) else source
        )  # without such a rank, the receiver's host forwards
        receiver = others[ranks.positions[sender]]
        beta = ranks.network.between.beta
        yield from inside(source, sender, ranks.network)
        yield Hop(f"card of rank {sender} out", beta)
        yield Hop(f"card of rank {receiver} in", beta)
        yield from inside(receiver, to, ranks.network)


def inside(source: int, to: int, network: Network) -> Iterator[Hop]:
    """Yield the links between two ranks of one host: none if they are the same rank."""
    if source != to:
        yield Hop(f"rank {source} out", network.inside.beta)
        yield Hop(f"rank {to} in", network.inside.beta)


def across(source: int, to: int, here: tuple[int, ...], there: tuple[int, ...], network: Network) -> Iterator[Hop]:
    """Yield the links between two ranks of one host in different domains: those of the largest different domains."""
    level = next(level for level, (mine, other) in enumerate(zip(here, there)) if mine != other)
    yield Hop(f"rank {source} out", network.inside.beta)
    for domain, way in ((here, "out"), (there, "in")):
        yield Hop(f"domain {'.'.join(map(str, domain[: level + 1]))} {way}", network.across.beta)
    yield Hop(f"rank {to} in", network.inside.beta)
