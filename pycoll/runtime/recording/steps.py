"""Records the runs of executables: the begin and the end of each call."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from itertools import chain
from typing import Any, NamedTuple, cast

from mpi4py import MPI

from ...compiler.program import (
    Apply,
    Await,
    Collective,
    CopyBytes,
    Divide,
    FindPeers,
    Finish,
    Post,
    Program,
    Ready,
    Skip,
    Start,
    Step,
    Wait,
)
from ...schedule.registry import PRIMITIVES
from .recorder import Recorder, now

Call = Callable[[], object]


class Tracer:
    """Records the runs of one bound program; the numbers of its steps follow the number of the program.

    `nbytes` is the size of the vector, or of the block of one rank.  `of` is the executable, whose messages may have
    another tag at each run.  `launches` says which steps only start work on a GPU.
    """

    def __init__(
        self,
        to: Recorder,
        comm: MPI.Intracomm,
        program: Program,
        nbytes: int,
        of: Any,
        launches: Callable[[Step], bool] = lambda step: False,
    ) -> None:
        known = identity(comm)
        self._record, self._number = to.record, _number(to, program, nbytes, comm.size, known, launches)
        self._run_number, self._named, self._of = to.run_number, (known.name, program.name), of
        self._run = self._began = self._last = 0

    def calls(self, calls: list[Call]) -> list[Call]:
        """The calls of the program, each followed by a call that records it, between a first and a last call.

        The calls are not wrapped, so that an interruption does not end them in the middle.
        """
        recorded: list[tuple[Call, Call]] = [(call, partial(self.came, number)) for number, call in enumerate(calls)]
        return [self.begin, *chain.from_iterable(recorded), self.end]

    def waits(self, waits: list[Any]) -> list[Any]:
        """The request or mark that each of these calls waits for, or None."""
        found = [(None if wait is None else _TracedWait(self, wait), None) for wait in waits]
        return [None, *chain.from_iterable(found), None]

    def begin(self) -> None:
        """Record that a run begins."""
        self._run, self._began = self._run_number(*self._named, self._of.tag), now()
        self._last = self._began

    def look(self) -> None:
        """Note that the next step, a wait, begins now: what was in between is no part of it."""
        self._last = now()

    def came(self, step: int) -> None:
        """Record a step that is complete; it began when the previous one had been recorded, or with `look`."""
        self._record(self._number + 1 + step, self._last, now(), self._run)
        self._last = now()

    def end(self) -> None:
        """Record that the run has ended."""
        self._record(self._number, self._began, now(), self._run)


class _TracedWait:
    """A request that a program in flight waits for; the test that completes it is recorded."""

    def __init__(self, tracer: Tracer, request: Any) -> None:
        self._tracer, self._request = tracer, request

    def Wait(self) -> None:
        """Wait until it is complete."""
        self._tracer.look()
        self._request.Wait()

    def Test(self) -> bool:
        """Whether it is complete."""
        self._tracer.look()
        done: bool = self._request.Test()
        return done


class _Identity(NamedTuple):
    """An identity of a communicator, the same on all its ranks."""

    name: str
    ranks: tuple[int, ...]  # in COMM_WORLD


@cache
def _keyval() -> int:
    return MPI.Comm.Create_keyval()


_alike: Counter[tuple[int, ...]] = Counter()  # communicators of the same ranks, created in the same order


def identity(comm: MPI.Intracomm) -> _Identity:
    """The identity of a communicator, assigned at the first call, which all its ranks make together."""
    known = cast(_Identity | None, comm.Get_attr(_keyval()))
    if known is None:
        ranks = ranks_in(comm, MPI.COMM_WORLD)
        known = _Identity(f"{zlib.crc32(repr(ranks).encode()):08x}.{_alike[ranks]}", ranks)
        _alike[ranks] += 1
        comm.Set_attr(_keyval(), known)
    return known


def ranks_in(comm: MPI.Intracomm, other: MPI.Intracomm) -> tuple[int, ...]:
    """For each rank of a communicator, its rank in another one."""
    group, into = comm.Get_group(), other.Get_group()
    ranks = tuple(group.Translate_ranks(None, into))
    group.Free()
    into.Free()
    return ranks


def _number(
    to: Recorder, program: Program, nbytes: int, size: int, comm: _Identity, launches: Callable[[Step], bool]
) -> int:
    """The number of a program on a communicator; the first time, the meanings of its steps are written."""
    numbers = to.programs.setdefault(program, {})
    key = (comm.name, nbytes)
    if key not in numbers:
        messages = [(m.outgoing, comm.ranks[m.peer], m.region.size, m.round) for m in program.messages]
        primitive = PRIMITIVES.get(program.name.partition(".")[0])
        if primitive and (primitive.takes_all or primitive.gives_all):
            nbytes *= size
        about = {"collective": program.name, "comm": comm.name, "size": size, "bytes": nbytes, "messages": messages}
        numbers[key] = to.number(1 + len(program.steps), **about, steps=_meanings(program, launches))
    return numbers[key]


def _meanings(program: Program, launches: Callable[[Step], bool]) -> list[tuple[str, int, int | None]]:
    """(action, round, message or bytes) for each step."""
    found, now_in = [], 0
    for step in program.steps:
        what, concerns = _meaning(step)
        if launches(step):
            what = f"launch {what}"
        if isinstance(step, Start | Wait):
            if step.message < len(program.messages):
                now_in = program.messages[step.message].round
            else:
                concerns = None  # the messages of a native collective are not known
        found.append((what, now_in, concerns))
    return found


def _meaning(step: Step) -> tuple[str, int | None]:
    match step:
        case Start(message):
            return "start", message
        case Wait(message):
            return "wait", message
        case Apply(_, _, out):
            return "combine", out.size
        case CopyBytes(source, _):
            return "copy", source.size
        case Divide(region):
            return "divide", region.size
        case Ready():
            return "follow", None
        case Finish():
            return "finish", None
        case Collective():
            return "native", None
        case Post() | Await():
            return "wait in shared memory", None
        case FindPeers() | Skip():
            return "look for registered buffers", None
