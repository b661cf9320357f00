"""Dot plots of the numbers in the records of benchmarks, above their tables, which are folded.

Each row of a table is a row of the plot, and each column is a panel. A cell has one or two numbers (``4.23 / 5.01``),
or none. All panels share a logarithmic axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil, floor, log, log10
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import east_asian_width

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from pycoll.bench import markdown
from pycoll.draw.markup import tag, words

from languages import language_of  # isort: skip

RESULTS = Path(__file__).resolve().parents[2] / "bench/results"
TITLE, ROW, AXIS, RADIUS = 20, 18, 20, 4  # pixels
MARGIN = 5  # percent of the width of a panel, on both sides of the smallest and of the largest number
APART = 16  # percent between two ticks
TICKS = (1, 1.5, 2, 3, 4, 5, 7), (1, 2, 5), (1, 3), (1,)
Cell = list[str]  # numbers, as they are written in the table


class Table(NamedTuple):
    """Rows of cells; the first `names` columns name the row, and the column `undrawn` is only in the table."""

    headings: list[str]
    rows: list[list[str]]
    series: Sequence[str] = ()  # the names of the two numbers of a cell
    names: int = 1
    undrawn: str = ""

    @property
    def columns(self) -> dict[int, str]:
        """The drawn columns: the heading of each index."""
        return {at: text for at, text in enumerate(self.headings) if at >= self.names and text != self.undrawn}

    @property
    def cells(self) -> dict[str, list[Cell]]:
        """The numbers in the drawn columns, by the name of the row."""
        names = [", ".join(row[: self.names]).replace("`", "") for row in self.rows]
        return {
            name: [row[at].split(" / ") if row[at] else [] for at in self.columns]
            for name, row in zip(names, self.rows)
        }


class Scale:
    """A logarithmic axis that contains some numbers."""

    def __init__(self, values: Sequence[float]) -> None:
        self.low, self.high = min(values), max(values)

    def __call__(self, value: float) -> float:
        """Return the position of a number, in percent of the width."""
        return MARGIN + (100 - 2 * MARGIN) * log(value / self.low) / (log(self.high / self.low) or 1)

    @property
    def ticks(self) -> list[float]:
        """The numbers below the axis."""
        if self.high < 3 * self.low:  # equal distances
            power = floor(log10(self.high - self.low or 1)) - 1
            steps = [digit * 10.0 ** (power + more) for more in range(2) for digit in (1, 2, 5)]
            choices = [[n * step for n in range(ceil(self.low / step), int(self.high / step) + 1)] for step in steps]
        else:
            powers = [10.0**power for power in range(-3, 6)]
            every = ([digit * power for power in powers for digit in digits] for digits in TICKS)
            choices = [[tick for tick in ticks if self.low <= tick <= self.high] for ticks in every]
        fits = (ticks for ticks in choices if all(self(after) - self(one) > APART for one, after in pairwise(ticks)))
        return next(fits, choices[-1])


def plot(table: Table, one: bool = True) -> str:
    """Return the panels of a table; with `one`, they have a line at 1."""
    columns, cells = [*table.columns.values()], table.cells
    scale = Scale([*[1.0] * one, *(float(text) for row in cells.values() for cell in row for text in cell)])
    most = 5 if max(map(len, columns)) < 12 else 3  # side by side
    wide = ceil(len(columns) / ceil(len(columns) / most))
    longest = max(sum(1 + (east_asian_width(letter) in "WF") for letter in name) for name in cells)
    panels = []
    for index, title in enumerate(columns):
        column = {name: row[index] for name, row in cells.items()}
        panels.append(_panel(title, column, scale, table.series, outer=index % wide == 0, first=index == 0))
    return tag("div", *panels, class_="panels", style=f"--wide: {wide}; --names: {0.55 * longest + 0.8:.1f}em")


def _panel(title: str, column: dict[str, Cell], scale: Scale, series: Sequence[str], outer: bool, first: bool) -> str:
    """Draw a column; on a wide page, only outer panels have the names of the rows."""
    top = TITLE + ROW * bool(series)
    bottom = top + ROW * len(column)
    middles = [top + ROW * (row + 0.5) for row in range(len(column))]
    parts = [tag("text", words(title), class_="title", x="0", y=12)]
    for tick in scale.ticks:
        at = f"{scale(tick):.2f}%"
        parts.append(tag("line", class_="one" if tick == 1 else "grid", x1=at, x2=at, y1=top, y2=bottom))
        parts.append(tag("text", f"{tick:g}", class_="tick", x=at, y=bottom + 14))
    names = [tag("text", words(name), x=-8, y=middle + 4) for name, middle in zip(column, middles)]
    parts.append(tag("g", *names, class_="names" if outer else "inner names"))
    for (name, cell), middle in zip(column.items(), middles):
        parts += _dots(cell, f"{name}, {title}", scale, series, middle)
    if first and series:
        parts += _labels(next(filter(None, column.values())), scale, series, top - 3)
    return tag("svg", *parts, width="100%", height=bottom + AXIS, role="img", aria_label=title)


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


class Dots(SphinxDirective):
    """A dot plot above its table; the content is the caption."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    kind, one = "dots", True

    def record(self, name: str) -> Path:
        """Return the path of a record; if it changes, the page is built again."""
        path = RESULTS / name
        self.env.note_dependency(str(path))
        return path

    def table(self, language: str) -> Table:
        """Return the table; raise ValueError if the records do not have it."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        """Return the figure, and the table in a fold."""
        language = language_of(self.env.docname)
        try:
            table = self.table(language)
        except (ValueError, OSError) as error:
            raise self.error(str(error)) from None
        lines = markdown.table(table.headings, table.rows, left=min(table.columns))
        summary = {"en": "Numbers", "zh-CN": "数值"}[language]
        html = plot(table, self.one), f'<details class="numbers"><summary>{summary}</summary>', "</details>"
        panels, before, after = (nodes.raw("", each, format="html") for each in html)
        caption = nodes.paragraph("", "", *self.parse_inline(" ".join(self.content))[0], classes=["caption"])
        figure = nodes.container("", panels, caption, classes=["dots", self.kind])
        return [figure, before, *self.parse_text_to_nodes(lines), after]
