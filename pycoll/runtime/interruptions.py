"""Delays the exceptions of signal handlers while several waits must not be separated."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` without enumerations, in a twentieth of the time
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


class _Delay:
    """Replaces the signal handlers of the program, and keeps the first exception that one of them raises."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._over = False

    def begin(self) -> None:
        """Replace all handlers that are Python functions."""
        handlers = list(map(_signal.getsignal, _SIGNALS))
        if handlers != _last[0]:  # they rarely change
            _last[:] = handlers, [at for at, handler in enumerate(handlers) if callable(handler)]
        for at in _last[1]:
            self._handlers[_SIGNALS[at]] = handlers[at]
            _signal.signal(_SIGNALS[at], self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        try:
            self._handlers[number](number, frame)
        except BaseException as error:
            if self.error or self._over:
                raise
            self.error = error

    def end(self) -> None:
        """Restore the handlers, except those that were replaced meanwhile."""
        rest = list(self._handlers)
        while rest:
            try:
                if _signal.getsignal(rest[-1]) == self._handle:
                    _signal.signal(rest[-1], self._handlers[rest[-1]])
                rest.pop()
            except BaseException as error:  # of a handler that is already restored
                self.error = self.error or error
        self._over = True


_SIGNALS = sorted(map(int, signal.valid_signals()))
_last: list[list[Any]] = [[], []]  # the handlers of all signals, and the positions of those that are functions
_delays: list[_Delay] = []  # at most one


@contextlib.contextmanager
def interruptions_delayed() -> Iterator[None]:
    """Raise an exception of a signal handler at the end of the block, as if the block were one call of MPI.

    Handlers run when their signals arrive.  The second exception is raised immediately, so that the user can end an
    endless wait.  An error in the block is also raised immediately, instead of the exception of a handler.
    """
    if _delays or threading.current_thread() is not threading.main_thread():  # Python runs handlers only there
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
