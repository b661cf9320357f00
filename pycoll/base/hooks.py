"""Hooks that lower layers call and upper layers install, so that lower layers need not import upper ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# called on every rank when pycoll attaches to a communicator, with its private duplicate
channel_made: list[Callable[[Any], object]] = []

# called when a new epoch begins
epoch_began: list[Callable[[], object]] = []

# Programs are bound for one epoch.  A new epoch begins when the segment sizes change, and when counting or tracing of
# messages is turned on or off.
epoch = 0


def begin_epoch() -> None:
    """Begin a new epoch, in which every program is bound again at its next call.

    No program is freed here, because another thread may be running it.
    """
    global epoch
    epoch += 1
    for call in epoch_began:
        call()


before_mpi: list[Callable[[], object]] = []
"""Called before modules that import MPI: `pycoll.run` imports it then, and replaces its communicators."""


def call_before_mpi() -> None:
    """Call them; the packages whose modules import MPI do this first."""
    for call in before_mpi:
        call()
