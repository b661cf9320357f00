"""pycoll: collective communication in several algorithms, over mpi4py's point-to-point messages.

The public names are loaded when they are first used, so that schedules can be proved, counted and drawn
where there is no MPI.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .abort import abort_on_exception
    from .collectives import (
        algorithms,
        allgather,
        allgatherv,
        allreduce,
        alltoall,
        alltoallv,
        alltoallw,
        barrier,
        bcast,
        exscan,
        gather,
        gatherv,
        reduce,
        reduce_scatter,
        scan,
        scatter,
        scatterv,
    )
    from .comm import Comm
    from .counters import traffic
    from .cuda.select import select_device
    from .engine import attach
    from .errors import CollectiveTimeout, MismatchError
    from .nonblocking import (
        allgather_init,
        allgatherv_init,
        allreduce_init,
        alltoall_init,
        alltoallv_init,
        alltoallw_init,
        barrier_init,
        bcast_init,
        exscan_init,
        gather_init,
        gatherv_init,
        iallgather,
        iallgatherv,
        iallreduce,
        ialltoall,
        ialltoallv,
        ialltoallw,
        ibarrier,
        ibcast,
        iexscan,
        igather,
        igatherv,
        ireduce,
        ireduce_scatter,
        iscan,
        iscatter,
        iscatterv,
        reduce_init,
        reduce_scatter_init,
        scan_init,
        scatter_init,
        scatterv_init,
    )
    from .ops import AVG
    from .pointtopoint import (
        irecv,
        isend,
        recv,
        send,
        sendrecv,
    )
    from .progress import progress_thread
    from .requests import (
        Persistent,
        Request,
        testall,
        waitall,
        waitany,
    )
    from .selection import explain
    from .simulate import simulate
    from .trace import trace

_HOMES = {
    "abort": ["abort_on_exception"],
    "collectives": [
        "algorithms",
        "allgather",
        "allgatherv",
        "allreduce",
        "alltoall",
        "alltoallv",
        "alltoallw",
        "barrier",
        "bcast",
        "exscan",
        "gather",
        "gatherv",
        "reduce",
        "reduce_scatter",
        "scan",
        "scatter",
        "scatterv",
    ],
    "comm": ["Comm"],
    "counters": ["traffic"],
    "cuda.select": ["select_device"],
    "engine": ["attach"],
    "errors": ["CollectiveTimeout", "MismatchError"],
    "nonblocking": [
        "allgather_init",
        "allgatherv_init",
        "allreduce_init",
        "alltoall_init",
        "alltoallv_init",
        "alltoallw_init",
        "barrier_init",
        "bcast_init",
        "exscan_init",
        "gather_init",
        "gatherv_init",
        "iallgather",
        "iallgatherv",
        "iallreduce",
        "ialltoall",
        "ialltoallv",
        "ialltoallw",
        "ibarrier",
        "ibcast",
        "iexscan",
        "igather",
        "igatherv",
        "ireduce",
        "ireduce_scatter",
        "iscan",
        "iscatter",
        "iscatterv",
        "reduce_init",
        "reduce_scatter_init",
        "scan_init",
        "scatter_init",
        "scatterv_init",
    ],
    "ops": ["AVG"],
    "pointtopoint": ["irecv", "isend", "recv", "send", "sendrecv"],
    "progress": ["progress_thread"],
    "requests": ["Persistent", "Request", "testall", "waitall", "waitany"],
    "selection": ["explain"],
    "simulate": ["simulate"],
    "trace": ["trace"],
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{_HOME[name]}", __name__)
    value = module if _HOME[name] == name else getattr(module, name)  # some modules can be called
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
