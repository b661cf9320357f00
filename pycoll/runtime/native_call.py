"""The native collective of MPI as the core calls it: the address of its function, and its arguments."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from .. import core
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
}
_WORD, _MOST = (1 << 64) - 1, np.iinfo(np.intc).max


def native_call(
    comm: MPI.Intracomm, step: Step, buffers: CheckedBuffers, operation: Operation | None
) -> core.MpiCall | None:
    """The native collective on buffers like these, at any addresses; None if only mpi4py can call it."""
    assert isinstance(step, Collective)
    name = native.function_name(step.primitive, step.sends is not None)
    arguments, function = _ARGUMENTS.get(name, "").split(), native.function_at(f"MPI_{name}")
    values = _counts(step, buffers, 1 if operation is None else buffers.dtype.itemsize)
    at_start = all(extents[0][0] == 0 for extents in (step.sends, step.recvs) if extents and len(extents) == 1)
    if not (arguments and function and at_start) or max(map(np.max, values.values())) > _MOST:
        return None
    arrays = {key: value.astype(np.intc) for key, value in values.items() if key.endswith("s")}
    words = {key: array.ctypes.data for key, array in arrays.items()}
    words |= {key: int(value) for key, value in values.items() if key not in arrays}
    words |= {"send": 0, "recv": 0, "root": step.root, "comm": MPI._handleof(comm)}
    words["type"] = MPI._handleof(native.datatype(buffers.dtype) if operation else MPI.BYTE)
    words["op"] = operation.handle if operation else 0
    if name == "Exscan" and buffers.recv is None:  # rank 0 receives nothing, but MPI wants a buffer
        arrays["recv"] = np.empty(buffers.count * buffers.dtype.itemsize, np.uint8)
        words["recv"] = arrays["recv"].ctypes.data
    given = {"send": buffers.send is not None, "recv": buffers.recv is not None}
    if buffers.in_place and name != "Bcast":
        primitive = COLLECTIVES[step.primitive]
        side = "recv" if primitive.takes_all and primitive.rooted else "send"
        words[side], given[side] = int(MPI.IN_PLACE), False
    places = [arguments.index(side) if there and side in arguments else -1 for side, there in given.items()]
    listed = [words[argument] & _WORD for argument in arguments]
    return core.MpiCall(function, listed, places[0], places[1], native.error_of, arrays)


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
