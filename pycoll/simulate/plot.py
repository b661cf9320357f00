"""Plots of time against ranks and against bytes for several algorithms, with the points where they cross."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..base.command_line import check_folder, optional
from ..base.files import write_atomically
from ..schedule.registry import Algorithm
from ..tune.options import size_label
from . import simulate
from .crossings import Curves, crossings


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
    check_folder("--plot", path, ".png", ".svg", ".pdf")
    if ranks < max(2, setting["root"] + 1) or nbytes < 8:
        raise ValueError(
            f"--plot needs at least 2 ranks, with the root among them, and 8 bytes, not {ranks} and {nbytes}"
        )
    optional("matplotlib")
    from ..base.figures import image
    from .facets import View, drawn

    by_ranks = doubling(ranks, 2, max(2, setting["root"] + 1))
    by_bytes = doubling(nbytes, 4, 8)
    how_many = "{} ranks".format
    at, on = f"At {size_label(nbytes)}", f"On {how_many(ranks)}"
    views = []
    for unit, label, abscissas, points, fixed in [
        ("ranks", how_many, by_ranks, [{"ranks": each, "nbytes": nbytes} for each in by_ranks], at),
        ("bytes", size_label, by_bytes, [{"ranks": ranks, "nbytes": each} for each in by_bytes], on),
    ]:
        curves = curves_of(algorithms, points, setting)
        found = [each for each in crossings(abscissas, curves) if each.crosses]
        title = f"{algorithms[0].primitive.name}, simulated: time against {unit}, {fixed[0].lower()}{fixed[1:]}"
        views.append(View(title, unit, label, abscissas, curves, found))
        for each in found:
            low = label(each.low).removesuffix(" ranks")
            print(f"{fixed}, {each.after} overtakes {each.before} between {low} and {label(each.high)}.")
    content = image(drawn(views), path.suffix[1:])
    write_atomically(path, lambda file: file.write(content))
