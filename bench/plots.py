"""Plots of result files: latency and bandwidth against size, and time against ranks.  No MPI is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import AutoLocator, LogLocator, NullLocator

from pycoll.base.figures import STYLE, image
from pycoll.base.files import write_atomically
from pycoll.tune.options import size_label

from .curves import MPI, Curves, Document, Variant, curves, fastest, sizes_of, variants

MARKERS = "osv^DPX<>*"
PANELS = (("median", "time, median (µs)", "latency"), ("busbw", "bus bandwidth (GB/s)", "bus bandwidth"))


def where(environment: Mapping[str, Any]) -> str:
    """MPI, ranks, hosts and CPU in a line."""
    hosts = environment["hosts"]
    names = ", ".join(map(str, hosts[:4])) + (", ..." if len(hosts) > 4 else "")
    parts = [
        environment["mpi"],
        f"{environment['ranks']} ranks on {len(hosts)} host{'s' * (len(hosts) != 1)} ({names})",
    ]
    return " · ".join([*parts, *(environment[key] for key in ("cpu", "gpu") if environment.get(key))])


def looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The line of each algorithm: MPI is dashed, the choice of pycoll is a broad band under the algorithm chosen."""
    colours = colormaps["tab10"].colors  # type: ignore[attr-defined]
    ours = [name for name in dict.fromkeys(names) if name not in (MPI, "auto")]
    found: dict[str, dict[str, Any]] = {
        name: {"color": colours[place % len(colours)], "marker": MARKERS[place % len(MARKERS)], "markersize": 4}
        for place, name in enumerate(ours)
    }
    found["auto"] = {"color": "0.8", "linewidth": 7, "marker": "o", "zorder": 1, "solid_capstyle": "round"}
    return found | {MPI: {"color": "black", "linestyle": "--", "linewidth": 1.8, "marker": ".", "zorder": 4}}


