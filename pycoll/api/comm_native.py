"""Methods of `pycoll.Comm` that are left to MPI: for their buffers, or because pycoll would have to wait to begin."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

from mpi4py import MPI

from ..arguments.buffer_spec import is_unreadable
from ..arguments.mpi_arguments import named_datatype
from ..arguments.ops import kept, resolve
from ..base import settings
from ..base.errors import WrongOperation
from ..runtime.attach import channels
from ..runtime.front import METHODS
from ..runtime.interruptions import interruptions_delayed
from ..runtime.progress import drain, until
from .watched import watch_request

REDUCING = ("Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan")


@interruptions_delayed()
def native(comm: MPI.Intracomm, method: str, why: object, given: dict[str, Any]) -> Any:
    """Run the native collective with the arguments that it takes.

    Collectives in flight progress meanwhile, unless a buffer is in GPU memory: nonblocking reductions of MPI cannot
    read it.
    """
    if logger := settings.logger():
        logger.debug("%s: left to MPI: %s", method, why)
    if isinstance(name := given.get("op"), str):
        given = given | {"op": _op_of_mpi(name, why, given)}
    if method not in REDUCING and isinstance(op := given.get("op"), MPI.Op) and not op.is_predefined:
        given = given | {"op": kept(op)}
    waits = method in METHODS and not any(map(is_unreadable, (given["sendbuf"], given["recvbuf"])))
    if not waits and not method.startswith("I"):  # it may block
        drain(channels.get(comm.handle))
    types: dict[int, MPI.Datatype] = {}
    if method.endswith("_init"):
        given = given | {name: _with_own_type(given[name], types) for name in ("sendbuf", "recvbuf")}
    function = getattr(MPI.Topocomm, f"I{method.lower()}" if waits else method)  # which has all of them
    request = function(comm, **{name: given[name] for name in _parameters(function) if name in given})
    if waits:
        until(request.Test, f"the native {method} on rank {comm.rank} of {comm.size}")
        return request
    return keeping(request, given, types)


@cache
def _parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def _op_of_mpi(name: str, why: object, given: dict[str, Any]) -> MPI.Op:
    """The operation of MPI with this name; raises TypeError if MPI has none."""
    operation = resolve(name)
    if not (operation.mean or operation.exact):
        op: MPI.Op = getattr(MPI, operation.name)
        return op
    datatype, elements = named_datatype(given["sendbuf"], given["recvbuf"]), "these buffers"
    if datatype:
        predefined = datatype.is_predefined
        elements = f"the datatype {datatype.name}" if predefined else f"the derived datatype {datatype.decode()[1]}"
    raise WrongOperation(
        f"op={operation.name} is not defined for {elements}: {why} is left to MPI, which has no {operation.name}"
    )


def _with_own_type(spec: Any, types: dict[int, MPI.Datatype]) -> Any:
    """The same buffer with a duplicate of its datatype; `types` has the duplicates by handle.

    Persistent collectives of Open MPI still read a datatype that the program has freed.
    """
    last = spec[-1] if isinstance(spec, list | tuple) and spec else None
    if not isinstance(last, MPI.Datatype) or last == MPI.DATATYPE_NULL or last.is_predefined:
        return spec
    if last.handle not in types:
        types[last.handle] = last.Dup()
    return [*spec[:-1], types[last.handle]]


def keeping(request: MPI.Request, arguments: object, types: dict[int, MPI.Datatype] | None = None) -> MPI.Request:
    """The same request, which keeps the arguments alive: mpi4py does not do so for reductions and for `Iallgatherv`."""
    kept: _Kept | _KeptPersistent
    if isinstance(request, MPI.Prequest):
        kept = _KeptPersistent(request)
        kept.types = list((types or {}).values())
    else:
        kept = _Kept(request)
    kept.arguments = arguments
    return kept


class _Kept(MPI.Request):
    arguments: object


class _KeptPersistent(MPI.Prequest):
    arguments: object
    types: list[MPI.Datatype]  # that belong to the request

    def Free(self) -> None:
        """Free the request and its datatypes."""
        super().Free()
        while self.types:
            self.types.pop().Free()


watch_request(_Kept, "Wait")
