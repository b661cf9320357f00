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
    """The state of the phases of one thread."""

    depth = 0  # the number of open phases
    ended = 0  # the end of the last outermost phase
    backward: Callable[[], Passes | None] = staticmethod(_nobody)  # the driver that is in a backward pass


_state = _State()


class phase(ContextDecorator):
    """Record a phase of the program in the trace, if there is one; a context manager and a decorator.

    Parameters
    ----------
    name : str
        The name of the phase, for example "forward".
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._begins: list[int] = []  # one for each time it is entered; 0 without a trace

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
    """Record a phase that lasts from the end of the last one until now.

    Nothing is recorded while the program is in a phase.

    Parameters
    ----------
    name : str
        The name of the phase.
    begin : int, optional
        The earliest beginning, in nanoseconds, as from `now`; the phase never begins before the trace.
    """
    if recorder.current and not _state.depth:
        _record(name, max(begin, _state.ended, recorder.current.began))


def under_way(name: str) -> Callable[[], None]:
    """Start a span that may overlap others.

    Parameters
    ----------
    name : str
        The name of the span.

    Returns
    -------
    callable
        A function without arguments that ends the span.
    """
    used, begin = recorder.current, now()
    return (lambda: used.record(used.named("under_way", name), begin, now())) if used else _nothing


def _nothing() -> None:
    """Do nothing: there is no trace."""


class Passes:
    """Records the forward and backward passes for a driver that receives only gradients.

    The backward pass lasts from the first gradient of a step until `over`.  The forward pass lasts from the end of the
    previous phase (of the optimizer or of the driver) until the first gradient.  Nothing is recorded while the program
    is in a phase, or while another driver is in a backward pass.
    """

    def __init__(self) -> None:
        self._created, self._backward = now(), 0

    def gradient(self) -> None:
        """Note that a gradient has arrived."""
        if recorder.current and not _state.depth and not _state.backward():
            since_last("forward", self._created)
            self._backward, _state.backward = _state.ended, weakref.ref(self)

    def over(self) -> None:
        """Note that all gradients have arrived."""
        if _state.backward() is self:
            if recorder.current and not _state.depth:
                _record("backward", max(self._backward, recorder.current.began))
            _state.backward = _nobody
