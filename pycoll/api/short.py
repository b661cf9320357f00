"""Decides which calls of `pycoll.Comm` go directly to MPI, with the arguments of the caller.

These calls name no algorithm and are so short that MPI takes less time than Python overhead.  The first call of a kind
is checked like any other; then `Channel.short` has the limit for later calls.  The functions here decide as
`pycoll.selection.select` does, so that all ranks decide alike.
"""

from __future__ import annotations

import array
import mmap
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from mpi4py import MPI

from ..arguments.arrays import IN_PLACE
from ..arguments.signature import BASIC, ITEMSIZES
from ..runtime.progress import background, tasks
from ..schedule.registry import PRIMITIVES
from ..selection.rules import UNLIMITED
from .requests import NativeRequest

ndarray = np.ndarray
Longest = dict[Hashable, int]  # the bytes of a block by dtype, or by the identity of a datatype
Limits = dict[Hashable, Longest]  # by primitive, or by primitive and identity of the operation
_ON_HOST = frozenset((ndarray, bytes, bytearray, memoryview, array.array, mmap.mmap, MPI.buffer))
_BYTE = id(MPI.BYTE)
OTHER_FORM = 1 << 63  # more bytes than any limit: the form is not read here


def moved(limits: Limits, primitive: str, buffer: Any, blocks: int = 1, other: Any = None) -> bool:
    """Whether a call that moves data is short, judged by a buffer of `blocks` blocks; mpi4py must know both dtypes."""
    longest = limits.get(primitive)
    if longest is None or tasks:
        return False
    kind = type(buffer)
    if kind is list and len(buffer) == 3:
        memory, count, datatype = buffer
        known = id(datatype)
        if type(count) is not int or count * ITEMSIZES.get(known, OTHER_FORM) > longest.get(known, -1):
            return False
        if type(memory) not in _ON_HOST:
            return False
        if type(other) is list and len(other) == 3 and other[2] is datatype and type(other[0]) in _ON_HOST:
            return True
    elif kind is ndarray:
        if buffer.nbytes > longest.get(buffer.dtype, -1) * blocks or not buffer.flags.aligned:
            return False
    else:
        nbytes, name = _listed(buffer, blocks)
        if nbytes > longest.get(name, -1) * blocks:
            return False
    return other is None or is_known(other)


def moved_to_or_from_root(limits: Limits, primitive: str, buffer: Any, whole: Any, ranks: int) -> bool:
    """As `moved`, for scatter and gather: judged by the block of this rank, or by `whole` with MPI.IN_PLACE."""
    if buffer is IN_PLACE:
        return moved(limits, primitive, whole, ranks)
    return moved(limits, primitive, buffer, 1, whole)


def varying(limits: Limits, primitive: str, sendbuf: Any, recvbuf: Any) -> bool:
    """Whether a call with counts that not all ranks know goes to MPI; mpi4py must know the dtypes."""
    return primitive in limits and not tasks and is_known(sendbuf) and is_known(recvbuf)


def gathered(limits: Limits, sendbuf: Any, recvbuf: Any, ranks: int) -> bool:
    """As `varying`, for all-gather, where all ranks know all counts: judged by the mean length of a block."""
    longest = limits.get("allgatherv")
    if longest is None or tasks:
        return False
    limit = longest[_BYTE]
    if limit < UNLIMITED:
        if type(recvbuf) not in (list, tuple) or len(recvbuf) < 2 or type(recvbuf[0]) is not ndarray:
            return False
        counts, itemsize = recvbuf[1], ITEMSIZES.get(id(recvbuf[-1])) or recvbuf[0].itemsize
        if type(counts) is not list or len(counts) != ranks:
            return False
        try:
            total = sum(counts)
        except TypeError:  # other lists than of numbers
            return False
        if type(total) is not int or total * itemsize // ranks > limit:
            return False
    return is_known(sendbuf) and is_known(recvbuf)


def is_known(buffer: Any) -> bool:
    """Whether a buffer has a usual form, is in host memory, and has a dtype that mpi4py knows."""
    kind = type(buffer)
    if kind is ndarray:
        return buffer.dtype in BASIC and buffer.flags.aligned
    if kind is list or kind is tuple:
        if len(buffer) < 2:
            return False
        memory = buffer[0]
        if id(buffer[-1]) in BASIC:
            return type(memory) in _ON_HOST
        return type(memory) is ndarray and memory.dtype in BASIC and memory.flags.aligned
    return buffer is None or buffer is IN_PLACE


def reduced(limits: Limits, primitive: str, buffer: Any, op: Any, blocks: int = 1) -> bool:
    """Whether a reduction is short, judged by a buffer of `blocks` blocks."""
    longest = limits.get((primitive, id(op)))
    if longest is None or tasks:
        return False
    if type(buffer) is ndarray:
        return buffer.nbytes <= longest.get(buffer.dtype, -1) * blocks and bool(buffer.flags.aligned)
    nbytes, name = _listed(buffer, blocks)
    return nbytes <= longest.get(name, -1) * blocks


def _listed(spec: Any, blocks: int) -> tuple[int, Hashable]:
    """The bytes and the type of ``[array, type]`` or ``[array, count, type]``; `OTHER_FORM` for other forms."""
    if (type(spec) is list or type(spec) is tuple) and len(spec) > 1 and type(spec[0]) in _ON_HOST:
        if len(spec) == 2 and type(spec[0]) is ndarray:
            return spec[0].nbytes, id(spec[1])
        if len(spec) == 3 and type(spec[1]) is int:
            return spec[1] * ITEMSIZES.get(id(spec[2]), OTHER_FORM) * blocks, id(spec[2])
    return OTHER_FORM, None


def nonblocking(native: Callable[..., MPI.Request], primitive: str) -> Callable[..., NativeRequest | None]:
    """Return a function that begins a short nonblocking call of `pycoll.Comm` by this method of mpi4py."""
    varies, reduces = PRIMITIVES[primitive].varies, PRIMITIVES[primitive].reduces

    def begin(comm: Any, *args: Any) -> NativeRequest | None:
        if background:  # the progress thread advances tasks only
            return None
        limits, ranks = comm._limits, comm._ranks
        if primitive == "barrier":
            short = primitive in limits and not tasks
        elif primitive == "bcast":
            short = moved(limits, primitive, args[0])
        elif primitive == "allgatherv":
            short = gathered(limits, args[0], args[1], ranks)
        elif varies:
            short = varying(limits, primitive, args[0], args[1])
        elif reduces:
            inside = args[0] is IN_PLACE
            deciding = args[0] if primitive == "reduce" and not inside else args[1]
            short = reduced(
                limits, primitive, deciding, args[2], ranks if inside and primitive == "reduce_scatter" else 1
            )
        elif primitive == "gather":
            short = moved_to_or_from_root(limits, primitive, args[0], args[1], ranks)
        elif primitive == "scatter":
            short = moved_to_or_from_root(limits, primitive, args[1], args[0], ranks)
        else:
            short = moved(limits, primitive, args[1], ranks, args[0])
        return NativeRequest(native(comm._private, *args)) if short else None

    return begin
