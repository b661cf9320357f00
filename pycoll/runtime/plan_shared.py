"""Plans for buffers in host memory that may be registered: other ranks access them, or else messages carry the data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mpi4py import MPI

from ..arguments.memory import address
from ..arguments.memory_kinds import HOST
from .executable import Calls, Executable, has_run, run_in_turn
from .interruptions import interruptions_delayed
from .meeting import Meeting, Rows
from .plan import PlacedPlan, Plan, StagedPlan
from .recording import recorder
from .sharing import Sharing

get_address = MPI.Get_address
MOST_KNOWN = 1 << 12  # the most calls that a plan keeps for buffers in known positions
MOST_SEEN = 1 << 8  # the most positions that it remembers
_NO_DELAY = contextlib.nullcontext()
_Key = tuple[int, int, Rows]  # the addresses of the buffers of this rank, and the positions of those of all ranks


@dataclass(kw_only=True)
class SharedPlan(Plan):
    """A plan for buffers that may be registered; `messages` is the plan for those that are not."""

    sharing: Sharing
    messages: Plan
    meeting: Meeting
    scratch_address: int
    rest: Executable  # runs the calls that follow the first synchronization
    rows: Callable[[], Rows | None]
    last_calls: Calls  # of the second synchronization
    known: dict[_Key, Calls] = field(default_factory=dict)
    count: int = 0  # of these calls
    seen: set[int] = field(default_factory=set)  # the hashes of keys without calls
    ran: bool = False  # the last call has run with messages
    has_messages: bool  # the program for registered buffers has, too
    copied: bool  # `messages` copies the buffers, or has an executable for them, so that nothing follows its messages

    @classmethod
    def around(cls, plan: Plan, sharing: Sharing) -> SharedPlan:
        """A plan for the same calls as `plan`."""
        channel, program = sharing.channel, sharing.program.program
        scratch = channel.shared_scratch(HOST, program.scratch)
        meeting = channel.meeting(sharing.width, None)
        return cls(
            **plan.common(),
            sharing=sharing,
            messages=plan,
            meeting=meeting,
            rows=sharing.reader(meeting),
            last_calls=meeting.last_calls,
            rest=Executable(program, [], [], scratch),
            has_messages=sharing.program.has_messages,
            copied=isinstance(plan, StagedPlan) or (isinstance(plan, PlacedPlan) and plan.stage is not None),
            scratch_address=address(scratch),
        )

    def run(self, send: Any, recv: Any) -> bool:
        """Run on these buffers; return False if they need a full check."""
        places = self._places(send, recv)
        if places is None or self._is_left():
            return False
        if recorder.current:
            with interruptions_delayed():
                parts = self.sharing.parts(*places, None, lambda: [_ByMessages(self.messages, send, recv)])
                run_in_turn(parts, self._broken)
            return True
        meeting, delayed = self.meeting, None
        meeting.enter(self.sharing.row(*places))
        opening = self.running = meeting.opening
        interrupted = opening.interrupted
        try:
            if not meeting.meet():
                opening.run()
        except BaseException as error:
            self._open_again(error, opening.interrupted > interrupted)
            delayed = error
        interrupted, self.ran = self.rest.interrupted, False
        try:  # Python handles signals at the beginning of functions: so also in the one that is called here
            self._run_rest(places, send, recv)
        except BaseException as error:
            self._run_rest_again(error, interrupted, places, send, recv)
            delayed = delayed or error
        if delayed:
            raise delayed
        return True

    def _open_again(self, error: BaseException, complete: bool) -> None:
        """Complete the first synchronization after the exception of a signal handler; raise it if that fails."""
        opening = self.meeting.opening
        if opening.failed:
            raise error
        if complete:
            return
        interrupted = opening.interrupted
        try:
            if not self.meeting.meet():
                opening.run()
        except BaseException:
            if opening.failed:
                raise
            if opening.interrupted == interrupted:
                opening.failed = True  # the other ranks wait
                raise

    def _run_rest_again(
        self, error: BaseException, interrupted: int, places: tuple[int, int], send: Any, recv: Any
    ) -> None:
        """Run the rest after the exception of a signal handler that came before the first call; else raise it."""
        for last in (False, True):
            failed = self.messages.running and self.messages.running.failed
            if not failed and (self.ran or self.rest.interrupted > interrupted or has_run(error)):
                return
            if last or failed:
                self.meeting.opening.failed, self.running = True, self.meeting.opening  # the other ranks wait
                raise error
            try:
                self._run_rest(places, send, recv)
                return
            except BaseException as another:
                error = another

    def _is_left(self) -> bool:
        """Whether MPI runs such calls from now on; then drop the plans, because the choices change."""
        if not (self.sharing.misses and self.sharing.misses.many):
            return False
        self.channel.forget_plans()
        return True

    def parts(self, send: Any, recv: Any) -> Iterator[Executable] | None:
        """The parts of a task on these buffers; None if they need a full check."""
        return None if self._is_left() else super().parts(send, recv)

    def _places(self, send: Any, recv: Any) -> tuple[int, int] | None:
        """The addresses of the buffers, or 0; None if they need a full check."""
        start = other = 0
        if self.reads_send:
            if not send.flags.c_contiguous:
                return None
            start = get_address(send)
        if self.uses_recv:
            if not (recv.flags.carray if self.writes_recv else recv.flags.c_contiguous):
                return None
            other = get_address(recv)
            given, got = self.used
            if start < other + got and other < start + given and start:  # they overlap
                return None
        return start, other

    def _run_rest(self, places: tuple[int, int], send: Any, recv: Any) -> None:
        """Run what follows the first synchronization."""
        calls, rows = None, self.rows()
        if rows is not None:
            key = *places, rows
            calls = self.known.get(key) or self._bind(key)
        if calls is None and self.sharing.misses:  # `messages` is the native collective
            executable = self.channel.bind_anew(self.program, self.buffers(send, recv), places, self.operation)
            calls = [*executable.calls, self.sharing.misses.miss()]
        if calls is None:
            with _NO_DELAY if self.copied else interruptions_delayed():
                self.messages.run(send, recv)
                self.ran, self.running = True, self.messages.running
        else:
            self.running = self.rest
            self.rest.run(calls)

    def _bind(self, key: _Key) -> Calls | None:
        """The calls for buffers in these positions, or None for messages; they are kept from the second time on.

        They are those between the two synchronizations, in the second one, and after it.
        """
        sharing, (send, recv, rows) = self.sharing, key
        peers = sharing.peers(rows)
        if peers is None:
            return None
        if self.has_messages:
            executable = sharing.channel.bind_for_long(
                sharing.program.program, sharing.like, (send, recv), sharing.operation, peers
            )
            executable.known.append((self, key))
            calls = self.known[key] = executable.calls
            return calls
        work, after = sharing.calls((send, recv, self.scratch_address, *peers))
        calls = [*work, *self.last_calls, *after]
        if sharing.misses:
            calls.append(sharing.misses.reset())
        if (number := hash(key)) in self.seen:
            self._keep(key, calls)
        else:
            if len(self.seen) == MOST_SEEN:
                self.seen.clear()
            self.seen.add(number)
        return calls

    def _keep(self, key: _Key, calls: Calls) -> None:
        """Keep calls for the next time."""
        self.seen.discard(hash(key))
        self.count += len(calls)
        if self.count > MOST_KNOWN:
            self.known.clear()
            self.count = len(calls)
        self.known[key] = calls

    def _broken(self, error: BaseException, part: Any) -> None:
        """Report that the collective ended early in this part."""
        self.running = part.plan.running if isinstance(part, _ByMessages) else part
        if self.running:
            self.running.failed = True

    def _parts(self, send: Any, recv: Any, tag: int) -> Iterator[Executable]:
        yield from self.sharing.parts(*self.addresses(send, recv), tag, lambda: self.messages._parts(send, recv, tag))

    def keep(self, executable: Executable, places: tuple[int, int]) -> None:
        """Use this executable for messages of buffers at these addresses."""
        self.messages.keep(executable, places)

    def forget(self, key: Any) -> None:
        """Drop the calls for buffers in these positions, because their requests are freed."""
        self.known.pop(key, None)


@dataclass
class _ByMessages:
    """A run of a plan that uses messages."""

    plan: Plan
    send: Any
    recv: Any

    @property
    def failed(self) -> bool:
        """Whether it ended early, so that messages may be pending."""
        return self.plan.running is not None and self.plan.running.failed

    def run(self) -> None:
        """Run it."""
        self.plan.run(self.send, self.recv)
