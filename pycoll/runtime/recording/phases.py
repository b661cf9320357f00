"""Phases of a program, for example the forward pass, by name."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import ContextDecorator
from types import TracebackType

from . import recorder
from .recorder import now


def _nobody() -> None:
    """No driver is in a backward pass."""


class _State(threading.local):
    """The phases of one thread."""

    depth = 0  # how many we are in
    ended = 0  # when the last outermost one ended
    backward: Callable[[], Passes | None] = staticmethod(_nobody)  # whose backward pass this is


_state = _State()


class phase(ContextDecorator):
    """``with phase("forward"):`` records a phase in the trace, if there is one; also a decorator."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begins: list[int] = []  # as often as it has been entered; 0 without a trace

    def _recreate_cm(self) -> phase:
        return phase(self._name)

    def __enter__(self) -> phase:
        self._begins.append(now() if recorder.current else 0)
        if self._begins[-1]:
            _state.depth += 1
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if begin := self._begins.pop():
            _state.depth -= 1
            _record(self._name, begin)


def _record(name: str, begin: int) -> None:
    end = now()
    if used := recorder.current:
        used.record(used.named("phase", name), begin, end)
    if not _state.depth:
        _state.ended = end


def since_last(name: str, begin: int = 0) -> None:
    """Record a phase from the end of the last one, but not from before `begin` or the trace, until now.

    Nothing is recorded where the program is in a phase of its own.
    """
    if recorder.current and not _state.depth:
        _record(name, max(begin, _state.ended, recorder.current.began))


def recorded_wait(wait: Callable[[], object]) -> None:
    """Record a wait.  It is not a phase: the program is still in the phase that it was in."""
    used = recorder.current
    if not used:
        wait()
        return
    begin = now()
    try:
        wait()
    finally:
        used.record(used.named("phase", "wait"), begin, now())


def under_way(name: str) -> Callable[[], None]:
    """Start a span that may overlap others; returns the function that ends it."""
    used, begin = recorder.current, now()
    return (lambda: used.record(used.named("under_way", name), begin, now())) if used else _nothing


def _nothing() -> None:
    """Without a trace."""


class Passes:
    """The forward and the backward pass, as seen by a driver that receives gradients only.

    The backward pass lasts from the first gradient of a step until `over`, the forward pass from the end of the phase
    before (of the optimizer, or of the driver) until the first gradient.  Where the program has phases of its own at
    that moment, nothing is recorded; of drivers that take turns, those of the first.
    """

    def __init__(self) -> None:
        self._created, self._backward = now(), 0

    def gradient(self) -> None:
        """A gradient has come."""
        if recorder.current and not _state.depth and not _state.backward():
            since_last("forward", self._created)
            self._backward, _state.backward = _state.ended, weakref.ref(self)

    def over(self) -> None:
        """All gradients have come."""
        if _state.backward() is self:
            if recorder.current and not _state.depth:
                _record("backward", max(self._backward, recorder.current.began))
            _state.backward = _nobody
