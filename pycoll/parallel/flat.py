"""Named arrays side by side in one flat vector, whole or in shards.

The NumPy functions that are used here dispatch to CuPy for CuPy arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

import pycoll

from ..arguments.arrays import as_array, check_writeable
from ..arguments.device_arrays import bfloat16, cupy
from ..arguments.memory import bounds, device_of
from ..arguments.streams import join_streams, order_after_caller

Array = Any  # a NumPy or CuPy array
Arrays = Mapping[str, Array]


class Piece(NamedTuple):
    """Elements `start` to ``stop - 1`` of a flattened array.

    Parameters
    ----------
    start : int
        The index of the first element in the flattened array.
    values : array
        The elements, with one axis.
    shape : tuple of int
        The shape of the whole array.
    """

    start: int
    values: Array
    shape: tuple[int, ...]

    @property
    def stop(self) -> int:
        """The index after the last element."""
        return self.start + len(self.values)


class FlatLayout:
    """The positions of arrays of one dtype in one flat vector, in the order of the arrays."""

    def __init__(self, arrays: Arrays) -> None:
        self.shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        self._starts: dict[str, int] = {}
        self.size = 0
        for name, shape in self.shapes.items():
            self._starts[name] = self.size
            self.size += math.prod(shape)

    def views(self, vector: Array) -> dict[str, Array]:
        """Return views of a vector of at least `size` elements, one for each array."""
        return {
            name: vector[start : start + math.prod(self.shapes[name])].reshape(self.shapes[name])
            for name, start in self._starts.items()
        }

    def pieces(self, shard: Array, start: int) -> Iterator[tuple[str, Piece]]:
        """Yield the pieces of arrays in a shard that begins at element `start` of the vector."""
        for name, first in self._starts.items():
            shape = self.shapes[name]
            begin, end = max(first, start), min(first + math.prod(shape), start + len(shard))
            if begin < end:
                yield name, Piece(begin - first, shard[begin - start : end - start], shape)


def whole_pieces(arrays: Arrays) -> Iterator[tuple[str, Piece]]:
    """Yield whole C-contiguous arrays as pieces."""
    for name, array in arrays.items():
        yield name, Piece(0, array.reshape(-1), tuple(array.shape))


def fill(piece: Piece, name: str, sources: list[Piece]) -> None:
    """Fill a piece from other pieces of the same array.

    Raise ValueError if they do not cover it, and TypeError if they are complex and the piece is not.
    """
    found, reached = 0, piece.start
    for source in sorted(sources, key=lambda source: source.start):
        if source.shape != piece.shape:
            raise ValueError(f"{name!r} has shape {piece.shape}, but the array to load has shape {source.shape}")
        check_cast(f"{name!r}: the array to load", source.values.dtype, piece.values.dtype)
        begin, end = max(source.start, piece.start), min(source.stop, piece.stop)
        if begin < end:
            copy(
                piece.values[begin - piece.start : end - piece.start],
                source.values[begin - source.start : end - source.start],
            )
            found += max(0, end - max(begin, reached))
            reached = max(reached, end)
    if found < len(piece.values):
        raise ValueError(f"{name!r}: only {found} of {len(piece.values)} elements were found")


def by_dtype(arrays: Arrays) -> dict[np.dtype, dict[str, Array]]:
    """Group arrays by dtype, in their order."""
    groups: dict[np.dtype, dict[str, Array]] = {}
    for name, array in arrays.items():
        groups.setdefault(array.dtype, {})[name] = array
    return groups


def module_of(array: Array) -> Any:
    """Return NumPy, or CuPy for an array in GPU memory."""
    return np if isinstance(array, np.ndarray) else cupy()


def beside(array: Array, like: Array) -> Array:
    """Return the array in the memory of `like`: a copy, unless it is there."""
    return module_of(like).asarray(array)


def empty(like: Array, size: int, dtype: Any = None) -> Array:
    """Allocate a vector in the memory of `like`: host memory or the memory of its GPU."""
    return np.empty_like(like, shape=(size,), dtype=dtype)


def shared_empty(like: Array, size: int, dtype: Any, comm: MPI.Comm) -> Array:
    """Allocate a vector as `empty` does, but in registered memory if it is host memory; all ranks call this together.

    It stays valid after the communicator is freed.
    """
    if not isinstance(like, np.ndarray):
        return empty(like, size, dtype)
    return pycoll.empty(size, like.dtype if dtype is None else dtype, comm=comm)


def check_cast(what: str, dtype: np.dtype, to: np.dtype) -> None:
    """Raise TypeError if a cast would lose imaginary parts; NumPy casts to dtypes of ml_dtypes without an error."""
    if dtype.kind == "c" and to.kind != "c":
        raise TypeError(f"{what} has dtype {dtype}, whose imaginary parts would be lost in {to}")


def copy(to: Array, source: Array) -> None:
    """Copy elements and convert them to the dtype of `to`; also between host memory and GPU memory."""
    if hasattr(source, "get") and not hasattr(to, "set"):
        source = source.get()
    if hasattr(to, "set") and not hasattr(source, "get"):
        to.set(source.astype(to.dtype, casting="same_kind", copy=False))
    else:
        np.copyto(to, source, casting="same_kind")


def hand_over(array: Array) -> None:
    """Make later GPU work of pycoll wait for the work on this array in the current stream."""
    if not isinstance(array, np.ndarray):
        order_after_caller(array.device.id)


def trained_dtype(what: str, dtype: Any, parameters: Arrays) -> np.dtype:
    """Convert to a dtype; raise TypeError, with the name of the argument, if parameters cannot be trained in it."""
    try:
        named = named_dtype(dtype)
    except TypeError as error:
        raise TypeError(f"{what}: {error}") from None
    check_averaged(what, named)
    for name, array in parameters.items():
        check_cast(f"parameters[{name!r}]", array.dtype, named)
    return named


def named_dtype(dtype: Any) -> np.dtype:
    """Convert to a dtype.  The name "bfloat16" needs the package ml_dtypes, which defines that dtype."""
    if str(dtype) != "bfloat16":
        named: np.dtype = np.dtype(dtype)
        return named
    return bfloat16("dtype 'bfloat16'")


def check_averaged(what: str, dtype: np.dtype) -> None:
    """Raise TypeError if numbers of this dtype cannot be averaged."""
    if dtype.kind not in "fcV" or dtype.type is np.void:  # those of ml_dtypes have the kind "V"
        raise TypeError(f"{what} has dtype {dtype}, which cannot be averaged")


def as_given(what: str, buffer: Any) -> Array:
    """Return a NumPy or CuPy array that shares the memory of any array, for example of a PyTorch tensor."""
    array = as_array(what, buffer)
    if array is not buffer and not isinstance(array, np.ndarray):
        join_streams(array.device.id)
    return array


def check_in_place(gradients: Mapping[str, Any]) -> dict[str, Array]:
    """Return gradients as arrays, to change them in place.

    Raise ValueError if one is read-only, as scalars are, and TypeError if one has a dtype that cannot be averaged.
    """
    checked: dict[str, Array] = {}
    for key, buffer in gradients.items():
        what = f"gradients[{key!r}]"
        checked[key] = as_given(what, buffer)
        check_averaged(what, checked[key].dtype)
        check_writeable(what, buffer, checked[key])
    return checked


def check_gradient(what: str, gradient: Any, parameter: Array) -> Array:
    """Return a gradient as an array.

    Raise ValueError unless it has the shape of its parameter, and TypeError if it is in another memory, or if it is
    complex and its parameter is not.
    """
    gradient = as_given(what, gradient)
    if gradient.shape != parameter.shape:
        raise ValueError(f"{what} has shape {gradient.shape}, but its parameter has {parameter.shape}")
    if device_of(gradient) != device_of(parameter):
        raise TypeError(f"{what} is {_memory_of(gradient)}, but its parameter is {_memory_of(parameter)}")
    check_cast(what, gradient.dtype, parameter.dtype)
    return gradient


def _memory_of(array: Array) -> str:
    return "in host memory" if isinstance(array, np.ndarray) else f"on GPU {device_of(array)}"


def check_arrays(name: str, arrays: Any, trained: bool = True) -> dict[str, Array]:
    """Return arrays by name; raise TypeError or ValueError, with the name, for an invalid entry.

    If `trained` is true, integer arrays and arrays that share memory are invalid.
    """
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
            raise TypeError(f"{what} is {_memory_of(array)}, but the first of the {name} is {_memory_of(first)}")
        if trained:
            check_averaged(what, array.dtype)
        if not array.flags.c_contiguous:
            raise ValueError(f"{what} is not C-contiguous")
        check_writeable(what, buffer, array)
    if trained:
        _check_apart(name, checked)
    return checked


def _check_apart(name: str, arrays: Arrays) -> None:
    """Raise ValueError if two arrays share memory: an update of one would be lost, or would change the other."""
    bounded = sorted((*bounds(array), number, key) for number, (key, array) in enumerate(arrays.items()) if array.size)
    for (_, stop, *one), (start, _, *other) in pairwise(bounded):
        if start < stop:
            first, second = (key for _, key in sorted((one, other)))
            raise ValueError(f"{name}[{first!r}] and {name}[{second!r}] share memory; pass tied parameters once")
