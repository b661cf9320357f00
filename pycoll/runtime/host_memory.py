"""Memory of a host for communicators: parts of files, which processes lend.

The first rank of a communicator on its host lends it a part of one of its files.  The other ranks map each file once,
for all communicators.  A part is lent again when all ranks have left it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from functools import cache
from threading import Lock
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from .. import core
from ..selection.select import CommFacts
from . import shared_file
from .account import Account
from .progress import gathered

LEAST = 1 << 24  # bytes of a file, whose pages the system allocates when they are used
NOTHING = (-1, 0, shared_file.NOWHERE)  # what a rank tells that lends no memory
COMPARED = 62  # files of a process for which ranks tell in advance whether they have mapped them

_token = np.frombuffer(os.urandom(8), np.int64)
_lock = Lock()  # guards what follows
_files: list[_File] = []  # of this process
_left: list[Part] = []  # by this process, which has lent them
_mapped: dict[tuple[Process, int], memoryview] = {}  # files of other processes, by their numbers there


class Process(NamedTuple):
    """The process of a rank.

    Another process can copy all of its memory if it can copy the random number `token` from there.
    """

    number: int
    token: int
    address: int


@cache  # a forked process uses no communicators
def this_process() -> Process:
    """The process of this rank."""
    return Process(os.getpid(), int(_token[0]), _token.ctypes.data)


@cache
def _can_copy(process: Process) -> bool:
    return process == this_process() or core.copied(process.number, process.address) == process.token


class _File:
    """A file of this process."""

    def __init__(self, nbytes: int) -> None:
        file = shared_file.created(nbytes)  # stays open, because others open it by this descriptor
        try:
            self.memory, self.location = shared_file.mapped(file, nbytes), shared_file.where(file)
        except BaseException:
            os.close(file)
            raise
        self.account = Account(nbytes)


class Part:
    """Memory that is lent to a communicator, on whole pages.

    The ranks share `memory`.  Behind it, each of them has a flag, which it sets when it leaves.
    """

    __slots__ = ("_flags", "_local_rank", "_nbytes", "_whole", "file", "start")  # there may be thousands

    def __init__(self, file: int, whole: memoryview, start: int, nbytes: int, local_rank: int, count: int) -> None:
        self.file, self.start, self._whole, self._nbytes = file, start, whole, nbytes
        self._flags, self._local_rank = np.frombuffer(whole, np.uint8, count, start + nbytes), local_rank

    @property
    def memory(self) -> memoryview:
        """What the ranks share."""
        return self._whole[self.start : self.start + self._nbytes]

    @property
    def pages(self) -> memoryview:
        """All of it."""
        return self._whole[self.start : self.start + _in_pages(self._nbytes + len(self._flags))]

    def leave(self) -> None:
        """Note that this rank does not use the memory any more."""
        self._flags[self._local_rank] = 1
        if not self._local_rank:
            _left.append(self)

    def is_free(self) -> bool:
        """Whether all ranks have left."""
        return bool(self._flags.all())


def lent_by_first(
    comm: MPI.Intracomm, facts: CommFacts, processes: Sequence[Process], usable: bool, nbytes: int
) -> tuple[Part | None, bool]:
    """The memory of this host for a communicator, and whether its ranks can copy each other's memory.

    All ranks call this together.  The memory is None if a rank of this host is not `usable`, or cannot map it.
    """
    here, what = facts.on_host_of(comm.rank), "opening the memory that the ranks of a host share"
    local_rank = here.index(comm.rank)
    first, neighbor = processes[here[0]], processes[here[local_rank - 1]]
    lends = usable and not local_rank
    number, start, location = _lend(nbytes + len(here)) if lends else NOTHING
    known = sum(1 << each for owner, each in list(_mapped) if owner == first and each < COMPARED) if local_rank else -1
    mine = [usable, usable and _can_copy(neighbor), known, number, start, *location]
    rows = gathered(comm, mine, what).tolist()
    number, start, *location = rows[here[0]][3:]
    whole = _whole(first, number, location) if number >= 0 and all(rows[rank][0] for rank in here) else None
    if not all(_knows(row[2], rows[first][3]) for row, first in zip(rows, facts.firsts)):
        whole = whole if gathered(comm, [whole is not None], what)[here].all() else None
    if whole is None:
        if lends and number >= 0:
            with _lock:
                _files[number].account.give_back(start)
        return None, False
    return Part(number, whole, start, nbytes, local_rank, len(here)), all(rows[rank][1] for rank in here)


def _knows(known: int, number: int) -> bool:
    """Whether a rank has mapped the file of this number, so that the others know that it can; or there is none."""
    return number < 0 or bool(known >> min(number, COMPARED) & 1)  # this bit is set only in -1, which the lender tells


def _lend(nbytes: int) -> tuple[int, int, list[int]]:
    """The number of a file, the beginning of a part in it, and the location of the file; or NOTHING."""
    nbytes = _in_pages(nbytes)
    with _lock:
        for part in [part for part in _left if part.is_free()]:
            _left.remove(part)
            shared_file.clear(part.pages)
            _files[part.file].account.give_back(part.start)
        number = next((n for n, file in enumerate(_files) if file.account.hole(nbytes) is not None), len(_files))
        if number == len(_files):
            try:
                _files.append(_File(max(nbytes, LEAST, sum(len(file.memory) for file in _files))))  # so there are few
            except OSError:
                return NOTHING
        return number, _files[number].account.take(nbytes), _files[number].location


def _whole(first: Process, number: int, location: Sequence[int]) -> memoryview | None:
    """The memory of a file, which the first rank of a communicator on this host lends; None if it cannot be mapped."""
    if first == this_process():
        return _files[number].memory
    with _lock:
        if (first, number) not in _mapped:
            try:
                file = shared_file.opened(location)
                try:
                    _mapped[first, number] = shared_file.mapped(file, os.fstat(file).st_size)
                finally:
                    os.close(file)
            except OSError:  # for example, another container or another user
                return None
        return _mapped[first, number]


def _in_pages(nbytes: int) -> int:
    return nbytes + -nbytes % mmap.PAGESIZE
