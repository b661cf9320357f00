"""Plot the times of each algorithm against size, in separate panels.  No MPI is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure

from pycoll.base.figures import GREY, INK, STYLE, grid
from pycoll.tune.options import size_label

from ..curves import MPI, Curves, ratio, sizes_of
from .axes import band, bounds_of, log_sizes, log_values, log_x, range_of
from .canvas import SMALL, Canvas, Drawn
from .speeds import Row, titled


@rc_context(STYLE)
def times(
    row: Row, colors: Mapping[str, str], beside: Sequence[Curves], *, wide: bool, on: SubFigure | None = None
) -> Drawn:
    """Draw a panel for each algorithm: the median, a band from the minimum to the 99th percentile, and MPI in grey."""
    names = sorted(row.found, key=lambda name: (name != MPI, name not in colors))
    if len([size for size in sizes_of(row.found) if size]) < 2:
        return _at_one_size(row, names, colors, wide=wide, on=on)
    sizes = [size for size in sizes_of(*beside) if size]
    records = [record for found in beside for each in found.values() for record in each.values()]
    columns = 3 if wide else 2
    title = f"{row.title}: median time (line), minimum to 99th percentile (band)"
    height = 0.4 + (1.7 if wide else 1.45) * -(-len(names) // columns)
    canvas = Canvas(title, [row.environment], height, wide=wide, on=on)
    for panel, name in zip(grid(canvas.figure, len(names), columns, "size", "time (µs)"), names):
        low, high = range_of(records, "median")
        log_values(panel, low / 1.5, high)  # leave room for a name below
        log_sizes(panel, sizes, 5 if wide else 3)
        color = GREY if name == MPI else colors.get(name, INK)
        if name != MPI and MPI in row.found:
            _beside_mpi(panel, row.found[name], row.found[MPI])
        band(panel, row.found[name], color)
        panel.set_title(titled(name, row.found[name]), color=color, fontsize=9, fontweight="bold", loc="left")
    return canvas.figure


def _beside_mpi(axes: Axes, records: Mapping[int, Any], own: Mapping[int, Any]) -> None:
    """Draw the line of MPI, with its name where the other line is furthest away."""
    points = {size: record["median"] for size, record in own.items() if size and record["median"]}
    axes.plot(list(points), list(points.values()), color=GREY, linewidth=1)
    ratios = {size: points[size] / median for size in points if (median := records.get(size, {}).get("median"))}
    inner = list(ratios)[1:-1] or list(ratios)
    if inner:
        size = max(inner, key=lambda each: max(ratios[each], 1 / ratios[each]))
        above = ratios[size] > 1
        shift, aligned = ((-3, 3), ("right", "bottom")) if above else ((4, -3), ("left", "top"))
        where: Any = {"ha": aligned[0], "va": aligned[1], "fontsize": SMALL, "color": GREY}
        axes.annotate(MPI, (size, points[size]), shift, textcoords="offset points", **where)


def _at_one_size(row: Row, names: Sequence[str], colors: Mapping[str, str], **how: Any) -> Drawn:
    """Draw a line for each algorithm: a dot at the median, on a bar from the minimum to the 99th percentile."""
    size = sizes_of(row.found)[0]
    measured = {name: record for name in names if (record := row.found[name].get(size)) and record["median"]}
    at = f" ({size_label(size)})" if size else ""
    title = f"{row.title}{at}: median time (dot), minimum to 99th percentile (bar)"
    canvas = Canvas(title, [row.environment], 0.5 + 0.24 * len(measured), **how)
    (axes,) = grid(canvas.figure, 1, 1, "time (µs)", "")
    for index, (name, record) in enumerate(measured.items()):
        color = GREY if name == MPI else colors.get(name, INK)
        low, high = bounds_of(record) or (record["median"], record["median"])
        axes.hlines(index, low, high, color=color, alpha=0.3, linewidth=6)
        axes.plot(record["median"], index, "o", color=color, markersize=5)
        against = ratio(row.found, name, size)
        text = f"{record['median']:,.3g} µs" + (f", {against:.2f}x MPI" if against else "")
        axes.annotate(text, (high, index), (6, 0), textcoords="offset points", va="center", fontsize=SMALL)
    axes.set_yticks(range(len(measured)), [titled(name, row.found[name]) for name in measured])
    low, high = range_of(measured.values(), "median")
    if high < 10 * low:
        axes.set_xlim(0, None)
    else:
        log_x(axes, low, high)
    axes.set_ylim(len(measured) - 0.5, -0.5)
    axes.tick_params(left=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return canvas.figure
