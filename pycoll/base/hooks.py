"""Where upper layers attach themselves to lower ones, so that the lower layers need not import them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# called on every rank with the private duplicate of each communicator that pycoll begins to use
channel_made: list[Callable[[Any], object]] = []

# called when a new epoch begins
epoch_began: list[Callable[[], object]] = []

# Programs are bound for one epoch.  A new one begins when what they are bound with changes: the sizes of segments,
# whether messages are counted, whether they are traced.
epoch = 0


def begin_epoch() -> None:
    """Have every program bound anew at its next call.

    No program is freed here, because another thread may be running it.
    """
    global epoch
    epoch += 1
    for call in epoch_began:
        call()
