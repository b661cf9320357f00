"""Plot time and bus bandwidth against ranks, at a few sizes.  No MPI is needed."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import NullLocator

from pycoll.base.figures import BLUE, GREY, INK, STYLE
from pycoll.tune.options import size_label

from ..curves import MPI, Document, Record, Variant, curves, fastest, sizes_of
from .axes import band, log_values, name_ends, range_of
from .canvas import Canvas, Drawn

KEYS = {"median": "time (µs)", "busbw": "bus bandwidth (GB/s)"}
COLORS = {MPI: GREY, "auto": INK, "fastest": BLUE}
Lines = dict[str, dict[int, Record]]  # line ("MPI", "auto", "fastest") -> number of ranks -> record


def common_sizes(documents: Sequence[Document], variant: Variant) -> list[list[int]]:
    """Return a few sizes common to all documents; for each, the exact size in each document.

    Sizes may differ by up to 5%, because blocks depend on the number of ranks.
    """
    all_curves = [curves(document, variant) for document in documents]
    measured = [[size for size in sizes_of(found) if fastest(found, size, found)] for found in all_curves]
    near = [[min(sizes, key=lambda other: abs(other - size), default=-1) for sizes in measured] for size in measured[0]]
    near = [sizes for sizes in near if all(abs(size - sizes[0]) <= 0.05 * sizes[0] for size in sizes)]
    return [near[index] for index in sorted({0, len(near) // 2, len(near) - 1})] if near else []


def lines_of(documents: Sequence[Document], variant: Variant, sizes: Sequence[int]) -> Lines:
    """Return the lines of the fastest algorithm, the choice of pycoll, and MPI, at one size for each document."""
    lines: Lines = {}
    for document, size in zip(documents, sizes):
        found = curves(document, variant)
        for line, name in {MPI: MPI, "auto": "auto", "fastest": fastest(found, size)}.items():
            record = found.get(name or "", {}).get(size)
            if record and record["median"] and (name, line) != ("auto", "fastest"):
                lines.setdefault(line, {})[document["environment"]["ranks"]] = record
    return lines


def panels_of(documents: Sequence[Document], variant: Variant) -> dict[tuple[int, str], Lines]:
    """Return the lines of each panel, by size and key."""
    found = {near[0]: lines_of(documents, variant, near) for near in common_sizes(documents, variant)}
    return {(size, key): lines for key in KEYS for size, lines in found.items() if _records(lines, key)}


@rc_context(STYLE)
def by_ranks(
    documents: Sequence[Document], variant: Variant, title: str, *, wide: bool, on: SubFigure | None = None
) -> Drawn:
    """Draw a column of panels for each of a few sizes, with bands from the minimum to the 99th percentile."""
    documents = sorted(documents, key=lambda document: document["environment"]["ranks"])
    environments = [document["environment"] for document in documents]
    panels = panels_of(documents, variant)
    columns = len({size for size, _ in panels}) if wide else 1
    rows = len(panels) // columns
    heading = f"{title}, by ranks: median (line), minimum to 99th percentile (band); auto: default choice of pycoll"
    canvas = Canvas(heading, environments, 2.1 * rows, wide=wide, on=on)
    grid = canvas.figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, (size, key) in zip(grid, panels if wide else sorted(panels, key=lambda panel: panel[0])):
        _draw(axes, panels[size, key], key)
        ticks = {each["ranks"]: f"{each['ranks']} ({len(each['hosts'])})" for each in environments}
        axes.set_xticks(list(ticks), list(ticks.values()))
        axes.set_title(size_label(size) if size else "", fontsize=9, fontweight="bold", loc="left")
        axes.set(xlabel="ranks (hosts)", ylabel=KEYS[key])
    return canvas.figure


def _records(lines: Lines, key: str) -> list[Record]:
    return [record for each in lines.values() for record in each.values() if record[key]]


def _draw(axes: Axes, lines: Lines, key: str) -> None:
    """Draw the lines of one size, each with its name at its end."""
    log_values(axes, *range_of(_records(lines, key), key))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_minor_locator(NullLocator())
    for name, records in lines.items():
        band(axes, records, COLORS[name], key)
        axes.lines[-1].set_label(name)
    ends = {name: (max(each), each[max(each)][key], COLORS[name]) for name, each in lines.items()}
    name_ends(axes, ends, 1.3)
