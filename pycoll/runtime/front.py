"""The front of a communicator in the compiled core, which keeps the plans of calls."""

from __future__ import annotations

from .. import core
from ..arguments.arrays import IN_PLACE
from ..arguments.datatypes import predefined
from ..schedule.registry import PRIMITIVES
from . import native
from .channel import Channel
from .progress import tasks
from .progress_thread import asleep, background
from .task import CoreTask

METHODS = [native.function_name(name, False) for name in PRIMITIVES] + ["Reduce_scatter"]
"""The names of methods, indexed by the front's number for the primitive; the last one is Reduce_scatter."""
NUMBERS = {(name, counts): number for number, name in enumerate(PRIMITIVES) for counts in (False, True)}
"""The front's number for each primitive, without and with `recvcounts`."""
NUMBERS["reduce_scatter", True] = len(PRIMITIVES)


def new_front(channel: Channel) -> core.Front | core.NoFront:
    """The front of a communicator, without plans."""
    comm = channel.comm
    if core.problem:
        return core.NoFront()
    core.set_constants(IN_PLACE, predefined())
    uses = [core.uses_of(PRIMITIVES[name]) for name in (*PRIMITIVES, "reduce_scatter")]
    natives = [getattr(comm, name) for name in (*METHODS, *(f"I{name.lower()}" for name in METHODS))]
    return core.Front(
        channel.slots, comm.rank, comm.size, tasks, background, asleep, uses, natives, CoreTask, channel.tags
    )
