"""A drop-in for mpi4py's communicator, whose collectives are pycoll's.

``comm = pycoll.Comm(MPI.COMM_WORLD)``, and everything else stays as it is.  What is served by whom:

| what | by |
|---|---|
| Bcast, Scatter(v), Gather(v), Allgather(v), Reduce, Allreduce, Reduce_scatter(_block), Alltoall(v, w), Scan, Exscan, Barrier; their nonblocking and persistent forms | pycoll's schedules |
| datatypes with gaps, MPI.BOTTOM, blocks of several datatypes, where data is only moved | pycoll's schedules, packed and unpacked on each rank |
| reductions of datatypes that NumPy has no dtype for (derived ones; only operations of the user's can combine them) | MPI's own collective |
| lower-case methods (pickled objects), point to point, windows, neighbourhood collectives | mpi4py, unchanged |
| Cartesian, graph and inter-communicators, whatever makes them | mpi4py's classes with MPI's own collectives |
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mpi4py import MPI

from . import engine
from .collectives import run
from .requests import derived, initialize, start
from .settings import Choices, logger, primitive_called
from .specs import Unserved, read


class Comm(MPI.Intracomm):
    """An intracommunicator whose collectives run by pycoll's schedules.

    Making one is collective over `comm`, as is any method that makes another; Idup makes its private duplicate at the
    first blocking collective.  Methods take mpi4py's arguments, and `algorithm=`.  What is no intracommunicator, and
    what has a topology, raises TypeError.

    `algorithm` says which algorithm runs where a call names none: ``comm.algorithm["Allreduce"] = "ring"``.
    Communicators made from this one inherit it.
    """

    def __new__(cls, comm: MPI.Intracomm | None = None) -> Comm:
        if comm is not None and (not isinstance(comm, MPI.Intracomm) or isinstance(comm, MPI.Topocomm)):
            raise TypeError(
                f"pycoll.Comm takes an intracommunicator without a topology, not {comm!r}; "
                "Cartesian, graph and inter-communicators stay MPI's own"
            )
        return super().__new__(cls, comm)  # type: ignore[arg-type]

    def __init__(self, comm: MPI.Intracomm | None = None) -> None:
        if self != MPI.COMM_NULL:
            engine.attach(self)

    @property
    def algorithm(self) -> Choices:
        """The algorithms chosen for this communicator, by primitive."""
        return engine.attach(self).choices

    def Barrier(self, *, algorithm: str | None = None) -> None:
        """As mpi4py's."""
        run("barrier", None, None, None, 0, self, algorithm, read=read)

    def Bcast(self, buf: Any, root: int = 0, *, algorithm: str | None = None) -> None:
        """As mpi4py's."""
        run("bcast", None, buf, None, root, self, algorithm, read=read)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0, *, algorithm: str | None = None) -> None:
        """As mpi4py's."""
        run("scatter", sendbuf, recvbuf, None, root, self, algorithm, read=read)

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0, *, algorithm: str | None = None) -> None:
        """As mpi4py's."""
        run("scatterv", sendbuf, recvbuf, None, root, self, algorithm, read=read)

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0, *, algorithm: str | None = None) -> None:
        """As mpi4py's."""
        run("gather", sendbuf, recvbuf, None, root, self, algorithm, read=read)

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0, *, algorithm: str | None = None) -> None:
        """As mpi4py's."""
        run("gatherv", sendbuf, recvbuf, None, root, self, algorithm, read=read)

    def Allgather(self, sendbuf: Any, recvbuf: Any, *, algorithm: str | None = None) -> None:
        """As mpi4py's."""
        run("allgather", sendbuf, recvbuf, None, 0, self, algorithm, read=read)

    def Allgatherv(self, sendbuf: Any, recvbuf: Any, *, algorithm: str | None = None) -> None:
        """As mpi4py's."""
        run("allgatherv", sendbuf, recvbuf, None, 0, self, algorithm, read=read)

    def Alltoall(self, sendbuf: Any, recvbuf: Any, *, algorithm: str | None = None) -> None:
        """As mpi4py's."""
        run("alltoall", sendbuf, recvbuf, None, 0, self, algorithm, read=read)

    def Alltoallv(self, sendbuf: Any, recvbuf: Any, *, algorithm: str | None = None) -> None:
        """As mpi4py's."""
        run("alltoallv", sendbuf, recvbuf, None, 0, self, algorithm, read=read)

    def Alltoallw(self, sendbuf: Any, recvbuf: Any, *, algorithm: str | None = None) -> None:
        """As mpi4py's."""
        run("alltoallw", sendbuf, recvbuf, None, 0, self, algorithm, read=read)

    def Reduce(
        self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, root: int = 0, *, algorithm: str | None = None
    ) -> None:
        """As mpi4py's."""
        try:
            run("reduce", sendbuf, recvbuf, op, root, self, algorithm, read=read)
        except Unserved:
            _native(self, "Reduce")(sendbuf, recvbuf, op, root)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, *, algorithm: str | None = None) -> None:
        """As mpi4py's."""
        try:
            run("allreduce", sendbuf, recvbuf, op, 0, self, algorithm, read=read)
        except Unserved:
            _native(self, "Allreduce")(sendbuf, recvbuf, op)

    def Reduce_scatter_block(
        self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, *, algorithm: str | None = None
    ) -> None:
        """As mpi4py's."""
        try:
            run("reduce_scatter", sendbuf, recvbuf, op, 0, self, algorithm, read=read)
        except Unserved:
            _native(self, "Reduce_scatter_block")(sendbuf, recvbuf, op)

    def Reduce_scatter(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Any = None,
        op: MPI.Op = MPI.SUM,
        *,
        algorithm: str | None = None,
    ) -> None:
        """As mpi4py's: without `recvcounts` the ranks tell each other first how much they receive."""
        try:
            counts = _counts(self, sendbuf, recvbuf, recvcounts)
            run("reduce_scatter", sendbuf, recvbuf, op, 0, self, algorithm, counts, read)
        except Unserved:
            _native(self, "Reduce_scatter")(sendbuf, recvbuf, recvcounts, op)

    def Scan(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, *, algorithm: str | None = None) -> None:
        """As mpi4py's."""
        try:
            run("scan", sendbuf, recvbuf, op, 0, self, algorithm, read=read)
        except Unserved:
            _native(self, "Scan")(sendbuf, recvbuf, op)

    def Exscan(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM, *, algorithm: str | None = None) -> None:
        """As mpi4py's."""
        try:
            run("exscan", sendbuf, recvbuf, op, 0, self, algorithm, read=read)
        except Unserved:
            _native(self, "Exscan")(sendbuf, recvbuf, op)

    def Split(self, color: int = 0, key: int = 0) -> Comm:
        """As mpi4py's, a `pycoll.Comm`."""
        return self._child(super().Split(color, key))

    def Split_type(self, split_type: int, key: int = 0, info: MPI.Info = MPI.INFO_NULL) -> Comm:
        """As mpi4py's, a `pycoll.Comm`."""
        return self._child(super().Split_type(split_type, key, info))

    def Create(self, group: MPI.Group) -> Comm:
        """As mpi4py's, a `pycoll.Comm`."""
        return self._child(super().Create(group))

    def Create_group(self, group: MPI.Group, tag: int = 0) -> Comm:
        """As mpi4py's, a `pycoll.Comm`."""
        return self._child(super().Create_group(group, tag))

    def Dup(self, info: MPI.Info | None = None) -> Comm:
        """As mpi4py's, a `pycoll.Comm`."""
        return self._child(super().Dup(info))

    def Dup_with_info(self, info: MPI.Info) -> Comm:
        """As mpi4py's, a `pycoll.Comm`."""
        return self._child(super().Dup_with_info(info))

    def Clone(self) -> Comm:
        """As mpi4py's, a `pycoll.Comm`."""
        return self._child(super().Clone())

    def Idup(self, info: MPI.Info | None = None) -> tuple[Comm, MPI.Request]:
        """As mpi4py's, a `pycoll.Comm`, usable once the request is complete."""
        return self._later(*super().Idup(info))

    def Idup_with_info(self, info: MPI.Info) -> tuple[Comm, MPI.Request]:
        """As mpi4py's, a `pycoll.Comm`, usable once the request is complete."""
        return self._later(*super().Idup_with_info(info))

    def _child(self, comm: MPI.Intracomm) -> Comm:
        child = Comm(comm)
        if child != MPI.COMM_NULL:
            child.algorithm.update(self.algorithm)
        return child

    def _later(self, comm: MPI.Intracomm, request: MPI.Request) -> tuple[Comm, MPI.Request]:
        child = Comm.__new__(Comm, comm)  # without a private duplicate, which no rank must wait for now
        child.inherited = dict(self.algorithm)
        return child, request

    inherited: dict[str, str] = {}


