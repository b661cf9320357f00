"""Begins and ends a trace: opens the ranks' files, measures their clocks, puts what they recorded together."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpi4py import MPI

from .. import abort, engine, settings
from ..native import library
from ..progress import until
from . import recorder
from .chrome import export
from .clocks import measure
from .recorder import Recorder

PATIENCE = 5.0  # seconds for the last measurement of the clocks: a rank that failed does not take part


class Session:
    """One trace, from its begin to its end."""

    def __init__(self, directory: str | os.PathLike, events: int) -> None:
        if recorder.current:
            raise RuntimeError("a trace is being recorded already")
        self._directory, self._clocks_known = Path(directory).resolve(), False
        self._directory.mkdir(parents=True, exist_ok=True)
        world = MPI.COMM_WORLD
        about = {"host": MPI.Get_processor_name(), "library": library()}
        self._recorder = Recorder(self._directory, world.rank, world.size, events, **about)
        recorder.current = self._recorder
        atexit.register(self.end)
        abort.last_acts.append(self._end_alone)

    @classmethod
    def together(cls, directory: str | os.PathLike, events: int) -> Session:
        """Begin a trace on all ranks of COMM_WORLD."""
        if events < 1:
            raise ValueError(f"events={events} is not a positive number")
        engine.attach(MPI.COMM_WORLD)
        engine.forget_programs()
        session = cls.begun(directory, events)
        session.measure_clocks()
        return session

    @classmethod
    def begun(cls, directory: str | os.PathLike, events: int) -> Session:
        """Begin one on this rank."""
        try:
            return cls(directory, events)
        except OSError:
            if _world():
                measure(_world(), _however_long)  # the others do
            raise

    def measure_clocks(self) -> None:
        """The first time that all ranks can take part."""
        if not self._clocks_known and _world():
            self._clocks_known = True
            self._measure(_however_long)

    def _measure(self, wait: Callable[[MPI.Request], object]) -> None:
        for measured in measure(_world(), wait):
            self._recorder.tell(clock=measured)

    def end(self, failed: bool = False) -> None:
        """Write what is still to be written; without the other ranks if something has failed."""
        recorder.current = None
        together = not failed and self._measured_again()
        self._recorder.close()
        atexit.unregister(self.end)
        abort.last_acts.remove(self._end_alone)
        if MPI.COMM_WORLD.rank == 0 or not together:
            export(self._directory)

    def _end_alone(self) -> None:
        self.end(failed=True)

    def _measured_again(self) -> bool:
        """Measure the clocks again; whether all took part that this rank needs for it."""
        if MPI.Is_finalized() or not _world():
            return False
        try:
            self._measure(_within(PATIENCE))
        except (TimeoutError, MPI.Exception):
            return False
        return True


def _world() -> Any:
    """The private duplicate of COMM_WORLD, if there is one."""
    channel = engine.channels.get(MPI.COMM_WORLD.handle)
    return channel and channel.comm


def _however_long(request: MPI.Request) -> None:
    """Waits for a request, with all that is in flight going on."""
    until(request.Test)


def _within(seconds: float) -> Callable[[MPI.Request], None]:
    """Waits for requests, but all in all for so many seconds; then TimeoutError."""
    deadline = time.monotonic() + seconds

    def wait(request: MPI.Request) -> None:
        while not request.Test():
            if time.monotonic() > deadline:
                request.Cancel()
                request.Wait()
                raise TimeoutError
            os.sched_yield()

    return wait


_as_set: list[Session] = []


def begin_as_set() -> None:
    """Begin the trace that ``PYCOLL_TRACE`` asks for, with the first communicator that is used."""
    if not _as_set:
        _as_set.append(Session.begun(settings.TRACE or "", settings.TRACE_EVENTS))
    if recorder.current:
        _as_set[0].measure_clocks()
