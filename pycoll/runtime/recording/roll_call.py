"""The roll call of a rank: a memory-mapped file that says, for each communicator, in which collective the rank is.

The file is up to date even if the rank hangs or is killed.  `pycoll.watch` reads it.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import json
import mmap
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

SIZE = 8  # bytes of a number
FIELDS = 5  # numbers for each communicator
# TURNS counts entries to collectives and exits from them: it is odd inside a collective.  CALL is the last one, ENTERED
# the time of the entry.  WAITS is the collective in flight that the rank waits for, or 0, and SINCE when it began to.
TURNS, CALL, ENTERED, WAITS, SINCE = range(FIELDS)
MOST = 512  # communicators; later ones are not recorded
RUNNING, ENDED = 1, 2  # the first number of the file
STACKS = signal.SIGUSR2  # the signal on which a rank writes the stacks of its threads

now = time.time_ns  # comparable between the hosts of a job


def calls_path(directory: Path, rank: int) -> Path:
    """The memory-mapped file of a rank."""
    return directory / f"rank-{rank}.calls"


def names_path(directory: Path, rank: int) -> Path:
    """The file with the meaning of the numbers of a rank: one line of JSON each."""
    return directory / f"rank-{rank}.names"


def stacks_path(directory: Path, rank: int) -> Path:
    """The file to which a rank writes its stacks."""
    return directory / f"rank-{rank}.stacks"


class RollCall:
    """Writes where this rank of COMM_WORLD is; raises OSError if its files cannot be created."""

    def __init__(self, directory: Path, rank: int, size: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        length = (1 + (1 + MOST) * FIELDS) * SIZE
        with calls_path(directory, rank).open("w+b") as file:
            file.write(bytes(length))  # a full disk raises an error now
            file.flush()
            self._memory = mmap.mmap(file.fileno(), length)
        self.view = memoryview(self._memory).cast("q")
        self._names: dict[str, int] = {}
        self._added = 0
        self._file = names_path(directory, rank).open("w", buffering=1)
        self._write(rank=rank, ranks=size, host=socket.gethostname(), pid=os.getpid(), born=birth(os.getpid()))
        self._stacks = stacks_path(directory, rank).open("w")
        with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread
            faulthandler.register(STACKS, self._stacks, chain=False)
        self.first = self._new_slot("")
        self.view[0] = RUNNING
        atexit.register(self.end)
        os.register_at_fork(after_in_child=self._forget)

    def add(self, name: str, rank: int, ranks: tuple[int, ...]) -> int:
        """Return the position of a communicator, which has `ranks` of COMM_WORLD; `first` if there are too many."""
        if self._added > MOST:
            return self.first
        slot = self._new_slot(name)
        self._write(communicator=name, slot=slot, rank=rank, ranks=ranks)
        return slot

    def named(self, name: str) -> int:
        """Return the number of a name."""
        if name not in self._names:
            self._names[name] = len(self._names) + 1
            self._write(number=self._names[name], name=name)
        return self._names[name]

    def end(self) -> None:
        """Note that the program has ended by itself."""
        self.view[0] = ENDED

    def _new_slot(self, name: str) -> int:
        slot = 1 + self._added * FIELDS
        self._added += 1
        return slot

    def _write(self, **what: Any) -> None:
        self._file.write(json.dumps(what, separators=(",", ":")) + "\n")

    def _forget(self) -> None:
        """Let a child process write to memory of its own: the files belong to the parent."""
        atexit.unregister(self.end)
        self.view = memoryview(bytearray(self._memory)).cast("q")


def birth(pid: int) -> str:
    """When a process of this host began, so that another one with its number is not taken for it; "" if unknown."""
    return "".join(_stat(pid)[19:20])


def condition(pid: int) -> str:
    """The state of a process of this host as a letter, see proc(5): T if it is stopped, Z if it has died."""
    return "".join(_stat(pid)[:1])


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
