"""Registered memory: memory that the ranks of a host share, from which `pycoll.empty` allocates arrays.

It consists of areas, each an MPI shared-memory window with a part for every rank.  All ranks of the communicator
allocate and free together, and each keeps account of the parts of all ranks.  So they agree without asking each other.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from ..base import settings
from .progress import until

GROWTH = 1 << 20  # the least bytes of the part of a rank in an area; each area is as large as all before together
KEPT = 1 << 26  # the most bytes of a part by which memory grows in advance, or that are kept although they are empty
ALIGNMENT = 64
AREA = 48  # the number of an area is in the bits from here on, the offset in its part is in those below
_SHARED_FILES = "/dev/shm"  # where both MPI libraries create shared memory on Linux
_NOISE = b"OSC UCX component priority set inside component query failed"


class Part:
    """The account of the part of one rank in an area: its holes, in order."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._holes = [(0, nbytes)]
        self._sizes: dict[int, int] = {}

    def hole(self, nbytes: int) -> int | None:
        """The offset of the first hole of this size, or None."""
        return next((start for start, end in self._holes if end - start >= nbytes), None)

    def take(self, nbytes: int) -> int:
        """Allocate from the first hole of this size, and return its offset."""
        at, (start, end) = next((i, hole) for i, hole in enumerate(self._holes) if hole[1] - hole[0] >= nbytes)
        self._holes[at : at + 1] = [(start + nbytes, end)] if end - start > nbytes else []
        self._sizes[start] = nbytes
        return start

    def give_back(self, start: int) -> None:
        """Free what `take` has allocated at this offset, and join the holes around it."""
        holes = sorted([*self._holes, (start, start + self._sizes.pop(start))])
        self._holes = []
        for hole in holes:
            if self._holes and self._holes[-1][1] == hole[0]:
                hole = self._holes.pop()[0], hole[1]
            self._holes.append(hole)

    @property
    def empty(self) -> bool:
        """Whether nothing is allocated."""
        return not self._sizes


class Area:
    """A shared-memory window with a part for each rank."""

    def __init__(self, comm: MPI.Intracomm, sizes: list[int]) -> None:
        info = MPI.Info.Create({"alloc_shared_noncontig": "true"})
        with _quiet():
            self.window = MPI.Win.Allocate_shared(sizes[comm.rank], 1, info, comm)
        info.Free()
        self.window.Lock_all()
        self.starts = [MPI.Get_address(self.window.Shared_query(rank)[0]) for rank in range(comm.size)]
        self.parts = [Part(size) for size in sizes]
        self.start, self.end = self.starts[comm.rank], self.starts[comm.rank] + sizes[comm.rank]
        own: Any = MPI.buffer.fromaddress(self.start, sizes[comm.rank])
        memory = np.frombuffer(own, np.uint8)
        memory[:: os.sysconf("SC_PAGE_SIZE")] = 0  # first touched here, so that the pages lie near this rank
        self.arrays: dict[int, list[int]] = {}  # the offsets in all parts, by the number of the allocation

    def take(self, number: int, sizes: list[int]) -> bool:
        """Allocate these sizes in the parts of all ranks, if there is room in all of them."""
        if any(part.hole(size) is None for part, size in zip(self.parts, sizes)):
            return False
        self.arrays[number] = [part.take(size) for part, size in zip(self.parts, sizes)]
        return True

    def give_back(self, number: int) -> None:
        """Free an allocation on all ranks."""
        for part, start in zip(self.parts, self.arrays.pop(number)):
            part.give_back(start)

    def free(self) -> None:
        """Free the window."""
        self.window.Unlock_all()
        self.window.Free()