def _against_size(axes: Axes, found: Curves, how: Mapping[str, Any], key: str, unit: str) -> None:
    for name, records in found.items():
        points = [(size, record[key]) for size, record in records.items() if size and record[key]]
        if points:
            axes.plot(*zip(*points), label=name, **how[name])
    axes.set(xlabel="size", ylabel=unit, xscale="log")
    sizes = [size for size in sizes_of(found) if size]
    ticks = sizes[:: -(-len(sizes) // 7)]
    axes.set_xticks(ticks, [size_label(size) for size in ticks])
    _plain(axes)


def _plain(axes: Axes) -> None:
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if high > 10 * low else AutoLocator())
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(alpha=0.3)


def _bars(axes: Axes, found: Curves, how: Mapping[str, Any]) -> None:
    times = {name: records[0]["median"] for name, records in found.items() if records.get(0, {}).get("median")}
    bars = axes.barh(list(times), list(times.values()), color=[how[name]["color"] for name in times])
    if MPI in times:  # the last
        bars[-1].set(facecolor="white", edgecolor="black", linestyle="--", linewidth=1.5)
    axes.bar_label(bars, [f"{value:.3g}" for value in times.values()], padding=3)
    axes.set(xlabel=PANELS[0][1], xmargin=0.15)
    axes.invert_yaxis()


@rc_context(STYLE)
def by_size(documents: Mapping[str, Document], primitives: Sequence[str] = ()) -> Figure:
    """Latency and bus bandwidth against size: a row for each primitive, way to call it, and document."""
    titles = variants(documents.values(), primitives)
    rows = []
    for variant, title in titles.items():
        for label, document in documents.items():
            found = curves(document, variant)
            if any(record["median"] for records in found.values() for record in records.values()):
                rows.append((variant, f"{title}, {label}" if len(documents) > 1 else title, found))
    figure, axes = _figure("\n".join(dict.fromkeys(where(doc["environment"]) for doc in documents.values())), len(rows))
    first: dict[Variant, Sequence[Axes]] = {}
    for panels, (variant, title, found) in zip(axes, rows):
        how = looks(name for other, _, beside in rows if other[0] == variant[0] for name in beside)
        if not any(sizes_of(found)):
            _bars(panels[0], found, how)
            panels[0].set(title=f"{title}: latency")
            panels[1].set_axis_off()
            continue
        for panel, like, (key, unit, what) in zip(panels, first.get(variant, panels), PANELS):
            if panel is not like:  # the same scale for every document
                panel.sharey(like)
            _against_size(panel, found, how, key, unit)
            panel.set_title(f"{title}: {what}")
        first.setdefault(variant, panels)
        panels[1].legend(*panels[0].get_legend_handles_labels(), loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def _figure(title: str, rows: int) -> tuple[Figure, Iterable[Sequence[Axes]]]:
    figure = Figure(figsize=(12, 3.5 * max(rows, 0.3) + 0.2 * title.count("\n")), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title if rows else f"{title}\nnothing was timed")
    return figure, figure.subplots(rows, 2, squeeze=False) if rows else []


def common_sizes(documents: Sequence[Document], variant: Variant) -> list[list[int]]:
    """A few sizes that all documents have: for each, the size in each document (blocks differ a little with ranks)."""
    all_curves = [curves(document, variant) for document in documents]
    measured = [[size for size in sizes_of(found) if fastest(found, size, found)] for found in all_curves]
    near = [[min(sizes, key=lambda other: abs(other - size), default=-1) for sizes in measured] for size in measured[0]]
    near = [sizes for sizes in near if all(abs(size - sizes[0]) <= 0.05 * sizes[0] for size in sizes)]
    return [near[place] for place in sorted({0, len(near) // 2, len(near) - 1})] if near else []


@rc_context(STYLE)
def by_ranks(documents: Sequence[Document], primitive: str) -> Figure | None:
    """Time and bus bandwidth against ranks at a few sizes: the fastest algorithm, the choice of pycoll, and MPI."""
    documents = sorted(documents, key=lambda document: document["environment"]["ranks"])
    environments = [document["environment"] for document in documents]
    ticks = {each["ranks"]: f"{each['ranks']} ({len(each['hosts'])})" for each in environments}
    titles = variants(documents, [primitive])
    if not (rows := [(key, title, sizes) for key, title in titles.items() if (sizes := common_sizes(documents, key))]):
        return None
    figure, axes = _figure(f"{environments[0]['mpi']} · {environments[0]['cpu']}", len(rows))
    styles: dict[str, Any] = {"pycoll, fastest": "-", "pycoll, auto": ":", MPI: "--"}
    for panels, (variant, title, sizes) in zip(axes, rows):
        for panel, (key, unit, what) in zip(panels, PANELS):
            for place, near in enumerate(sizes):
                for name, points in _against_ranks(documents, variant, near, key).items():
                    panel.plot(*zip(*points), styles[name], color=f"C{place}", marker=".", label=name)
            panel.set(title=f"{title}: {what} by ranks", xlabel="ranks (hosts)", ylabel=unit, xscale="log")
            panel.set_xticks(list(ticks), list(ticks.values()))
            _plain(panel)
            if not panel.lines:  # barriers have no bandwidth
                panel.set_title("")
                panel.set_axis_off()
        drawn: dict[str, Any] = {size_label(near[0]): {"color": f"C{n}"} for n, near in enumerate(sizes) if near[0]}
        drawn |= {name: {"color": "0.3", "linestyle": style} for name, style in styles.items()}
        lines = [Line2D([], [], label=name, **how) for name, how in drawn.items()]
        panels[1].legend(handles=lines, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def _against_ranks(documents: Sequence[Document], variant: Variant, near: Sequence[int], key: str) -> dict[str, list]:
    lines: dict[str, list] = {}
    for place, document in enumerate(documents):
        found, size = curves(document, variant), near[place]
        for line, name in {"pycoll, fastest": fastest(found, size), "pycoll, auto": "auto", MPI: MPI}.items():
            record = found.get(name or "", {}).get(size)
            if record and record[key]:
                lines.setdefault(line, []).append((document["environment"]["ranks"], record[key]))
    return lines


def draw(document: Document, path: str | Path) -> None:
    """Write the plots of a result file: an image of the kind that the path ends in (``.png``, ``.svg``, ``.pdf``)."""
    figure = by_size({"": document})
    write_atomically(Path(path), lambda file: file.write(image(figure, Path(path).suffix[1:] or "png")))
