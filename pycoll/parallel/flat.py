"""Named arrays side by side in one flat vector, whole or in shards.

The functions of NumPy that are used here dispatch to CuPy for arrays of CuPy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..arguments.arrays import as_array, check_writeable
from ..arguments.memory import device_of
from ..arguments.streams import follow, join_streams

Array = Any  # of NumPy or CuPy
Arrays = Mapping[str, Array]


class Piece(NamedTuple):
    """Elements `start`, `start` + 1, ... of a flattened array of this shape."""

    start: int
    values: Array  # a flat view
    shape: tuple[int, ...]

    @property
    def stop(self) -> int:
        """The element after the last."""
        return self.start + len(self.values)


class Layout:
    """The places of arrays of one dtype in one vector, in their order."""

    def __init__(self, arrays: Arrays) -> None:
        self.shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        self._starts: dict[str, int] = {}
        self.size = 0
        for name, shape in self.shapes.items():
            self._starts[name] = self.size
            self.size += math.prod(shape)

    def views(self, vector: Array) -> dict[str, Array]:
        """The arrays inside a vector of `size` elements or more."""
        return {
            name: vector[start : start + math.prod(self.shapes[name])].reshape(self.shapes[name])
            for name, start in self._starts.items()
        }

    def pieces(self, shard: Array, start: int) -> Iterator[tuple[str, Piece]]:
        """The pieces of arrays in a shard that begins at element `start` of the vector."""
        for name, first in self._starts.items():
            shape = self.shapes[name]
            begin, end = max(first, start), min(first + math.prod(shape), start + len(shard))
            if begin < end:
                yield name, Piece(begin - first, shard[begin - start : end - start], shape)


def whole_pieces(arrays: Arrays) -> Iterator[tuple[str, Piece]]:
    """Whole C-contiguous arrays, as pieces."""
    for name, array in arrays.items():
        yield name, Piece(0, array.reshape(-1), tuple(array.shape))


def fill(piece: Piece, name: str, sources: list[Piece]) -> None:
    """Fill a piece from other pieces of the same array; ValueError if they do not cover it."""
    found, reached = 0, piece.start
    for source in sorted(sources, key=lambda source: source.start):
        if source.shape != piece.shape:
            raise ValueError(f"{name!r} has shape {piece.shape}, but what is to be loaded has shape {source.shape}")
        begin, end = max(source.start, piece.start), min(source.stop, piece.stop)
        if begin < end:
            copy(
                piece.values[begin - piece.start : end - piece.start],
                source.values[begin - source.start : end - source.start],
            )
            found += max(0, end - max(begin, reached))
            reached = max(reached, end)
    if found < len(piece.values):
        raise ValueError(f"{name!r}: of {len(piece.values)} elements {found} were found")


def by_dtype(arrays: Arrays) -> dict[np.dtype, dict[str, Array]]:
    """The arrays grouped by dtype, in their order."""
    groups: dict[np.dtype, dict[str, Array]] = {}
    for name, array in arrays.items():
        groups.setdefault(array.dtype, {})[name] = array
    return groups


def empty(like: Array, size: int, dtype: Any = None) -> Array:
    """A vector in the memory of `like`: in host memory or on its device."""
    return np.empty_like(like, shape=(size,), dtype=dtype)


def copy(to: Array, source: Array) -> None:
    """Copy elements, converted to the dtype of `to`; also between host memory and a device."""
    if hasattr(source, "get") and not hasattr(to, "set"):
        source = source.get()
    if hasattr(to, "set") and not hasattr(source, "get"):
        to.set(source.astype(to.dtype, casting="same_kind", copy=False))
    else:
        np.copyto(to, source, casting="same_kind")


def hand_over(array: Array) -> None:
    """Make later work of pycoll on a GPU wait for what the current stream does with this array."""
    if not isinstance(array, np.ndarray):
        follow(array.device.id)


def named_dtype(dtype: Any) -> np.dtype:
    """A dtype; the name "bfloat16" needs the package ml_dtypes, which defines that dtype."""
    if str(dtype) != "bfloat16":
        named: np.dtype = np.dtype(dtype)
        return named
    try:
        import ml_dtypes  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise TypeError("dtype 'bfloat16' needs the package ml_dtypes (the extra bfloat16)") from None
    bfloat16: np.dtype = np.dtype(ml_dtypes.bfloat16)
    return bfloat16


def check_averaged(what: str, dtype: np.dtype) -> None:
    """TypeError if numbers of this dtype cannot be averaged."""
    if dtype.kind in "iub":
        raise TypeError(f"{what} has dtype {dtype}, which cannot be averaged")


def as_given(what: str, buffer: Any) -> Array:
    """An array of NumPy or CuPy on the memory of any array, such as a PyTorch tensor, without a copy."""
    array = as_array(what, buffer)
    if array is not buffer and not isinstance(array, np.ndarray):
        join_streams(array.device.id)
    return array


def check_gradient(what: str, gradient: Any, parameter: Array) -> Array:
    """A gradient as an array.

    Raises ValueError unless it has the shape of its parameter, TypeError unless it is in the same memory.
    """
    gradient = as_given(what, gradient)
    if gradient.shape != parameter.shape:
        raise ValueError(f"{what} has shape {gradient.shape}, its parameter has {parameter.shape}")
    if device_of(gradient) != device_of(parameter):
        raise TypeError(f"{what} is {_place(gradient)}, its parameter {_place(parameter)}")
    return gradient


def _place(array: Array) -> str:
    return "in host memory" if isinstance(array, np.ndarray) else f"on GPU {device_of(array)}"


def check_arrays(name: str, arrays: Any, trained: bool = True) -> dict[str, Array]:
    """A dict of arrays by name; TypeError or ValueError names an invalid entry, such as integers to be `trained`."""
    if not isinstance(arrays, Mapping):
        raise TypeError(f"{name} must be a mapping from names to arrays, not {type(arrays).__name__}")
    checked: dict[str, Array] = {}
    for key, buffer in arrays.items():
        if not isinstance(key, str):
            raise TypeError(f"{name}[{key!r}]: names must be strings")
        what = f"{name}[{key!r}]"
        array = checked[key] = as_given(what, buffer)
        first = next(iter(checked.values()))
        if device_of(array) != device_of(first):
            raise TypeError(f"{what} is {_place(array)}, the first of the {name} {_place(first)}")
        if trained:
            check_averaged(what, array.dtype)
        if not array.flags.c_contiguous:
            raise ValueError(f"{what} is not C-contiguous")
        check_writeable(what, buffer, array)
    return checked
