"""The lower-case methods of `pycoll.Comm`, which take any Python object that can be pickled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from ..runtime.attach import attach
from .comm_nonblocking import CollectiveMethods

if TYPE_CHECKING:
    from .. import core
    from ..primitives import names
    from ..runtime.objects import Objects

Function = MPI.Op | Callable[[Any, Any], Any]


class ObjectMethods(CollectiveMethods):
    """The methods for objects.

    Numbers, None, NumPy scalars and contiguous arrays of numbers are copied; other objects are pickled by `MPI.pickle`.
    Results are new objects, also on the rank that has sent them.  If an object cannot be pickled, its rank raises that
    error, and ranks that wait for the object raise RemoteError.  Reductions apply a Python function, or the function of
    an MPI.Op, to the objects in rank order.  With `algorithm`, the order is that of the algorithm, which may not be
    rank order.  MPI.SUM, PROD, MAX, MIN, BAND, BOR and BXOR combine elements of arrays.
    """

    def _attached(self) -> core.ObjectCollectives | Objects:
        """Attach in the first call."""
        self._objects = found = attach(self).objects
        return found  # type: ignore[no-any-return]

    def barrier(self, *, algorithm: names.Barrier | None = None) -> None:
        """Wait until all ranks have called, as in mpi4py.

        Parameters
        ----------
        algorithm : str, optional
            An algorithm of `pycoll.primitives.barrier`, or "native"; by default, pycoll chooses one.
        """
        self.Barrier(algorithm=algorithm)

    def bcast(self, obj: Any, root: int = 0, *, algorithm: names.Bcast | None = None) -> Any:
        """Give the object of the root to all ranks, as in mpi4py.

        Parameters
        ----------
        obj : object
            The object, at the root.
        root : int, default 0
            The rank that sends.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.bcast`, or "native"; by default, pycoll chooses one.

        Returns
        -------
        object
            The object of the root.
        """
        return (self._objects or self._attached()).bcast(obj, root, algorithm)

    def scatter(self, sendobj: Sequence[Any] | None, root: int = 0, *, algorithm: names.Scatter | None = None) -> Any:
        """Give each rank an object of the root, as in mpi4py.

        Parameters
        ----------
        sendobj : sequence of objects
            One for each rank, at the root; None for as many None.
        root : int, default 0
            The rank that sends.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.scatter`, or "native"; by default, pycoll chooses one.  Long objects go
            straight to their ranks.

        Returns
        -------
        object
            The object for this rank.

        Raises
        ------
        ValueError
            At the root, if there is not one object for each rank; other ranks raise RemoteError.
        """
        return (self._objects or self._attached()).scatter(sendobj, root, algorithm)

    def gather(self, sendobj: Any, root: int = 0, *, algorithm: names.Gather | None = None) -> list[Any] | None:
        """Give the objects of all ranks to the root, as in mpi4py.

        Parameters
        ----------
        sendobj : object
            The object of this rank.
        root : int, default 0
            The rank that receives.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.gather`, or "native"; by default, pycoll chooses one.  Long objects go
            straight to the root.

        Returns
        -------
        list or None
            The objects in rank order, at the root; None on other ranks.
        """
        return (self._objects or self._attached()).gather(sendobj, root, algorithm)

    def allgather(self, sendobj: Any, *, algorithm: names.Allgatherv | None = None) -> list[Any]:
        """Give the objects of all ranks to all ranks, as in mpi4py.

        Parameters
        ----------
        sendobj : object
            The object of this rank.
        algorithm : str, optional
            An algorithm of both `pycoll.primitives.allgather` and `allgatherv`, or "native"; by default, pycoll chooses
            one.

        Returns
        -------
        list
            The objects in rank order.
        """
        return (self._objects or self._attached()).allgather(sendobj, algorithm)

    def alltoall(self, sendobj: Sequence[Any], *, algorithm: names.Alltoall | None = None) -> list[Any]:
        """Give each rank an object of each rank, as in mpi4py.

        Parameters
        ----------
        sendobj : sequence of objects
            One for each rank; None for as many None.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.alltoall`, or "native"; by default, pycoll chooses one.  Long objects go
            straight to their ranks.

        Returns
        -------
        list
            The objects for this rank, in rank order.

        Raises
        ------
        ValueError
            If there is not one object for each rank; other ranks raise RemoteError.
        """
        return (self._objects or self._attached()).alltoall(sendobj, algorithm)

    def reduce(
        self, sendobj: Any, op: Function = MPI.SUM, root: int = 0, *, algorithm: names.Reduce | None = None
    ) -> Any:
        """Combine the objects of all ranks at the root, as in mpi4py.

        Parameters
        ----------
        sendobj : object
            The object of this rank.
        op : MPI.Op or callable, default MPI.SUM
            A function of two objects.
        root : int, default 0
            The rank that gets the result.
        algorithm : str, optional
            An algorithm of `pycoll.primitives.reduce`: objects are combined in its order, like a vector of one element.
            This may not be rank order, which matters for strings, lists and functions that do not commute.  By default,
            objects are combined in the order of mpi4py, which is rank order.

        Returns
        -------
        object
            The result, at the root; None on other ranks.

        Raises
        ------
        ValueError
            If `op` is an MPI.Op that does not commute, and the algorithm does not keep rank order.
        """
        return (self._objects or self._attached()).reduce(sendobj, op, root, algorithm)

    def allreduce(self, sendobj: Any, op: Function = MPI.SUM, *, algorithm: names.Allreduce | None = None) -> Any:
        """Combine the objects of all ranks on all ranks, as in mpi4py.

        Parameters
        ----------
        sendobj : object
            The object of this rank.
        op : MPI.Op or callable, default MPI.SUM
            A function of two objects.
        algorithm : str, optional
            As in `reduce`, an algorithm of `pycoll.primitives.allreduce`, which may not combine in rank order.

        Returns
        -------
        object
            The result.

        Raises
        ------
        ValueError
            As in `reduce`.
        """
        return (self._objects or self._attached()).allreduce(sendobj, op, algorithm)

    def scan(self, sendobj: Any, op: Function = MPI.SUM, *, algorithm: names.Scan | None = None) -> Any:
        """Combine the objects of the ranks up to this one, as in mpi4py.

        Parameters
        ----------
        sendobj : object
            The object of this rank.
        op : MPI.Op or callable, default MPI.SUM
            A function of two objects.
        algorithm : str, optional
            As in `reduce`, an algorithm of `pycoll.primitives.scan`.

        Returns
        -------
        object
            The result for this rank.
        """
        return (self._objects or self._attached()).scan(sendobj, op, algorithm)

    def exscan(self, sendobj: Any, op: Function = MPI.SUM, *, algorithm: names.Exscan | None = None) -> Any:
        """Combine the objects of the ranks before this one, as in mpi4py.

        Parameters
        ----------
        sendobj : object
            The object of this rank.
        op : MPI.Op or callable, default MPI.SUM
            A function of two objects.
        algorithm : str, optional
            As in `reduce`, an algorithm of `pycoll.primitives.exscan`.

        Returns
        -------
        object
            The result for this rank; None on rank 0.
        """
        return (self._objects or self._attached()).exscan(sendobj, op, algorithm)
