"""How the collectives of `pycoll.Comm` run: by the front of the compiled core, or after a check of all arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from .. import core
from ..arguments.buffer_spec import NeedsNativeMPI, elements, is_unreadable
from ..arguments.memory import is_host
from ..arguments.mpi_arguments import read
from ..base import settings
from ..runtime.attach import attach, check_communicator, is_new, known_choices
from ..runtime.calls import Call
from ..runtime.dispatch import check
from ..runtime.front import METHODS
from ..runtime.interruptions import interruptions_delayed
from ..runtime.native import suits_mpi
from ..runtime.requests import Request
from ..runtime.task import CoreTask
from ..runtime.topology import CommTopology, neighbors_of
from ..selection.choices import algorithm_from_environment, primitive_called
from .collectives import NO_FRONT, allgather, front_of, run_uncached
from .comm_messages import DeviceMessages
from .comm_native import keeping, native
from .requests import Persistent, initialize, start

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..runtime.objects import Objects

# the numbers of the methods for the front, in the order of `METHODS`
BCAST, SCATTER, GATHER, REDUCE, ALLGATHER, ALLREDUCE, REDUCE_SCATTER, ALLTOALL, BARRIER = range(9)
SCAN, EXSCAN, SCATTERV, GATHERV, ALLGATHERV, ALLTOALLV, ALLTOALLW, REDUCE_SCATTER_COUNTS = range(9, 17)
NEIGHBOR_ALLGATHER, NEIGHBOR_ALLGATHERV, NEIGHBOR_ALLTOALL, NEIGHBOR_ALLTOALLV, NEIGHBOR_ALLTOALLW = range(17, 22)

_ARGUMENTS = ("sendbuf", "recvbuf", "op", "root", "algorithm", "recvcounts")


class Calls(DeviceMessages):
    """A communicator with the front of its channel, and the uncached path of each form of a call."""

    __slots__ = ("_front", "_objects")  # an attribute in a slot is read fastest
    _front: core.Front | core.NoFront
    _objects: core.ObjectCollectives | Objects | None

    def __new__(cls, comm: MPI.Comm | None = None) -> Self:
        """Wrap the communicator; what runs its calls is known after the first one."""
        made = MPI.Intracomm.__new__(cls, comm)  # not `super()`: a class with a topology has several bases
        made._front, made._objects = NO_FRONT, None
        return made

    def _run(
        self, number: int, sendbuf: Any, recvbuf: Any, op: Any, root: Any, algorithm: Any, recvcounts: Any = None
    ) -> None:
        """Check the arguments of a blocking method and run it; leave it to MPI if pycoll does not support it."""
        method = METHODS[number]
        call = Call(primitive_called(method), self, sendbuf, recvbuf, op, root, algorithm, recvcounts, read)
        try:
            run_uncached(call)
            self._front = front_of(self)
        except NeedsNativeMPI as why:
            why.check_algorithm(algorithm)
            native(self, method, why, call._asdict() | {"buf": recvbuf})

    def _start(
        self, number: int, sendbuf: Any, recvbuf: Any, op: Any, root: Any, algorithm: Any, recvcounts: Any = None
    ) -> Request:
        """Start the nonblocking form of a method."""
        begun = self._front.start(number, False, algorithm, sendbuf, recvbuf, op, root, recvcounts)
        if begun is not core.MISSED:
            if type(begun) is CoreTask:
                return begun
            return keeping(begun, (sendbuf, recvbuf))  # type: ignore[return-value]  # it has the same methods
        request: Request = self._begin(number, None, sendbuf, recvbuf, op, root, algorithm, recvcounts)
        return request

    def _initialize(self, number: int, info: MPI.Info, *arguments: Any) -> Persistent:
        """Create the request of the persistent form of a method."""
        if not isinstance(info, MPI.Info):
            raise TypeError(f"info must be an MPI.Info, not {info!r}")
        persistent: Persistent = self._begin(number, info, *arguments)
        return persistent

    @interruptions_delayed()  # an interruption must not separate the two collectives
    def _begin(self, number: int, info: MPI.Info | None, *arguments: Any) -> Any:
        """Create a request; the arguments are those of `_run`."""
        method, given = METHODS[number], dict(zip(_ARGUMENTS, arguments))
        if given.get("recvcounts") is None and method == "Reduce_scatter":
            given["recvcounts"] = counts_exchanged(self, given["sendbuf"], given["recvbuf"])
        primitive, to_mpi = primitive_called(method), given | {"buf": given["recvbuf"], "info": info}
        begin, name = (start, f"I{method.lower()}") if info is None else (initialize, f"{method}_init")
        try:
            if info is None and is_new(self):
                check_communicator(self)
                if _left_to_mpi(Call(primitive, self, **given, read=read, form="nonblocking")):
                    return native(self, name, "the first collective on a communicator, and nonblocking", to_mpi)
                attach(self)
            request = begin(primitive, read, self, **given)
        except NeedsNativeMPI as why:
            why.check_algorithm(given["algorithm"])
            return native(self, name, why, to_mpi)
        self._front = front_of(self)
        request.result = None  # as in mpi4py
        return request


def _left_to_mpi(call: Call) -> bool:
    """Whether MPI runs the first collective on a communicator if it is nonblocking; the same on all ranks.

    Attaching would wait for the other ranks.
    """
    neighbors = neighbors_of(call.comm)
    buffers, operation = check(call, CommTopology(neighbors) if neighbors else None)
    chosen = call.algorithm or algorithm_from_environment(call.primitive) or known_choices(call.comm)
    if chosen or not (settings.NATIVE and is_host(buffers.send) and is_host(buffers.recv)):
        return False
    if operation and not isinstance(call.op, MPI.Op):
        return False
    size, known = call.comm.size, operation if operation and operation.predefined else None
    return suits_mpi(call.primitive, buffers.mean_size(size), size, buffers.dtype, known)


def counts_exchanged(comm: Calls, sendbuf: Any, recvbuf: Any) -> Any:
    """The counts of a Reduce_scatter without `recvcounts`."""
    if sendbuf is MPI.IN_PLACE or sendbuf is None:
        raise TypeError("recvcounts=None: MPI.IN_PLACE requires recvcounts")
    if is_unreadable(sendbuf) or is_unreadable(recvbuf):  # the native method exchanges the counts itself
        return None
    return allgather(np.array([elements("recvbuf", recvbuf)]), comm=comm).reshape(-1).tolist()
