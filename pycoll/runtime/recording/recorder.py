"""The recorder of a rank: a file with a ring buffer of events, and a file with the meaning of the numbers in them.

The ring buffer is a memory-mapped file, so that it has all events up to the last, even if the rank is killed.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ...compiler.program import BLOCKING, Program

if TYPE_CHECKING:
    from pathlib import Path

EVENT = struct.Struct("=5q")  # number of the action, begin and end in ns, run of a program, thread
HEADER = struct.Struct("=q")  # the number of recorded events, including overwritten ones
TAG_BITS = 32  # the number of a run is the tag of its program, shifted by this, plus the number of earlier runs
RECENT = 1 << 16  # collectives in flight, each with its own tag, whose runs are counted

now = time.monotonic_ns  # the same clock in all processes of a host


def events_path(directory: Path, rank: int) -> Path:
    """The file with the ring buffer of a rank."""
    return directory / f"rank-{rank}.events"


def meanings_path(directory: Path, rank: int) -> Path:
    """The file with the meaning of the numbers in the ring buffer of a rank: one line of JSON each."""
    return directory / f"rank-{rank}.jsonl"


class Recorder:
    """The ring buffer of one rank; raises OSError if its files cannot be created."""

    def __init__(self, directory: Path, rank: int, size: int, capacity: int, **about: Any) -> None:
        self._capacity, self._count, self._numbers = capacity, 0, 0
        self._lock = threading.Lock()  # the progress thread records too
        self._path = events_path(directory, rank)
        self._ring: mmap.mmap | None = _reserved(self._path, HEADER.size + capacity * EVENT.size)
        self._meanings = meanings_path(directory, rank).open("w", buffering=1)
        self._names: dict[tuple[str, str], int] = {}
        self._runs, self._recent_runs = cache(_run_numbers), lru_cache(RECENT)(_run_numbers)
        self.programs: WeakKeyDictionary[Program, dict[tuple[Any, ...], int]] = WeakKeyDictionary()  # their numbers
        self.began = now()
        self.write(rank=rank, ranks=size, wall=time.time_ns() - now(), **about)

    def write(self, **what: Any) -> None:
        """Write a line to the second file."""
        import json

        with self._lock:
            if not self._meanings.closed:
                self._meanings.write(json.dumps(what, separators=(",", ":")) + "\n")

    def number(self, count: int = 1, /, **meaning: Any) -> int:
        """Reserve `count` numbers and write their meaning; return the first."""
        with self._lock:
            first, self._numbers = self._numbers, self._numbers + count
        self.write(number=first, **meaning)
        return first

    def named(self, kind: str, name: str) -> int:
        """The number of the phase or span of this name."""
        if (kind, name) not in self._names:
            self._names[kind, name] = self.number(**{kind: name})
        return self._names[kind, name]

    def run_number(self, comm: str, name: str, tag: int) -> int:
        """Return a new number for a run of a program with this name: the same one on all ranks of the communicator."""
        numbers = self._runs if tag <= BLOCKING else self._recent_runs
        return next(numbers(comm, name, tag))

    def record(self, what: int, begin: int, end: int, run: int = 0) -> None:
        """Append an event to the ring buffer; if it is full, overwrite the oldest event."""
        with self._lock:
            if self._ring:
                offset = HEADER.size + self._count % self._capacity * EVENT.size
                EVENT.pack_into(self._ring, offset, what, begin, end, run, threading.get_ident())
                self._count += 1
                HEADER.pack_into(self._ring, 0, self._count)

    def record_wait(self, wait: Callable[[], object]) -> None:
        """Call `wait` and record it.  A wait is not a phase: the program remains in its phase."""
        begin = now()
        try:
            wait()
        finally:
            self.record(self.named("phase", "wait"), begin, now())

    def stop(self) -> None:
        """Stop recording, and truncate the file to its events."""
        with self._lock:
            if self._ring:
                self._ring.close()
                self._ring = None
                os.truncate(self._path, HEADER.size + min(self._count, self._capacity) * EVENT.size)

    def close(self) -> None:
        """Close the second file too."""
        with self._lock:
            self._meanings.close()


def _run_numbers(comm: str, name: str, tag: int) -> count[int]:
    """The numbers of the runs of programs with this name and tag on a communicator."""
    return count(tag << TAG_BITS)


def _reserved(path: Path, size: int) -> mmap.mmap:
    """Map a new file, after writing all of it: a full disk raises an error now, and later there are no page faults."""
    zeros = bytes(size)
    with path.open("w+b") as file:
        file.write(zeros)
        file.flush()
        ring = mmap.mmap(file.fileno(), size)
    ring[:] = zeros
    return ring


current: Recorder | None = None  # the recorder of the trace, if there is one


def _forget() -> None:
    """Drop the recorder in a child process: it belongs to the parent."""
    global current
    current = None


os.register_at_fork(after_in_child=_forget)
