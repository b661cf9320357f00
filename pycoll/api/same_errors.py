"""Lets ranks that fail with the same error print it once.

A rank that fails tells ranks near it, in messages on the private communicator of pycoll.  The lowest of the ranks that
fail together prints the error, and then says so.  Another rank is silent only after this second message, so that no
error is lost.  No rank waits long.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Collection

from mpi4py import MPI

SOON = 0.1  # seconds in which ranks that fail together learn of each other
LATEST = 0.3  # seconds after which a rank prints its error in any case
REACH = 64  # the neighbors on each side to which a rank sends its error; they pass it on to ranks further away
_NAP = 1e-3  # seconds
_FAILED, _PRINTED, _LATE = b"f", b"p", b"l"


class SameError:
    """The error of this rank, and the ranks that have the same one.

    Parameters
    ----------
    comm : MPI.Intracomm
        The private communicator.
    text : str
        The error, as it is printed.
    tag : int
        A tag of no other messages.
    """

    def __init__(self, comm: MPI.Intracomm, text: str, tag: int) -> None:
        self._comm, self._tag, self.ranks = comm, tag, {comm.rank}
        self._digest = hashlib.blake2b(text.encode(errors="backslashreplace"), digest_size=16).digest()
        self._printed = self.late = False  # late: it was printed without this rank
        self._requests: list[MPI.Request] = []  # never completed: the job ends
        self._tell(_FAILED)

    def is_printed(self) -> bool:
        """Wait a moment; return whether another rank has printed the error."""
        begin = time.monotonic()
        while (passed := time.monotonic() - begin) < LATEST and not self._printed:
            self._listen()
            if passed > SOON and min(self.ranks) == self._comm.rank:
                break
            time.sleep(_NAP)
        if self._printed and self._comm.size > REACH + 1:  # pass it on
            self._tell(_PRINTED)
        return self._printed

    def printed(self) -> None:
        """Tell the other ranks that the error has been printed, with those in `ranks`."""
        self._tell(_LATE, self.ranks)

    def _tell(self, what: bytes, named: Collection[int] = ()) -> None:
        rank = self._comm.rank
        for peer in range(max(0, rank - REACH), min(self._comm.size, rank + REACH + 1)):
            if peer != rank:
                content = (_PRINTED if peer in named else what) + self._digest
                with contextlib.suppress(MPI.Exception):  # that rank may have died
                    self._requests.append(self._comm.Isend([content, MPI.BYTE], peer, self._tag))

    def _listen(self) -> None:
        status, content = MPI.Status(), bytearray(1 + len(self._digest))
        with contextlib.suppress(MPI.Exception):
            while message := self._comm.Improbe(MPI.ANY_SOURCE, self._tag, status):
                message.Recv([content, MPI.BYTE])
                if content[1:] == self._digest:
                    self.ranks.add(status.Get_source())
                    self._printed |= content[:1] != _FAILED
                    self.late |= content[:1] == _LATE
