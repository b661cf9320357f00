"""Matplotlib figures as reproducible files; importing this module needs Matplotlib.

In an SVG, the colors of `DARK` replace the others if the reader prefers a dark page.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

INK, SOFT, LINE, PAPER = "#1b2430", "#5b6676", "#d5dbe3", "#ffffff"
GREY, BLUE, ORANGE, GREEN = "#8b95a3", "#1b66c9", "#c2410c", "#0f7a55"
DARK = {
    INK: "#e8edf3",
    SOFT: "#a3afbd",
    LINE: "#36404b",
    PAPER: "#14191f",
    GREY: "#7f8a99",
    BLUE: "#6db1ff",
    ORANGE: "#ff9d5c",
    GREEN: "#3ecf95",
    "#000000": "#e8edf3",
}
STYLE: Any = {
    "text.parse_math": False,  # file names may contain dollar signs
    "svg.hashsalt": "pycoll",
    "svg.fonttype": "none",
    "font.size": 9,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "grid.color": LINE,
    "legend.edgecolor": LINE,
    "text.color": INK,
    "xtick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.color": SOFT,
    "ytick.labelcolor": INK,
}


def grid(figure: Figure | SubFigure, panels: int, columns: int, xlabel: str, ylabel: str) -> list[Axes]:
    """Return panels with the same scales; only the outer ones have labels and numbers."""
    columns = min(panels, columns)
    axes = figure.subplots(-(-panels // columns), columns, sharex=True, sharey=True, squeeze=False).flatten()
    for each in axes[panels:]:
        each.set_visible(False)
    for each in axes[max(0, panels - columns) : panels]:
        each.tick_params(labelbottom=True)
        each.set_xlabel(xlabel)
    for each in axes[:panels:columns]:
        each.set_ylabel(ylabel)
    return list(axes[:panels])


@rc_context(STYLE)
def image(figure: Figure, kind: str) -> bytes:
    """The content of a file of this kind: "png", "svg" or "pdf"."""
    buffer = BytesIO()
    figure.savefig(buffer, format=kind, dpi=110, metadata={"Date": None} if kind == "svg" else None)
    return _with_dark_colors(buffer.getvalue()) if kind == "svg" else buffer.getvalue()


def _with_dark_colors(svg: bytes) -> bytes:
    """Add rules for dark pages; programs without media queries show the light colors of the elements."""
    rules = [
        f'[style*="{what}: {light}"] {{ {what}: {dark} !important }}'
        for light, dark in DARK.items()
        for what in ("fill", "stroke")
    ]
    style = "\n".join(["<style>@media (prefers-color-scheme: dark) {", *rules, "}</style>\n</svg>"])
    head, _, tail = svg.rpartition(b"</svg>")
    return head + style.encode() + tail
