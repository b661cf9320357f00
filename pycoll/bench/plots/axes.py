"""Scales, ticks and bands of axes, and names beside the ends of lines.  No MPI is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor, log2
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import Locator, LogLocator, MaxNLocator, NullLocator

from pycoll.tune.options import size_label

from ..curves import Record
from .canvas import SMALL

NUMBER = "{x:,.9g}"  # without exponents


def name_ends(axes: Axes, ends: Mapping[str, tuple[float, float, str]], tall: float) -> None:
    """Write the names of lines to the right of the axes, each joined to the end of its line.

    `ends` has x, y and the color of each line; `tall` is the height of the axes in inches.
    """
    wanted = [axes.transAxes.inverted().transform(axes.transData.transform((x, y)))[1] for x, y, _ in ends.values()]
    heights = apart(wanted, SMALL * 1.2 / (tall * 72))
    for (name, (x, y, color)), height in zip(ends.items(), heights):
        arrow = {"arrowstyle": "-", "color": color, "linewidth": 0.5, "shrinkA": 1, "shrinkB": 1}
        how: Any = {"textcoords": "axes fraction", "va": "center", "fontsize": SMALL, "color": color}
        axes.annotate(name, (x, y), (1.05, height), arrowprops=arrow, **how)


def apart(wanted: Sequence[float], gap: float) -> list[float]:
    """Return the heights nearest to the wanted ones, from 0 to 1, at least a gap apart and in the same order."""
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    stacks: list[list[float]] = []  # touching neighbors: height minus number * gap of each
    for number, index in enumerate(order):
        stacks.append([wanted[index] - number * gap])
        while len(stacks) > 1 and _mean(stacks[-2]) >= _mean(stacks[-1]):
            stacks[-2:] = [stacks[-2] + stacks[-1]]
    lowest = [_mean(stack) for stack in stacks for _ in stack]
    top = max(0.0, 1 - gap * (len(wanted) - 1))
    found = {index: min(max(low, 0.0), top) + number * gap for number, (index, low) in enumerate(zip(order, lowest))}
    return [found[index] for index in range(len(wanted))]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def band(axes: Axes, records: Mapping[int, Record], color: str, key: str = "median") -> None:
    """Plot one key as a line (with markers if there are few points) and a band from minimum to 99th percentile."""
    measured = {x: record for x, record in records.items() if record.get(key)}
    spread = {x: bounds for x, record in measured.items() if (bounds := bounds_of(record, key))}
    low, high = [bounds[0] for bounds in spread.values()], [bounds[1] for bounds in spread.values()]
    axes.fill_between(list(spread), low, high, color=color, alpha=0.25, linewidth=0)
    medians = [record[key] for record in measured.values()]
    axes.plot(
        list(measured), medians, color=color, linewidth=1.5, marker="o" if len(measured) < 8 else "", markersize=3
    )


def bounds_of(record: Record, key: str = "median") -> tuple[float, float] | None:
    """Return the bounds of a key, computed from the minimum and the 99th percentile of the times."""
    if not (record.get("min") and record.get("p99") and record.get("median")):
        return None
    times = record["min"], record["p99"]
    if key == "median":
        return times
    slow, fast = (record[key] * record["median"] / time for time in reversed(times))  # the key is a bandwidth
    return slow, fast


def range_of(records: Iterable[Record], key: str) -> tuple[float, float]:
    """Return the smallest and the largest value of a key, including the bands."""
    bounds = [bound for each in records if each[key] for bound in bounds_of(each, key) or (each[key],)]
    return min(bounds), max(bounds)


def log_sizes(axes: Axes, sizes: Sequence[int], most: int) -> None:
    """Make the x axis a logarithmic axis of sizes, with at most `most` ticks, 1 KiB and 1 MiB among them."""
    low, high = ceil(log2(sizes[0])), floor(log2(sizes[-1]))
    for step in (1, 2, 5, 10):
        ticks: list[int] = [1 << power for power in range(low, high + 1) if power % step == 10 % step]
        if len(ticks) <= most:
            break
    ticks = ticks if len(ticks) > 1 else [sizes[0], sizes[-1]]
    axes.set_xscale("log", base=2)
    axes.set_xlim(sizes[0] / 1.6, sizes[-1] * 1.6)
    axes.set_xticks(ticks, [size_label(size) for size in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


def log_values(axes: Axes, low: float, high: float, base: int = 10, form: str = NUMBER) -> None:
    """Make the y axis a logarithmic axis for values in this range, with few tick labels."""
    axes.set(yscale="log", ylim=(low / 1.15, high * 1.15))
    _few_numbers(axes.yaxis, low, high, base, form)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(linewidth=0.6)
    axes.tick_params(bottom=False, left=False)


def log_x(axes: Axes, low: float, high: float) -> None:
    """Make the x axis a logarithmic axis for values in this range."""
    axes.set(xscale="log", xlim=(low / 1.15, high * 1.15))
    _few_numbers(axes.xaxis, low, high, 10, NUMBER)


def _few_numbers(axis: Axis, low: float, high: float, base: int, form: str) -> None:
    if high < 3 * low:
        locator: Locator = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10])  # such ticks include 1
    else:
        subs = (1, 2, 5) if base == 10 and high < 40 * low else (1,)
        locator = LogLocator(base, subs, numticks=20 if high < 1e5 * low else 5)
    axis.set_major_locator(locator)
    axis.set_major_formatter(form)
    axis.set_minor_locator(NullLocator())
