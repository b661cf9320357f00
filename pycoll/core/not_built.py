"""What stands for parts of the compiled core where nothing was compiled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

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
        self._begin: Callable[[], None] | None = None
        self._awake = threading.Event()

    def begins_with(self, function: Callable[[], None]) -> None:
        """Call this function at the first `wake`; it begins the thread that calls `move_until_others`."""
        self._begin = function

    @property
    def asleep(self) -> bool:
        """Whether this thread sleeps, or has not begun."""
        return not self._awake.is_set()

    def wake(self) -> None:
        """Wake this thread, or begin it."""
        begin, self._begin = self._begin, None
        self._awake.set()
        if begin:
            begin()

    def move(self, seconds: float, shortest: float, longest: float) -> bool:
        """Return False: there are no collectives in flight that it could move on."""
        return False

    def move_until_others(self) -> None:
        """Wait until others want to progress."""
        while not self.others:
            self._awake.clear()
            if not self.others:
                self._awake.wait()
