"""A figure or subfigure with a title and a description of the machine.  No MPI is needed."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, SubFigure

from pycoll.base.figures import ORANGE, SOFT

from ..machine import Environment, oversubscribed, where

Drawn = Figure | SubFigure
WIDTHS = {True: 9.5, False: 3.7}  # inches; figures for a wide page and for a phone
SMALL = 8  # points


def whole(wide: bool, height: float) -> Figure:
    """Return an empty figure; `height` is in inches."""
    figure = Figure(figsize=(WIDTHS[wide], height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


class Canvas:
    """A figure or subfigure with a title above and a description of the machine below."""

    def __init__(
        self, title: str, environments: Sequence[Environment], height: float, *, wide: bool, on: SubFigure | None = None
    ) -> None:
        self.wide = wide
        warning = oversubscribed(environments)
        below = self.wrapped("\n".join([*([warning] if warning else []), where(environments)]), 1, SMALL)
        title = self.wrapped(title, 1, 9.5)
        lines = title.count("\n") + below.count("\n") + 2
        self.figure = on or whole(wide, height + 0.17 * lines)
        self.figure.suptitle(title, x=0.01, ha="left", fontsize=9.5, fontweight="bold")
        self.figure.supxlabel(below, x=0.01, ha="left", fontsize=SMALL, color=ORANGE if warning else SOFT)

    def wrapped(self, text: str, columns: int, points: float) -> str:
        """Return the text wrapped to the width of a column; `points` is the font size."""
        characters = int(WIDTHS[self.wide] * 72 / columns / points / 0.62)
        return "\n".join(textwrap.fill(line, characters) for line in text.splitlines())
