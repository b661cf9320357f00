"""Stop after a signal: a scheduler sends one before the time of a job ends, or before it takes the nodes away."""

from __future__ import annotations

import signal
from types import FrameType

from mpi4py import MPI

SIGNALS = (signal.SIGUSR1, signal.SIGTERM)


class Stop:
    """Notes the signals in `SIGNALS`, which end a program otherwise."""

    def __init__(self) -> None:
        self._signal = 0
        for number in SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signal = number

    def asked(self, comm: MPI.Intracomm) -> str:
        """Return the name of a signal that any rank got, or an empty string; all ranks call it."""
        number = comm.allreduce(self._signal, MPI.MAX)
        return signal.Signals(number).name if number else ""
