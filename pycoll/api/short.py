"""Which calls of `pycoll.Comm` go to MPI at once, with the arguments of the caller.

They are those that name no algorithm and are so short that MPI takes less time for them than Python does for anything
else.  The first call of a kind is checked and chosen for like any other; `Channel.short` then has the limit for those
that come later.  Whoever looks there decides as `pycoll.selection.select` does, so that all ranks decide alike.
"""

from __future__ import annotations

import array
import mmap
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from mpi4py import MPI

from ..arguments.arrays import IN_PLACE
from ..arguments.signature import BASIC
from ..runtime.progress import tasks
from ..schedule.registry import PRIMITIVES
from .requests import NativeRequest

ndarray = np.ndarray
Limits = dict[Hashable, int]
_ON_HOST = frozenset((ndarray, bytes, bytearray, memoryview, array.array, mmap.mmap, MPI.buffer))
OTHER_FORM = 1 << 63  # more bytes than any limit


def moved(limits: Limits, primitive: str, buffer: Any, blocks: int = 1, other: Any = None) -> bool:
    """Whether a call that moves data is short, by a buffer of so many blocks; mpi4py must know the dtypes of both."""
    if type(buffer) is ndarray:
        nbytes: int = buffer.nbytes
        name: Hashable = buffer.dtype
    else:
        nbytes, name = _listed(buffer, blocks)
    return nbytes <= limits.get(primitive, -1) * blocks and not tasks and name in BASIC and is_known(other)


def varying(limits: Limits, primitive: str, sendbuf: Any, recvbuf: Any) -> bool:
    """Whether a call whose ranks do not know each other's counts goes to MPI; mpi4py must know the dtypes."""
    return primitive in limits and not tasks and is_known(sendbuf) and is_known(recvbuf)


def is_known(buffer: Any) -> bool:
    """Whether mpi4py knows the dtype of a buffer in a usual form, which is in host memory."""
    if type(buffer) is ndarray:
        return buffer.dtype in BASIC
    if type(buffer) is list or type(buffer) is tuple:
        return len(buffer) > 1 and type(buffer[0]) in _ON_HOST and (id(buffer[-1]) in BASIC or is_known(buffer[0]))
    return buffer is None or buffer is IN_PLACE


def reduced(limits: Limits, primitive: str, buffer: Any, op: Any, blocks: int = 1) -> bool:
    """Whether a reduction is short, by a buffer of so many blocks."""
    if type(buffer) is ndarray:
        nbytes: int = buffer.nbytes
        name = buffer.dtype
    elif type(buffer) is list and len(buffer) == 2 and type(buffer[0]) is ndarray:
        nbytes, name = buffer[0].nbytes, id(buffer[1])
    else:
        nbytes, name = _listed(buffer, blocks)
    return nbytes <= limits.get((primitive, id(op), name), -1) * blocks and not tasks


def _listed(spec: Any, blocks: int) -> tuple[int, Hashable]:
    """The bytes of ``[array, type]`` or ``[array, count, type]``, and the name of the type; else too many bytes."""
    if (type(spec) is list or type(spec) is tuple) and len(spec) > 1 and type(spec[0]) in _ON_HOST:
        if len(spec) == 2 and type(spec[0]) is ndarray:
            return spec[0].nbytes, id(spec[1])
        if len(spec) == 3 and type(spec[1]) is int and isinstance(spec[2], MPI.Datatype):
            return spec[1] * spec[2].size * blocks, id(spec[2])
    return OTHER_FORM, None


def nonblocking(native: Callable[..., MPI.Request], primitive: str) -> Callable[..., NativeRequest | None]:
    """What begins a nonblocking call of `pycoll.Comm` by this method of mpi4py, if it is short."""
    at = {"bcast": 0, "gather": 0, "reduce": 0}.get(primitive, 1)  # the argument that decides how long it is
    buffers = 1 if primitive == "bcast" else 2  # the first arguments
    blocks_of_all = primitive in ("allgather", "alltoall")
    varies, reduces = PRIMITIVES[primitive].varies, PRIMITIVES[primitive].reduces

    def begin(comm: Any, *args: Any) -> NativeRequest | None:
        if primitive == "barrier":
            short = primitive in comm._limits and not tasks
        elif varies:
            short = len(args) > 1 and varying(comm._limits, primitive, args[0], args[1])
        elif len(args) < buffers:
            return None
        elif reduces:
            inside = primitive == "reduce_scatter" and args[0] is IN_PLACE
            op = args[2] if len(args) > 2 else MPI.SUM
            short = reduced(comm._limits, primitive, args[at], op, comm._ranks if inside else 1)
        else:
            other = args[1 - at] if buffers == 2 else None
            short = moved(comm._limits, primitive, args[at], comm._ranks if blocks_of_all else 1, other)
        return NativeRequest(native(comm._private, *args)) if short else None

    return begin
