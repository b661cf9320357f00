"""A picture of the ranks that wait for each other when a schedule is stuck: they stand around, with arrows between."""

from __future__ import annotations

from itertools import pairwise
from math import cos, hypot, pi, sin

from ..schedule.diagnosis import WaitForGraph
from .arrows import marker
from .language import say
from .markup import tag

SIDE, AROUND, NODE, BEND = 340, 130.0, 15.0, 14.0  # the picture, the ring of ranks, a rank, and the bend of arrows
GAP = 6.0  # between an arrow and a rank
Point = tuple[float, float]


def waiting(found: WaitForGraph) -> str:
    """Return an SVG element and its caption, for a figure; the style sheet of the page colors it."""
    size = len(found.waits)
    node = min(NODE, 0.3 * 2 * pi * AROUND / size)
    cycle = set(pairwise([*found.cycle, found.cycle[0]])) if found.cycle else set()
    every = {(rank, peer) for rank, peers in enumerate(found.waits) for peer in peers or ()} | cycle
    arrows = [_arrow(size, node, pair, "cycle" if pair in cycle else "waits") for pair in sorted(every - cycle)]
    arrows += [_arrow(size, node, pair, "cycle") for pair in sorted(cycle)]
    ranks = [_rank(size, node, rank, _kind(found, rank)) for rank in range(size)]
    heads = [marker(kind, f"waiting-{kind}", 9, 2) for kind in ("waits", "cycle")]
    box = f"{-SIDE / 2:.6g} {-SIDE / 2:.6g} {SIDE} {SIDE}"
    given = {"class_": "waiting", "role": "img", "aria_label": described(found), "viewBox": box}
    caption = say("arrow_key") + say("deadlock_key") * bool(found.cycle) + say("finished_key") * (None in found.waits)
    return tag("svg", tag("defs", *heads), *arrows, *ranks, **given) + tag("figcaption", caption)


def described(found: WaitForGraph) -> str:
    """Describe the picture."""
    pairs = [(rank, peer) for rank, peers in enumerate(found.waits) for peer in peers or ()]
    return say("comma").join(say("waits", rank=rank, peer=peer) for rank, peer in pairs)


def _kind(found: WaitForGraph, rank: int) -> str:
    return "cycle" if rank in found.cycle else "finished" if found.waits[rank] is None else "waits"


def _center(size: int, rank: int) -> Point:
    """Return the center of a rank; rank 0 is at the top, and the others follow clockwise."""
    angle = 2 * pi * rank / size
    return round(AROUND * sin(angle), 2), round(-AROUND * cos(angle), 2)


def _rank(size: int, node: float, rank: int, kind: str) -> str:
    x, y = _center(size, rank)
    number = tag("text", str(rank), x=x, y=y + node / 3, text_anchor="middle", font_size=node)
    return tag("g", tag("circle", cx=x, cy=y, r=node), number, class_=f"rank {kind}")


def _arrow(size: int, node: float, pair: tuple[int, int], kind: str) -> str:
    path = _loop(size, node, pair[0]) if pair[0] == pair[1] else _path(size, node, pair)
    return tag("path", class_=f"arrow {kind}", d=path, marker_end=f"url(#waiting-{kind})")


def _loop(size: int, node: float, rank: int) -> str:
    """Return the path of an arrow from a rank to itself, around the outside of the ring."""
    x, y = _center(size, rank)
    out, across = (x / AROUND, y / AROUND), (-y / AROUND, x / AROUND)
    far = [(node, -5), (2.2 * node, -18), (2.2 * node, 18), (node + GAP, 7)]
    points = [f"{x + a * out[0] + b * across[0]:.2f} {y + a * out[1] + b * across[1]:.2f}" for a, b in far]
    return f"M{points[0]}C{' '.join(points[1:])}"


def _path(size: int, node: float, pair: tuple[int, int]) -> str:
    """Return the path of an arrow that bends to its left, so that arrows in both directions do not overlap."""
    (x, y), (u, v) = (_center(size, rank) for rank in pair)
    length = hypot(u - x, v - y)
    along, across = ((u - x) / length, (v - y) / length), ((v - y) / length, (x - u) / length)
    start, end = node + 1, length - node - min(GAP, length / 6)
    bend = min(BEND, length / 6)
    aside = [bend / 4, bend, bend / 4]
    points = [
        f"{x + far * along[0] + off * across[0]:.2f} {y + far * along[1] + off * across[1]:.2f}"
        for far, off in zip((start, length / 2, end), aside)
    ]
    return f"M{points[0]}Q{points[1]} {points[2]}"
