"""The arrows of a step: straight between neighbors, otherwise arcs, above to the right and below to the left.

Arrows are as thick as their messages are long.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from ..schedule.moves import Block
from ..schedule.registry import counts_of
from .frames import DrawnMessage, Film
from .markup import tag, words
from .names import load, sentence

RISE, FIRST, LETTERS = 9, 6, 12  # height of an arc per column, plus a constant; height of labels
THINNEST, THICKEST = 1.0, 5.0  # the arrow of the whole vector is the thickest
KINDS = "move", "combine"


class Columns(NamedTuple):
    """The position of columns: the left edge of the first, their width, the gap between them, top and bottom."""

    left: float
    width: float
    gutter: float
    top: float
    bottom: float

    def x(self, rank: int) -> float:
        """Return the left edge of the column of a rank."""
        return self.left + rank * (self.width + self.gutter)

    def middle(self, rank: int) -> float:
        """Return the middle of the column of a rank."""
        return self.x(rank) + self.width / 2


Rows = tuple[int, int]  # the first and the last row
Extent = tuple[float, float]  # the middles of these rows


class Head(NamedTuple):
    """The head of arrows that are up to `thick` thick."""

    thick: int

    @property
    def size(self) -> int:
        """Its length and width."""
        return 6 + self.thick

    @property
    def reach(self) -> float:
        """How far its tip is from the end of the line."""
        return self.size * 7 / 8

    def name(self, kind: str) -> str:
        """The name of the head in this color."""
        return f"{kind}-{self.thick}"


def head(thick: float) -> Head:
    """Return the head of an arrow."""
    return Head(ceil(thick))


def heads() -> list[str]:
    """Return the heads of all arrows."""
    sizes = [Head(thick) for thick in range(ceil(THINNEST), ceil(THICKEST) + 1)]
    return [marker(kind, one.name(kind), one.size, 1) for kind in KINDS for one in sizes]


def tip() -> str:
    """Return the head named `tip`, for lines that end at the tip of their arrow."""
    return marker("move", "tip", head(THINNEST).size, 7)


def marker(kind: str, name: str, side: int, end: int) -> str:
    """Return a head; the line ends at `end`, of the 8 units of its length."""
    size = {"markerWidth": side, "markerHeight": side, "markerUnits": "userSpaceOnUse"}
    shape = tag("path", d="M0 0L8 4L0 8Z", class_=f"head {kind}")
    return tag("marker", shape, id=name, viewBox="0 0 8 8", refX=end, refY=4, orient="auto", **size)


def look(kind: str, thick: float) -> dict[str, str]:
    """Return the attributes of an arrow."""
    return {"style": f"stroke-width:{thick:.3g}px", "marker_end": f"url(#{head(thick).name(kind)})"}


def thickness(share: float) -> float:
    """Return the thickness of the arrow of a message with this share of the vector."""
    return max(THINNEST, THICKEST * min(1, share))


def _thickness(film: Film, message: DrawnMessage) -> float:
    data = [block for block in message.blocks if not (isinstance(block, tuple) and block == counts_of(block[1]))]
    return thickness(len(data) / film.parts)


def rows(message: DrawnMessage, row_of: dict[Block, int]) -> Rows | None:
    """Return the rows of the blocks of a message if they are adjacent, otherwise None."""
    found = {row_of[block] for block in message.blocks if block in row_of}
    return (min(found), max(found)) if found and len(found) == max(found) - min(found) + 1 else None


def is_straight(message: DrawnMessage, start: Rows | None, end: Rows | None) -> bool:
    """Return whether a message goes to a neighbor, and several blocks keep their rows."""
    near = abs(message.to - message.source) == 1
    return near and (len(message.blocks) < 2 or (start is not None and start == end))


def height(messages: list[DrawnMessage], rightward: bool) -> float:
    """Return the height of the arcs of the messages in one direction."""
    far = [abs(one.to - one.source) for one in messages if (one.to > one.source) == rightward]
    return FIRST + RISE * max(far) + LETTERS if far else 0


def straight(film: Film, message: DrawnMessage, columns: Columns, start: Extent | None, end: Extent | None) -> str:
    """Draw a message as a straight arrow between two columns, from and to these heights."""
    return _arrow(film, message, _straight(message, columns, start, end, _thickness(film, message)))


def arc(film: Film, message: DrawnMessage, columns: Columns) -> tuple[str, str]:
    """Draw a message as an arc over columns; return it with its label, which may be empty."""
    path, label = _arc(film, message, columns)
    return _arrow(film, message, path), label


def _arrow(film: Film, message: DrawnMessage, path: str) -> str:
    kind = "combine" if message.combined else "move"
    line = tag("path", class_=f"arrow {kind}", d=path, pathLength=1, **look(kind, _thickness(film, message)))
    return tag("g", tag("title", words(sentence(film, message))), line, class_="message")


def _straight(message: DrawnMessage, columns: Columns, start: Extent | None, end: Extent | None, thick: float) -> str:
    """Return a path between two columns, with a bracket at each end that spans several blocks."""
    sign = 1 if message.to > message.source else -1
    left = columns.x(max(message.source, message.to)) - columns.gutter
    x = (left + 2, left + columns.gutter - 2)[::sign]
    header = columns.top + 9.5
    y = [(sum(span) / 2 if span else header) - (2.75 + thick / 3) * sign for span in (start, end)]
    inner = [x[0] + 3 * sign, x[1] - 3 * sign]
    path = ""
    for side, span in zip(inner, (start, end)):
        if span and span[1] - span[0] > 1:
            path += f"M{side:.6g} {span[0] - 6:.6g}V{span[1] + 6:.6g}"
    bracketed = end is not None and end[1] - end[0] > 1
    tip = inner[1] - 2 * sign if bracketed else x[1]
    return path + f"M{inner[0]:.6g} {y[0]:.6g}L{tip - head(thick).reach * sign:.6g} {y[1]:.6g}"


def _arc(film: Film, message: DrawnMessage, columns: Columns) -> tuple[str, str]:
    sign = 1 if message.to > message.source else -1
    start, end = columns.middle(message.source) + 5 * sign, columns.middle(message.to) - 5 * sign
    base = columns.top - 1 if sign > 0 else columns.bottom + 1
    thick = _thickness(film, message)
    rise = sign * (FIRST + RISE * abs(message.to - message.source)) / 0.75
    lean = (end - start) * 0.22
    path = f"M{start:.6g} {base:.6g}C{start + lean:.6g} {base - rise:.6g} {end - lean:.6g} {base - rise:.6g} "
    path += f"{end:.6g} {base - sign * head(thick).reach:.6g}"
    what = ("+" if message.combined else "") + load(film, message)
    if what in ("", "+"):
        return path, ""
    outside = base - 0.75 * rise + (-2.5 - thick / 2 if sign > 0 else 10 + thick / 2)
    return path, tag("text", words(what), class_="load", x=(start + end) / 2, y=outside, text_anchor="middle")
