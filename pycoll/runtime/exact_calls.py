"""Calls with ``op="exact_sum"``: all contributions to a block meet on one rank, which rounds their sum once.

So an all-reduce is an all-to-all of blocks, the sum of the blocks that have arrived, and an all-gather of the results.
It sends as many bytes as a ring, and its result depends on nothing but the contributions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import core
from ..arguments.exact_sum import ExactSum
from ..arguments.memory import is_host
from ..base import settings
from ..schedule.registry import find
from .calls import Call, Prepared
from .channel import Channel
from .executable import Executable
from .front import NUMBERS
from .requests import NOTHING

# how the results reach the ranks that want them; a reduce-scatter is complete without
_DELIVERED = {"allreduce": "allgather", "reduce": "gather", "scan": "alltoall", "exscan": "alltoall"}


@dataclass(eq=False, repr=False)
class ExactCall(Prepared):
    """A reduction that consists of calls which move blocks, and of the sums between them."""

    algorithm: str | None = None
    prepare: Callable[[Call, Channel], Prepared] | None = None  # of `dispatch`, which imports this
    blocking: Callable[[Call, Channel], Any] | None = None  # its `run`

    def check(self) -> None:
        """Raise an error if the calls are not possible."""
        if not all(map(is_host, (self.buffers.send, self.buffers.recv))):
            raise TypeError("op=EXACT_SUM supports only buffers in host memory")
        if self.algorithm is not None:
            for primitive in ("alltoall", *filter(None, [_DELIVERED.get(self._primitive)])):
                find(primitive, self.algorithm)

    @property
    def _primitive(self) -> str:
        return self.key.algorithm.primitive.name

    @property
    def simple(self) -> bool:
        return False

    @property
    def waits_inside(self) -> bool:
        return self.bind.form == "blocking" and not self.by_reference

    def openings(self) -> Iterator[Executable]:
        if not self.waits_inside:
            yield from super().openings()
        elif settings.CHECK:
            self.task(super().openings).run()

    def executable(self) -> Executable:
        """Nothing that could be made once: each part depends on the one before it."""
        return NOTHING

    def _between(self, executable: Callable[[], Executable]) -> Iterator[Any]:
        """The calls, and the sums between them."""
        buffers = self.buffers
        source = buffers.recv if buffers.send is None else buffers.send
        assert source is not None
        mine = _in_blocks(source.reshape(-1), self._counts(source.size))
        theirs = np.empty(mine.shape, mine.dtype)
        yield from self._call("alltoall", mine, theirs)
        recvbuf = None if self._primitive == "exscan" and self.key.rank == 0 else buffers.recv
        target = None if recvbuf is None else recvbuf.reshape(-1)
        if self._primitive == "reduce_scatter":
            assert target is not None
            target[: buffers.count] = _total(theirs)[: buffers.count]
            return
        prefixes = self._primitive in ("scan", "exscan")
        results = _prefixes(theirs, self._primitive == "scan") if prefixes else _total(theirs)
        shares = None  # on ranks that want no result
        if target is not None:
            shares = target.reshape(mine.shape) if target.size == mine.size else np.empty(mine.shape, mine.dtype)
        elif prefixes:
            shares = np.empty(mine.shape, mine.dtype)  # of rank 0, which takes part
        yield from self._call(_DELIVERED[self._primitive], results, shares)
        if target is not None and shares is not None and target.size != mine.size:
            target[...] = shares.reshape(-1)[: target.size]

    def _counts(self, elements: int) -> list[int]:
        """The number of elements in the block of each rank."""
        size, sends = self.key.size, self.buffers.sends
        if sends:
            return [nbytes // self.buffers.dtype.itemsize for _, nbytes in sends]
        length = -(-elements // size)
        return [max(0, min(length, elements - rank * length)) for rank in range(size)]

    def _call(self, primitive: str, sendbuf: Any, recvbuf: Any) -> Iterator[Executable]:
        """The parts of a call, in which messages have the tag of this one; none if it is blocking, and runs here."""
        root, form = self.key.root if primitive == "gather" else 0, self.bind.form
        call = Call(primitive, self.channel.comm, sendbuf, recvbuf, None, root, self.algorithm, form=form)
        assert self.prepare and self.blocking
        if self.waits_inside:
            given = NUMBERS[primitive, False], self.algorithm, sendbuf, recvbuf, None, root
            if self.channel.front.call(*given) is core.MISSED:
                self.blocking(call, self.channel)
            return
        prepared = self.prepare(call, self.channel)
        prepared.bind = self.bind
        yield from prepared.body(prepared.executable)


def _in_blocks(vector: np.ndarray, counts: list[int]) -> np.ndarray:
    """A vector with a row for the block of each rank, as long as the longest one; a copy if blocks differ."""
    if len(vector) == len(counts) * counts[0]:
        return vector.reshape(len(counts), counts[0])
    rows, start = np.zeros((len(counts), max(counts)), vector.dtype), 0
    for row, count in zip(rows, counts):
        row[:count] = vector[start : start + count]
        start += count
    return rows


def _total(rows: np.ndarray) -> np.ndarray:
    total = ExactSum()
    for row in rows:
        total.add(row)
    return total.result()


def _prefixes(rows: np.ndarray, inclusive: bool) -> np.ndarray:
    """For each rank the sum of the rows up to its own, or of those before."""
    results, total = np.zeros_like(rows), ExactSum()
    for rank, row in enumerate(rows):
        if rank and not inclusive:
            results[rank] = total.result()
        total.add(row)
        if inclusive:
            results[rank] = total.result()
    return results
