"""Exceptions that signal handlers raise where several waits belong together, and none may be left out."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` without enumerations, which takes a twentieth of the time
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


class _Delay:
    """Stands in for the signal handlers of the program, and keeps the first exception that one of them raises."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._over = False

    def begin(self) -> None:
        """Take the place of all handlers that are Python's."""
        for number in _SIGNALS:
            handler = _signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                _signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        try:
            self._handlers[number](number, frame)
        except BaseException as error:
            if self.error or self._over:
                raise
            self.error = error

    def end(self) -> None:
        """Put the handlers back, except where one of them has installed another."""
        rest = list(self._handlers)
        while rest:
            try:
                if _signal.getsignal(rest[-1]) == self._handle:
                    _signal.signal(rest[-1], self._handlers[rest[-1]])
                rest.pop()
            except BaseException as error:  # of a handler that is back already
                self.error = self.error or error
        self._over = True


_SIGNALS = sorted(map(int, signal.valid_signals()))
_delays: list[_Delay] = []  # at most one


@contextlib.contextmanager
def interruptions_delayed() -> Iterator[None]:
    """Raise what a signal handler raises inside at the end, as if all that is inside were one call of MPI.

    Handlers run when their signals come, and the second exception is raised at once, so that nobody has to wait for
    ever.  An error inside is raised at once as well, and instead of what a handler raised.
    """
    if _delays or threading.current_thread() is not threading.main_thread():  # Python runs handlers in that one only
        yield
        return
    delay = _Delay()
    try:
        _delays.append(delay)
        delay.begin()
        yield
    finally:
        _delays.clear()
        delay.end()
    if delay.error:
        raise delay.error
