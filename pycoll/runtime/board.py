"""A board: memory in which the ranks of a host write numbers for each other, in place of short messages.

A rank writes a number to the board, and the others wait until they see it.  Processors of the x86 family make the
stores of a rank visible in their order, and load in order.  So whoever sees the number also sees what the rank stored
before.  Other processors do not promise this; there, and if ranks may fail, ranks synchronize with messages.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable

from mpi4py import MPI

from .executable import REPEATABLE
from .failures import TOLERANT

USABLE = platform.machine().lower() in ("x86_64", "amd64") and not TOLERANT
SPINS = 200  # the checks before MPI progresses and other processes get the core: a few microseconds
_LINE = 8  # numbers in a cache line
_TAG = 0  # of the messages that are looked for, only to let MPI progress


class Board:
    """A row for each rank of a host, which only this rank writes; `maps` are the rows as they are mapped here.

    Ranks synchronize twice in each collective.  The first time they also exchange up to `most` numbers.  As no rank is
    more than one collective ahead of another, a row has two slots for these, which are used in turn.  The number of the
    collective is at the end of a slot.
    """

    def __init__(self, comm: MPI.Intracomm, place: int, maps: list[memoryview], most: int) -> None:
        self.rows = [memoryview(row).cast("q") for row in maps]
        self.mine = self.rows[place]
        self.number = self.posted = 0  # of the current collective, and of the last one that this rank has begun
        slot = _slot(most)
        self.starts = slot - 1, 2 * slot - 1  # where the number of a collective is, if it is even or odd
        self.end = 2 * slot
        self.spins = SPINS if len(maps) <= (os.cpu_count() or 1) else 1
        self.progress: Callable[[int, int], bool] = comm.Iprobe

    @staticmethod
    def nbytes(most: int) -> int:
        """Return the bytes of a row."""
        return 8 * (2 * _slot(most) + _LINE)

    def finish(self) -> None:
        """Say that this rank has finished the collective."""
        self.mine[self.end] = self.number


def _slot(most: int) -> int:
    return (most + 1) + -(most + 1) % _LINE


class Arrival:
    """The beginning or the end of the current collective on a rank, in the form of a request of MPI.

    It is reached when the number of the collective is at one of two places in the row of the rank.
    """

    def __init__(self, board: Board, place: int, peer: int, at: tuple[int, int]) -> None:
        self._board, self._row, self._peer, self._at = board, board.rows[place], peer, at

    def Wait(self) -> bool:
        """Wait until it is reached."""
        board, row = self._board, self._row
        number = board.number
        at = self._at[number & 1]
        for _ in range(board.spins):
            if row[at] == number:
                return True
        while row[at] != number:
            board.progress(self._peer, _TAG)  # the other rank may need a message of this one first
            os.sched_yield()
        return True

    def Test(self) -> bool:
        """Whether it is reached."""
        number = self._board.number
        at = self._at[number & 1]
        if self._row[at] != number:
            self._board.progress(self._peer, _TAG)
        return self._row[at] == number

    def Free(self) -> None:
        """Do nothing."""


REPEATABLE.update(one.__code__ for one in (Board.finish, Arrival.Wait))
