"""Delays the exceptions of signal handlers while several waits must not be separated."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` without enumerations, in a twentieth of the time
import contextlib
import functools
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class interruptions_delayed:
    """Raise an exception of a signal handler at the end of the block, as if the block were one call of MPI.

    Handlers run when their signals arrive.  The second exception is raised immediately, so that the user can end an
    endless wait.  An error in the block is also raised immediately, instead of the exception of a handler.  As a
    decorator, it makes a function such a block.
    """

    _error: BaseException | None = None  # the first one that a handler has raised
    _handlers: dict[int, Callable[[int, FrameType | None], Any]] | None = None  # of the program, while replaced
    _over = False

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Make a function such a block."""

        @functools.wraps(function)
        def block(*args: P.args, **kwargs: P.kwargs) -> R:
            with interruptions_delayed():
                return function(*args, **kwargs)

        return block

    def __enter__(self) -> None:
        if _delays or threading.current_thread() is not threading.main_thread():  # Python runs handlers only there
            return
        self._handlers = {}
        try:
            _delays.append(self)
            self._replace_handlers(self._handlers)
        except BaseException:  # of a handler that was not replaced yet
            self._restore_handlers(self._handlers)
            raise

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._handlers is not None:
            self._restore_handlers(self._handlers)
            if self._error is not None and kind is None:
                raise self._error

    def _replace_handlers(self, replaced: dict[int, Callable[[int, FrameType | None], Any]]) -> None:
        """Replace all handlers that are Python functions."""
        handlers = list(map(_signal.getsignal, _SIGNALS))
        if handlers != _last[0]:  # they rarely change
            _last[:] = handlers, [at for at, handler in enumerate(handlers) if callable(handler)]
        for at in _last[1]:
            replaced[_SIGNALS[at]] = handlers[at]
            _signal.signal(_SIGNALS[at], self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        try:
            assert self._handlers is not None
            self._handlers[number](number, frame)
        except BaseException as error:
            if self._error is not None or self._over:  # the block ends, or is at its end
                self._restore_handlers(self._handlers or {})
                with contextlib.suppress(AttributeError, TypeError):
                    error.ends_wait = True  # type: ignore[attr-defined]
                raise
            self._error = error

    def _restore_handlers(self, replaced: dict[int, Callable[[int, FrameType | None], Any]]) -> None:
        """Restore the handlers, except those that were replaced meanwhile."""
        _delays.clear()
        rest = list(replaced)
        while rest:
            try:
                if _signal.getsignal(rest[-1]) == self._handle:
                    _signal.signal(rest[-1], replaced[rest[-1]])
                rest.pop()
            except BaseException as error:  # of a handler that is already restored
                self._error = error if self._error is None else self._error
        self._over = True


_SIGNALS = sorted(map(int, _signal.valid_signals()))
_last: list[list[Any]] = [[], []]  # the handlers of all signals, and the positions of those that are functions
_delays: list[interruptions_delayed] = []  # at most one
