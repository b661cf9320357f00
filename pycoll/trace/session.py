"""Begins and ends a trace: opens the file of each rank, measures the clocks, and merges the events."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from mpi4py import MPI

from ..api import abort
from ..base import hooks, settings
from ..base.command_line import in_words
from ..runtime.attach import attach
from ..runtime.interruptions import interruptions_delayed
from ..runtime.native import library
from ..runtime.progress import until
from ..runtime.recording import recorder
from ..runtime.recording.recorder import Recorder
from .chrome import export
from .clocks import measure
from .reading import read, recorded_ranks

MOST = 400_000  # events in trace.json, which then takes seconds to write; the files of the ranks keep all
NAP = 1e-3  # seconds
PATIENCE = 2.0  # seconds for the last measurement of the clocks, because a failed rank does not take part


class Session:
    """One trace of this rank."""

    def __init__(self, directory: str | os.PathLike[str], events: int, private: MPI.Intracomm) -> None:
        if recorder.current:
            raise RuntimeError("a trace is being recorded already")
        self._directory = Path(directory).resolve()
        self._path = self._directory / "trace.json"
        self._rank, self._process = MPI.COMM_WORLD.rank, os.getpid()
        self._recorder: Recorder | None = None
        self._comm: MPI.Intracomm | None = None  # of all ranks, once all have begun the trace
        try:
            self._open(events)
        finally:
            self.measure_clocks(private)  # even after an error, because the other ranks do

    def _open(self, events: int) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        if MPI.COMM_WORLD.rank == 0:
            self._path.unlink(missing_ok=True)  # left by an earlier job
        world, about = MPI.COMM_WORLD, {"host": MPI.Get_processor_name(), "library": library()}
        recorder.current = self._recorder = Recorder(self._directory, world.rank, world.size, events, **about)
        hooks.begin_epoch()
        atexit.register(self.end)
        abort.last_acts.append(self._end_alone)

    def measure_clocks(self, private: MPI.Intracomm) -> None:
        """Measure the clocks once, when `private` is the first duplicate of a communicator of all ranks."""
        if self._comm is None and MPI.Comm.Compare(private, MPI.COMM_WORLD) == MPI.CONGRUENT:
            self._comm, request = private.Idup()
            _however_long(request)
            self._measure(_however_long)

    def _measure(self, wait: Callable[[MPI.Request], object]) -> None:
        for measured in measure(self._comm, wait):
            if self._recorder:
                self._recorder.write(clock=measured)

    def end(self, failed: bool = False) -> None:
        """Write the remaining data; without the other ranks after an error.

        An error is only reported, because the other ranks, which do not get it, go on.
        """
        if os.getpid() != self._process:  # in a forked child
            return
        recorder.current = None
        hooks.begin_epoch()
        atexit.unregister(self.end)
        abort.last_acts.remove(self._end_alone)
        try:
            self._write(failed)
        except (OSError, ValueError) as error:  # ValueError: files that other jobs left there
            message = f"pycoll: rank {self._rank} could not write {self._path}: {in_words(error)}"
            print(message, file=sys.stderr, flush=True)

    def _write(self, failed: bool) -> None:
        assert self._recorder
        self._recorder.stop()
        if not failed:
            self._measure_again()
        self._recorder.close()
        if failed or self._rank == min(recorded_ranks(self._directory)):
            like = recorder.meanings_path(self._directory, self._rank)  # a private trace stays private
            export(read(self._directory, MOST), self._path, like)

    def _end_alone(self) -> None:
        self.end(failed=True)

    def _measure_again(self) -> None:
        """Measure the clocks again, if the ranks needed for it take part."""
        if not MPI.Is_finalized() and self._comm is not None:
            with contextlib.suppress(TimeoutError, MPI.Exception):
                self._measure(_within(PATIENCE))
                self._comm.Free()


def _however_long(request: MPI.Request) -> None:
    """Wait for a request while collectives in flight make progress."""
    until(request.Test, "the start of a trace", lambda: "at least one rank has not taken part")


def _within(seconds: float) -> Callable[[MPI.Request], None]:
    """A function that waits for requests; raises TimeoutError once `seconds` have passed in total."""
    soon = time.monotonic() + NAP
    deadline = soon + seconds

    def wait(request: MPI.Request) -> None:
        while not request.Test():
            if time.monotonic() > deadline:
                request.Cancel()
                request.Wait()
                raise TimeoutError
            time.sleep(NAP if time.monotonic() > soon else 0)

    return wait


@interruptions_delayed()
def begin(directory: str | os.PathLike[str], events: int) -> Session:
    """Begin a trace.  Collective over COMM_WORLD."""
    if events < 1:
        raise ValueError(f"events={events} is not a positive number")
    channel = attach(MPI.COMM_WORLD)
    return Session(directory, events, channel.comm)


_as_set: list[Session | None] = []  # the session; None if it failed to begin


def begin_as_set(private: MPI.Intracomm) -> None:
    """Begin the trace set by ``PYCOLL_TRACE``, at the first use of a communicator, whose duplicate is `private`."""
    if not _as_set:
        _as_set.append(None)
        try:
            _as_set[0] = Session(settings.TRACE or "", settings.TRACE_EVENTS, private)
        except OSError as error:
            raise OSError(error.errno, f"PYCOLL_TRACE={settings.TRACE}: {error.strerror}", error.filename) from None
    elif recorder.current and (session := _as_set[0]):
        session.measure_clocks(private)
