"""Plot the speed of algorithms relative to MPI, against size.  No MPI is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.figure import SubFigure

from pycoll.base.figures import GREY, STYLE, grid

from ..curves import MPI, Curves, ratio
from .axes import log_sizes, log_values, name_ends
from .canvas import Canvas, Drawn


class Row(NamedTuple):
    """The content of a plot or panel: a variant in a document."""

    title: str
    found: Curves
    environment: Mapping[str, Any]


def speeds_of(found: Curves) -> dict[str, dict[int, float]]:
    """Return the speed relative to MPI by algorithm and size; nothing if there is only one size."""
    speeds = {
        name: {size: speed for size in records if size and (speed := ratio(found, name, size))}
        for name, records in found.items()
    }
    several = len({size for points in speeds.values() for size in points}) > 1
    return {name: points for name, points in speeds.items() if points} if several else {}


@rc_context(STYLE)
def speeds(rows: Sequence[Row], colors: Mapping[str, str], *, wide: bool, on: SubFigure | None = None) -> Drawn:
    """Draw the speed of each algorithm relative to MPI, with a panel for each row, and a line at 1."""
    columns = min(2 if wide else 1, len(rows))
    height = 2.9 * -(-len(rows) // columns)
    title = "Speed relative to MPI: time of MPI divided by time of the algorithm (above 1x: faster than MPI)"
    canvas = Canvas(title, [row.environment for row in rows], height, wide=wide, on=on)
    values = [speed for row in rows for points in speeds_of(row.found).values() for speed in points.values()]
    for panel, row in zip(grid(canvas.figure, len(rows), columns, "size", "speed relative to MPI"), rows):
        log_values(panel, min(*values, 1), max(*values, 1), base=2, form="{x:g}x")
        lines = speeds_of(row.found)
        sizes = sorted({size for points in lines.values() for size in points})
        log_sizes(panel, sizes, 6 if wide else 3)
        panel.tick_params(labelbottom=True)
        panel.axhline(1, color=GREY, linewidth=1.2)
        ends = {MPI: (panel.get_xlim()[1], 1.0, GREY)}
        for name in sorted(lines, key=colors.__contains__):  # draw colored lines above the others
            points, color = list(lines[name].items()), colors.get(name, GREY)
            panel.plot(*zip(*points), color=color, linewidth=1.6 if name in colors else 0.7, label=name)
            ends[titled(name, row.found[name])] = (*points[-1], color)
        name_ends(panel, ends, 2)
        panel.set_title(canvas.wrapped(row.title, columns, 10), fontsize=9, loc="left")
    return canvas.figure


def titled(name: str, records: Mapping[int, Any]) -> str:
    """Return the name of an algorithm, marked if it had wrong results."""
    return f"{name}: WRONG" if any(record.get("wrong") for record in records.values()) else name
