"""Packs elements of a datatype with gaps into contiguous memory, and unpacks them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from .arrays import Action
from .ops import KeptDatatype

PIECE = 1 << 30  # bytes that are packed at a time: MPI before version 4 counts them in an int
MOST = (1 << 31) - 1  # bytes that MPI before version 4 can pack at a time


def packing(
    memory: Any, displacement: int, count: int, datatype: MPI.Datatype, packed: np.ndarray
) -> Iterator[tuple[Action, Action]]:
    """Pairs of calls that pack `count` elements into `packed`, and unpack them, piece by piece.

    `memory` is an array of bytes or MPI.BOTTOM; `displacement` is in bytes.
    """
    size, extent = datatype.size, datatype.extent
    if size > MOST and MPI.VERSION < 4:
        raise ValueError(f"an element of the datatype has {size} bytes; MPI before version 4 packs at most {MOST}")
    step = max(1, PIECE // size) if size else count
    for first in range(0, count if size else 0, step):
        some = min(step, count - first)
        piece = packed[first * size : (first + some) * size]
        start = displacement + first * extent
        if memory is MPI.BOTTOM:  # Pack needs memory of at least one byte, which has an address
            lowest = datatype.Get_true_extent()[0]
            placed, base = _placed(datatype, some, -lowest), MPI.buffer.fromaddress(start + lowest, 1)
        else:
            placed, base = _placed(datatype, some, start), memory[:1]
        yield (
            partial(placed.Pack, base, piece, 0, MPI.COMM_SELF),
            partial(placed.Unpack, piece, 0, base, MPI.COMM_SELF),
        )


def _placed(datatype: MPI.Datatype, count: int, displacement: int) -> MPI.Datatype:
    """A datatype of all these elements, which remains valid when the caller frees the datatype.

    Its extent is one byte, because Datatype.Pack computes the number of elements as memory length divided by extent.
    """
    elements = datatype.Create_hindexed([count], [displacement])
    placed = KeptDatatype(elements.Create_resized(0, 1).Commit())
    elements.Free()
    return placed