def _native(comm: Comm, name: str) -> Callable[..., Any]:
    """mpi4py's own method."""
    logger.info("%s of elements without a NumPy dtype: MPI's own", name)
    return partial(getattr(MPI.Intracomm, name), comm)


def _counts(comm: Comm, sendbuf: Any, recvbuf: Any, recvcounts: Any) -> Any:
    """The counts of Reduce_scatter where none are given."""
    if recvcounts is not None or sendbuf is MPI.IN_PLACE:
        return recvcounts
    from .specs import read_side

    side = read_side("recvbuf", recvbuf, 1, writable=True)
    if side.dtype is None:
        raise Unserved("reduce_scatter")
    return comm.allgather(side.places[0][1] // side.dtype.itemsize)


_BLOCKING = (
    *("Barrier", "Bcast", "Scatter", "Scatterv", "Gather", "Gatherv", "Allgather", "Allgatherv"),
    *("Alltoall", "Alltoallv", "Alltoallw"),
)
_REDUCING = ("Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan")


def _derive(method: str, begin: Callable[..., Any], name: str, kind: str) -> None:
    """Give the class a nonblocking or a persistent form of one of its methods."""
    primitive = primitive_called(method)

    def begun(self: Comm, info: MPI.Info = MPI.INFO_NULL, **given: Any) -> Any:
        recvcounts = given.pop("recvcounts", None)
        try:
            if method == "Reduce_scatter":
                recvcounts = _counts(self, given["sendbuf"], given["recvbuf"], recvcounts)
            begun_ = begin(primitive, read, self, recvcounts=recvcounts, **given)
        except Unserved:
            given.pop("algorithm")
            if method == "Reduce_scatter":
                given["recvcounts"] = recvcounts
            return _native(self, name)(**given)
        begun_.forget_result()
        return begun_

    setattr(Comm, name, derived(getattr(Comm, method), begun, name, kind))


for _method in (*_BLOCKING, *_REDUCING):
    _derive(_method, start, f"I{_method.lower()}", "Nonblocking")
    _derive(_method, initialize, f"{_method}_init", "Persistent")
