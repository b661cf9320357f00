"""The first lines of the methods of `pycoll.Comm`: they pass short calls on to MPI, with the arguments of the caller.

These calls name no algorithm and are so short that MPI takes less time than Python overhead.  The first call of a kind
is checked like any other; then the `Limits` of the channel have the limit for later calls.  The lines decide as
`pycoll.selection.select` does, so that all ranks decide alike.  They are source text that becomes a part of each
method, because a call of a Python function takes a tenth of the time of the collective.
"""

from __future__ import annotations

import array
import mmap
from collections.abc import Hashable
from typing import Any

import numpy as np
from mpi4py import MPI

from ..arguments.arrays import IN_PLACE
from ..arguments.memory import apart
from ..arguments.signature import BASIC, ITEMSIZES
from ..runtime.progress import background, tasks
from ..schedule.registry import PRIMITIVES
from ..selection.rules import UNLIMITED
from .requests import NativeRequest

ndarray = np.ndarray
OTHER_FORM = 1 << 63  # more bytes than any limit: the form is not read here
ON_HOST = frozenset((ndarray, bytes, bytearray, memoryview, array.array, mmap.mmap, MPI.buffer))


def first_lines(primitive: str, method: str) -> tuple[list[str], dict[str, Any]]:
    """The first lines of a method of `pycoll.Comm`, and the names that they use."""
    buffers = _BUFFERS.get(primitive, "sendbuf, recvbuf")
    arguments = buffers + ", op" * PRIMITIVES[primitive].reduces + ", root" * PRIMITIVES[primitive].rooted
    call = f"native(limits.comm, {arguments})"
    if nonblocking := method.startswith("I"):
        call = f"NativeRequest({', '.join(filter(None, (call, buffers)))})"
    returned = [
        "    try:",
        f"        return {call}",
        # mpi4py does not know the dtype of an array, or MPI rejects one that is passed twice
        "    except (BufferError, KeyError, ValueError, MPIError) as error:",
        f"        if is_final(error, {buffers}):",
        "            raise",
    ]
    lines = ["limits = self._limits"]
    if usual := _USUAL.get(primitive):
        lines += [f"if {usual.replace('LIMIT', f'limits.{primitive}')}:", *returned]
    lines += [*_decision(primitive).strip().splitlines(), "if short:", *returned]
    idle = "not tasks" + " and not background" * nonblocking  # the thread advances tasks only
    lines = [f"if algorithm is None and {idle}:", *(f"    {line}" for line in lines)]
    return lines, _NAMES | {"native": getattr(MPI.Intracomm, method)}


_BUFFERS = {"barrier": "", "bcast": "buf"}
_ARRAYS = "type(sendbuf) is ndarray and type(recvbuf) is ndarray"
# different arrays that own their memory do not overlap
_APART = "(sendbuf.base is None is recvbuf.base and sendbuf is not recvbuf or apart(sendbuf, recvbuf))"
_SUM = "op is SUM and BUFFER.nbytes <= LIMIT.get(BUFFER.dtype, -1)"
_GIVEN, _GOT = (_SUM.replace("BUFFER", buffer) for buffer in ("sendbuf", "recvbuf"))
# the usual calls, with arrays: the same decision as below, in less time
_USUAL = {
    "bcast": "type(buf) is ndarray and buf.nbytes <= LIMIT",
    "scatter": f"{_ARRAYS} and recvbuf.nbytes <= LIMIT and {_APART}",
    "gather": f"{_ARRAYS} and sendbuf.nbytes <= LIMIT and {_APART}",
    "allgather": f"{_ARRAYS} and recvbuf.nbytes <= LIMIT * limits.ranks and {_APART}",
    "alltoall": f"{_ARRAYS} and recvbuf.nbytes <= LIMIT * limits.ranks and {_APART}",
    "reduce": f"type(sendbuf) is ndarray and {_GIVEN} and (recvbuf is None or {_ARRAYS} and {_APART})",
    "allreduce": f"type(recvbuf) is ndarray and {_GOT} and (sendbuf is IN_PLACE or {_ARRAYS} and {_APART})",
    "reduce_scatter": f"{_ARRAYS} and {_GOT} and {_APART}",
}


