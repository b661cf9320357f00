"""The requests of persistent collectives, and the functions that create all requests."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

from mpi4py import MPI

from .. import core
from ..arguments.memory_kinds import HOST
from ..arguments.mpi_arguments import read as read_method
from ..runtime.attach import attach, channels, check_communicator
from ..runtime.calls import Call, Prepared, Reader
from ..runtime.dispatch import prepare
from ..runtime.executable import Executable, collect_later, free_dropped
from ..runtime.front import NUMBERS
from ..runtime.interruptions import interruptions_delayed
from ..runtime.plans import remember
from ..runtime.requests import Request
from ..runtime.task import CoreTask, Task
from .watched import watch_request


class Persistent(Request):
    """A collective on fixed buffers, which can be started many times.

    Notes
    -----
    Each `Start` needs a `Wait`, or a `Test` that returns True.  Started collectives may complete in any order.  The
    object is a context manager: at its end, it waits and frees the requests.
    """

    def _fix(self, prepared: Prepared, fixed: Executable) -> None:
        """Note the call, and what runs it each time."""
        self._channel = prepared.channel  # which `channel` of a run finds more slowly
        self.active, self.done = False, True  # until it is started
        self.result = prepared.buffers.result
        self._fixed, self._freed = fixed, False
        self._finalizer = collect_later(self, fixed)

    def __bool__(self) -> bool:
        """Whether it is not freed."""
        return not self._freed

    def Start(self) -> None:
        """Start the collective.

        Raises
        ------
        RuntimeError
            If it is still active, or freed.
        """
        if self.active or self._freed:
            raise RuntimeError(f"Start: {self.name} is {'freed' if self._freed else 'still active'}")
        if self._channel.broken:
            self._channel.check_usable()
        self.active = True
        self.begin()

    def Free(self) -> None:
        """Free the MPI requests.

        Raises
        ------
        RuntimeError
            If the collective is still active.
        """
        if self.active:
            raise RuntimeError(f"Free: {self.name} is still active")
        if not self._freed:
            self._finalizer.detach()
            self._fixed.free()
            self._freed = True

    def __enter__(self) -> Persistent:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.Wait()
        if not self.active:
            self.Free()


class _PersistentRun(CoreTask, Persistent):
    """One that is a single run of the core."""

    def __init__(self, prepared: Prepared, fixed: core.Run) -> None:
        super().__init__(fixed, prepared)
        self._fix(prepared, fixed)


class _PersistentTask(Task, Persistent):
    """One of several parts."""

    def __init__(self, prepared: Prepared, fixed: Executable) -> None:
        def parts() -> Iterator[Any]:
            if prepared.buffers.memory is not HOST:
                prepared.buffers.memory.wait_for_stream()
            yield from prepared.body(lambda: fixed)

        super().__init__(parts, prepared.name, prepared.channel, prepared.buffers.memory)
        self._fix(prepared, fixed)


def start(
    primitive: str,
    read: Reader,
    comm: MPI.Comm | None = None,
    sendbuf: Any = None,
    recvbuf: Any = None,
    op: Any = None,
    root: int = 0,
    algorithm: str | None = None,
    recvcounts: Any = None,
) -> Request:
    """Start a nonblocking collective, with the arguments of the blocking one."""
    comm = MPI.COMM_WORLD if comm is None else comm
    channel = channels.get(getattr(comm, "handle", None))  # type: ignore[arg-type]
    if channel is None:
        check_communicator(comm)
        raise RuntimeError(
            "this communicator has no private duplicate yet, and a nonblocking call cannot create one: first call "
            "pycoll.attach(comm) or a blocking collective on all its ranks"
        )
    if read is not read_method:
        number = NUMBERS[primitive, recvcounts is not None]
        begun: Request = channel.front.start(number, True, algorithm, sendbuf, recvbuf, op, root, recvcounts)
        if begun is not core.MISSED:
            return begun
    call = Call(primitive, comm, sendbuf, recvbuf, op, root, algorithm, recvcounts, read, "nonblocking")
    prepared = prepare(call, channel)
    remember(prepared, call)
    request = prepared.in_flight()
    request.result = prepared.buffers.result
    request.begin()
    return request


@interruptions_delayed()
def initialize(primitive: str, read: Reader, *given: Any, **named: Any) -> Persistent:
    """Create a persistent collective; all ranks of the communicator call this together."""
    free_dropped()
    call = Call(primitive, *given, **named)._replace(read=read, form="persistent")
    if call.comm is None:
        call = call._replace(comm=MPI.COMM_WORLD)
    prepared = prepare(call, attach(call.comm))
    prepared.open()
    fixed = prepared.executable()
    if prepared.is_one_run and isinstance(fixed, core.Run):
        return _PersistentRun(prepared, fixed)
    return _PersistentTask(prepared, fixed)


for _kind in (Request, CoreTask):
    watch_request(_kind, "Wait")
watch_request(Persistent, "Start")
