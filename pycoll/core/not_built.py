"""What stands for parts of the compiled core where nothing was compiled."""

from __future__ import annotations

import time
from typing import Any

MOST_LOOKS = 100  # before the thread in the background sleeps
MISSED = object()
"""What `Front.call` and `Front.start` return if there is no plan."""


class NoFront:
    """A front without plans: each call takes the uncached path."""

    def run(self, *arguments: Any) -> bool:
        """Return False: there is no plan."""
        return False

    def call(self, *arguments: Any) -> Any:
        """Return that there is no plan."""
        return MISSED

    def start(self, *arguments: Any) -> Any:
        """Return that there is no plan."""
        return MISSED

    def remember(self, *arguments: Any) -> None:
        """Do nothing."""

    def forget(self) -> None:
        """Do nothing."""


class NoRunInFlight:
    """A class without instances."""


def none_in_flight() -> None:
    """Do nothing: there is nothing in flight."""


class NoMover:
    """It has nothing to move."""

    others = 0

    def __init__(self, shortest: float, longest: float) -> None:
        self.shortest, self.longest = shortest, longest

    def move(self, seconds: float, shortest: float, longest: float) -> bool:
        """Return False: there are no collectives in flight that it could move on."""
        return False

    def move_until_others(self) -> bool:
        """Wait until others want to progress; return whether they do."""
        looks = 0
        while looks < MOST_LOOKS and not self.others:
            time.sleep(self.longest)
            looks += 1
        return self.others > 0
