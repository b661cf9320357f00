"""Plots of time against ranks and against bytes for several algorithms, with the points where they cross."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import exp, log
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from ..base.command_line import check_folder, optional
from ..base.files import write_atomically
from ..schedule.registry import Algorithm
from ..tune.options import size_label
from . import simulate

Curves = dict[str, list[float]]  # the seconds of each algorithm at each abscissa
MARKERS = "osv^DPX<>*"
LEVEL = 1.01  # the largest ratio to the fastest time that counts as equally fast


class Crossing(NamedTuple):
    """A point at which another algorithm becomes the fastest."""

    low: int  # the simulated points before and after it
    high: int
    at: float  # the abscissa at which the lines between these points meet
    seconds: float
    before: str
    after: str
    crosses: bool = True  # if false, the lines coincide up to `low` and separate there


def crossings(abscissas: Sequence[int], curves: Curves) -> list[Crossing]:
    """Find the points between which the fastest algorithm changes, and where the lines meet on logarithmic scales."""
    best: list[str] = []
    for index in range(len(abscissas)):
        fastest = min(curves, key=lambda name: curves[name][index])
        level = best and curves[best[-1]][index] <= LEVEL * curves[fastest][index]
        best.append(best[-1] if level else fastest)
    found = []
    for index, (before, after) in enumerate(pairwise(best)):
        if before != after:
            left, right = (log(curves[before][k] / curves[after][k]) for k in (index, index + 1))
            share = left / (left - right) if left != right else 1.0
            at = exp(log(abscissas[index]) + share * log(abscissas[index + 1] / abscissas[index]))
            first, last = curves[before][index : index + 2]
            ends = abscissas[index], abscissas[index + 1]
            crosses = curves[after][index] > LEVEL * curves[before][index]
            found.append(Crossing(*ends, at, exp(log(first) + share * log(last / first)), before, after, crosses))
    return found


def doubling(most: int, factor: int, least: int) -> list[int]:
    """Return points from about `least` to `most`, spaced by a factor."""
    points = [most]
    while points[0] // factor >= least:
        points.insert(0, points[0] // factor)
    return points


def curves_of(algorithms: Sequence[Algorithm], points: Sequence[dict[str, Any]], setting: dict[str, Any]) -> Curves:
    """Return the simulated seconds of each algorithm at each point."""
    return {
        each.name: [simulate(each.primitive.name, algorithm=each.name, **point, **setting).time for point in points]
        for each in algorithms
    }


def plot(path: Path, algorithms: Sequence[Algorithm], ranks: int, nbytes: int, setting: dict[str, Any]) -> None:
    """Write the plot, and print where lines cross; raise ValueError for invalid options."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"--plot {path} does not end in .png, .svg or .pdf")
    check_folder("--plot", path)
    if ranks < max(2, setting["root"] + 1) or nbytes < 8:
        raise ValueError(
            f"--plot needs at least 2 ranks, with the root among them, and 8 bytes, not {ranks} and {nbytes}"
        )
    optional("matplotlib")
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from ..base.figures import STYLE, image

    by_ranks = doubling(ranks, 2, max(2, setting["root"] + 1))
    by_bytes = doubling(nbytes, 4, 8)
    how_many = "{} ranks".format
    at, on = f"At {size_label(nbytes)}", f"On {how_many(ranks)}"
    panels: list[tuple[str, Callable[[int], str], list[int], list[dict[str, Any]], str]] = [
        ("ranks", how_many, by_ranks, [{"ranks": each, "nbytes": nbytes} for each in by_ranks], at),
        ("bytes", size_label, by_bytes, [{"ranks": ranks, "nbytes": each} for each in by_bytes], on),
    ]
    with rc_context(STYLE):
        figure = Figure(figsize=(12, 4.5), layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(f"{algorithms[0].primitive.name}, simulated")
        for axes, (unit, label, abscissas, points, fixed) in zip(figure.subplots(1, 2), panels):
            curves = curves_of(algorithms, points, setting)
            found = crossings(abscissas, curves)
            _draw(axes, abscissas, curves, found, label)
            axes.set(xlabel=unit, ylabel="time", title=f"time against {unit}, {fixed[0].lower()}{fixed[1:]}")
            for each in filter(attrgetter("crosses"), found):
                low = label(each.low).removesuffix(" ranks")
                print(f"{fixed}, {each.after} overtakes {each.before} between {low} and {label(each.high)}.")
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    write_atomically(path, lambda file: file.write(image(figure, path.suffix[1:])))


def _draw(
    axes: Any, abscissas: Sequence[int], curves: Curves, found: Sequence[Crossing], label: Callable[[int], str]
) -> None:
    from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter

    for number, (name, seconds) in enumerate(curves.items()):
        marker, width = MARKERS[number % len(MARKERS)], 4.5 - 3 * number / len(curves)  # coinciding lines stay visible
        axes.plot(abscissas, seconds, label=name, marker=marker, markersize=width + 2.5, linewidth=width)
    for each in filter(attrgetter("crosses"), found):
        axes.plot(each.at, each.seconds, "o", markersize=11, markerfacecolor="none", markeredgecolor="black")
        text = f"{label(each.low)} to {label(each.high)}"
        axes.annotate(text, (each.at, each.seconds), (4, -14), textcoords="offset points")
    axes.set(xscale="log", yscale="log")
    axes.yaxis.set_major_formatter(EngFormatter(unit="s"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    locators = (LogLocator(), LogLocator(subs=(1.0, 2.0, 5.0)), LogLocator(subs=range(1, 10)), MaxNLocator(4))
    for locator in locators:  # until at least two ticks have labels
        axes.yaxis.set_major_locator(locator)
        low, high = sorted(axes.get_ylim())
        if sum(low <= tick <= high for tick in axes.yaxis.get_majorticklocs()) > 1:
            break
    ticks = abscissas[:: -(-len(abscissas) // 8)]
    axes.set_xticks(ticks, [label(tick).removesuffix(" ranks") for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.grid(alpha=0.3)
