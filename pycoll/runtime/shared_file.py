"""A file in shared memory without a name, with a part for each rank of a host.

A file without a name is gone when the last process that uses it ends: nothing is left behind by ranks that are killed,
whenever that happens.  One rank creates the file, and hands its descriptor to the other ranks over sockets.  These also
have no names in the file system, and connect ranks in different containers, if they share their network.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

from ..base import settings

SHARED = Path("/dev/shm")  # a file system in memory, on Linux
NUMBERS = 32  # of a row: the random bytes of the name of a socket, and of the proof that its message is from a rank


class SharedFile:
    """The file, as the rank in this place creates, receives and maps it in `steps`.

    The ranks run each step together, and exchange the numbers `row` before the next one, which gets the rows of all.
    A step raises OSError if this rank cannot share memory.
    """

    def __init__(self, sizes: Sequence[int], place: int) -> None:
        self._place = place
        self._ends = list(accumulate(size + -size % mmap.PAGESIZE for size in sizes))
        self.row = list(os.urandom(NUMBERS))
        self.parts: list[memoryview] = []  # of all ranks, as they are mapped here
        self._file: int | None = None
        self._socket: socket.socket | None = None

    @property
    def steps(self) -> tuple[Callable[[Sequence[Sequence[int]]], None], ...]:
        """The steps, in order; not an attribute, which would refer to this object and keep its memory."""
        return self._create, self._hand_over, self._reserve, self._map

    def close(self) -> None:
        """Close the descriptors; the parts stay mapped."""
        if self._file is not None:
            os.close(self._file)
        if self._socket:
            self._socket.close()

    def _create(self, rows: Sequence[Sequence[int]]) -> None:
        if not settings.REGISTERED:
            raise PermissionError("PYCOLL_REGISTERED is 0")
        if sys.platform != "linux":
            raise OSError("only Linux has files without names")
        if self._place == 0:
            self._file = os.open(SHARED, os.O_TMPFILE | os.O_RDWR, 0o600)
        else:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            self._socket.bind(_name(self.row))

    def _hand_over(self, rows: Sequence[Sequence[int]]) -> None:
        if self._file is None:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            for row in rows[1:]:
                content = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", self._file))]
                sender.sendmsg([_proof(row)], content, 0, _name(row))

    def _reserve(self, rows: Sequence[Sequence[int]]) -> None:
        """Reserve the part of this rank, with its pages near this rank."""
        while self._socket and self._file is None:  # other users could send messages too
            proof, files, _, _ = socket.recv_fds(self._socket, NUMBERS, 1)
            if proof == _proof(self.row) and files:
                self._file = files[0]
            else:
                for file in files:
                    os.close(file)
        assert self._file is not None
        start = self._ends[self._place - 1] if self._place else 0
        os.posix_fallocate(self._file, start, self._ends[self._place] - start)

    def _map(self, rows: Sequence[Sequence[int]]) -> None:
        assert self._file is not None
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        whole = memoryview(mmap.mmap(self._file, self._ends[-1], flags=flags))
        self.parts = [whole[start:end] for start, end in zip([0, *self._ends], self._ends)]


def _name(row: Sequence[int]) -> bytes:
    return b"\0pycoll-" + bytes(row[: NUMBERS // 2]).hex().encode()


def _proof(row: Sequence[int]) -> bytes:
    return bytes(row[NUMBERS // 2 :])
