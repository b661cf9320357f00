"""The collectives of `pycoll.Comm`: the blocking methods, and the nonblocking and persistent ones made from them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
from mpi4py import MPI

from ..arguments.buffer_spec import NeedsNativeMPI, elements, is_unreadable
from ..arguments.mpi_arguments import read
from ..arguments.ops import OpName, kept
from ..arguments.signature import Key
from ..base.settings import logger
from ..primitives import names
from ..runtime.attach import attached, channels
from ..runtime.dispatch import Call
from ..runtime.interruptions import interruptions_delayed
from ..runtime.limits import Limits
from ..runtime.progress import drain, until
from ..selection.choices import primitive_called
from .call import run, run_carefully
from .collectives import allgather
from .comm_derived import DerivedMethods
from .derived import derived, with_body
from .requests import initialize, start
from .short import first_lines
from .watched import watch

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")
_UNKNOWN = Limits()


def _carefully(call: Call, kind: Key | None, send: Any, recv: Any) -> None:
    """Check the arguments of a method and run it; leave it to MPI if pycoll does not support it."""
    method = call.primitive
    comm: Any = call.comm
    try:
        run_carefully(call._replace(primitive=primitive_called(method), read=read), kind, send, recv)
        comm._limits = channels[comm.handle].limits
    except NeedsNativeMPI as why:
        why.check_algorithm(call.algorithm)
        _native(comm, method, why, call._asdict() | {"buf": call.recvbuf})


def _collective(method: Callable[P, None]) -> Callable[P, None]:
    """Give a method with this signature its body."""
    name = method.__name__
    signature = inspect.signature(method)
    lines, names = first_lines(primitive_called(name), name)
    names |= {"run": run, "carefully": _carefully}
    given = {"sendbuf": None, "recvbuf": "buf" if "buf" in signature.parameters else None, "op": None, "root": 0}
    arguments = ", ".join(one if one in signature.parameters else str(default) for one, default in given.items())
    last = f"run({name!r}, {arguments}, self, algorithm, None, carefully)"
    return with_body(method, name, signature, [*lines, last], **names)


class CollectiveMethods(DerivedMethods):
    """The methods of `pycoll.Comm` for collectives."""

    __slots__ = ("_limits",)  # an attribute in a slot is read fastest
    _limits: Limits  # of its calls that go to MPI directly

    def __new__(cls, comm: MPI.Intracomm | None = None) -> Self:
        """Wrap the communicator; the limits of its channel are known at first use."""
        made = super().__new__(cls, comm)
        made._limits = _UNKNOWN
        return made

    @_collective
    def Barrier(self, *, algorithm: names.Barrier | None = None) -> None:
        """Wait until all ranks have called, as in mpi4py.

        Parameters
        ----------
        algorithm : str, optional
            An algorithm of `pycoll.primitives.barrier`, or "native"; by default, pycoll chooses one.
        """

    @_collective
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

    @_collective
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

    @_collective
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

    @_collective
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

    @_collective
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

    @_collective
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

    @_collective
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

    @_collective
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

    @_collective
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

    @_collective
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

    @_collective
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

    @_collective
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

    @_collective
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
                counts = _counts(self, sendbuf, recvbuf)
                run("Reduce_scatter", sendbuf, recvbuf, op, 0, self, algorithm, counts, _carefully)
        else:
            run("Reduce_scatter", sendbuf, recvbuf, op, 0, self, algorithm, recvcounts, _carefully)

    @_collective
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

    @_collective
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


@interruptions_delayed()
def _native(comm: CollectiveMethods, method: str, why: NeedsNativeMPI, given: dict[str, Any]) -> Any:
    """Run the native collective with the arguments that it takes.

    Collectives in flight progress meanwhile, unless a buffer is in GPU memory: nonblocking reductions of MPI cannot
    read it.
    """
    logger.info("%s: left to MPI: %s", method, why)
    if method not in _REDUCING and isinstance(op := given.get("op"), MPI.Op) and not op.is_predefined:
        given = given | {"op": kept(op)}
    waits = method in (*_BLOCKING, *_REDUCING) and not any(map(is_unreadable, (given["sendbuf"], given["recvbuf"])))
    if not waits and not method.startswith("I"):  # it may block
        drain(attached(comm))
    function = getattr(MPI.Intracomm, f"I{method.lower()}" if waits else method)
    names = [name for name in inspect.signature(function).parameters if name in given]
    request = function(comm, **{name: given[name] for name in names})
    if waits:
        until(request.Test, f"the native {method} on rank {comm.rank} of {comm.size}")
        return request
    return _keeping(request, given)


def _keeping(request: MPI.Request, given: dict[str, Any]) -> MPI.Request:
    """The same request, which keeps the arguments alive: mpi4py does not do so for reductions and for `Iallgatherv`."""
    kept = (_KeptPersistent if isinstance(request, MPI.Prequest) else _Kept)(request)
    kept.arguments = given
    return kept


class _Kept(MPI.Request):
    arguments: dict[str, Any]


class _KeptPersistent(MPI.Prequest):
    arguments: dict[str, Any]


def _counts(comm: CollectiveMethods, sendbuf: Any, recvbuf: Any) -> Any:
    """The counts of a Reduce_scatter without `recvcounts`."""
    if sendbuf is MPI.IN_PLACE or sendbuf is None:
        raise TypeError("recvcounts=None: MPI.IN_PLACE requires recvcounts")
    if is_unreadable(sendbuf) or is_unreadable(recvbuf):  # the native method exchanges the counts itself
        return None
    return allgather(np.array([elements("recvbuf", recvbuf)]), comm=comm).reshape(-1).tolist()


_BLOCKING = (
    *("Barrier", "Bcast", "Scatter", "Scatterv", "Gather", "Gatherv", "Allgather", "Allgatherv"),
    *("Alltoall", "Alltoallv", "Alltoallw"),
)
_REDUCING = ("Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan")
_INFO = inspect.Parameter("info", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=MPI.INFO_NULL)


def _derive(method: str, begin: Callable[..., Any], name: str, kind: str, *more: inspect.Parameter) -> None:
    """Add the nonblocking or the persistent form of a method to the class."""
    primitive = primitive_called(method)

    def begun(self: CollectiveMethods, **given: Any) -> Any:
        try:
            under_way = begin(primitive, read, self, **given)
        except NeedsNativeMPI as why:
            why.check_algorithm(given["algorithm"])
            return _native(self, name, why, given | {"buf": given.get("recvbuf")})
        self._limits = channels[self.handle].limits
        under_way.forget_result()
        return under_way

    def begun_with_counts(self: CollectiveMethods, info: MPI.Info = MPI.INFO_NULL, **given: Any) -> Any:
        if not isinstance(info, MPI.Info):
            raise TypeError(f"info must be an MPI.Info, not {info!r}")
        if method != "Reduce_scatter" or given["recvcounts"] is not None:
            return begun(self, **given)
        with interruptions_delayed():
            given["recvcounts"] = _counts(self, given["sendbuf"], given["recvbuf"])
            return begun(self, **given)

    way = begun_with_counts if more or method == "Reduce_scatter" else begun
    lines, names = first_lines(primitive, name) if kind == "Nonblocking" and way is begun else ([], {})
    setattr(CollectiveMethods, name, derived(getattr(CollectiveMethods, method), way, name, kind, more, lines, **names))


for _method in (*_BLOCKING, *_REDUCING):
    _derive(_method, start, f"I{_method.lower()}", "Nonblocking")
    _derive(_method, initialize, f"{_method}_init", "Persistent", _INFO)
watch(
    CollectiveMethods, [*_BLOCKING, *_REDUCING, *(f"I{_method.lower()}" for _method in (*_BLOCKING, *_REDUCING))], True
)
