"""The front of a communicator in the compiled core, which keeps the plans of calls."""

from __future__ import annotations

from functools import cache
from typing import Any

from mpi4py import MPI

from .. import core
from ..arguments.arrays import IN_PLACE, is_more_than_memory
from ..arguments.buffer_spec import predefined
from ..schedule.registry import COLLECTIVES, NEIGHBORHOODS, PRIMITIVES
from . import native
from .channel import Channel
from .progress import tasks
from .progress_thread import background
from .task import CoreTask

_NAMES = [*PRIMITIVES, "reduce_scatter", *NEIGHBORHOODS]
METHODS = [native.function_name(name, number == len(PRIMITIVES)) for number, name in enumerate(_NAMES)]
"""The names of methods, indexed by the front's number for the primitive; Reduce_scatter has counts."""
NUMBERS = {(name, counts): _NAMES.index(name) for name in _NAMES for counts in (False, True)}
"""The front's number for each primitive, without and with `recvcounts`."""
NUMBERS["reduce_scatter", True] = len(PRIMITIVES)


def new_front(channel: Channel) -> core.Front | core.NoFront:
    """The front of a communicator, without plans."""
    comm = channel.comm
    if core.problem:
        return core.NoFront()
    core.set_constants(IN_PLACE, predefined(), is_more_than_memory)
    incoming, outgoing, *_ = channel.topology.neighbors if channel.topology else ((), ())
    ranks = comm.rank, comm.size, len(incoming), len(outgoing)
    known = _uses(), comm, _natives(type(comm).__name__)
    return core.Front(channel.slots, *ranks, tasks, background, *known, CoreTask, channel.tags)


@cache
def _uses() -> list[int]:
    return [core.uses_of(COLLECTIVES[name]) for name in _NAMES]


@cache
def _natives(kind: str) -> list[Any]:
    """The methods of a class of MPI; that for communicators without a topology has none for neighbors."""
    return [getattr(vars(MPI)[kind], name, None) for name in (*METHODS, *(f"I{name.lower()}" for name in METHODS))]
