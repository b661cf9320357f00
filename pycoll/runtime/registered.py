"""Registered memory: memory that the ranks of a host share, from which `pycoll.empty` allocates arrays.

It consists of areas, each with a part for every rank: a file without a name in shared memory, which all ranks map.  So
nothing is left behind by a program that is killed, and the memory of an array that is still in use stays mapped,
whatever happens to its communicator.  MPI windows have neither property.

All ranks of the communicator allocate and free together, and each keeps account of the parts of all ranks of its host.
So only sizes and numbers are exchanged.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from functools import partial
from itertools import accumulate, count

import numpy as np
from mpi4py import MPI

from .. import core
from ..base import settings
from . import shared_file
from .account import Account
from .progress import gathered, until

GROWTH = 1 << 20  # the least bytes of the part of a rank in an area; each area is as large as all before together
KEPT = 1 << 26  # the most bytes of a part by which memory grows in advance, or that are kept although they are empty
ALIGNMENT = 64
MOST = 1 << 60  # bytes of an allocation; there is no such memory
AREA = 48  # the number of an area is in the bits from here on, the offset in its part is in those below
AREAS = (1 << 63 - AREA) - 1  # the most areas at a time: positions have 63 bits


class NotEnoughMemory(MemoryError):
    """A rank cannot allocate its memory; raised on all ranks."""


class Area:
    """Memory with a part for each rank of a host; `maps` are the parts of all ranks as they are mapped here."""

    def __init__(self, local_rank: int, maps: list[memoryview]) -> None:
        self.memory = maps[local_rank]
        self._maps = maps  # which stay mapped
        self.starts = [MPI.Get_address(one) for one in maps]
        self.parts = [Account(len(one)) for one in maps]
        self.start, self.end = self.starts[local_rank], self.starts[local_rank] + len(maps[local_rank])
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


class Registered:
    """The registered memory of a communicator; ordinary memory where its ranks cannot share any.

    `here` lists the ranks of this host.  The memory of a rank is found by its index in this list.
    """

    def __init__(self, comm: MPI.Intracomm, here: list[int]) -> None:
        self.comm, self.here, self.local_rank = comm, here, here.index(comm.rank)
        self.areas: dict[int, Area] = {}  # by number
        self.live = 0  # allocations; the same on the ranks of all hosts
        self._ordinary: dict[int, bytearray] = {}  # by the number of the allocation
        self._allocated = 0
        self._spans: list[tuple[int, int, int]] = []  # of the parts of this rank: begin, end, and code minus address
        self._shifts: dict[int, list[int]] = {}  # address minus code, for each area by number and each local rank
        self.mapped = None if core.problem else core.Areas(AREA, len(here))  # the same for the compiled core

    def allocate(self, nbytes: int) -> tuple[memoryview | bytearray, int]:
        """Allocate memory for this rank; return the memory and the offset of the allocation in it.

        All ranks call this together, and may ask for different sizes.  Raises NotEnoughMemory on all of them if one
        cannot allocate its memory.
        """
        rounded = min(max(nbytes + -nbytes % ALIGNMENT, ALIGNMENT), MOST)
        sizes = self._exchange([rounded])[:, 0].tolist()
        number = self._allocated = self._allocated + 1
        area = next((area for area in self.areas.values() if area.take(number, sizes)), None)
        if area is None and (area := self._grow(sizes)):
            area.take(number, sizes)
        if area is None:
            with contextlib.suppress(MemoryError):
                self._ordinary[number] = bytearray(rounded)
        if area is None or len(self.here) < self.comm.size:  # all ranks of this host know that, and those of others
            has_memory = area is not None or number in self._ordinary
            missing = self._gather(0 if has_memory else min(nbytes, MOST), "allocating registered memory")
            if missing.any():
                self._give_back(number)
                asked = [f"{missing[rank]} bytes on rank {rank}" for rank in np.flatnonzero(missing)]
                raise NotEnoughMemory(f"cannot allocate {', '.join(asked)}")
        self.live += 1
        if area is None:
            return self._ordinary[number], 0
        return area.memory, area.arrays[number][self.local_rank]

    def _grow(self, sizes: list[int]) -> Area | None:
        """Create an area with room for these sizes; return None on all ranks if one of them cannot."""
        if len(self.here) == 1:
            return None
        if len(self.areas) == AREAS:
            if logger := settings.logger():
                logger.debug("registered arrays are in ordinary memory: there are %d areas, the most", AREAS)
            return None
        had = [
            sum(area.parts[local_rank].nbytes for area in self.areas.values()) for local_rank in range(len(self.here))
        ]
        maps = self._share([max(size, GROWTH, min(before, KEPT)) for size, before in zip(sizes, had)])
        if maps is None:
            return None
        number = next(number for number in count(1) if number not in self.areas)
        area = self.areas[number] = Area(self.local_rank, maps)
        self._note_spans()
        return area

    def _share(self, sizes: list[int]) -> list[memoryview] | None:
        """Map memory of these sizes, one for each rank of this host; return None on all of them if one cannot."""
        ends = list(accumulate(size + -size % mmap.PAGESIZE for size in sizes))
        files: list[int] = []
        parts: list[memoryview] = []

        def create(location: list[int]) -> None:
            if not settings.REGISTERED:
                raise PermissionError("PYCOLL_REGISTERED is 0")
            if self.local_rank == 0:
                files.append(shared_file.created(ends[-1], limited=True))

        def reserve(location: list[int]) -> None:
            files.append(shared_file.opened(location))
            start = ends[self.local_rank - 1] if self.local_rank else 0
            os.posix_fallocate(files[-1], start, ends[self.local_rank] - start)  # with pages near this rank

        def map_all(location: list[int]) -> None:
            whole = shared_file.mapped(files[-1], ends[-1], populate=True)
            parts.extend(whole[start:end] for start, end in zip([0, *ends], ends))

        location = shared_file.NOWHERE
        try:
            for step in create, reserve, map_all:
                problem: Exception | None = None
                try:
                    step(location)
                except (OSError, OverflowError, ValueError) as error:
                    problem = error
                mine = shared_file.where(files[0]) if files else shared_file.NOWHERE
                table = self._exchange([problem is not None, *mine])
                if table[:, 0].any():
                    if logger := settings.logger():
                        why = problem or "another rank cannot share any"
                        logger.debug("registered arrays are in ordinary memory: %s", why)
                    return None
                location = table[0, 1:].tolist()
        finally:
            for file in files:
                os.close(file)
        return parts

    def give_back(self, address: int) -> None:
        """Free the memory that `allocate` returned; all ranks call this together.

        Raises ValueError if it was not allocated, or if other ranks free other memory.
        """
        mine = self._number(address)
        numbers = self._gather(mine, "freeing registered memory")  # all hosts raise the error, or none
        if mine == 0:
            raise ValueError("array is not from pycoll.empty or pycoll.zeros on this communicator, or is freed already")
        if (numbers != mine).any():
            raise ValueError(f"array is allocation number {mine}, but the ranks free numbers {numbers.tolist()}")
        self.live -= 1
        self._give_back(mine)

    def _give_back(self, number: int) -> None:
        """Free an allocation, and the area if nothing else is in it, unless it is kept for later."""
        self._ordinary.pop(number, None)
        for at, area in self.areas.items():
            if number in area.arrays:
                area.give_back(number)
                large = any(part.nbytes > KEPT for part in area.parts)
                if not area.arrays and (large or len(self.areas) > 1):
                    del self.areas[at]
                    self._note_spans()
                return

    def _number(self, address: int) -> int:
        for number, memory in self._ordinary.items():
            if MPI.Get_address(memory) == address:
                return number
        for area in self.areas.values():
            for number, offsets in area.arrays.items():
                if area.start + offsets[self.local_rank] == address:
                    return number
        return 0

    def _gather(self, number: int, what: str) -> np.ndarray:
        """Gather a number of each rank, of all hosts."""
        return gathered(self.comm, [number], what, partial(_missing, self.comm))[:, 0]

    def _exchange(self, row: list[int]) -> np.ndarray:
        """Exchange rows with the other ranks of this host."""
        table = np.array([row] * len(self.here), np.int64)
        peers = [(local_rank, rank) for local_rank, rank in enumerate(self.here) if local_rank != self.local_rank]
        requests = [self.comm.Irecv(table[local_rank], rank, _TAG) for local_rank, rank in peers]
        requests += [self.comm.Isend(table[self.local_rank], rank, _TAG) for _, rank in peers]
        until(partial(MPI.Request.Testall, requests), "allocating registered memory", partial(_missing, self.comm))
        return table

    @property
    def nbytes(self) -> int:
        """The bytes that are allocated on this rank."""
        return self.shared_nbytes + sum(map(len, self._ordinary.values()))

    @property
    def shared_nbytes(self) -> int:
        """The bytes of these that are in shared memory, which tracemalloc does not count."""
        return sum(sum(area.parts[self.local_rank].taken.values()) for area in self.areas.values())

    def code(self, address: int, nbytes: int) -> int:
        """The position of registered memory of this rank, for `address` on other ranks; -1 if it is not registered."""
        for start, end, shift in self._spans:
            if start <= address and address + nbytes <= end:
                return address + shift
        return -1

    def address(self, local_rank: int, code: int) -> int:
        """The address, in this process, of memory of the rank with this local rank that has this code."""
        return code + self._shifts[code >> AREA][local_rank]

    def _note_spans(self) -> None:
        firsts = [(area, number << AREA) for number, area in self.areas.items()]
        self._spans = [(area.start, area.end, first - area.start) for area, first in firsts]
        self._shifts = {first >> AREA: [start - first for start in area.starts] for area, first in firsts}
        if self.mapped:
            none = [0] * len(self.here)
            shifts = [self._shifts.get(number, none) for number in range(max(self._shifts, default=-1) + 1)]
            self.mapped.set(np.array(self._spans, np.int64), np.array(shifts, np.int64))


_TAG = 0  # of its messages; collectives have other tags


def _missing(comm: MPI.Intracomm) -> str:
    return f"rank {comm.rank} waits, because at least one of the {comm.size} ranks has not called it"
