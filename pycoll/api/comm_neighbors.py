"""The collectives between neighbors, of communicators with a topology."""

# mypy: disable-error-code="override"
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from ..runtime.requests import Request
from . import comm_calls as calls
from .comm_calls import Calls
from .requests import Persistent

if TYPE_CHECKING:
    from ..primitives import names


class NeighborMethods(Calls):
    """The methods for neighbors: the front runs calls of a kind that it knows, and `_run` all others.

    In a grid, the neighbors are those in the negative and in the positive direction of each dimension, in this order;
    where the grid ends, there is no neighbor, and the block is not used.
    """

    def Neighbor_allgather(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Neighbors | None = None) -> None:
        """Send `sendbuf` to all neighbors, and receive a block from each, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            n elements.
        recvbuf : buffer specification
            indegree * n elements: a block from each source.
        algorithm : str, optional
            "direct", which is the default, "two_level" or "native".
        """
        if not self._front.run(calls.NEIGHBOR_ALLGATHER, algorithm, sendbuf, recvbuf, None, 0):
            self._run(calls.NEIGHBOR_ALLGATHER, sendbuf, recvbuf, None, 0, algorithm)

    def Neighbor_allgatherv(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Neighbors | None = None) -> None:
        """Send `sendbuf` to all neighbors, and receive a block from each, of different lengths, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            The block of this rank.
        recvbuf : buffer specification
            A block from each source, with counts and displacements.
        algorithm : str, optional
            "direct", which is the default, "two_level" or "native".
        """
        if not self._front.run(calls.NEIGHBOR_ALLGATHERV, algorithm, sendbuf, recvbuf, None, 0):
            self._run(calls.NEIGHBOR_ALLGATHERV, sendbuf, recvbuf, None, 0, algorithm)

    def Neighbor_alltoall(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.NeighborAlltoall | None = None) -> None:
        """Send a block to each neighbor, and receive one from each, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            outdegree * n elements: a block for each destination.
        recvbuf : buffer specification
            indegree * n elements: a block from each source.
        algorithm : str, optional
            "direct", which is the default, "two_level", "combining" or "native".  "combining" needs a communicator of
            `Cartcomm.Create_neighborhood`.
        """
        if not self._front.run(calls.NEIGHBOR_ALLTOALL, algorithm, sendbuf, recvbuf, None, 0):
            self._run(calls.NEIGHBOR_ALLTOALL, sendbuf, recvbuf, None, 0, algorithm)

    def Neighbor_alltoallv(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Neighbors | None = None) -> None:
        """Send a block to each neighbor, and receive one from each, of different lengths, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            A block for each destination, with counts and displacements.
        recvbuf : buffer specification
            A block from each source, with counts and displacements.
        algorithm : str, optional
            "direct", which is the default, "two_level" or "native".
        """
        if not self._front.run(calls.NEIGHBOR_ALLTOALLV, algorithm, sendbuf, recvbuf, None, 0):
            self._run(calls.NEIGHBOR_ALLTOALLV, sendbuf, recvbuf, None, 0, algorithm)

    def Neighbor_alltoallw(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Neighbors | None = None) -> None:
        """Send a block to each neighbor, and receive one from each, of different lengths and datatypes, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            A block for each destination: ``[buf, counts, displs, types]``, with displacements in bytes.
        recvbuf : buffer specification
            A block from each source, in the same form.
        algorithm : str, optional
            "direct", which is the default, "two_level" or "native".
        """
        if not self._front.run(calls.NEIGHBOR_ALLTOALLW, algorithm, sendbuf, recvbuf, None, 0):
            self._run(calls.NEIGHBOR_ALLTOALLW, sendbuf, recvbuf, None, 0, algorithm)

    def Ineighbor_allgather(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Neighbors | None = None) -> Request:
        """Start `Neighbor_allgather`; see there for the parameters."""
        return self._start(calls.NEIGHBOR_ALLGATHER, sendbuf, recvbuf, None, 0, algorithm)

    def Ineighbor_allgatherv(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Neighbors | None = None) -> Request:
        """Start `Neighbor_allgatherv`; see there for the parameters."""
        return self._start(calls.NEIGHBOR_ALLGATHERV, sendbuf, recvbuf, None, 0, algorithm)

    def Ineighbor_alltoall(
        self, sendbuf: Any, recvbuf: Any, *, algorithm: names.NeighborAlltoall | None = None
    ) -> Request:
        """Start `Neighbor_alltoall`; see there for the parameters."""
        return self._start(calls.NEIGHBOR_ALLTOALL, sendbuf, recvbuf, None, 0, algorithm)

    def Ineighbor_alltoallv(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Neighbors | None = None) -> Request:
        """Start `Neighbor_alltoallv`; see there for the parameters."""
        return self._start(calls.NEIGHBOR_ALLTOALLV, sendbuf, recvbuf, None, 0, algorithm)

    def Ineighbor_alltoallw(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Neighbors | None = None) -> Request:
        """Start `Neighbor_alltoallw`; see there for the parameters."""
        return self._start(calls.NEIGHBOR_ALLTOALLW, sendbuf, recvbuf, None, 0, algorithm)

    def Neighbor_allgather_init(
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL, *, algorithm: names.Neighbors | None = None
    ) -> Persistent:
        """Create a persistent `Neighbor_allgather`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.NEIGHBOR_ALLGATHER, info, sendbuf, recvbuf, None, 0, algorithm)

    def Neighbor_allgatherv_init(
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL, *, algorithm: names.Neighbors | None = None
    ) -> Persistent:
        """Create a persistent `Neighbor_allgatherv`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.NEIGHBOR_ALLGATHERV, info, sendbuf, recvbuf, None, 0, algorithm)

    def Neighbor_alltoall_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: names.NeighborAlltoall | None = None,
    ) -> Persistent:
        """Create a persistent `Neighbor_alltoall`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.NEIGHBOR_ALLTOALL, info, sendbuf, recvbuf, None, 0, algorithm)

    def Neighbor_alltoallv_init(
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL, *, algorithm: names.Neighbors | None = None
    ) -> Persistent:
        """Create a persistent `Neighbor_alltoallv`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.NEIGHBOR_ALLTOALLV, info, sendbuf, recvbuf, None, 0, algorithm)

    def Neighbor_alltoallw_init(
        self, sendbuf: Any, recvbuf: Any, info: MPI.Info = MPI.INFO_NULL, *, algorithm: names.Neighbors | None = None
    ) -> Persistent:
        """Create a persistent `Neighbor_alltoallw`; see there for the parameters.  `info` is ignored."""
        return self._initialize(calls.NEIGHBOR_ALLTOALLW, info, sendbuf, recvbuf, None, 0, algorithm)
