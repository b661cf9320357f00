"""The blocking collectives of `pycoll.Comm`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from ..arguments.ops import OpName
from ..runtime.interruptions import interruptions_delayed
from . import comm_calls as calls
from .comm_calls import Calls, counts_exchanged
from .comm_messages import packed_view

if TYPE_CHECKING:
    from ..primitives import names


class BlockingMethods(Calls):
    """The blocking methods: the front runs calls of a kind that it knows, and `_run` all others."""

    def Barrier(self, *, algorithm: names.Barrier | None = None) -> None:
        """Wait until all ranks have called, as in mpi4py.

        Parameters
        ----------
        algorithm : str, optional
            An algorithm of `pycoll.primitives.barrier`, or "native"; by default, pycoll chooses one.
        """
        if not self._front.run(calls.BARRIER, algorithm, None, None, None, 0):
            self._run(calls.BARRIER, None, None, None, 0, algorithm)

    def Bcast(self, buf: Any, root: int = 0, *, algorithm: names.Bcast | None = None) -> None:
        """Copy `buf` from the root to all ranks, as in mpi4py.

        Parameters
        ----------
        buf : buffer specification
            n elements: the input at the root, the output on the other ranks.
        root : int, default 0
            The rank that sends.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.bcast`, or "native"; by default, pycoll chooses one.
        """
        if not self._front.run(calls.BCAST, algorithm, None, buf, None, root):
            self._run(calls.BCAST, None, buf, None, root, algorithm)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0, *, algorithm: names.Scatter | None = None) -> None:
        """Send block r of `sendbuf` at the root to rank r, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            size * n elements; significant only at the root.
        recvbuf : buffer specification
            n elements.  MPI.IN_PLACE at the root: its block stays in `sendbuf`.
        root : int, default 0
            The rank that sends.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.scatter`, or "native"; by default, pycoll chooses one.
        """
        if not self._front.run(calls.SCATTER, algorithm, sendbuf, recvbuf, None, root):
            self._run(calls.SCATTER, sendbuf, recvbuf, None, root, algorithm)

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0, *, algorithm: names.Scatterv | None = None) -> None:
        """Send blocks of different lengths from the root, block r to rank r, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            The blocks, with counts and displacements; significant only at the root.
        recvbuf : buffer specification
            The block of this rank.  MPI.IN_PLACE at the root: its block stays in `sendbuf`.
        root : int, default 0
            The rank that sends.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.scatterv`, or "native"; by default, pycoll chooses one.
        """
        if not self._front.run(calls.SCATTERV, algorithm, sendbuf, recvbuf, None, root):
            self._run(calls.SCATTERV, sendbuf, recvbuf, None, root, algorithm)

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0, *, algorithm: names.Gather | None = None) -> None:
        """Collect a block from each rank in `recvbuf` at the root, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            n elements.  MPI.IN_PLACE at the root: its block is already in `recvbuf`.
        recvbuf : buffer specification
            size * n elements; significant only at the root.
        root : int, default 0
            The rank that receives.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.gather`, or "native"; by default, pycoll chooses one.
        """
        if not self._front.run(calls.GATHER, algorithm, sendbuf, recvbuf, None, root):
            self._run(calls.GATHER, sendbuf, recvbuf, None, root, algorithm)

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0, *, algorithm: names.Gatherv | None = None) -> None:
        """Collect blocks of different lengths in `recvbuf` at the root, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            The block of this rank.  MPI.IN_PLACE at the root: its block is already in `recvbuf`.
        recvbuf : buffer specification
            The blocks, with counts and displacements; significant only at the root.
        root : int, default 0
            The rank that receives.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.gatherv`, or "native"; by default, pycoll chooses one.
        """
        if not self._front.run(calls.GATHERV, algorithm, sendbuf, recvbuf, None, root):
            self._run(calls.GATHERV, sendbuf, recvbuf, None, root, algorithm)

    def Allgather(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Allgather | None = None) -> None:
        """Collect a block from each rank in `recvbuf` on all ranks, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            n elements.  MPI.IN_PLACE: the block of this rank is already in `recvbuf`.
        recvbuf : buffer specification
            size * n elements.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.allgather`, or "native"; by default, pycoll chooses one.
        """
        if not self._front.run(calls.ALLGATHER, algorithm, sendbuf, recvbuf, None, 0):
            self._run(calls.ALLGATHER, sendbuf, recvbuf, None, 0, algorithm)

    def Allgatherv(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Allgatherv | None = None) -> None:
        """Collect blocks of different lengths in `recvbuf` on all ranks, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            The block of this rank.  MPI.IN_PLACE: it is already in `recvbuf`.
        recvbuf : buffer specification
            The blocks, with counts and displacements; the counts are the same on all ranks.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.allgatherv`, or "native"; by default, pycoll chooses one.
        """
        if not self._front.run(calls.ALLGATHERV, algorithm, sendbuf, recvbuf, None, 0):
            self._run(calls.ALLGATHERV, sendbuf, recvbuf, None, 0, algorithm)

    def Alltoall(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Alltoall | None = None) -> None:
        """Exchange blocks: block j of rank i becomes block i of rank j, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            size * n elements.  MPI.IN_PLACE: the blocks in `recvbuf` are sent, then overwritten.
        recvbuf : buffer specification
            size * n elements.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.alltoall`, or "native"; by default, pycoll chooses one.
        """
        if not self._front.run(calls.ALLTOALL, algorithm, sendbuf, recvbuf, None, 0):
            self._run(calls.ALLTOALL, sendbuf, recvbuf, None, 0, algorithm)

    def Alltoallv(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Alltoallv | None = None) -> None:
        """Exchange blocks of different lengths between all pairs of ranks, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            The blocks, with counts and displacements.  MPI.IN_PLACE: as in `Alltoall`.
        recvbuf : buffer specification
            The blocks, with counts and displacements.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.alltoallv`, or "native"; by default, pycoll chooses one.
        """
        if not self._front.run(calls.ALLTOALLV, algorithm, sendbuf, recvbuf, None, 0):
            self._run(calls.ALLTOALLV, sendbuf, recvbuf, None, 0, algorithm)

    def Alltoallw(self, sendbuf: Any, recvbuf: Any, *, algorithm: names.Alltoallw | None = None) -> None:
        """Exchange blocks of different lengths and datatypes between all pairs of ranks, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            ``[buf, counts, displs, types]``, with displacements in bytes.  MPI.IN_PLACE: as in `Alltoall`.
        recvbuf : buffer specification
            The same form.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.alltoallw`, or "native"; by default, pycoll chooses one.
        """
        if not self._front.run(calls.ALLTOALLW, algorithm, sendbuf, recvbuf, None, 0):
            self._run(calls.ALLTOALLW, sendbuf, recvbuf, None, 0, algorithm)

    def Reduce(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: MPI.Op | OpName = MPI.SUM,
        root: int = 0,
        *,
        algorithm: names.Reduce | None = None,
    ) -> None:
        """Combine `sendbuf` of all ranks in `recvbuf` at the root, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            n elements.  MPI.IN_PLACE at the root: its input is in `recvbuf`.
        recvbuf : buffer specification
            n elements; significant only at the root.
        op : MPI.Op or str, default MPI.SUM
            The operation, or its name; see `pycoll.reduce`.
        root : int, default 0
            The rank that receives the result.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.reduce`, or "native"; by default, pycoll chooses one.
        """
        if not self._front.run(calls.REDUCE, algorithm, sendbuf, recvbuf, op, root):
            self._run(calls.REDUCE, sendbuf, recvbuf, op, root, algorithm)

    def Allreduce(
        self, sendbuf: Any, recvbuf: Any, op: MPI.Op | OpName = MPI.SUM, *, algorithm: names.Allreduce | None = None
    ) -> None:
        """Combine `sendbuf` of all ranks in `recvbuf` on all ranks, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            n elements.  MPI.IN_PLACE: the input is in `recvbuf`.
        recvbuf : buffer specification
            n elements.
        op : MPI.Op or str, default MPI.SUM
            The operation, or its name; see `pycoll.reduce`.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.allreduce`, or "native"; by default, pycoll chooses one.
        """
        if not self._front.run(calls.ALLREDUCE, algorithm, sendbuf, recvbuf, op, 0):
            self._run(calls.ALLREDUCE, sendbuf, recvbuf, op, 0, algorithm)

    def Reduce_scatter_block(
        self, sendbuf: Any, recvbuf: Any, op: MPI.Op | OpName = MPI.SUM, *, algorithm: names.ReduceScatter | None = None
    ) -> None:
        """Combine `sendbuf` of all ranks; rank r receives block r of the result, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            size * n elements.  MPI.IN_PLACE: the input is in `recvbuf`, and its first n elements receive the block.
        recvbuf : buffer specification
            n elements; size * n with MPI.IN_PLACE.
        op : MPI.Op or str, default MPI.SUM
            The operation, or its name; see `pycoll.reduce`.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.reduce_scatter`, or "native"; by default, pycoll chooses one.
        """
        if not self._front.run(calls.REDUCE_SCATTER, algorithm, sendbuf, recvbuf, op, 0):
            self._run(calls.REDUCE_SCATTER, sendbuf, recvbuf, op, 0, algorithm)

    def Reduce_scatter(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Any = None,
        op: MPI.Op | OpName = MPI.SUM,
        *,
        algorithm: names.ReduceScatter | None = None,
    ) -> None:
        """Combine `sendbuf` of all ranks; rank r receives ``recvcounts[r]`` elements of the result, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            The vector.  MPI.IN_PLACE: the input is in `recvbuf`, and its first elements receive the block.
        recvbuf : buffer specification
            The block of this rank.
        recvcounts : sequence of int, optional
            The number of elements of each block, the same on all ranks.
            Without it, the ranks first exchange how many elements they receive.
        op : MPI.Op or str, default MPI.SUM
            The operation, or its name; see `pycoll.reduce`.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.reduce_scatter`, or "native"; by default, pycoll chooses one.
        """
        if recvcounts is None:
            with interruptions_delayed():  # an interruption must not separate the two collectives
                given = sendbuf, recvbuf, op, 0
                counts = counts_exchanged(self, sendbuf, recvbuf)
                if not (counts and self._front.run(calls.REDUCE_SCATTER_COUNTS, algorithm, *given, counts)):
                    self._run(calls.REDUCE_SCATTER_COUNTS, *given, algorithm, counts)
        elif not self._front.run(calls.REDUCE_SCATTER_COUNTS, algorithm, sendbuf, recvbuf, op, 0, recvcounts):
            self._run(calls.REDUCE_SCATTER_COUNTS, sendbuf, recvbuf, op, 0, algorithm, recvcounts)

    def Scan(
        self, sendbuf: Any, recvbuf: Any, op: MPI.Op | OpName = MPI.SUM, *, algorithm: names.Scan | None = None
    ) -> None:
        """Combine `sendbuf` of ranks 0 to r in `recvbuf` of rank r, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            n elements.  MPI.IN_PLACE: the input is in `recvbuf`.
        recvbuf : buffer specification
            n elements.
        op : MPI.Op or str, default MPI.SUM
            The operation, or its name; see `pycoll.reduce`.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.scan`, or "native"; by default, pycoll chooses one.
        """
        if not self._front.run(calls.SCAN, algorithm, sendbuf, recvbuf, op, 0):
            self._run(calls.SCAN, sendbuf, recvbuf, op, 0, algorithm)

    def Exscan(
        self, sendbuf: Any, recvbuf: Any, op: MPI.Op | OpName = MPI.SUM, *, algorithm: names.Exscan | None = None
    ) -> None:
        """Combine `sendbuf` of ranks 0 to r-1 in `recvbuf` of rank r, as in mpi4py.

        Parameters
        ----------
        sendbuf : buffer specification
            n elements.  MPI.IN_PLACE: the input is in `recvbuf`.
        recvbuf : buffer specification
            n elements; not modified on rank 0.
        op : MPI.Op or str, default MPI.SUM
            The operation, or its name; see `pycoll.reduce`.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.exscan`, or "native"; by default, pycoll chooses one.
        """
        if not self._front.run(calls.EXSCAN, algorithm, sendbuf, recvbuf, op, 0):
            self._run(calls.EXSCAN, sendbuf, recvbuf, op, 0, algorithm)

    def sparse_exchange(self, destinations: Sequence[int], buffers: Sequence[Any]) -> list[tuple[int, np.ndarray]]:
        """Send buffers to some ranks, and receive those that others send, as `pycoll.sparse_exchange` does.

        Parameters
        ----------
        destinations : sequence of int
            The rank that gets each of the buffers; a rank may occur several times.
        buffers : sequence of buffer specifications
            One for each destination.  The elements of ``[buf, type]`` and ``[buf, count, type]`` arrive in an array of
            one dimension: bytes if the datatype has no NumPy dtype.

        Returns
        -------
        list of (int, array)
            The source and the contents of each message that this rank has received, by source.

        Raises
        ------
        TypeError, ValueError
            As in `pycoll.sparse_exchange`, and for buffer specifications that mpi4py does not accept.

        References
        ----------
        Hoefler, Siebert and Lumsdaine, "Scalable communication protocols for dynamic sparse data exchange", PPoPP 2010.
        """
        from .sparse_exchange import sparse_exchange  # imported only where it is used

        arrays = [_message(f"buffers[{position}]", buffer) for position, buffer in enumerate(buffers)]
        return sparse_exchange(destinations, arrays, comm=self)


def _message(name: str, spec: Any) -> Any:
    """The elements of a buffer specification; other buffers keep their shapes."""
    if not isinstance(spec, list | tuple):
        return spec
    view = packed_view(name, spec, writable=False)
    return view.whole().view(view.dtype or np.uint8)
