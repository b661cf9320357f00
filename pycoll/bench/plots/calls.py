"""Plot by how much pycoll is faster: ``python -m pycoll.bench.plots.calls RESULTS.json ... -o FILE.svg``.

No MPI is needed.  The files are results of ``pycoll.bench.calls``.  Each file has a panel with a line for each call:
the time of MPI divided by the time of pycoll, against size.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from matplotlib import rc_context

from pycoll.base.figures import BLUE, GREEN, GREY, INK, ORANGE, STYLE, grid

from ..curves import MPI
from .axes import log_sizes, log_values, name_ends
from .canvas import Canvas, Drawn
from .command import Document, main, selected

COLORS = (BLUE, ORANGE, GREEN, INK, GREY)
RATIO = "mpi_comm"


def lines_of(document: Document, calls: Collection[str]) -> dict[str, dict[int, float]]:
    """Return the ratios by call and size."""
    found = selected(document, calls, "pycoll.bench.calls", RATIO)
    if not 0 < len(found) <= len(COLORS):
        raise ValueError(f"a plot shows 1 to {len(COLORS)} calls at several sizes, not {len(found)}; see --calls")
    return {call: {size: record[RATIO] for size, record in records.items()} for call, records in found.items()}


@rc_context(STYLE)
def plot(documents: Sequence[Document], calls: Collection[str] = ()) -> Drawn:
    """Draw a panel for each document."""
    panels = [lines_of(document, calls) for document in documents]
    environments = [document["environment"] for document in documents]
    columns = min(2, len(panels))
    title = f"pycoll.Comm: time of {MPI} divided by time of pycoll (above 1x: pycoll is faster)"
    canvas = Canvas(title, environments, 2.9 * -(-len(panels) // columns), wide=True)
    values = [ratio for lines in panels for points in lines.values() for ratio in points.values()]
    axes = grid(canvas.figure, len(panels), columns, "size", f"{MPI} / pycoll")
    for panel, lines, environment in zip(axes, panels, environments):
        log_values(panel, min(*values, 1), max(*values, 1), base=2, form="{x:g}x")
        log_sizes(panel, sorted({size for points in lines.values() for size in points}), 6)
        panel.axhline(1, color=GREY, linewidth=1.2)
        ends = {}
        for (call, points), color in zip(lines.items(), COLORS):
            panel.plot(list(points), list(points.values()), color=color, linewidth=1.6, label=call)
            size = max(points)
            ends[call] = (size, points[size], color)
        name_ends(panel, ends, 2)
        panel.set_title(f"{environment['mpi']}, {environment['ranks']} ranks", fontsize=9, loc="left")
    return canvas.figure


if __name__ == "__main__":
    main(plot, "calls", __doc__, sys.argv[1:])
