"""Checks of the shapes of queries, keys and values, on one rank and on all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mpi4py import MPI

import pycoll

Array = Any
AXES = "sequences, positions, heads, width of a head"


class Shapes(NamedTuple):
    """The shapes and dtypes of queries, keys and values."""

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    @classmethod
    def of(cls, *arrays: Array) -> Shapes:
        """Return those of some arrays."""
        return cls(tuple(tuple(x.shape) for x in arrays), tuple(x.dtype.name for x in arrays))

    @property
    def positions(self) -> tuple[int, int]:
        """The numbers of queries and of keys."""
        q, k, _ = self.shapes
        return q[1], k[1]

    def problem(self) -> str:
        """What is wrong with them, or an empty string."""
        for name, shape in zip("qkv", self.shapes):
            if len(shape) != 4:
                return f"{name} has {len(shape)} axes, not 4: {AXES}"
        q, k, v = self.shapes
        if k != v:
            return f"k has shape {k}, but v has shape {v}"
        if len(set(self.dtypes)) > 1:
            return f"q, k and v have different dtypes: {', '.join(self.dtypes)}"
        if (q[0], q[3]) != (k[0], k[3]):
            return f"q has shape {q}, but k has shape {k}: only the numbers of positions and heads may differ"
        if not k[1]:
            return "k has no positions"
        if not k[2] or q[2] % k[2]:
            return f"q has {q[2]} heads, which is not a multiple of the {k[2]} heads of k"
        return ""


def check(q: Array, k: Array, v: Array) -> None:
    """Raise ValueError unless queries, keys and values fit each other."""
    if problem := Shapes.of(q, k, v).problem():
        raise ValueError(problem)


def agree(q: Array, k: Array, v: Array, comm: MPI.Comm) -> list[tuple[int, int]]:
    """Return the numbers of queries and of keys of each rank.

    Raise ValueError on all ranks if the arrays of a rank do not fit each other or those of the other ranks.
    """
    everyone: list[Shapes] = pycoll.allgather_object(Shapes.of(q, k, v), comm=comm)
    for rank, each in enumerate(everyone):
        if problem := each.problem():
            raise ValueError(f"on rank {rank}, {problem}")
    first = everyone[0]
    for rank, each in enumerate(everyone):
        if _without_positions(each) != _without_positions(first):
            raise ValueError(
                f"q and k have shapes {_in_words(first)} on rank 0, but {_in_words(each)} on rank {rank}: only the "
                "numbers of positions may differ"
            )
    return [each.positions for each in everyone]


def check_equal(positions: Sequence[tuple[int, int]], what: str) -> None:
    """Raise ValueError unless all ranks have the same numbers of queries, and of keys."""
    for name, numbers in zip("qk", zip(*positions)):
        if len(set(numbers)) > 1:
            raise ValueError(
                f"{what} needs blocks of equal length, but {name} has {', '.join(map(str, numbers))} positions on "
                f"ranks 0 to {len(numbers) - 1}"
            )


def _without_positions(given: Shapes) -> object:
    return [(shape[0], *shape[2:]) for shape in given.shapes], given.dtypes


def _in_words(given: Shapes) -> str:
    return f"{given.shapes[0]} and {given.shapes[1]} ({given.dtypes[0]})"
