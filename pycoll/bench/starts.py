"""Record when each rank starts a timed call: a barrier releases the ranks one after the other."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from mpi4py import MPI

from pycoll.trace import clocks, now
from pycoll.tune.timing import Call


class Starts:
    """The start times of calls on all ranks, corrected for clock offsets; creating one is collective."""

    def __init__(self, comm: MPI.Intracomm, calls: Mapping[str, Call]) -> None:
        self.comm = comm
        self.noted: dict[str, list[int]] = {name: [] for name in calls}  # ns
        self.asked = clocks.measure(comm, MPI.Request.Wait)
        self.calls = {name: self._noting(name, call) for name, call in calls.items()}

    def _noting(self, name: str, call: Call) -> Call:
        def noted() -> None:
            self.noted[name].append(now())
            call()

        return noted

    def late(self) -> dict[str, np.ndarray]:
        """Return the delays of the ranks relative to the first rank, in seconds.

        The result has an array of shape (calls, ranks) for each name.  All ranks call it; the result is empty on ranks
        other than 0.
        """
        asked = self.asked + clocks.measure(self.comm, MPI.Request.Wait)
        gathered = self.comm.gather(self.noted)
        if gathered is None:
            return {}
        clock = [clocks.fitted([ask for ask in asked if ask.rank == rank]) for rank in range(self.comm.size)]
        late = {}
        for name in self.noted:
            starts = np.array(
                [[clock[rank].corrected(at) for at in noted[name]] for rank, noted in enumerate(gathered)]
            ).T
            late[name] = (starts - starts.min(axis=1, keepdims=True)) * 1e-9
        return late
