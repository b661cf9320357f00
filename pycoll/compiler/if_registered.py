"""Programs for buffers that may be registered.

First the ranks of a host exchange a table with the positions of their buffers, which also says that the buffers are
ready.  If all buffers that other ranks access are registered, each rank runs its program on them
(`pycoll.compiler.registered`), and a barrier says that all have finished.  Otherwise they run an ordinary program.  If
there are several hosts, the program on registered buffers has messages between them, and empty messages inside each
host instead of the barrier (`pycoll.compiler.host_gets`).

What a rank stored before it sent a message is visible to a rank that has received it, directly or through other ranks:
MPI and the mailboxes order loads and stores around messages.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from ..schedule.registry import find
from .program import RECV, SCRATCH, FindPeers, Message, Program, Region, Skip, Start, Step, Wait
from .program_key import ProgramKey
from .programs import compiled
from .registered import RegisteredProgram

COLUMNS, WIDTH = 3, 8  # of the table, and the bytes of a number: see `pycoll.core.peer_addresses`
_ANY = 1 << 30  # longer than any message here


@lru_cache(maxsize=512)
def if_registered(with_registered: RegisteredProgram, ordinary: Program, rank: int, here: tuple[int, ...]) -> Program:
    """Return the program of a rank; `here` are the ranks of its host.  The table is at the beginning of scratch."""
    local_rank, size = here.index(rank), len(here)
    table = COLUMNS * WIDTH * size
    opening, closing = (
        compiled(ProgramKey(find(name, algorithm), local_rank, size, 0, length, WIDTH, length > 0, 1, _ANY))
        for name, algorithm, length in [("allgather", "tree", COLUMNS), ("barrier", "dissemination", 0)]
    )
    joined = _Joined()
    opened = _rounds(opening)
    closed = opened + _rounds(with_registered.program)
    opens, closes = (
        joined.messages_of(one, start, lambda m: m._replace(peer=here[m.peer], region=_after(table, m.region)))
        for one, start in ((opening, 0), (closing, closed))
    )
    synchronizing = len(joined.messages)
    joined.steps_of(opening, opens, lambda region: _after(table, region))
    look = joined.reserve()
    joined.steps_of(with_registered.program, joined.messages_of(with_registered.program, opened))
    if not with_registered.has_messages:
        joined.steps_of(closing, closes)
        joined.steps_of(with_registered.after)
    skip = joined.reserve()
    joined.steps[look] = FindPeers(len(joined.steps))
    joined.steps_of(ordinary, joined.messages_of(ordinary, closed + _rounds(closing)))
    joined.steps[skip] = Skip(len(joined.steps))
    programs = with_registered.program, with_registered.after, ordinary
    scratch = max(table + opening.scratch, *(program.scratch for program in programs))
    return Program(joined.steps, joined.messages, scratch, ordinary.name, synchronizing)


def _rounds(program: Program) -> int:
    return 1 + max((message.round for message in program.messages), default=-1)


def _after(table: int, region: Region) -> Region:
    """Return where the first synchronization has a region: its receive buffer is the table, before its scratch."""
    return Region(SCRATCH, region.start + (0 if region.buffer == RECV else table), region.size)


class _Joined:
    """Programs that run one after the other."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.messages: list[Message] = []

    def messages_of(
        self, program: Program, start: int, change: Callable[[Message], Message] = lambda message: message
    ) -> int:
        """Add the messages of a program, whose first round has number `start`; return the number of the first one."""
        first = len(self.messages)
        self.messages += [change(message)._replace(round=message.round + start) for message in program.messages]
        return first

    def steps_of(self, program: Program, first: int = 0, change: Callable[[Region], Region] = lambda at: at) -> None:
        """Add the steps of a program; `first` is the number of its first message."""
        for step in program.steps:
            if isinstance(step, Start | Wait):
                self.steps.append(type(step)(step.message + first))
            else:
                self.steps.append(type(step)(*map(change, step)))  # type: ignore[arg-type]

    def reserve(self) -> int:
        """Keep room for a step, and return its number."""
        self.steps.append(Skip(0))
        return len(self.steps) - 1
