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
        allreduce,
        alltoall,
        barrier,
        bcast,
        gather,
        reduce,
        reduce_scatter,
        scatter,
    )
    from .ops import AVG
    from .pointtopoint import irecv, isend, recv, send, sendrecv

_HOMES = {
    "abort": ["abort_on_exception"],
    "collectives": [
        "algorithms",
        "allgather",
        "allreduce",
        "alltoall",
        "barrier",
        "bcast",
        "gather",
        "reduce",
        "reduce_scatter",
        "scatter",
    ],
    "ops": ["AVG"],
    "pointtopoint": ["irecv", "isend", "recv", "send", "sendrecv"],
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