def _decision(primitive: str) -> str:
    """The lines that set `short`."""
    limit = f"limits.{primitive}"
    if primitive == "barrier":
        return f"short = {limit} >= 0"
    if primitive == "allgatherv":
        return (
            f"short = {limit} >= 0 and ({limit} == UNLIMITED or mean_length(recvbuf, limits.ranks) <= {limit})"
            " and separate(sendbuf, recvbuf)"
        )
    if PRIMITIVES[primitive].varies:
        return f"short = {limit} >= 0 and separate(sendbuf, recvbuf)"
    before, buffer, blocks = _JUDGED_BY.get(primitive, ("", "recvbuf", "1"))
    lines = before + (_REDUCES if PRIMITIVES[primitive].reduces else _MOVES)
    if primitive != "bcast":
        absent = "sendbuf is IN_PLACE or sendbuf is None or recvbuf is None"
        lines += f"short = short and ({absent} or separate(sendbuf, recvbuf))"
    for name, value in {"LIMIT": limit, "BUFFER": buffer, "BLOCKS": blocks}.items():
        lines = lines.replace(name, value)
    return lines.replace(" * 1:", ":").replace(" * 1\n", "\n").replace(" * 1 ", " ")


# lines before, the buffer whose length all ranks know, its blocks
_JUDGED_BY = {
    "bcast": ("", "buf", "1"),
    "scatter": (
        "given = sendbuf if recvbuf is IN_PLACE else recvbuf",
        *("given", "(limits.ranks if recvbuf is IN_PLACE else 1)"),
    ),
    "gather": (
        "given = recvbuf if sendbuf is IN_PLACE else sendbuf",
        *("given", "(limits.ranks if sendbuf is IN_PLACE else 1)"),
    ),
    "allgather": ("", "recvbuf", "limits.ranks"),
    "alltoall": ("", "recvbuf", "limits.ranks"),
    "reduce": ("given = recvbuf if sendbuf is IN_PLACE else sendbuf", "given", "1"),
    "reduce_scatter": ("blocks = limits.ranks if sendbuf is IN_PLACE else 1", "recvbuf", "blocks"),
}
# the most frequent datatypes come first, because a comparison takes less time than calling `id`
_IDENTITY = "(DOUBLE_ID if datatype is DOUBLE else FLOAT_ID if datatype is FLOAT else id(datatype))"
_ITEMSIZE = "(8 if datatype is DOUBLE else 4 if datatype is FLOAT else ITEMSIZES.get(id(datatype), OTHER_FORM))"
_MOVES = f"""
kind = type(BUFFER)
if kind is ndarray:
    short = BUFFER.nbytes <= LIMIT * BLOCKS
elif kind is list and len(BUFFER) == 3:
    memory, count, datatype = BUFFER
    short = type(count) is int and (count if datatype is BYTE else count * {_ITEMSIZE}) <= LIMIT
    short = short and type(memory) in ON_HOST and (type(memory) is not ndarray or memory.dtype.isnative)
elif kind is list and len(BUFFER) == 2 and type(BUFFER[0]) is ndarray:
    memory, datatype = BUFFER
    short = memory.nbytes <= LIMIT * BLOCKS and {_ITEMSIZE} < OTHER_FORM and memory.dtype.isnative
else:
    short = listed(BUFFER, BLOCKS)[0] <= LIMIT * BLOCKS
"""
_REDUCES = f"""
longest = LIMIT if op is SUM else LIMIT_by.get(id(op), NONE)
kind = type(BUFFER)
if kind is ndarray:
    short = BUFFER.nbytes <= longest.get(BUFFER.dtype, -1) * BLOCKS
elif kind is list and len(BUFFER) == 2 and type(BUFFER[0]) is ndarray:
    memory, datatype = BUFFER
    short = memory.nbytes <= longest.get({_IDENTITY}, -1) * BLOCKS and memory.dtype.isnative
elif kind is list and len(BUFFER) == 3:
    memory, count, datatype = BUFFER
    short = type(count) is int and 0 <= count * {_ITEMSIZE} <= longest.get({_IDENTITY}, -1)
    short = short and type(memory) in ON_HOST and (type(memory) is not ndarray or memory.dtype.isnative)
else:
    nbytes, name = listed(BUFFER, BLOCKS)
    short = 0 <= nbytes <= longest.get(name, -1) * BLOCKS
"""


