"""``{dots} CAPTION`` draws the table that it contains as a dot plot, above the table, which is folded.

Each row of the table is a row of the plot, and each column is a panel. A cell has one or two numbers (``4.23 / 5.01``),
or none. All panels share a logarithmic axis, with a line at 1.

- ``:series: MPICH, Open MPI`` names the two numbers of a cell.
- ``:names: 2`` makes the names of the rows from the first two columns.
- ``:without: COLUMN`` does not draw a column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil, log
from typing import Any, ClassVar, NamedTuple

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from pycoll.draw.markup import tag, words

TITLE, ROW, AXIS, RADIUS = 20, 18, 20, 4  # pixels
MARGIN = 5  # percent of the width of a panel, on both sides of the smallest and of the largest number
APART = 16  # percent between two ticks
Cell = list[str]  # numbers, as they are written in the table


class Table(NamedTuple):
    """The content of a plot: a row of cells for each name, with a cell for each column."""

    columns: list[str]
    rows: dict[str, list[Cell]]

    @property
    def values(self) -> list[float]:
        """All numbers."""
        return [float(text) for cells in self.rows.values() for cell in cells for text in cell]


def read(page: str, lines: Sequence[str], numbers: int = 1, names: int = 1, without: str = "") -> Table:
    """Return the table in the lines of a page; raise ValueError for a cell that does not have so many numbers."""
    cells = [line.replace("`", "").strip("|").split("|") for line in lines if line.startswith("|")]
    titles, *rows = [[cell.strip() for cell in row] for row in cells[:1] + cells[2:]] or [[]]
    if not rows:
        raise ValueError(f"{page}: a dot plot needs a table")
    drawn = [index for index, title in enumerate(titles) if index >= names and title != without]
    table = Table([titles[index] for index in drawn], {})
    for row in rows:
        name = ", ".join(each for each, title in zip(row[:names], titles) if title != without)
        if len(row) != len(titles):
            raise ValueError(f"{page}, row {name!r}: {len(row)} cells, but {len(titles)} columns")
        if name in table.rows:
            raise ValueError(f"{page}, row {name!r}: two rows have this name")
        table.rows[name] = [_numbers(row[index], numbers, f"{page}, row {name!r}", titles[index]) for index in drawn]
    if not table.values:
        raise ValueError(f"{page}: the table of a dot plot has no numbers")
    return table


def _numbers(text: str, count: int, where: str, title: str) -> Cell:
    """Return the numbers in a cell, or none if it is empty."""
    found = text.split(" / ") if text else []
    try:
        right = len(found) in (0, count) and all(float(each) > 0 for each in found)
    except ValueError:
        right = False
    if not right:
        raise ValueError(f"{where}: {text!r} under {title!r} is not {count} positive number{'s' * (count > 1)}")
    return found


class Scale:
    """A logarithmic axis that contains some numbers, and 1."""

    def __init__(self, values: Sequence[float]) -> None:
        self.low, self.high = min(1.0, *values), max(1.0, *values)

    def __call__(self, value: float) -> float:
        """Return the position of a number, in percent of the width."""
        return MARGIN + (100 - 2 * MARGIN) * log(value / self.low) / (log(self.high / self.low) or 1)

    @property
    def ticks(self) -> list[float]:
        """The numbers below the axis."""
        for digits in (1, 2, 5), (1, 3), (1,):
            ticks = [digit * 10.0**power for power in range(-3, 4) for digit in digits]
            inside = [tick for tick in ticks if self.low <= tick <= self.high]
            if all(self(after) - self(before) > APART for before, after in pairwise(inside)):
                break
        return inside


def plot(table: Table, series: Sequence[str]) -> str:
    """Return the panels of a table."""
    scale = Scale(table.values)
    most = 5 if max(map(len, table.columns)) < 12 else 3  # side by side
    wide = ceil(len(table.columns) / ceil(len(table.columns) / most))
    space = f"{0.55 * max(map(len, table.rows)) + 0.8:.1f}em"
    panels = [_panel(table, index, scale, series, outer=index % wide == 0) for index in range(len(table.columns))]
    return tag("div", *panels, class_="panels", style=f"--wide: {wide}; --names: {space}")


def _panel(table: Table, index: int, scale: Scale, series: Sequence[str], outer: bool) -> str:
    """Draw a column; on a wide page, only outer panels have the names of the rows."""
    top = TITLE + ROW * bool(series)
    bottom = top + ROW * len(table.rows)
    middles = [top + ROW * (row + 0.5) for row in range(len(table.rows))]
    parts = [tag("text", words(table.columns[index]), class_="title", x="0", y=12)]
    for tick in scale.ticks:
        at = f"{scale(tick):.2f}%"
        parts.append(tag("line", class_="one" if tick == 1 else "grid", x1=at, x2=at, y1=top, y2=bottom))
        parts.append(tag("text", f"{tick:g}", class_="tick", x=at, y=bottom + 14))
    names = [tag("text", words(name), x=-8, y=middle + 4) for name, middle in zip(table.rows, middles)]
    parts.append(tag("g", *names, class_="names" if outer else "inner names"))
    for (name, cells), middle in zip(table.rows.items(), middles):
        parts += _dots(cells[index], f"{name}, {table.columns[index]}", scale, series, middle)
    if index == 0 and series:
        first = next((cells[0] for cells in table.rows.values() if cells[0]), None)
        parts += _labels(first, scale, series, top - 3) if first else ()
    about = {"role": "img", "aria_label": table.columns[index]}
    return tag("svg", *parts, width="100%", height=bottom + AXIS, **about)


def _dots(cell: Cell, about: str, scale: Scale, series: Sequence[str], y: float) -> Iterator[str]:
    """Draw the numbers of a cell on one line; each shows its number to the pointer."""
    yield tag("line", class_="row", x1="0", x2="100%", y1=y, y2=y)
    places = [f"{scale(float(text)):.2f}%" for text in cell]
    if len(places) > 1:
        yield tag("line", class_="between", x1=places[0], x2=places[-1], y1=y, y2=y)
    for number, (place, text) in enumerate(zip(places, cell)):
        said = f"{about}, {series[number]}: {text}" if series else f"{about}: {text}"
        yield tag("circle", tag("title", words(said)), class_=f"dot series{number}", cx=place, cy=y, r=RADIUS)


def _labels(cell: Cell, scale: Scale, series: Sequence[str], y: float) -> Iterator[str]:
    """Write the names of two dots above them."""
    order = sorted(range(2), key=lambda number: float(cell[number]))
    for number, side, anchor in zip(order, (-1, 1), ("end", "start")):
        place = f"{scale(float(cell[number])):.2f}%"
        how: Any = {"class_": f"label series{number}", "dx": 2 * side, "text_anchor": anchor}
        yield tag("text", words(series[number]), x=place, y=y, **how)


def _pair(text: str) -> list[str]:
    """Return two names, which a comma separates."""
    first, second = text.split(",")
    return [first.strip(), second.strip()]


class Dots(SphinxDirective):
    """A dot plot of the table that it contains."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {
        "series": _pair,
        "names": directives.positive_int,
        "without": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        """Return the figure, and the table in a fold."""
        series = self.options.pop("series", [])
        try:
            table = read(f"{self.env.docname}.md", self.content, len(series) or 1, **self.options)
        except ValueError as error:
            raise self.error(str(error)) from None
        summary = "数值" if "/zh/" in self.env.docname else "Numbers"
        html = plot(table, series), f'<details class="numbers"><summary>{summary}</summary>', "</details>"
        panels, before, after = (nodes.raw("", each, format="html") for each in html)
        caption = nodes.paragraph("", "", *self.parse_inline(self.arguments[0])[0], classes=["caption"])
        return [nodes.container("", panels, caption, classes=["dots"]), before, *self.parse_content_to_nodes(), after]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("dots", Dots)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
