"""The nonblocking and the persistent collectives of `pycoll.Comm`."""

# mypy: disable-error-code="override"
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from ..arguments.ops import OpName
from ..runtime.requests import Request
from . import comm_calls as calls
from .comm_collectives import BlockingMethods
from .requests import Persistent

if TYPE_CHECKING:
    from ..primitives import names


class CollectiveMethods(BlockingMethods):
    """All collectives of a communicator."""

    def Ibarrier(self, *, algorithm: names.Barrier | None = None) -> Request:
        """Start `Barrier`; see there for the parameters."""
        return self._start(calls.BARRIER, None, None, None, 0, algorithm)

    def Ibcast(self, buf: Any, root: int = 0, *, algorithm: names.Bcast | None = None) -> Request:
        """Start `Bcast`; see there for the parameters."""
        return self._start(calls.BCAST, None, buf, None, root, algorithm)

    def Iscatter(self, sendbuf: Any, recvbuf: Any, root: int = 0, *, algorithm: names.Scatter | None = None) -> Request:
        """Start `Scatter`; see there for the parameters."""
        return self._start(calls.SCATTER, sendbuf, recvbuf, None, root, algorithm)

    def Iscatterv(
        self, sendbuf: Any, recvbuf: Any, root: int = 0, *, algorithm: names.Scatterv | None = None
    ) -> Request:
        """Start `Scatterv`; see there for the parameters."""
        return self._start(calls.SCATTERV, sendbuf, recvbuf, None, root, algorithm)

    def Igather(self, sendbuf: Any, recvbuf: Any, root: int = 0, *, algorithm: names.Gather | None = None) -> Request:
        """Start `Gather`; see there for the parameters."""
        return self._start(calls.GATHER, sendbuf, recvbuf, None, root, algorithm)

    def Igatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0, *, algorithm: names.Gatherv | None = None) -> Request:
        """Start `Gatherv`; see there for the parameters."""
        return self._start(calls.GATHERV, sendbuf, recvbuf, None, root, algorithm)

    def Iallgather(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Allgather | None = None) -> Request:
        """Start `Allgather`; see there for the parameters."""
        return self._start(calls.ALLGATHER, sendbuf, recvbuf, None, 0, algorithm)

    def Iallgatherv(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Allgatherv | None = None) -> Request:
        """Start `Allgatherv`; see there for the parameters."""
        return self._start(calls.ALLGATHERV, sendbuf, recvbuf, None, 0, algorithm)

    def Ialltoall(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Alltoall | None = None) -> Request:
        """Start `Alltoall`; see there for the parameters."""
        return self._start(calls.ALLTOALL, sendbuf, recvbuf, None, 0, algorithm)

    def Ialltoallv(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Alltoallv | None = None) -> Request:
        """Start `Alltoallv`; see there for the parameters."""
        return self._start(calls.ALLTOALLV, sendbuf, recvbuf, None, 0, algorithm)

    def Ialltoallw(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Alltoallw | None = None) -> Request:
        """Start `Alltoallw`; see there for the parameters."""
        return self._start(calls.ALLTOALLW, sendbuf, recvbuf, None, 0, algorithm)

    def Ireduce(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op | OpName = MPI.SUM,
        root: int = 0,
        *,
        algorithm: names.Reduce | None = None,
    ) -> Request:
        """Start `Reduce`; see there for the parameters."""
        return self._start(calls.REDUCE, sendbuf, recvbuf, op, root, algorithm)

    def Iallreduce(
        self, sendbuf: Any, recvbuf: Any, op: MPI.Op | OpName = MPI.SUM, *, algorithm: names.Allreduce | None = None
    ) -> Request:
        """Start `Allreduce`; see there for the parameters."""
        return self._start(calls.ALLREDUCE, sendbuf, recvbuf, op, 0, algorithm)

    def Ireduce_scatter_block(
        self, sendbuf: Any, recvbuf: Any, op: MPI.Op | OpName = MPI.SUM, *, algorithm: names.ReduceScatter | None = None
    ) -> Request:
        """Start `Reduce_scatter_block`; see there for the parameters."""
        return self._start(calls.REDUCE_SCATTER, sendbuf, recvbuf, op, 0, algorithm)

    def Ireduce_scatter(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Any = None,
        op: MPI.Op | OpName = MPI.SUM,
        *,
        algorithm: names.ReduceScatter | None = None,
    ) -> Request:
        """Start `Reduce_scatter`; see there for the parameters."""
        return self._start(calls.REDUCE_SCATTER_COUNTS, sendbuf, recvbuf, op, 0, algorithm, recvcounts)

    def Iscan(
        self, sendbuf: Any, recvbuf: Any, op: MPI.Op | OpName = MPI.SUM, *, algorithm: names.Scan | None = None
    ) -> Request:
        """Start `Scan`; see there for the parameters."""
        return self._start(calls.SCAN, sendbuf, recvbuf, op, 0, algorithm)

    def Iexscan(
        self, sendbuf: Any, recvbuf: Any, op: MPI.Op | OpName = MPI.SUM, *, algorithm: names.Exscan | None = None
    ) -> Request:
        """Start `Exscan`; see there for the parameters."""
        return self._start(calls.EXSCAN, sendbuf, recvbuf, op, 0, algorithm)

    def Barrier_init(self, info: MPI.Info = MPI.INFO_NULL, *, algorithm: names.Barrier | None = None) -> Persistent:
        """Create a persistent `Barrier`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.BARRIER, info, None, None, None, 0, algorithm)

    def Bcast_init(
        self, buf: Any, root: int = 0, info: MPI.Info = MPI.INFO_NULL, *, algorithm: names.Bcast | None = None
    ) -> Persistent:
        """Create a persistent `Bcast`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.BCAST, info, None, buf, None, root, algorithm)

    def Scatter_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        root: int = 0,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: names.Scatter | None = None,
    ) -> Persistent:
        """Create a persistent `Scatter`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.SCATTER, info, sendbuf, recvbuf, None, root, algorithm)

    def Scatterv_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        root: int = 0,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: names.Scatterv | None = None,
    ) -> Persistent:
        """Create a persistent `Scatterv`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.SCATTERV, info, sendbuf, recvbuf, None, root, algorithm)

    def Gather_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        root: int = 0,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: names.Gather | None = None,
    ) -> Persistent:
        """Create a persistent `Gather`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.GATHER, info, sendbuf, recvbuf, None, root, algorithm)

    def Gatherv_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        root: int = 0,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: names.Gatherv | None = None,
    ) -> Persistent:
        """Create a persistent `Gatherv`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.GATHERV, info, sendbuf, recvbuf, None, root, algorithm)

    def Allgather_init(
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL, *, algorithm: names.Allgather | None = None
    ) -> Persistent:
        """Create a persistent `Allgather`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.ALLGATHER, info, sendbuf, recvbuf, None, 0, algorithm)

    def Allgatherv_init(
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL, *, algorithm: names.Allgatherv | None = None
    ) -> Persistent:
        """Create a persistent `Allgatherv`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.ALLGATHERV, info, sendbuf, recvbuf, None, 0, algorithm)

    def Alltoall_init(
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL, *, algorithm: names.Alltoall | None = None
    ) -> Persistent:
        """Create a persistent `Alltoall`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.ALLTOALL, info, sendbuf, recvbuf, None, 0, algorithm)

    def Alltoallv_init(
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL, *, algorithm: names.Alltoallv | None = None
    ) -> Persistent:
        """Create a persistent `Alltoallv`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.ALLTOALLV, info, sendbuf, recvbuf, None, 0, algorithm)

    def Alltoallw_init(
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL, *, algorithm: names.Alltoallw | None = None
    ) -> Persistent:
        """Create a persistent `Alltoallw`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.ALLTOALLW, info, sendbuf, recvbuf, None, 0, algorithm)

    def Reduce_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op | OpName = MPI.SUM,
        root: int = 0,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: names.Reduce | None = None,
    ) -> Persistent:
        """Create a persistent `Reduce`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.REDUCE, info, sendbuf, recvbuf, op, root, algorithm)

    def Allreduce_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op | OpName = MPI.SUM,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: names.Allreduce | None = None,
    ) -> Persistent:
        """Create a persistent `Allreduce`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.ALLREDUCE, info, sendbuf, recvbuf, op, 0, algorithm)

    def Reduce_scatter_block_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op | OpName = MPI.SUM,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: names.ReduceScatter | None = None,
    ) -> Persistent:
        """Create a persistent `Reduce_scatter_block`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.REDUCE_SCATTER, info, sendbuf, recvbuf, op, 0, algorithm)

    def Reduce_scatter_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Any = None,
        op: MPI.Op | OpName = MPI.SUM,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: names.ReduceScatter | None = None,
    ) -> Persistent:
        """Create a persistent `Reduce_scatter`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.REDUCE_SCATTER_COUNTS, info, sendbuf, recvbuf, op, 0, algorithm, recvcounts)

    def Scan_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op | OpName = MPI.SUM,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: names.Scan | None = None,
    ) -> Persistent:
        """Create a persistent `Scan`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.SCAN, info, sendbuf, recvbuf, op, 0, algorithm)

    def Exscan_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op | OpName = MPI.SUM,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: names.Exscan | None = None,
    ) -> Persistent:
        """Create a persistent `Exscan`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.EXSCAN, info, sendbuf, recvbuf, op, 0, algorithm)