def listed(buffer: Any, blocks: int) -> tuple[int, Hashable]:
    """The bytes of a buffer of `blocks` blocks, and the identity of its datatype; `OTHER_FORM` for unusual forms."""
    kind = type(buffer)
    if kind in ON_HOST:
        return _nbytes(buffer), None
    if (kind is list or kind is tuple) and 2 <= len(buffer) <= 3 and type(buffer[0]) in ON_HOST:
        datatype = id(buffer[-1])
        itemsize = ITEMSIZES.get(datatype, OTHER_FORM)
        if len(buffer) == 2 and itemsize < OTHER_FORM:
            return _nbytes(buffer[0]), datatype
        if len(buffer) == 3 and type(buffer[1]) is int:
            return buffer[1] * itemsize * blocks, datatype
    return OTHER_FORM, None


def _nbytes(memory: Any) -> int:
    return memory.nbytes if type(memory) is ndarray else memoryview(memory).nbytes


def mean_length(spec: Any, ranks: int) -> int:
    """The mean length of a block, in bytes; `OTHER_FORM` for other forms than ``[array, list of int, ...]``."""
    if type(spec) is list and len(spec) > 1:
        memory, counts = spec[0], spec[1]
        if type(memory) is ndarray and type(counts) is list and len(counts) == ranks:
            try:
                total = sum(counts)
            except TypeError:  # other lists than of numbers
                return OTHER_FORM
            itemsize = memory.itemsize if len(spec) == 2 else ITEMSIZES.get(id(spec[-1]), OTHER_FORM)
            if type(total) is int and total >= 0:
                return total * itemsize // ranks
    return OTHER_FORM


def separate(sendbuf: Any, recvbuf: Any) -> bool:
    """Whether both buffers are in host memory and in native byte order, and certainly do not overlap.

    One of them may be absent.
    """
    one, other = _memory(sendbuf), _memory(recvbuf)
    if type(one) is ndarray and type(other) is ndarray:
        return apart(one, other) and one.dtype.isnative and other.dtype.isnative
    return _is_usual(one) and _is_usual(other) and (_is_absent(one) or _is_absent(other) or _are_apart(one, other))


def _is_absent(memory: Any) -> bool:
    return memory is None or memory is IN_PLACE


def _is_usual(memory: Any) -> bool:
    """Whether memory is absent, or of a usual type and in native byte order."""
    return _is_absent(memory) or (type(memory) in ON_HOST and (type(memory) is not ndarray or memory.dtype.isnative))


def _are_apart(*memories: Any) -> bool:
    arrays = [one if type(one) is ndarray else np.frombuffer(one, np.uint8) for one in memories if len(one)]
    return len(arrays) < 2 or apart(*arrays)


def is_final(error: Exception, *buffers: Any) -> bool:
    """Whether an error of MPI or mpi4py is one of pycoll too, because of the form of the buffers."""
    if isinstance(error, MPI.Exception):
        return len({id(_memory(buffer)) for buffer in buffers}) == len(buffers)
    return all(map(_is_known, buffers))


def _memory(buffer: Any) -> Any:
    return buffer[0] if (type(buffer) is list or type(buffer) is tuple) and buffer else buffer


def _is_known(buffer: Any) -> bool:
    if (type(buffer) is list or type(buffer) is tuple) and len(buffer) > 1:
        if id(buffer[-1]) in BASIC:
            return True
        buffer = buffer[0]
    if type(buffer) is ndarray:
        return buffer.dtype in BASIC and bool(buffer.flags.aligned)
    return buffer is None or buffer is IN_PLACE


_NAMES: dict[str, Any] = {
    "BYTE": MPI.BYTE,
    "MPIError": MPI.Exception,
    "FLOAT": MPI.FLOAT,
    "DOUBLE": MPI.DOUBLE,
    "FLOAT_ID": id(MPI.FLOAT),
    "DOUBLE_ID": id(MPI.DOUBLE),
    "SUM": MPI.SUM,
    "NONE": {},
    **{"IN_PLACE": IN_PLACE, "ITEMSIZES": ITEMSIZES, "ON_HOST": ON_HOST, "OTHER_FORM": OTHER_FORM},
    **{"UNLIMITED": UNLIMITED, "NativeRequest": NativeRequest, "background": background, "is_final": is_final},
    **{
        "apart": apart,
        "separate": separate,
        "listed": listed,
        "mean_length": mean_length,
        "ndarray": ndarray,
        "tasks": tasks,
    },
}
