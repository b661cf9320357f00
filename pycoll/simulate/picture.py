"""Pictures of topologies as SVG: hosts, switches, and the links that messages pass."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import permutations
from typing import Any, NamedTuple

from ..draw.markup import tag, words
from ..draw.sheet import XMLNS, style
from .graph import Graph
from .network import Network
from .topologies import Dragonfly, FatTree, Rails, RankHosts, Topology, Torus
from .topology_names import parse

MOST = 64  # ranks in a picture
SIZE, STEP, MARGIN = 20.0, 52.0, 14.0  # of a host; between hosts; around everything
WIDTH = 1.4  # of a link with the bandwidth of a host

RULES = """.topology text { font-size: 11px }
.topology .link { fill: none; stroke: var(--soft) }
.topology .route { stroke: var(--move) }
.topology .end { fill: var(--tint); stroke: var(--move) }
.topology .switch { fill: var(--tint2); stroke: var(--combine) }
.topology .memory { fill: var(--line) }
"""


class Box(NamedTuple):
    """A box: a host, a rank or a switch; `x` and `y` are its center."""

    x: float
    y: float
    text: str
    kind: str = "end"
    width: float = SIZE
    height: float = SIZE

    def nearest(self, other: Box) -> tuple[float, float]:
        """Return the point on the middle line of this box that is nearest to the center of another."""
        thick = min(self.width, self.height)
        right, down = (self.width - thick) / 2, (self.height - thick) / 2
        return min(max(other.x, self.x - right), self.x + right), min(max(other.y, self.y - down), self.y + down)


Ends = Callable[[str], tuple[str, str]]  # from the name of a link to the names of two nodes
Nodes = dict[str, Box]


def svg(text: str) -> str:
    """Return the picture of a topology such as ``torus:4x4``, with the route from the first rank to the last.

    Raises
    ------
    ValueError
        If the text does not name a topology, or if it has too many ranks or dimensions for a picture.
    """
    topology = parse(text)
    count = (topology.size or 0) * topology.ranks_per_host
    if not 1 < count <= MOST:
        raise ValueError(f"topology={text!r} has {count} ranks; a picture shows 2 to {MOST}")
    network = Network()
    unit = topology.unit if isinstance(topology, Graph) else network.between.beta
    ranks = RankHosts(network, [rank // topology.ranks_per_host for rank in range(count)])
    nodes, ends = LAYOUTS[type(topology)](topology)
    links: dict[frozenset[str], float] = {}  # the bandwidth, in units of a width
    for source, to in permutations(range(count), 2):
        for hop in topology.route(source, to, ranks):
            links[frozenset(ends(hop.name))] = unit / hop.beta
    route = {frozenset(ends(hop.name)) for hop in topology.route(0, count - 1, ranks)}
    parts = [_link(nodes, pair, links[pair], pair in route) for pair in sorted(links, key=lambda pair: pair in route)]
    return _document(text, [*parts, *(_box(node) for node in nodes.values())], nodes)


def _document(text: str, parts: list[str], nodes: Nodes) -> str:
    left = min(node.x - node.width / 2 for node in nodes.values()) - 2 * MARGIN
    top = min(node.y - node.height / 2 for node in nodes.values()) - 2 * MARGIN
    width = max(node.x + node.width / 2 for node in nodes.values()) + MARGIN - left
    height = max(node.y + node.height / 2 for node in nodes.values()) + MARGIN - top
    box = " ".join(f"{each:.6g}" for each in (left, top, width, height))
    size: dict[str, Any] = {"width": width, "height": height}
    paper = tag("rect", class_="paper", x=left, y=top, **size)
    head = tag("title", words(text)), tag("style", words(style("drawing.css") + RULES))
    return tag("svg", *head, paper, *parts, class_="drawing topology", xmlns=XMLNS, viewBox=box, role="img", **size)


def _box(node: Box) -> str:
    """Draw a node with its name, which is above a narrow one."""
    left, top = node.x - node.width / 2, node.y - node.height / 2
    box = tag("rect", class_=node.kind, x=left, y=top, width=node.width, height=node.height, rx=5.0)
    down = top - 5 if node.width < SIZE else node.y + 3.5
    return box + tag("text", words(node.text), x=node.x, y=down, text_anchor="middle")


def _link(nodes: Nodes, pair: frozenset[str], bandwidth: float, chosen: bool) -> str:
    """Draw a link; one that would cross another box of the same kind is bent around it."""
    one, other = sorted((nodes[name] for name in pair), key=lambda node: (node.x, node.y))
    (x, y), (to_x, to_y) = one.nearest(other), other.nearest(one)
    across, down = to_x - x, to_y - y
    bend = 0.0
    for node in nodes.values():
        if node.kind == one.kind == other.kind and node not in (one, other):
            along = ((node.x - x) * across + (node.y - y) * down) / (across**2 + down**2)
            beside = ((node.y - y) * across - (node.x - x) * down) / math.hypot(across, down)
            if 0 < along < 1 and abs(beside) < SIZE:
                bend = -0.25 if beside >= 0 else 0.25
    middle = (x + to_x) / 2 - bend * down, (y + to_y) / 2 + bend * across
    path = f"M{x:.6g} {y:.6g}Q{middle[0]:.6g} {middle[1]:.6g} {to_x:.6g} {to_y:.6g}"
    return tag("path", d=path, class_="link route" if chosen else "link", stroke_width=WIDTH * bandwidth)


def _numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def _torus(topology: Torus) -> tuple[Nodes, Ends]:
    """Hosts on a ring in one dimension, and on a grid in two."""
    *rows, columns = topology.sizes
    if len(rows) > 1:
        raise ValueError(f"a picture of a torus has one or two dimensions, not {len(topology.sizes)}")
    radius = STEP * columns / (2 * math.pi)
    nodes = {}
    for host in range(topology.size):
        x, y = (STEP * (host % columns), STEP * (host // columns)) if rows else _around(host, columns, radius)
        nodes[f"host {host}"] = Box(x, y, str(host))
    return nodes, lambda name: _pair("host", name)


def _pair(kind: str, name: str) -> tuple[str, str]:
    one, other = _numbers(name)
    return f"{kind} {one}", f"{kind} {other}"


def _around(number: float, count: int, radius: float) -> tuple[float, float]:
    """Return a point on a circle; number 0 is at the top."""
    angle = 2 * math.pi * number / count
    return radius * math.sin(angle), -radius * math.cos(angle)


def _fat_tree(topology: FatTree) -> tuple[Nodes, Ends]:
    """Hosts below their leaf switches, and the core above all."""
    step = SIZE + 6
    nodes = {}
    for host in range(topology.leaves * topology.width):
        nodes[f"host {host}"] = Box(step * host + SIZE * (host // topology.width), 2.6 * STEP, str(host))
    middle = {}
    for leaf in range(topology.leaves):
        below = [nodes[f"host {leaf * topology.width + number}"].x for number in range(topology.width)]
        middle[leaf] = sum(below) / len(below)
        nodes[f"switch {leaf}"] = Box(middle[leaf], 1.3 * STEP, f"switch {leaf}", "switch", 58)
    nodes["core"] = Box(sum(middle.values()) / len(middle), 0, "core", "switch", 58)

    def ends(name: str) -> tuple[str, str]:
        (number,) = _numbers(name)
        if name.startswith("switch"):
            return f"switch {number}", "core"
        return f"host {number}", f"switch {number // topology.width}"

    return nodes, ends


def _dragonfly(topology: Dragonfly) -> tuple[Nodes, Ends]:
    """Routers on a circle, group by group, and their hosts on a larger one."""
    count = topology.groups * (topology.routers + 1)  # there is a gap after each group
    outer = max(count * topology.width * (SIZE + 4), count * SIZE * 1.4) / (2 * math.pi)
    inner = max(outer - STEP, count * SIZE * 1.3 / (2 * math.pi))
    nodes = {}
    for router in range(topology.groups * topology.routers):
        position = router + router // topology.routers
        nodes[f"router {router}"] = Box(*_around(position, count, inner), str(router), "switch")
        for number in range(topology.width):
            beside = position + (number - (topology.width - 1) / 2) / topology.width
            host = router * topology.width + number
            nodes[f"host {host}"] = Box(*_around(beside, count, inner + STEP), str(host))

    def ends(name: str) -> tuple[str, str]:
        if name.startswith("router"):
            return _pair("router", name)
        if name.startswith("group"):
            group, other = _numbers(name)
            return f"router {topology.gate(group, other)}", f"router {topology.gate(other, group)}"
        (host,) = _numbers(name)
        return f"host {host}", f"router {host // topology.width}"

    return nodes, ends


def _rails(topology: Rails) -> tuple[Nodes, Ends]:
    """Hosts as columns of ranks beside their memory, and rails as rows below the ranks."""
    wide, high = STEP * 1.6, STEP * 0.9
    nodes = {}
    for number in range(topology.ranks):
        at = wide * (topology.hosts - 1) / 2, high * (number + 0.5) - 2
        nodes[f"rail {number}"] = Box(*at, f"rail {number}", "switch", wide * topology.hosts, 14)
    for rank in range(topology.hosts * topology.ranks):
        host, number = divmod(rank, topology.ranks)
        nodes[f"rank {rank}"] = Box(wide * host + 14, high * number, str(rank))
        tall = high * (topology.ranks - 1)
        nodes[f"host {host}"] = Box(wide * host - 18, tall / 2, f"host {host}", "memory", 12, tall + SIZE)

    def ends(name: str) -> tuple[str, str]:
        (rank,) = _numbers(name)
        host, number = divmod(rank, topology.ranks)
        return f"rank {rank}", f"rail {number}" if name.startswith("card") else f"host {host}"

    return nodes, ends


def _graph(topology: Graph) -> tuple[Nodes, Ends]:
    """Hosts on a circle, which has room for links beside each other."""
    radius = STEP * topology.size / (2 * math.pi)
    nodes = {f"host {host}": Box(*_around(host, topology.size, radius), str(host)) for host in range(topology.size)}
    return nodes, lambda name: _pair("host", name)


LAYOUTS: dict[type[Topology], Callable[[Any], tuple[Nodes, Ends]]] = {
    Torus: _torus,
    FatTree: _fat_tree,
    Dragonfly: _dragonfly,
    Rails: _rails,
    Graph: _graph,
}
