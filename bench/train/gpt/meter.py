"""Counts the bytes that are sent along each axis of a mesh."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pycoll


class Meter:
    """Assigns the bytes that this rank sends to axes: those of the innermost `along` block, or else `otherwise`."""

    def __init__(self, otherwise: str) -> None:
        self.sent: Counter[str] = Counter()
        self._otherwise = [otherwise]
        self._traffic: Any = None
        self._counted = 0

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count in this block."""
        with pycoll.traffic() as self._traffic:
            self._counted = 0
            yield
            self._note()
        self._traffic = None

    @contextlib.contextmanager
    def along(self, axis: str) -> Iterator[None]:
        """Assign what is sent in this block to an axis."""
        self._note()
        self._otherwise.append(axis)
        try:
            yield
        finally:
            self._note()
            self._otherwise.pop()

    def _note(self) -> None:
        """Assign what has been sent since the last call."""
        if self._traffic:
            self.sent[self._otherwise[-1]] += self._traffic.nbytes - self._counted
            self._counted = self._traffic.nbytes


class Metered:
    """A part of a model whose messages are assigned to an axis."""

    def __init__(self, part: Any, meter: Meter, axis: str) -> None:
        self.parts = {"_part": part}
        self.forward, self.backward = (self._metered(each, meter, axis) for each in (part.forward, part.backward))
        if hasattr(part, "backward_input"):
            self.backward_input = self._metered(part.backward_input, meter, axis)

    @staticmethod
    def _metered(method: Callable[..., Any], meter: Meter, axis: str) -> Callable[..., Any]:
        def metered(*given: Any) -> Any:
            with meter.along(axis):
                return method(*given)

        return metered
