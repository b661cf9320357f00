"""Copies of the state of training in host memory: the part of one rank, after a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ...arguments.memory import address
from ..contents import Contents
from ..flat import Array, Piece, copy, named_dtype

_ALIGNMENT = 64  # bytes


class Location(NamedTuple):
    """The location of a piece of an array in a copy."""

    kind: str
    name: str
    start: int
    length: int
    shape: tuple[int, ...]
    dtype: str
    offset: int  # in bytes


class CopyFrame(NamedTuple):
    """How the state of a rank lies in a copy: the number of the step, the counters of the optimizer, the arrays."""

    names: tuple[str, ...]  # of the parameters that have a counter
    locations: tuple[Location, ...]
    nbytes: int


class Label(NamedTuple):
    """The part of rank `owner`; the parts of all `owners` are the state after `step`.

    `build` counts the drivers that were made one after the other; the owners are ranks of the communicator of this one.
    """

    build: int
    step: int
    owner: int
    owners: tuple[int, ...]


class StateCopy(NamedTuple):
    """A copy in host memory."""

    label: Label
    frame: CopyFrame
    memory: np.ndarray

    def pieces(self) -> Iterator[tuple[str, str, Piece]]:
        """Yield the arrays as (kind, name of the parameter, piece)."""
        for kind, name, start, length, shape, dtype, offset in self.frame.locations:
            type_ = named_dtype(dtype)
            values = self.memory[offset : offset + length * type_.itemsize].view(type_)
            yield kind, name, Piece(start, values, shape)

    def steps(self) -> dict[str, int]:
        """The number of updates of each parameter."""
        counters = self.memory[8 : 8 + 8 * len(self.frame.names)].view(np.int64)
        return dict(zip(self.frame.names, counters.tolist()))


class Copier:
    """Copies the state of this rank to host memory."""

    def __init__(self, contents: Contents) -> None:
        self._steps = contents.optimizer.steps if contents.optimizer else {}
        counted = {name: key for key, name in contents.names() if key in self._steps}
        self._keys = [*counted.values()]
        groups = contents.groups()
        arrays = [(kind, key, array) for kind, arrays in groups.items() for key, array in arrays.items()]
        self._arrays, self._offsets = [array.reshape(-1) for _, _, array in arrays], list[int]()
        nbytes = _aligned(8 + 8 * len(counted))
        for array in self._arrays:
            self._offsets.append(nbytes)
            nbytes = _aligned(nbytes + array.nbytes)
        memory = np.zeros(nbytes, np.uint8)
        views: dict[str, dict[str, Array]] = {kind: {} for kind in groups}
        for (kind, key, array), view in zip(arrays, self._views(memory)):
            views[kind][key] = view.reshape(array.shape)
        self.frame = CopyFrame(tuple(counted), tuple(_locations(contents.pieces(views), memory)), nbytes)

    def _views(self, memory: np.ndarray) -> Iterator[np.ndarray]:
        for offset, array in zip(self._offsets, self._arrays):
            yield memory[offset : offset + array.nbytes].view(array.dtype)

    def into(self, memory: np.ndarray) -> Callable[[int], None]:
        """Return a function that copies the present state, which is the one after the given step, to this memory."""
        counters = memory[8 : 8 + 8 * len(self._keys)].view(np.int64)
        pairs = [*zip(self._views(memory), self._arrays)]

        def take(step: int) -> None:
            mark(memory, -1)
            for view, array in pairs:
                copy(view, array)
            counters[:] = [self._steps[key] for key in self._keys]
            mark(memory, step)

        return take


def mark(memory: np.ndarray, step: int) -> None:
    """Record the step of a copy; -1 means that it is not complete."""
    memory[:8].view(np.int64)[0] = step


def step_of(memory: np.ndarray) -> int:
    """Return the step of a copy."""
    return int(memory[:8].view(np.int64)[0])


def _locations(pieces: Iterable[tuple[str, str, Piece]], memory: np.ndarray) -> Iterator[Location]:
    for kind, name, piece in pieces:
        offset = address(piece.values) - address(memory)
        yield Location(kind, name, piece.start, len(piece.values), piece.shape, str(piece.values.dtype), offset)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
