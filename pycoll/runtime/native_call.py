"""The native collective of MPI as the core calls it: the address of its function, and its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from .. import core
from ..arguments.buffer_spec import parse_w
from ..arguments.check_buffers import CheckedBuffers
from ..arguments.ops import Operation
from ..compiler.program import Collective, Step
from ..schedule.registry import COLLECTIVES
from . import native

# The arguments of each function, in order.  "sendcounts" and "senddispls" are arrays for the blocks of the send buffer,
# "sendcount" is the count of its only block, and "count" that of the vector, or of the blocks of both buffers.
_REDUCTION, _EXCHANGE = "send recv count type op comm", "send count type recv count type comm"
_GATHER_TO_ALL = "send sendcount type recv recvcounts recvdispls type comm"
_ALL_TO_ALL = "send sendcounts senddispls type recv recvcounts recvdispls type comm"
_WITH_TYPES = "send sendcounts senddispls sendtypes recv recvcounts recvdispls recvtypes comm"
_ARGUMENTS = {
    "Barrier": "comm",
    "Bcast": "recv count type root comm",
    "Reduce": "send recv count type op root comm",
    **dict.fromkeys(("Allreduce", "Scan", "Exscan", "Reduce_scatter_block"), _REDUCTION),
    "Reduce_scatter": "send recv sendcounts type op comm",
    **dict.fromkeys(("Scatter", "Gather"), "send count type recv count type root comm"),
    **dict.fromkeys(("Allgather", "Alltoall", "Neighbor_allgather", "Neighbor_alltoall"), _EXCHANGE),
    "Scatterv": "send sendcounts senddispls type recv recvcount type root comm",
    "Gatherv": "send sendcount type recv recvcounts recvdispls type root comm",
    **dict.fromkeys(("Allgatherv", "Neighbor_allgatherv"), _GATHER_TO_ALL),
    **dict.fromkeys(("Alltoallv", "Neighbor_alltoallv"), _ALL_TO_ALL),
    **dict.fromkeys(("Alltoallw", "Neighbor_alltoallw"), _WITH_TYPES),
}
_WORD, _MOST = (1 << 64) - 1, np.iinfo(np.intc).max
_HANDLE = np.dtype(f"u{MPI._sizeof(MPI.Datatype)}")


def native_call(
    comm: MPI.Intracomm, step: Step, buffers: CheckedBuffers, operation: Operation | None
) -> core.MpiCall | None:
    """The native collective on buffers like these, at any addresses; None if only mpi4py can call it."""
    assert isinstance(step, Collective)
    name = native.function_name(step.primitive, step.sends is not None)
    values = _counts(step, buffers, 1 if operation is None else buffers.dtype.itemsize)
    at_start = all(extents[0][0] == 0 for extents in (step.sends, step.recvs) if extents and len(extents) == 1)
    if not at_start or max(map(np.max, values.values())) > _MOST:
        return None
    arrays = {key: value.astype(np.intc) for key, value in values.items() if key.endswith("s")}
    words = {key: int(value) for key, value in values.items() if key not in arrays}
    words |= {"root": step.root, "op": operation.handle if operation else 0}
    words["type"] = MPI._handleof(native.datatype(buffers.dtype) if operation else MPI.BYTE)
    given = {side: 0 for side in ("send", "recv") if getattr(buffers, side) is None}  # the others are arguments
    if name == "Exscan" and buffers.recv is None:  # rank 0 receives nothing, but MPI wants a buffer
        arrays["unused"] = np.empty(buffers.count * buffers.dtype.itemsize, np.uint8)
        given["recv"] = arrays["unused"].ctypes.data
    if buffers.in_place and name != "Bcast":
        primitive = COLLECTIVES[step.primitive]
        given["recv" if primitive.takes_all and primitive.rooted else "send"] = int(MPI.IN_PLACE)
    return _made(comm, name, words | given, arrays)


def native_call_w(comm: MPI.Intracomm, primitive: str, sendbuf: Any, recvbuf: Any) -> core.MpiCall | None:
    """The same, with the counts, displacements and datatypes of buffers that were checked."""
    words, arrays = dict[str, int](), dict[str, np.ndarray]()
    for side, spec in (("send", sendbuf), ("recv", recvbuf)):
        if spec is MPI.IN_PLACE:
            words[side] = int(MPI.IN_PLACE)
            continue
        if not isinstance(spec, list | tuple):
            return None
        _, counts, displs, types = parse_w(spec, len(spec[-1]))
        displacement = np.intp if COLLECTIVES[primitive].near else np.intc  # as in MPI
        if max(counts, default=0) > _MOST or max(displs, default=0) > np.iinfo(displacement).max:
            return None
        arrays |= {f"{side}counts": np.array(counts, np.intc), f"{side}displs": np.array(displs, displacement)}
        handles = [MPI._handleof(datatype) & _WORD for datatype in types]
        arrays[f"{side}types"] = np.array(handles, np.uint64).astype(_HANDLE)
    return _made(comm, native.function_name(primitive), words, arrays)


def _made(comm: MPI.Intracomm, name: str, words: dict[str, int], arrays: dict[str, np.ndarray]) -> core.MpiCall | None:
    """A call whose arguments are these words and the addresses of arrays; the others are those of the buffers."""
    function = native.function_at(f"MPI_{name}")
    if not function:
        return None
    arguments = _ARGUMENTS[name].split()
    words = {key: array.ctypes.data for key, array in arrays.items()} | words | {"comm": MPI._handleof(comm)}
    send, recv = (arguments.index(side) if side in arguments and side not in words else -1 for side in ("send", "recv"))
    listed = [words.get(argument, 0) & _WORD for argument in arguments]
    return core.MpiCall(function, listed, send, recv, native.error_of, arrays)


def _counts(step: Collective, buffers: CheckedBuffers, itemsize: int) -> dict[str, np.ndarray]:
    """The counts and displacements in elements, by the names of arguments."""
    found: dict[str, np.ndarray] = {}
    for side, extents in (("send", step.sends), ("recv", step.recvs)):
        starts, sizes = (np.array(column, np.int64) // itemsize for column in zip(*(extents or [(0, 0)])))
        found |= {f"{side}counts": sizes, f"{side}displs": starts, f"{side}count": sizes[0]}
    block = np.array(buffers.count * buffers.dtype.itemsize // itemsize)
    if COLLECTIVES[step.primitive].near:
        block = np.maximum(found["sendcount"], found["recvcount"])
    return found | {"count": block}
