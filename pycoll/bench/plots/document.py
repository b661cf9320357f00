"""Draw the plots of result files, for a report or as one image.  No MPI is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from matplotlib import rc_context
from matplotlib.figure import Figure, SubFigure

from pycoll.base.figures import BLUE, GREEN, INK, ORANGE, STYLE, image
from pycoll.base.files import write_atomically

from ..curves import Curves, Document, Variant, curves, standouts, variants
from .canvas import Drawn, whole
from .ranks import by_ranks, panels_of
from .speeds import Row, speeds, speeds_of
from .times import times

COLORS = (BLUE, ORANGE, GREEN)


class Draw(Protocol):
    """A function that draws a plot."""

    def __call__(self, *, wide: bool, on: SubFigure | None = None) -> Drawn:
        """Draw a plot for a wide page or for a phone, in a new figure or on the given subfigure."""


class Plot(NamedTuple):
    """A plot of a report."""

    name: str  # the name of its file
    says: str  # the alternative text
    draw: Draw


def rows_of(named: Mapping[str, Document], variant: Variant, title: str) -> dict[str, Row]:
    """Return a row for each document with timed records of a variant."""
    rows = {}
    for label, document in named.items():
        found = curves(document, variant)
        if any(record["median"] for records in found.values() for record in records.values()):
            rows[label] = Row(f"{title}, {label}" if len(named) > 1 else title, found, document["environment"])
    return rows


def plots_of(named: Mapping[str, Document], primitive: str) -> tuple[list[Plot], dict[tuple[Variant, str], Plot]]:
    """Return the plots of a primitive: one of all speeds relative to MPI, and one for each variant and document."""
    rows = {key: rows_of(named, key, title) for key, title in variants(named.values(), [primitive]).items()}
    every = [row for beside in rows.values() for row in beside.values()]
    colors = colors_of([row.found for row in every])
    against = [row for row in every if speeds_of(row.found)]
    says = f"{primitive}: speed of each algorithm relative to MPI, against size"
    first = [Plot(primitive, says, partial(speeds, against, colors))] if against else []
    each = {}
    for number, (variant, beside) in enumerate(rows.items()):
        for index, (label, row) in enumerate(beside.items()):
            says = f"{row.title}: time of each algorithm, median, minimum and 99th percentile"
            draw = partial(times, row, colors, [other.found for other in beside.values()])
            each[variant, label] = Plot(f"{primitive}-times-{number}-{index}", says, draw)
    return first, each


def plot_by_ranks(documents: Sequence[Document], variant: Variant, title: str, name: str) -> Plot | None:
    """Return the plot of a variant against ranks; None if the documents have no sizes in common."""
    if not panels_of(documents, variant):
        return None
    says = f"{title}: time and bus bandwidth against ranks, of the fastest algorithm, auto (as pycoll chooses) and MPI"
    return Plot(name, says, partial(by_ranks, documents, variant, title))


def colors_of(several: Sequence[Curves]) -> dict[str, str]:
    """Return the colors of the few algorithms that stand out, and black for the choice of pycoll; others are grey."""
    return {"auto": INK, **dict(zip(standouts(several, len(COLORS)), COLORS))}


def draw(document: Document, path: str | Path) -> None:
    """Write the plots of a result file as one image; its format is the suffix of the path (.png, .svg or .pdf)."""
    named = {"": document}
    plots = []
    for primitive in dict.fromkeys(record["primitive"] for record in document["records"]):
        first, others = plots_of(named, primitive)
        plots += [*first, *others.values()]
    content = image(stacked(plots), Path(path).suffix[1:] or "png")
    write_atomically(Path(path), lambda file: file.write(content))


@rc_context(STYLE)
def stacked(plots: Sequence[Plot]) -> Figure:
    """Return a figure with the plots for a wide page, one below the other."""
    heights = [plot.draw(wide=True).figure.get_figheight() for plot in plots]
    figure = whole(True, sum(heights) or 1)
    if not plots:
        figure.suptitle("Nothing was timed.")
        return figure
    parts = figure.subfigures(len(plots), 1, height_ratios=heights, squeeze=False).flatten()
    for plot, part in zip(plots, parts):
        plot.draw(wide=True, on=part)
    return figure