class Registered:
    """The registered memory of a communicator; ordinary memory where its ranks cannot share any."""

    def __init__(self, comm: MPI.Intracomm, shares: bool) -> None:
        self.comm, self._shares = comm, shares
        self.areas: dict[int, Area] = {}  # by number; numbers are not used again
        self._ordinary: dict[int, np.ndarray] = {}  # by the number of the allocation
        self._made = self._allocated = 0
        self._spans: list[tuple[int, int, int]] = []  # of the parts of this rank: begin, end, and code minus address
        self.shifts: dict[int, list[int]] = {}  # address minus code, for each area by number and each rank

    def allocate(self, nbytes: int) -> MPI.buffer | np.ndarray:
        """Allocate memory for this rank; all ranks call this together, and may ask for different sizes."""
        rounded = max(nbytes + -nbytes % ALIGNMENT, ALIGNMENT)
        table = self._exchange([rounded, available() if self._shares else 0])
        number = self._allocated = self._allocated + 1
        area = self._with_room(number, table[:, 0].tolist(), int(table[:, 1].min()))
        if area is None:
            memory = self._ordinary[number] = np.empty(rounded, np.uint8)
            return memory
        return MPI.buffer.fromaddress(area.start + area.arrays[number][self.comm.rank], rounded)

    def _with_room(self, number: int, sizes: list[int], free: int) -> Area | None:
        """An area from which these sizes are allocated; None if no more memory can be shared."""
        for area in self.areas.values():
            if area.take(number, sizes):
                return area
        page = os.sysconf("SC_PAGE_SIZE")
        grown = [sum(area.parts[rank].nbytes for area in self.areas.values()) for rank in range(self.comm.size)]
        parts = [max(size + -size % page, GROWTH, min(had, KEPT)) for size, had in zip(sizes, grown)]
        if sum(parts) > free:
            settings.logger.info("%d bytes of shared memory are free, fewer than the %d required", free, sum(parts))
            return None
        self._made += 1
        area = self.areas[self._made] = Area(self.comm, parts)
        area.take(number, sizes)
        self._note_spans()
        return area

    def give_back(self, address: int) -> None:
        """Free the memory that `allocate` returned; all ranks call this together.

        Raises ValueError if it was not allocated, or if other ranks free other memory.
        """
        mine = self._number(address)
        numbers = self._exchange([mine])[:, 0].tolist()
        if mine == 0:
            raise ValueError("array is not from pycoll.empty or pycoll.zeros on this communicator, or is freed already")
        if numbers != [mine] * len(numbers):
            raise ValueError(f"array is allocation number {mine}, but the ranks free numbers {numbers}")
        if self._ordinary.pop(mine, None) is not None:
            return
        at, area = next((at, area) for at, area in self.areas.items() if mine in area.arrays)
        area.give_back(mine)
        large = any(part.nbytes > KEPT for part in area.parts)
        if not area.arrays and (large or len(self.areas) > 1):
            self.areas.pop(at).free()
            self._note_spans()

    def _number(self, address: int) -> int:
        for number, memory in self._ordinary.items():
            if MPI.Get_address(memory) == address:
                return number
        for area in self.areas.values():
            for number, offsets in area.arrays.items():
                if area.start + offsets[self.comm.rank] == address:
                    return number
        return 0

    def _exchange(self, row: list[int]) -> np.ndarray:
        table = np.empty((self.comm.size, len(row)), np.int64)
        request = self.comm.Iallgather(np.array(row, np.int64), table)
        until(request.Test, "allocating registered memory", partial(_missing, self.comm))
        return table

    def code(self, address: int, nbytes: int) -> int:
        """The position of memory of this rank, in a form that `address` of other ranks understands; -1 if elsewhere."""
        for start, end, shift in self._spans:
            if start <= address and address + nbytes <= end:
                return address + shift
        return -1

    def address(self, rank: int, code: int) -> int:
        """The address, in this process, of the memory of a rank that has this code."""
        return code + self.shifts[code >> AREA][rank]

    @property
    def synchronize(self) -> Callable[[], object]:
        """A call that completes the memory accesses of this rank before its next messages."""
        synchronize: Callable[[], object] = next(iter(self.areas.values())).window.Sync
        return synchronize

    def _note_spans(self) -> None:
        firsts = [(area, number << AREA) for number, area in self.areas.items()]
        self._spans = [(area.start, area.end, first - area.start) for area, first in firsts]
        self.shifts = {first >> AREA: [start - first for start in area.starts] for area, first in firsts}

    def free(self) -> None:
        """Free all areas; all ranks call this together."""
        for area in self.areas.values():
            area.free()
        self.areas.clear()
        self._note_spans()
        self._ordinary.clear()


def _missing(comm: MPI.Intracomm) -> str:
    return f"rank {comm.rank} waits, because at least one of the {comm.size} ranks has not called it"


def available() -> int:
    """The bytes of shared memory that are free on this host."""
    try:
        return shutil.disk_usage(_SHARED_FILES).free
    except OSError:
        return 0


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Drop two lines that Open MPI prints for each window, which concern a component that is not used."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as caught:
        original = os.dup(2)
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(original, 2)
            caught.seek(0)
            lines = caught.read().splitlines(keepends=True)
            if any(_NOISE in line for line in lines):
                lines = [line for line in lines if _NOISE not in line and line.strip()]
            os.write(2, b"".join(lines)) if lines else None
            os.close(original)
