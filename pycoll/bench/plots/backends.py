"""Plot times of ``torch.distributed``: ``python -m pycoll.bench.plots.backends RESULTS.json ... -o FILE.svg``.

No MPI is needed.  The files are results of ``pycoll.bench.torch``.  Each file has a row with a panel for each
collective: the median times of pycoll and gloo against size, with bands from the minimum to the 99th percentile.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes

from pycoll.base.figures import BLUE, ORANGE, STYLE, grid

from ..curves import Record
from .axes import band, log_sizes, log_values, range_of
from .canvas import SMALL, Canvas, Drawn
from .command import Document, main, selected

COLORS = {"pycoll": BLUE, "gloo": ORANGE}
Curve = Mapping[int, Record]


def curves_of(document: Document, calls: Collection[str]) -> dict[str, dict[str, Curve]]:
    """Return the times of each backend by call."""
    found = selected(document, calls, "pycoll.bench.torch", "gloo_p99")
    if not found:
        raise ValueError("no collective was measured at two sizes")
    return {call: {name: _curve(records, name) for name in COLORS} for call, records in found.items()}


def _curve(records: Mapping[int, Any], name: str) -> Curve:
    keys = {"median": name, "min": f"{name}_min", "p99": f"{name}_p99"}
    return {size: {key: record[own] for key, own in keys.items()} for size, record in records.items()}


@rc_context(STYLE)
def plot(documents: Sequence[Document], calls: Collection[str] = ()) -> Drawn:
    """Draw a row for each document."""
    rows = [curves_of(document, calls) for document in documents]
    environments = [document["environment"] for document in documents]
    columns = max(map(len, rows))
    title = "torch.distributed: median time (line), minimum to 99th percentile (band)"
    canvas = Canvas(title, environments, 0.4 + 1.9 * len(rows), wide=True)
    panels = grid(canvas.figure, columns * len(rows), columns, "size", "")
    curves = [curve for row in rows for call in row.values() for curve in call.values()]
    low, high = range_of(chain.from_iterable(curve.values() for curve in curves), "median")
    sizes = sorted(set(chain.from_iterable(curves)))
    for number, (row, environment) in enumerate(zip(rows, environments)):
        beside = panels[number * columns : (number + 1) * columns]
        beside[0].set_ylabel(f"{environment['mpi']}\ntime (µs)")
        for panel, (call, backends) in zip(beside, row.items()):
            log_values(panel, low, high)
            log_sizes(panel, sizes, 3)
            for name, curve in backends.items():
                band(panel, curve, COLORS[name])
            panel.set_title(call, fontsize=SMALL, fontweight="bold", loc="left")
        for panel in beside[len(row) :]:
            panel.set_visible(False)
        _name(beside[0], next(iter(row.values())))
    return canvas.figure


def _name(axes: Axes, backends: Mapping[str, Curve]) -> None:
    """Write the name of each backend beside its line, where the lines are furthest apart."""
    one, other = backends.values()
    size = max(one, key=lambda each: abs(one[each]["median"] / other[each]["median"] - 1))
    upper = max(backends, key=lambda name: backends[name][size]["median"])
    for name, curve in backends.items():
        shift, side = (4, "bottom") if name == upper else (-4, "top")
        how: Any = {"ha": "center", "va": side, "fontsize": SMALL, "fontweight": "bold", "color": COLORS[name]}
        axes.annotate(name, (size, curve[size]["median"]), (0, shift), textcoords="offset points", **how)


if __name__ == "__main__":
    main(plot, "backends", __doc__, sys.argv[1:])
