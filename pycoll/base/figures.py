"""Matplotlib figures as reproducible files; importing this module needs Matplotlib."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

STYLE: Any = {"text.parse_math": False, "svg.hashsalt": "pycoll", "font.size": 9}  # file names may contain dollar signs


@rc_context(STYLE)
def image(figure: Figure, kind: str) -> bytes:
    """The content of a file of this kind: "png", "svg" or "pdf"."""
    buffer = BytesIO()
    figure.savefig(buffer, format=kind, dpi=110, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()
