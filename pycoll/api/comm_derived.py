"""The nonblocking and the persistent methods of `pycoll.Comm`, for type checkers.

`pycoll.api.comm_collectives` derives them from the blocking methods; the tests compare their signatures with these.
"""

# mypy: disable-error-code="override"
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from .comm_messages import DeviceMessages

if TYPE_CHECKING:
    from ..arguments.ops import OpName
    from ..primitives import names
    from .requests import Persistent, Request

    Op = MPI.Op | OpName

    class DerivedMethods(DeviceMessages):
        def Ibarrier(self, *, algorithm: names.Barrier | None = ...) -> Request: ...
        def Barrier_init(self, info: MPI.Info = ..., *, algorithm: names.Barrier | None = ...) -> Persistent: ...
        def Ibcast(self, buf: Any, root: int = ..., *, algorithm: names.Bcast | None = ...) -> Request: ...
        def Bcast_init(
            self, buf: Any, root: int = ..., info: MPI.Info = ..., *, algorithm: names.Bcast | None = ...
        ) -> Persistent: ...
        def Iscatter(
            self, sendbuf: Any, recvbuf: Any, root: int = ..., *, algorithm: names.Scatter | None = ...
        ) -> Request: ...
        def Scatter_init(
            self,
            sendbuf: Any,
            recvbuf: Any,
            root: int = ...,
            info: MPI.Info = ...,
            *,
            algorithm: names.Scatter | None = ...,
        ) -> Persistent: ...
        def Iscatterv(
            self, sendbuf: Any, recvbuf: Any, root: int = ..., *, algorithm: names.Scatterv | None = ...
        ) -> Request: ...
        def Scatterv_init(
            self,
            sendbuf: Any,
            recvbuf: Any,
            root: int = ...,
            info: MPI.Info = ...,
            *,
            algorithm: names.Scatterv | None = ...,
        ) -> Persistent: ...
        def Igather(
            self, sendbuf: Any, recvbuf: Any, root: int = ..., *, algorithm: names.Gather | None = ...
        ) -> Request: ...
        def Gather_init(
            self,
            sendbuf: Any,
            recvbuf: Any,
            root: int = ...,
            info: MPI.Info = ...,
            *,
            algorithm: names.Gather | None = ...,
        ) -> Persistent: ...
        def Igatherv(
            self, sendbuf: Any, recvbuf: Any, root: int = ..., *, algorithm: names.Gatherv | None = ...
        ) -> Request: ...
        def Gatherv_init(
            self,
            sendbuf: Any,
            recvbuf: Any,
            root: int = ...,
            info: MPI.Info = ...,
            *,
            algorithm: names.Gatherv | None = ...,
        ) -> Persistent: ...
        def Iallgather(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Allgather | None = ...) -> Request: ...
        def Allgather_init(
            self, sendbuf: Any, recvbuf: Any, info: MPI.Info = ..., *, algorithm: names.Allgather | None = ...
        ) -> Persistent: ...
        def Iallgatherv(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Allgatherv | None = ...) -> Request: ...
        def Allgatherv_init(
            self, sendbuf: Any, recvbuf: Any, info: MPI.Info = ..., *, algorithm: names.Allgatherv | None = ...
        ) -> Persistent: ...
        def Ialltoall(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Alltoall | None = ...) -> Request: ...
        def Alltoall_init(
            self, sendbuf: Any, recvbuf: Any, info: MPI.Info = ..., *, algorithm: names.Alltoall | None = ...
        ) -> Persistent: ...
        def Ialltoallv(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Alltoallv | None = ...) -> Request: ...
        def Alltoallv_init(
            self, sendbuf: Any, recvbuf: Any, info: MPI.Info = ..., *, algorithm: names.Alltoallv | None = ...
        ) -> Persistent: ...
        def Ialltoallw(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Alltoallw | None = ...) -> Request: ...
        def Alltoallw_init(
            self, sendbuf: Any, recvbuf: Any, info: MPI.Info = ..., *, algorithm: names.Alltoallw | None = ...
        ) -> Persistent: ...
        def Ireduce(
            self, sendbuf: Any, recvbuf: Any, op: Op = ..., root: int = ..., *, algorithm: names.Reduce | None = ...
        ) -> Request: ...
        def Reduce_init(
            self,
            sendbuf: Any,
            recvbuf: Any,
            op: Op = ...,
            root: int = ...,
            info: MPI.Info = ...,
            *,
            algorithm: names.Reduce | None = ...,
        ) -> Persistent: ...
        def Iallreduce(
            self, sendbuf: Any, recvbuf: Any, op: Op = ..., *, algorithm: names.Allreduce | None = ...
        ) -> Request: ...
        def Allreduce_init(
            self,
            sendbuf: Any,
            recvbuf: Any,
            op: Op = ...,
            info: MPI.Info = ...,
            *,
            algorithm: names.Allreduce | None = ...,
        ) -> Persistent: ...
        def Ireduce_scatter(
            self,
            sendbuf: Any,
            recvbuf: Any,
            recvcounts: Any = ...,
            op: Op = ...,
            *,
            algorithm: names.ReduceScatter | None = ...,
        ) -> Request: ...
        def Reduce_scatter_init(
            self,
            sendbuf: Any,
            recvbuf: Any,
            recvcounts: Any = ...,
            op: Op = ...,
            info: MPI.Info = ...,
            *,
            algorithm: names.ReduceScatter | None = ...,
        ) -> Persistent: ...
        def Ireduce_scatter_block(
            self, sendbuf: Any, recvbuf: Any, op: Op = ..., *, algorithm: names.ReduceScatter | None = ...
        ) -> Request: ...
        def Reduce_scatter_block_init(
            self,
            sendbuf: Any,
            recvbuf: Any,
            op: Op = ...,
            info: MPI.Info = ...,
            *,
            algorithm: names.ReduceScatter | None = ...,
        ) -> Persistent: ...
        def Iscan(self, sendbuf: Any, recvbuf: Any, op: Op = ..., *, algorithm: names.Scan | None = ...) -> Request: ...
        def Scan_init(
            self, sendbuf: Any, recvbuf: Any, op: Op = ..., info: MPI.Info = ..., *, algorithm: names.Scan | None = ...
        ) -> Persistent: ...
        def Iexscan(
            self, sendbuf: Any, recvbuf: Any, op: Op = ..., *, algorithm: names.Exscan | None = ...
        ) -> Request: ...
        def Exscan_init(
            self,
            sendbuf: Any,
            recvbuf: Any,
            op: Op = ...,
            info: MPI.Info = ...,
            *,
            algorithm: names.Exscan | None = ...,
        ) -> Persistent: ...

else:
    DerivedMethods = DeviceMessages
