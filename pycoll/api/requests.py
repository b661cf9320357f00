"""The requests of nonblocking and persistent collectives, and the functions that create them.

A request is not an `MPI.Request`: MPI would treat it as complete.  Passing one to MPI is therefore an error.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from mpi4py import MPI

from .. import core
from ..arguments.memory_kinds import HOST
from ..arguments.mpi_arguments import read as read_method
from ..runtime.attach import attach, channels, check_communicator, is_new
from ..runtime.calls import Call, Prepared, Reader
from ..runtime.dispatch import prepare
from ..runtime.front import NUMBERS
from ..runtime.garbage import collect_later, free_dropped
from ..runtime.interruptions import interruptions_delayed
from ..runtime.plans import remember
from ..runtime.progress import InFlight, tasks
from ..runtime.progress_thread import asleep
from ..runtime.recording import recorder
from ..runtime.task import CoreTask
from .watched import watch_request


class Request:
    """A collective in flight.

    Notes
    -----
    It progresses in all calls of pycoll, and in another thread (see `pycoll.progress_thread`).  The buffers must not be
    modified or freed until it is complete.
    """

    __slots__ = ("__weakref__", "_result", "active", "task")

    def __init__(self, task: InFlight, result: Any) -> None:
        self.task, self._result = task, result
        self.active = True  # its completion has not been reported yet

    def Test(self, status: MPI.Status | None = None) -> bool:
        """Test whether the collective is complete.

        Parameters
        ----------
        status : MPI.Status, optional
            Ignored; for compatibility with mpi4py.

        Returns
        -------
        bool
            True if the collective is complete.

        Raises
        ------
        Exception
            The error of the collective; raised only once.
        """
        self.task.poll()
        if self.task.done:
            self.active = False
            self.task.raise_error()
        return self.task.done

    def Wait(self, status: MPI.Status | None = None) -> bool:
        """Wait until the collective is complete.

        Parameters
        ----------
        status : MPI.Status, optional
            Ignored; for compatibility with mpi4py.

        Returns
        -------
        bool
            True.

        Raises
        ------
        CollectiveTimeout
            If the collective takes longer than ``PYCOLL_TIMEOUT``.
        Exception
            The error of the collective; raised only once.
        """
        task = self.task
        if task.done:
            self.active = False
            task.raise_error()
            return True
        try:
            if recorder.current:
                recorder.current.record_wait(task.finish)
            else:
                task.finish()
        finally:
            self.active = not task.done
        return True

    def test(self, status: MPI.Status | None = None) -> tuple[bool, Any]:
        """Test whether the collective is complete.

        Parameters
        ----------
        status : MPI.Status, optional
            Ignored; for compatibility with mpi4py.

        Returns
        -------
        bool
            True if the collective is complete.
        object
            Its result, as from `wait`; None if it is not complete.
        """
        done = self.Test()
        return done, self._result if done else None

    def wait(self, status: MPI.Status | None = None) -> Any:
        """Wait until the collective is complete.

        Parameters
        ----------
        status : MPI.Status, optional
            Ignored; for compatibility with mpi4py.

        Returns
        -------
        object
            The result of the blocking function; None for methods of `pycoll.Comm`.
        """
        self.Wait()
        return self._result

    def Get_status(self, status: MPI.Status | None = None) -> bool:
        """Test whether the collective is complete, without completing the request.

        Parameters
        ----------
        status : MPI.Status, optional
            Ignored; for compatibility with mpi4py.

        Returns
        -------
        bool
            True if the collective is complete.
        """
        return bool(self.task.poll())

    def Cancel(self) -> None:
        """Raise MPI.Exception: the MPI standard does not allow a collective to be cancelled."""
        raise MPI.Exception(MPI.ERR_REQUEST)

    def Free(self) -> None:
        """Raise MPI.Exception: the MPI standard does not allow the request of a collective in flight to be freed."""
        raise MPI.Exception(MPI.ERR_REQUEST)

    def forget_result(self) -> None:
        """Let `wait` return None, as in mpi4py."""
        self._result = None


class Persistent(Request):
    """A collective on fixed buffers, which can be started many times.

    Notes
    -----
    Each `Start` needs a `Wait`, or a `Test` that returns True.  Started collectives may complete in any order.  The
    object is a context manager: at its end, it waits and frees the requests.
    """

    def __init__(self, prepared: Prepared) -> None:
        prepared.open()
        self._fixed = fixed = prepared.executable()
        if prepared.is_one_run and isinstance(fixed, core.Run):
            task: InFlight = CoreTask(fixed, prepared, tasks, asleep, None, None, None)
        else:
            task = prepared.task(lambda: prepared.body(lambda: fixed))
        super().__init__(task, prepared.buffers.result)
        self.active, task.done = False, True  # until it is started
        self._prepared, self._freed = prepared, False
        self._finalizer = collect_later(self, fixed)

    def Start(self) -> None:
        """Start the collective.

        Raises
        ------
        RuntimeError
            If it is still active, or freed.
        """
        if self.active or self._freed:
            raise RuntimeError(f"Start: {self._prepared.name} is {'freed' if self._freed else 'still active'}")
        if self._prepared.channel.broken:
            self._prepared.channel.check_usable()
        if self._prepared.buffers.memory is not HOST:
            self._prepared.buffers.memory.wait_for_stream()
        self.active, self.task.owner = True, self
        self.task.begin()

    def Free(self) -> None:
        """Free the MPI requests.

        Raises
        ------
        RuntimeError
            If the collective is still active.
        """
        if self.active:
            raise RuntimeError(f"Free: {self._prepared.name} is still active")
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
    if is_new(comm):
        check_communicator(comm)
        raise RuntimeError(
            "this communicator has no private duplicate yet, and a nonblocking call cannot create one: first call "
            "pycoll.attach(comm) or a blocking collective on all its ranks"
        )
    channel = channels[comm.handle]
    if read is not read_method:
        number = NUMBERS[primitive, recvcounts is not None]
        task = channel.front.start(number, True, algorithm, sendbuf, recvbuf, op, root, recvcounts)
        if task is not core.MISSED:
            return Request(task, task.result)
    call = Call(primitive, comm, sendbuf, recvbuf, op, root, algorithm, recvcounts, read, "nonblocking")
    prepared = prepare(call, channel)
    remember(prepared, call)
    task = prepared.in_flight()
    task.begin()
    return Request(task, prepared.buffers.result)


@interruptions_delayed()
def initialize(primitive: str, read: Reader, comm: MPI.Comm | None = None, **given: Any) -> Persistent:
    """Create a persistent collective; all ranks of the communicator call this together."""
    comm = MPI.COMM_WORLD if comm is None else comm
    free_dropped()
    call = Call(primitive, comm, read=read, form="persistent", **given)
    return Persistent(prepare(call, attach(comm)))


watch_request(Request, "Wait")
watch_request(Persistent, "Start")
