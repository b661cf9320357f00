"""Warnings that show the line of the program that called pycoll."""

from __future__ import annotations

import sys
import warnings

OURS = ("pycoll", "contextlib", "functools")  # modules whose lines are not shown: pycoll, and what wraps its functions


def warn(message: str) -> None:
    """Issue a RuntimeWarning at the innermost line outside of pycoll."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in OURS:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)
