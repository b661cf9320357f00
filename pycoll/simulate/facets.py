"""Panels for simulated times: one for each algorithm, all with the same scales; importing this needs Matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullLocator

from ..base.figures import BLUE, GREY, INK, ORANGE, STYLE, grid
from .crossings import LEVEL, Crossing, Curves

COLUMNS = 4
WIDTH, HEIGHT = 2.0, 1.4  # of a panel, in inches
SMALL = 8  # points
ROOM = 4.0  # the ratio of two times between which a name fits


class View(NamedTuple):
    """The times of all algorithms against one quantity, and the points where another algorithm becomes the fastest."""

    title: str
    unit: str
    label: Callable[[int], str]
    abscissas: Sequence[int]
    curves: Curves
    crossings: Sequence[Crossing]


@rc_context(STYLE)
def drawn(views: Sequence[View]) -> Figure:
    """Return a figure with the views, one below the other."""
    count = len(views[0].curves)
    columns = min(COLUMNS, count)
    size = max(5.0, 0.6 + WIDTH * columns), len(views) * (0.8 + HEIGHT * -(-count // columns))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    for part, view in zip(figure.subfigures(len(views), 1, squeeze=False).flatten(), views):
        part.suptitle(view.title, x=0.01, ha="left", fontsize=9.5, fontweight="bold")
        panels = grid(part, count, columns, view.unit, "time")
        fastest = [min(times) for times in zip(*view.curves.values())]
        for axes, name in zip(panels, view.curves):
            _panel(axes, view, name, fastest)
        _scales(panels[0], view)
        _name_fastest(panels, view, fastest)
    return figure


def _panel(axes: Axes, view: View, name: str, fastest: Sequence[float]) -> None:
    """Draw the time of an algorithm, in color if it is the fastest somewhere, and the fastest time in grey."""
    seconds = view.curves[name]
    leads = [mine <= LEVEL * best for mine, best in zip(seconds, fastest)]
    color = BLUE if any(leads) else INK
    axes.plot(view.abscissas, fastest, color=GREY, linewidth=1)
    axes.plot(view.abscissas, seconds, color=color, linewidth=1.5, label=name)
    first = [(x, y) for x, y, lead in zip(view.abscissas, seconds, leads) if lead]
    axes.plot(*zip(*first), "o", color=color, markersize=3.5) if first else None
    axes.set_title(name, color=color, fontsize=SMALL, fontweight="bold", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(linewidth=0.6)
    for each in view.crossings:
        if each.after == name:
            axes.plot(each.at, each.seconds, "o", markersize=9, markerfacecolor="none", markeredgecolor=ORANGE)
            text = f"{view.label(each.low)} to {view.label(each.high)}"
            how: Any = {"fontsize": SMALL, "color": ORANGE, "ha": "right", "in_layout": False}
            axes.annotate(text, (each.at, each.seconds), (6, 8), textcoords="offset points", **how)


def _name_fastest(panels: Sequence[Axes], view: View, fastest: Sequence[float]) -> None:
    """Name the grey line once, at the first point with room above it, or with the most room."""
    gaps = [
        (min(mine / best, ROOM), -index, -number)
        for number, seconds in enumerate(view.curves.values())
        for index, (mine, best) in enumerate(zip(seconds, fastest))
    ]
    gap, index, number = max(gaps)
    if gap > LEVEL:
        side = "left" if -2 * index < len(fastest) else "right"
        how: Any = {"fontsize": SMALL, "color": GREY, "ha": side, "va": "bottom", "in_layout": False}
        at = view.abscissas[-index], fastest[-index]
        panels[-number].annotate("fastest", at, (0, 3), textcoords="offset points", **how)


def _scales(axes: Axes, view: View) -> None:
    """Make both axes, which all panels share, logarithmic, with few numbers."""
    axes.set(xscale="log", yscale="log")
    axes.yaxis.set_major_formatter(EngFormatter(unit="s"))
    axes.yaxis.set_minor_locator(NullLocator())
    locators = (LogLocator(), LogLocator(subs=(1.0, 2.0, 5.0)), LogLocator(subs=range(1, 10)), MaxNLocator(4))
    for locator in locators:  # until at least two ticks have labels
        axes.yaxis.set_major_locator(locator)
        low, high = sorted(axes.get_ylim())
        if sum(low <= tick <= high for tick in axes.yaxis.get_majorticklocs()) > 1:
            break
    ticks = view.abscissas[:: -(-len(view.abscissas) // 3) if len(view.abscissas) > 4 else 1]
    axes.set_xticks(ticks, [view.label(tick).removesuffix(" ranks") for tick in ticks])
    axes.set_xticks([], minor=True)
