"""Which calls of `pycoll.Comm` go to MPI at once, with the arguments of the caller.

They are those that name no algorithm and are so short that MPI takes less time for them than Python does for anything
else.  The first call of a kind is checked and chosen for like any other; `Channel.short` then has the limit for those
that come later.  Whoever looks there decides as `pycoll.selection.select` does, so that all ranks decide alike.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from mpi4py import MPI

from ..arguments.arrays import IN_PLACE
from ..arguments.signature import dtype_named
from ..runtime.progress import tasks
from ..schedule.registry import PRIMITIVES
from .requests import NativeRequest

ndarray = np.ndarray
Limits = dict[Hashable, int]


def moved(limits: Limits, primitive: str, buffer: Any, blocks: int = 1) -> bool:
    """Whether a call that moves data is short, by a buffer of so many blocks."""
    if tasks:
        return False
    if type(buffer) is ndarray:
        return bool(buffer.nbytes <= limits.get(primitive, -1) * blocks)
    nbytes, _ = _listed(buffer, blocks)
    return nbytes is not None and bool(nbytes <= limits.get(primitive, -1) * blocks)


def reduced(limits: Limits, primitive: str, buffer: Any, op: Any, blocks: int = 1) -> bool:
    """Whether a reduction is short, by a buffer of so many blocks."""
    if tasks:
        return False
    if type(buffer) is ndarray:
        return bool(buffer.nbytes <= limits.get((primitive, id(op), buffer.dtype), -1) * blocks)
    nbytes, dtype = _listed(buffer, blocks)
    return nbytes is not None and bool(nbytes <= limits.get((primitive, id(op), dtype), -1) * blocks)


def _listed(spec: Any, blocks: int) -> tuple[int | None, np.dtype | None]:
    """The bytes and the dtype of ``[array, type]`` and ``[array, count, type]``; (None, None) for other forms."""
    if type(spec) in (list, tuple) and 2 <= len(spec) <= 3 and type(spec[0]) is ndarray:
        dtype = dtype_named(spec[-1])
        if dtype is not None:
            if len(spec) == 2:
                return spec[0].nbytes, dtype
            if type(spec[1]) is int:
                return spec[1] * dtype.itemsize * blocks, dtype
    return None, None


def nonblocking(native: Callable[..., MPI.Request], primitive: str) -> Callable[..., NativeRequest | None]:
    """What begins a nonblocking call of `pycoll.Comm` by this method of mpi4py, if it is short."""
    at = {"bcast": 0, "gather": 0, "reduce": 0}.get(primitive, 1)  # the argument that decides how long it is
    blocks_of_all = primitive in ("allgather", "alltoall")
    varies, reduces = PRIMITIVES[primitive].varies or primitive == "barrier", PRIMITIVES[primitive].reduces

    def begin(comm: Any, *args: Any) -> NativeRequest | None:
        if varies:
            short = primitive in comm._limits and not tasks
        elif len(args) <= at:
            return None
        elif reduces:
            inside = primitive == "reduce_scatter" and args[0] is IN_PLACE
            op = args[2] if len(args) > 2 else MPI.SUM
            short = reduced(comm._limits, primitive, args[at], op, comm._ranks if inside else 1)
        else:
            short = moved(comm._limits, primitive, args[at], comm._ranks if blocks_of_all else 1)
        return NativeRequest(native(comm._private, *args)) if short else None

    return begin
