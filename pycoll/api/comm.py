"""A drop-in for the communicator of mpi4py, with the collectives of pycoll.

Write ``comm = pycoll.Comm(MPI.COMM_WORLD)``; the rest of the program does not change.  `docs/guide/communicator.md`
lists which calls run in pycoll, and which in MPI.

Communicators that methods make exchange nothing before their first collective.  If that is nonblocking, and names no
algorithm, MPI runs it, because pycoll could not begin without waiting for other ranks.

Collectives in flight progress in all calls of pycoll; outside of them, in another thread, which requires
MPI_THREAD_MULTIPLE (see `pycoll.progress_thread`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from mpi4py import MPI

from ..base import settings
from ..runtime.attach import (
    attach,
    channels,
    check_communicator,
    choices_of,
    explained,
    finish_tasks,
    inherit,
    revoke,
    shrink,
    wait_for_ranks,
)
from ..runtime.failures import rank_failed
from ..runtime.front import METHODS
from ..runtime.interruptions import interruptions_delayed
from ..runtime.topology import set_stencil, stencil_of
from ..selection.choices import Choices
from .comm_neighbors import NeighborMethods
from .comm_objects import ObjectMethods
from .watched import watch

if TYPE_CHECKING:
    from typing_extensions import Self

_Kind = TypeVar("_Kind", bound="Comm")
CONSTANTS = ("COMM_WORLD", "COMM_SELF")  # in mpi4py.MPI; `python -m pycoll.run` replaces them with `Comm` objects


class Comm(ObjectMethods):
    """An intracommunicator whose collectives run the schedules of pycoll.

    Collective: all ranks of `comm` must call this.  Its methods take the arguments of mpi4py, and `algorithm=`.

    Parameters
    ----------
    comm : MPI.Intracomm, optional
        The communicator to wrap, which is not duplicated; None is MPI.COMM_NULL.  If it has a topology, the object is
        also of the class of mpi4py for this topology.

    Raises
    ------
    TypeError
        If `comm` is an intercommunicator.

    Notes
    -----
    A buffer specification has one of the forms of mpi4py, for example an array, ``[array, type]`` or
    ``[array, count, type]``; for blocks of different lengths ``[array, counts]``, ``[array, (counts, displs)]`` or
    ``[array, counts, displs, type]``.  Counts and displacements are in elements.

    Invalid arguments raise TypeError or ValueError before any message is sent.  Calls with small messages and without
    `algorithm` may run the native collective of MPI, which checks their arguments.  Persistent forms accept
    `info` and ignore it.
    """

    def __new__(cls, comm: MPI.Comm | None = None) -> Comm:
        """Wrap the communicator, without duplicating it."""
        if comm is not None:
            if comm == MPI.COMM_NULL:
                comm = None
            else:
                check_communicator(comm)
                if cls is Comm:
                    cls = _KINDS[comm.Get_topology()]
        return ObjectMethods.__new__(cls, comm)

    def __init__(self, comm: MPI.Comm | None = None) -> None:
        if self != MPI.COMM_NULL:
            attach(self)

    @classmethod
    def fromhandle(cls, handle: int) -> MPI.Comm:
        """Wrap a handle, as in mpi4py.

        Parameters
        ----------
        handle : int
            The MPI handle of a communicator.

        Returns
        -------
        MPI.Comm
            A `pycoll.Comm` for an intracommunicator, attached at its first use.  For others, an object of the class of
            mpi4py.
        """
        comm = super().fromhandle(handle)
        return Comm.__new__(Comm, comm) if isinstance(comm, MPI.Intracomm) else comm

    def __reduce__(self) -> str | tuple[Any, ...]:
        return self._constant() or super().__reduce__()

    def _constant(self) -> str | None:
        """The name of this object in mpi4py.MPI, if it is one of the constants there."""
        return next((name for name in CONSTANTS if getattr(MPI, name) is self), None)

    @property
    def algorithm(self) -> Choices:
        """The algorithms of calls that name none, as in ``comm.algorithm["Allreduce"] = "ring"``.

        Communicators made from this one inherit them.
        """
        return choices_of(self)

    def Split(self, color: int = 0, key: int = 0) -> Comm:
        """Split the communicator by color, as in mpi4py.

        Parameters
        ----------
        color : int, default 0
            Ranks of equal color form a communicator; MPI.UNDEFINED for none.
        key : int, default 0
            Determines the rank order in the new communicator.

        Returns
        -------
        Comm
            The new communicator; MPI.COMM_NULL for MPI.UNDEFINED.
        """
        return self._child(Comm, MPI.Intracomm.Split, color, key)

    def Split_type(self, split_type: int, key: int = 0, info: MPI.Info = MPI.INFO_NULL) -> Comm:
        """Split the communicator by type, as in mpi4py.

        Parameters
        ----------
        split_type : int
            The type, for example MPI.COMM_TYPE_SHARED; MPI.UNDEFINED for none.
        key : int, default 0
            Determines the rank order in the new communicator.
        info : MPI.Info, optional
            Hints for the MPI library.

        Returns
        -------
        Comm
            The new communicator; MPI.COMM_NULL for MPI.UNDEFINED.
        """
        return self._child(Comm, MPI.Intracomm.Split_type, split_type, key, info)

    def Create(self, group: MPI.Group) -> Comm:
        """Create a communicator from a group, as in mpi4py.

        Parameters
        ----------
        group : MPI.Group
            The ranks of the new communicator; all ranks of this one call.

        Returns
        -------
        Comm
            The new communicator; MPI.COMM_NULL on ranks that are not in it.
        """
        return self._child(Comm, MPI.Intracomm.Create, group)

    def Create_group(self, group: MPI.Group, tag: int = 0) -> Comm:
        """Create a communicator from a group, as in mpi4py; only ranks of the group call.

        Parameters
        ----------
        group : MPI.Group
            The ranks of the new communicator.
        tag : int, default 0
            Distinguishes concurrent calls.

        Returns
        -------
        Comm
            The new communicator.
        """
        return self._child(Comm, MPI.Intracomm.Create_group, group, tag)

    def Create_cart(
        self, dims: Sequence[int], periods: Sequence[bool] | None = None, reorder: bool = False
    ) -> Cartcomm:
        """Create a communicator with a Cartesian topology, as in mpi4py.

        Parameters
        ----------
        dims : sequence of int
            The number of ranks in each dimension.
        periods : sequence of bool, optional
            For each dimension, whether it is periodic; by default, none is.
        reorder : bool, default False
            Whether MPI may change the order of the ranks.

        Returns
        -------
        Cartcomm
            The new communicator; MPI.COMM_NULL on ranks that are not in the grid.
        """
        return self._child(Cartcomm, MPI.Intracomm.Create_cart, dims, periods, reorder)

    def Create_graph(self, index: Sequence[int], edges: Sequence[int], reorder: bool = False) -> Graphcomm:
        """Create a communicator with a graph topology, as in mpi4py.

        Parameters
        ----------
        index : sequence of int
            For each rank, the number of neighbors that it and the ranks before it have.
        edges : sequence of int
            The neighbors, rank by rank.
        reorder : bool, default False
            Whether MPI may change the order of the ranks.

        Returns
        -------
        Graphcomm
            The new communicator; MPI.COMM_NULL on ranks that are not in the graph.
        """
        return self._child(Graphcomm, MPI.Intracomm.Create_graph, index, edges, reorder)

    def Create_dist_graph(
        self,
        sources: Sequence[int],
        degrees: Sequence[int],
        destinations: Sequence[int],
        weights: Sequence[int] | None = None,
        info: MPI.Info = MPI.INFO_NULL,
        reorder: bool = False,
    ) -> Distgraphcomm:
        """Create a communicator with a distributed graph topology, as in mpi4py.

        Parameters
        ----------
        sources : sequence of int
            The ranks of which this rank gives edges.
        degrees : sequence of int
            For each of them, the number of these edges.
        destinations : sequence of int
            Where the edges go.
        weights : sequence of int, optional
            The weights of the edges.
        info : MPI.Info, optional
            Hints for the MPI library.
        reorder : bool, default False
            Whether MPI may change the order of the ranks.

        Returns
        -------
        Distgraphcomm
            The new communicator.
        """
        make = MPI.Intracomm.Create_dist_graph
        return self._child(Distgraphcomm, make, sources, degrees, destinations, weights, info, reorder)

    def Create_dist_graph_adjacent(
        self,
        sources: Sequence[int],
        destinations: Sequence[int],
        sourceweights: Sequence[int] | None = None,
        destweights: Sequence[int] | None = None,
        info: MPI.Info = MPI.INFO_NULL,
        reorder: bool = False,
    ) -> Distgraphcomm:
        """Create a communicator with a distributed graph topology, as in mpi4py.

        Parameters
        ----------
        sources, destinations : sequence of int
            The ranks from which edges come to this rank, and to which they go.
        sourceweights, destweights : sequence of int, optional
            The weights of these edges.
        info : MPI.Info, optional
            Hints for the MPI library.
        reorder : bool, default False
            Whether MPI may change the order of the ranks.

        Returns
        -------
        Distgraphcomm
            The new communicator.
        """
        make = MPI.Intracomm.Create_dist_graph_adjacent
        return self._child(Distgraphcomm, make, sources, destinations, sourceweights, destweights, info, reorder)

    def Dup(self, info: MPI.Info | None = None) -> Self:
        """Duplicate the communicator, as in mpi4py.

        Parameters
        ----------
        info : MPI.Info, optional
            Hints for the MPI library.

        Returns
        -------
        Comm
            The new communicator, of the same class.
        """
        return self._child(type(self), MPI.Intracomm.Dup, info)

    def Dup_with_info(self, info: MPI.Info) -> Self:
        """Duplicate the communicator with other hints, as in mpi4py; see `Dup`."""
        return self._child(type(self), MPI.Intracomm.Dup_with_info, info)

    def Clone(self) -> Self:
        """Duplicate the communicator, as in mpi4py; see `Dup`."""
        return self._child(type(self), MPI.Intracomm.Clone)

    def Idup(self, info: MPI.Info | None = None) -> tuple[Self, MPI.Request]:
        """Start duplicating the communicator, as in mpi4py.

        Parameters
        ----------
        info : MPI.Info, optional
            Hints for the MPI library.

        Returns
        -------
        Comm
            The new communicator, which is usable once the request is complete.
        MPI.Request
            The request to wait for.
        """
        return self._later(*super().Idup(info))

    def Idup_with_info(self, info: MPI.Info) -> tuple[Self, MPI.Request]:
        """Start duplicating the communicator with other hints, as in mpi4py; see `Idup`."""
        return self._later(*super().Idup_with_info(info))

    @interruptions_delayed()
    def Shrink(self) -> Comm:
        """Create a communicator of the ranks that have not failed, as in mpi4py.

        Returns
        -------
        Comm
            The new communicator.
        """
        return ObjectMethods.__new__(Comm, shrink(self))

    def Revoke(self) -> None:
        """Revoke the communicator, as in mpi4py.

        Ranks that wait in a collective of pycoll raise the error as well.
        """
        revoke(self)

    def Free(self) -> None:
        """Free the communicator and its private duplicate, as in mpi4py."""
        self._end(MPI.Intracomm.Free)

    def Disconnect(self) -> None:
        """Disconnect the communicator and free its private duplicate, as in mpi4py."""
        self._end(MPI.Intracomm.Disconnect)

    def free(self) -> None:
        """Free the communicator, as in mpi4py, unless this object is MPI.COMM_WORLD or MPI.COMM_SELF."""
        if not self._constant():
            super().free()

    def _end(self, end: Callable[[MPI.Comm], None]) -> None:
        channel = channels.get(self.handle)
        if channel is None:
            return end(self)
        with interruptions_delayed():
            try:
                finish_tasks(channel)  # now, because MPI ignores the errors of callbacks
            finally:
                end(self)

    def _child(self, kind: type[_Kind], make: Callable[..., MPI.Comm], *arguments: Any) -> _Kind:
        if settings.TIMEOUT:  # MPI has none
            wait_for_ranks(self, make.__name__, arguments[0] if make.__name__ == "Create_group" else None)
        try:
            made = make(self, *arguments)
        except MPI.Exception as error:
            raise rank_failed(self, make.__name__, error) or explained(error) from error
        child: Any = made if type(made) is kind else ObjectMethods.__new__(kind, made)
        inherit(child, self)
        return child  # type: ignore[no-any-return]

    def _later(self, child: Any, request: MPI.Request) -> tuple[Self, MPI.Request]:
        inherit(child, self)
        return child, request


class Cartcomm(NeighborMethods, Comm, MPI.Cartcomm):  # type: ignore[misc]  # its requests are not those of MPI
    """A communicator with a Cartesian topology whose collectives run the schedules of pycoll."""

    def Create_neighborhood(self, offsets: Sequence[Sequence[int]]) -> Distgraphcomm:
        """Create a communicator whose neighbors are at these offsets in the grid, the same for all ranks.

        The collectives between neighbors have a block for each offset, in this order; where the grid ends, there is
        none.  `Neighbor_alltoall` can then run the algorithm "combining", which sends fewer messages.

        Parameters
        ----------
        offsets : sequence of sequences of int
            The steps in each dimension, for example ``itertools.product((-1, 0, 1), repeat=2)`` for the neighbors on
            all sides and at the corners, and the rank itself.  A rank sends to the rank at an offset, and receives from
            the one at the opposite offset.

        Returns
        -------
        Distgraphcomm
            The new communicator, with the ranks in the same order.

        Raises
        ------
        TypeError, ValueError
            If an offset does not have an integer for each dimension.
        MismatchError
            If the ranks pass different offsets, or another rank passes wrong ones.
        """
        from ..schedule.neighbors import stencil_neighbors  # few programs need it

        stencil = stencil_of(self, offsets)
        edges = stencil_neighbors(self.rank, stencil)
        sources, destinations = [one.source for one in edges.incoming if one], [one.to for one in edges.outgoing if one]
        plain = self.Split(0, self.rank)  # Open MPI gives a graph of a grid both topologies
        try:
            child = plain.Create_dist_graph_adjacent(sources, destinations)
        finally:
            plain.Free()
        set_stencil(child, stencil)
        return child

    def Sub(self, remain_dims: Sequence[bool]) -> Cartcomm:
        """Split the grid into grids of fewer dimensions, as in mpi4py.

        Parameters
        ----------
        remain_dims : sequence of bool
            For each dimension, whether the new grids have it.

        Returns
        -------
        Cartcomm
            The grid of this rank.
        """
        return self._child(Cartcomm, MPI.Cartcomm.Sub, remain_dims)


class Graphcomm(NeighborMethods, Comm, MPI.Graphcomm):  # type: ignore[misc]  # its requests are not those of MPI
    """A communicator with a graph topology whose collectives run the schedules of pycoll."""


class Distgraphcomm(NeighborMethods, Comm, MPI.Distgraphcomm):  # type: ignore[misc]  # its requests are not those of MPI
    """A communicator with a distributed graph topology whose collectives run the schedules of pycoll."""


_KINDS: dict[int, type[Comm]] = {
    MPI.UNDEFINED: Comm,
    MPI.CART: Cartcomm,
    MPI.GRAPH: Graphcomm,
    MPI.DIST_GRAPH: Distgraphcomm,
}


_METHODS = [*METHODS, *(f"I{_method.lower()}" for _method in METHODS)]
watch(Comm, [_method for _method in _METHODS if hasattr(Comm, _method)], True)
watch(NeighborMethods, [_method for _method in _METHODS if not hasattr(Comm, _method)], True)
