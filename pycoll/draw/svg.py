"""Drawings of frames as SVG: a column of blocks for each rank, and an arrow for each message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, groupby

from ..schedule.moves import Block
from .arrows import Columns, Rows, arc, height, is_straight, rows, straight
from .frames import DrawnBlock, DrawnMessage, Film
from .language import say
from .layout import RowLayout, layout
from .markup import tag, words
from .names import block_name, runs

ROW, BETWEEN, GUTTER, GAP = 23, 4, 24, 10  # the least height of a row, the space between blocks, ranks, and kinds
TITLE, HEADER, LABELS, MARGIN = 24, 22, 46, 14
DIGIT = 7  # the width of a digit in the widest of the fonts
CHECK = "M-2.6 0.2L-0.8 2L2.6 -1.8"


class Drawing:
    """All frames of a film with few ranks.  They have the same size, so that a player can show one after another.

    The heights of blocks are in proportion to their bytes, also between this film and those `beside` it.  Only if all
    rows would be higher than two vectors, the rows of copies of the vector are as low as text allows: `compact`.
    """

    def __init__(self, film: Film, beside: Sequence[Film] = ()) -> None:
        self.film = film
        self.states = film.states()
        self.layout: RowLayout = layout(film, self.states)
        vector = ROW * max(one.parts for one in (film, *beside))
        row, rows = vector / film.parts, range(len(self.layout.names))
        self.compact = bool(self.layout.copies) and row > ROW and row * len(rows) > 2 * vector
        self.heights = [ROW if self.compact and one in self.layout.copies else row for one in rows]
        arcs = [message for index in range(len(film.frames)) for message in self._arcs(index)]
        self.cell = max(44.0, min(50.0, 8.5 * film.size)) if film.algorithm.primitive.reduces else 42.0
        top = TITLE + height(arcs, rightward=True)
        below = sum(self.heights) + len(self.layout.gaps) * GAP
        hosts = 16 if film.hosts else 0
        self.columns = Columns(LABELS + MARGIN, self.cell, GUTTER, top, top + HEADER + below + hosts + 3)
        self.width = self.columns.x(film.size) - GUTTER + MARGIN
        self.height = self.columns.bottom + height(arcs, rightward=False) + 8

    @cached_property
    def tops(self) -> list[float]:
        """The upper edge of each row of cells."""
        gaps = self.layout.gaps
        first = self.columns.top + HEADER
        above = accumulate(self.heights, initial=0.0)
        return [
            first + high + GAP * sum(gap <= row for gap in gaps) for row, high in zip(range(len(self.heights)), above)
        ]

    def middle(self, row: int) -> float:
        """Return the middle of a row of cells."""
        return self.tops[row] + (self.heights[row] - BETWEEN) / 2

    def spare(self, index: int) -> tuple[float, float]:
        """Return the unused height above and below the arcs of one frame."""
        here, (_, _, _, top, bottom) = self._arcs(index), self.columns
        return top - TITLE - height(here, rightward=True), self.height - 8 - bottom - height(here, rightward=False)

    def frame(self, index: int, higher: float = 0) -> str:
        """Return the elements of one frame, `width` wide and `height` high; move all but the title up by `higher`."""
        frame = self.film.frames[index]
        count = len(frame.messages)
        said = f" \u00b7 {say('messages_here', n=count)}" if count else ""
        title = tag("text", frame.title, tag("tspan", said, class_="label"), class_="title", x=0, y=14)
        labels = [
            tag("text", words(name), class_="label", x=LABELS, y=self.middle(row) + 3.5, text_anchor="end")
            for row, name in enumerate(self.layout.names)
        ]
        ranks = [part for rank in range(self.film.size) for part in self._rank(index, rank)]
        pairs = [self._arrow(index, message) for message in frame.messages]
        arrows = [line for line, _ in pairs] + [label for _, label in pairs]  # labels over all lines
        drawn = [*self._hosts(), *labels, *ranks, *arrows]
        return title + (tag("g", *drawn, transform=f"translate(0 {-higher:.6g})") if higher else "".join(drawn))

    def _hosts(self) -> Iterator[str]:
        """A frame around ranks of one host that stand together."""
        columns, hosts = self.columns, self.film.hosts or ()
        for host, group in groupby(range(len(hosts)), key=lambda rank: hosts[rank]):
            ranks = list(group)
            left, right = columns.x(ranks[0]) - 9, columns.x(ranks[-1]) + columns.width + 9
            size = {"width": right - left, "height": columns.bottom - columns.top}
            yield tag("rect", class_="host", x=left, y=columns.top - 1, rx=7, **size)
            at = {"x": (left + right) / 2, "y": columns.bottom - 7, "text_anchor": "middle"}
            name = ".".join(map(str, host)) if isinstance(host, tuple) else host
            yield tag("text", say("host", host=name), class_="label", **at)

    def _rank(self, index: int, rank: int) -> Iterator[str]:
        left, top = self.columns.x(rank), self.columns.top
        if rank in self.film.waiting[index]:
            size = {"width": self.cell + 12, "height": self.columns.bottom - top - 1}
            yield tag("rect", class_="hatch", x=left - 6, y=top - 1, rx=5, **size)
        yield tag("rect", class_=f"rank r{rank}", x=left, y=top + 2, width=self.cell, height=15, rx=7.5)
        yield tag("text", str(rank), class_="number", x=left + self.cell / 2, y=top + 13.5, text_anchor="middle")
        row_of, held = self.layout.rows[index][rank], self.states[index][rank]
        for block, row in row_of.items():
            top, tall = self.tops[row], self.heights[row] - BETWEEN
            if block in held:
                yield self._cell(block, held[block], left, top, tall)
            elif block in self.film.wanted[rank]:
                yield tag("rect", class_="wanted", x=left, y=top, width=self.cell, height=tall, rx=3)

    def _cell(self, block: Block, cell: DrawnBlock, left: float, top: float, tall: float) -> str:
        """Draw a block with a stripe for each contributor, in the order of combination."""
        contributors = cell.value.contributors
        reduces = self.film.algorithm.primitive.reduces
        width, base = self.cell / len(contributors), tall / 2 + 3.7
        narrow = {"textLength": f"{width - 0.5:.6g}", "lengthAdjust": "spacingAndGlyphs"} if width < DIGIT else {}
        parts = []
        for number, rank in enumerate(contributors):
            parts.append(tag("rect", class_=f"r{rank}", x=number * width, y=0, width=width, height=tall))
            if reduces:
                middle = (number + 0.5) * width
                parts.append(tag("text", str(rank), class_="by", x=middle, y=base, text_anchor="middle", **narrow))
        if not reduces:
            name = words(block_name(self.film, block))
            parts.append(tag("text", name, class_="by", x=self.cell / 2, y=base, text_anchor="middle"))
        parts.append(tag("rect", class_="edge", x=0, y=0, width=self.cell, height=tall, rx=3))
        if cell.finished:
            badge = tag("circle", cx=0, cy=0, r=5), tag("path", d=CHECK)
            parts.append(tag("g", *badge, class_="check", transform=f"translate({self.cell + 1:.6g} 1)"))
        kinds = [("new", cell.new), ("finished", cell.finished), ("spent", not cell.needed and not cell.finished)]
        classes = " ".join(["cell", *(name for name, holds in kinds if holds)])
        hint = say("block_from", block=block_name(self.film, block), ranks=runs(contributors, " + "))
        return tag("g", tag("title", words(hint)), *parts, class_=classes, transform=f"translate({left:.6g} {top:.6g})")

    def _rows(self, index: int, message: DrawnMessage) -> tuple[Rows | None, Rows | None]:
        """Return the rows of the blocks of a message on its source before it, and on its destination after it."""
        rows_of = self.layout.rows
        return rows(message, rows_of[index - 1][message.source]), rows(message, rows_of[index][message.to])

    def _arcs(self, index: int) -> list[DrawnMessage]:
        messages = self.film.frames[index].messages
        return [message for message in messages if not is_straight(message, *self._rows(index, message))]

    def _arrow(self, index: int, message: DrawnMessage) -> tuple[str, str]:
        """Return the arrow of a message, and its label or an empty string."""
        ends = self._rows(index, message)
        if not is_straight(message, *ends):
            return arc(self.film, message, self.columns)
        start, end = ((self.middle(one[0]), self.middle(one[1])) if one else None for one in ends)
        return straight(self.film, message, self.columns, start, end), ""
