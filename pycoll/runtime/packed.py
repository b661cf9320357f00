"""Calls whose buffers have gaps, and that repeat: pack, run in memory that is kept, unpack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from ..arguments.check_buffers import CheckedBuffers
from ..arguments.memory import address
from ..arguments.packing import Packing

KEPT = 1 << 19  # the most bytes of packed buffers that are kept


class _Side:
    """The send buffer or the receive buffer: where it is, in a call whose buffer begins at another address."""

    def __init__(self, array: Any, start: int, actions: list[Packing]) -> None:
        here = address(array)
        end = here + (0 if array is None else array.nbytes)
        self.packed = any(here <= address(one.packed) < end for one in actions)
        self.here, self.kept = here, end - here if self.packed else 0
        self.known = self.packed or here in (0, start)

    def at(self, given: int) -> int:
        """Its address, if the caller has passed memory that begins at `given`."""
        return self.here if self.packed else given


def repeated(
    buffers: CheckedBuffers, starts: tuple[int, int], run: Callable[..., object]
) -> Callable[..., None] | None:
    """A function of the addresses of the buffers that runs calls like this one; None if that is not possible.

    `starts` are the addresses of the buffers of this call.  `run` is such a function of buffers without gaps.
    """
    work = [*buffers.before, *buffers.after]
    actions = [one for one in work if isinstance(one, Packing) and isinstance(one.memory, np.ndarray)]
    owners = [address(one.memory) for one in actions]
    sides = [_Side(array, start, actions) for array, start in zip((buffers.send, buffers.recv), starts)]
    fits = all(side.known for side in sides) and sum(side.kept for side in sides) <= KEPT
    if len(actions) < len(work) or not set(owners) <= set(starts) or not fits:
        return None
    places = [starts.index(owner) for owner in owners]
    placed = list(zip(places, actions))
    packs, unpacks = placed[: len(buffers.before)], placed[len(buffers.before) :]

    def call(send: int, recv: int, *caller: object) -> None:
        memory = [MPI.buffer.fromaddress(at, 1) if at else None for at in (send, recv)]
        for place, pack in packs:
            pack.at(memory[place])
        try:
            run(sides[0].at(send), sides[1].at(recv), *caller)
        finally:  # an exception of a signal handler comes after the call
            for place, unpack in unpacks:
                unpack.at(memory[place])

    return call
