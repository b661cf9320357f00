"""Any graph of links between hosts, each direction with its own latency and bandwidth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from itertools import pairwise

from ..base import links as link_file
from ..base.links import Links
from .network import Network
from .topologies import Hop, RankHosts, Topology

ROUTED = 1 << 16  # bytes: routes are the fastest ones for messages of this length


@dataclass(frozen=True)
class Graph(Topology):
    """Hosts and the links between them.

    A message to a neighbor takes their link.  Another one takes the route with the least sum of ``alpha + ROUTED *
    beta`` over its links (Dijkstra, 1959), and with the fewest links if several are equally fast.
    """

    links: Links
    trees: dict[int, dict[int, int]] = field(default_factory=dict, compare=False)  # what `before` has returned

    @property
    def size(self) -> int:
        """The number of hosts."""
        return len(self.neighbors)

    @property
    def unit(self) -> float:
        """The seconds per byte of a link of half the largest bandwidth, a unit for pictures."""
        return 2 * min(times.beta for times in self.links.values())

    @cached_property
    def neighbors(self) -> dict[int, list[int]]:
        """The hosts to which each host has a link."""
        found: dict[int, list[int]] = {host: [] for pair in self.links for host in pair}
        for here, there in sorted(self.links):
            found[here].append(there)
        return found

    def before(self, source: int) -> dict[int, int]:
        """Return the host before each host on the route from a source."""
        if source not in self.trees:
            found = self.trees[source] = {}
            ahead = [(0.0, 0, source, source)]
            while ahead:
                seconds, hops, host, last = heappop(ahead)
                if host not in found:
                    found[host] = last
                    for other in self.neighbors[host]:
                        alpha, beta = self.links[host, other]
                        heappush(ahead, (seconds + alpha + ROUTED * beta, hops + 1, other, host))
        return self.trees[source]

    def route(self, source: int, to: int, ranks: RankHosts) -> Iterator[Hop]:
        """Yield the link to a neighbor, or the links of the fastest route."""
        first, last = ranks.hosts[source], ranks.hosts[to]
        before, path = self.before(first), [last]
        if (first, last) in self.links:
            path.append(first)
        while path[-1] != first:
            path.append(before[path[-1]])
        for here, there in pairwise(reversed(path)):
            alpha, beta = self.links[here, there]
            yield Hop(f"host {here} to host {there}", beta, alpha)

    def latency(self, hops: Sequence[Hop], network: Network) -> float:
        """Return the sum of the latencies of the links of a route."""
        return sum(hop.alpha for hop in hops)


def read(path: str) -> Graph:
    """Read a file with links; raise ValueError if it is not such a file, or if a host cannot reach another one."""
    links = link_file.read(path)
    graph, back = Graph(links), Graph(link_file.reversed_links(links))
    if absent := set(range(graph.size)) - graph.neighbors.keys():
        raise ValueError(f"topology={path!r}: host {min(absent)} has no link")
    for one, way in ((graph, "from host 0 to"), (back, "to host 0 from")):
        if cut := graph.neighbors.keys() - one.before(0).keys():
            raise ValueError(f"topology={path!r}: there is no route {way} host {min(cut)}")
    return graph
