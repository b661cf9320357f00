"""The nonblocking and the persistent form of each collective: ``iallreduce``, ``allreduce_init``, ...

They take the arguments of the blocking form.  A nonblocking function returns a `pycoll.Request`, a persistent one a
`pycoll.Persistent`.  ``wait`` of either returns the result of the blocking form.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Callable
from typing import Any, ParamSpec

from ..arguments.check_buffers import check_buffers
from ..arguments.mpi_arguments import read_varying
from ..runtime.calls import Call
from ..runtime.requests import Request
from ..schedule.registry import COLLECTIVES
from . import collectives, neighbors
from .requests import Persistent, initialize, start
from .watched import watch

P = ParamSpec("P")


def _nonblocking(blocking: Callable[P, Any]) -> Callable[P, Request]:
    returns = "Request\n    The collective in flight."
    form: Callable[P, Request] = _form(start, blocking, f"i{blocking.__name__}", "Nonblocking", returns)
    return form


def _persistent(blocking: Callable[P, Any]) -> Callable[P, Persistent]:
    returns = "Persistent\n    The collective, which `Start` starts."
    form: Callable[P, Persistent] = _form(initialize, blocking, f"{blocking.__name__}_init", "Persistent", returns)
    return form


def _form(begin: Callable[..., Any], blocking: Callable[..., Any], name: str, kind: str, returns: str) -> Any:
    """Make a function with the parameters of a blocking one."""
    primitive, signature = blocking.__name__, inspect.signature(blocking)
    known = COLLECTIVES[primitive]
    read = read_varying if known.varies or known.near else check_buffers
    known_defaults = Call._field_defaults | {each.name: each.default for each in signature.parameters.values()}
    defaults = [known_defaults.get(each) for each in _GIVEN]
    orders: dict[tuple[Any, ...], Callable[[tuple[Any, ...]], tuple[Any, ...]]] = {}

    @functools.wraps(blocking)
    def form(*args: Any, **kwargs: Any) -> Any:
        shape = (len(args), *kwargs)
        order = orders.get(shape)
        if order is None:
            try:
                order = orders[shape] = _order(signature, len(args), list(kwargs))
            except TypeError as error:
                raise TypeError(f"{name}(): {error}") from None
        return begin(primitive, read, *order((*args, *kwargs.values(), *defaults)))

    form.__name__ = form.__qualname__ = name
    form.__doc__ = f"{kind} `{primitive}`, with the same parameters and errors.\n\nReturns\n-------\n{returns}\n"
    return form


_GIVEN = Call._fields[1:8]
"""What `start` and `initialize` take, in this order: the arguments of a call."""


def _order(
    signature: inspect.Signature, count: int, keywords: list[str]
) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """A function that picks those of `_GIVEN` from positional arguments, those by keyword, and the defaults."""
    at = {name: count + position for position, name in enumerate(keywords)}
    where = signature.bind(*range(count), **at).arguments
    if "buf" in where:  # of a broadcast
        where["recvbuf"] = where.pop("buf")
    first = count + len(keywords)  # of the defaults
    return operator.itemgetter(*(where.get(name, first + position) for position, name in enumerate(_GIVEN)))


ibcast = _nonblocking(collectives.bcast)
iscatter = _nonblocking(collectives.scatter)
igather = _nonblocking(collectives.gather)
ireduce = _nonblocking(collectives.reduce)
iallgather = _nonblocking(collectives.allgather)
iallreduce = _nonblocking(collectives.allreduce)
ireduce_scatter = _nonblocking(collectives.reduce_scatter)
ialltoall = _nonblocking(collectives.alltoall)
ibarrier = _nonblocking(collectives.barrier)
iscan = _nonblocking(collectives.scan)
iexscan = _nonblocking(collectives.exscan)
iscatterv = _nonblocking(collectives.scatterv)
igatherv = _nonblocking(collectives.gatherv)
iallgatherv = _nonblocking(collectives.allgatherv)
ialltoallv = _nonblocking(collectives.alltoallv)
ialltoallw = _nonblocking(collectives.alltoallw)
ineighbor_allgather = _nonblocking(neighbors.neighbor_allgather)
ineighbor_allgatherv = _nonblocking(neighbors.neighbor_allgatherv)
ineighbor_alltoall = _nonblocking(neighbors.neighbor_alltoall)
ineighbor_alltoallv = _nonblocking(neighbors.neighbor_alltoallv)
ineighbor_alltoallw = _nonblocking(neighbors.neighbor_alltoallw)

bcast_init = _persistent(collectives.bcast)
scatter_init = _persistent(collectives.scatter)
gather_init = _persistent(collectives.gather)
reduce_init = _persistent(collectives.reduce)
allgather_init = _persistent(collectives.allgather)
allreduce_init = _persistent(collectives.allreduce)
reduce_scatter_init = _persistent(collectives.reduce_scatter)
alltoall_init = _persistent(collectives.alltoall)
barrier_init = _persistent(collectives.barrier)
scan_init = _persistent(collectives.scan)
exscan_init = _persistent(collectives.exscan)
scatterv_init = _persistent(collectives.scatterv)
gatherv_init = _persistent(collectives.gatherv)
allgatherv_init = _persistent(collectives.allgatherv)
alltoallv_init = _persistent(collectives.alltoallv)
alltoallw_init = _persistent(collectives.alltoallw)
neighbor_allgather_init = _persistent(neighbors.neighbor_allgather)
neighbor_allgatherv_init = _persistent(neighbors.neighbor_allgatherv)
neighbor_alltoall_init = _persistent(neighbors.neighbor_alltoall)
neighbor_alltoallv_init = _persistent(neighbors.neighbor_alltoallv)
neighbor_alltoallw_init = _persistent(neighbors.neighbor_alltoallw)

watch(sys.modules[__name__], [f"i{_name}" for _name in COLLECTIVES])
