"""The key of a program: everything that the program of one rank depends on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from ..schedule.hosts import Hosts
from ..schedule.registry import Algorithm

if TYPE_CHECKING:
    from ..schedule.neighbors import Neighbors

Extents = tuple[tuple[int, int], ...]  # (start, size) in bytes, for each block of a buffer


def side_by_side(sizes: Sequence[int]) -> Extents:
    """Return the extents of contiguous blocks of these sizes."""
    return tuple(zip(accumulate(sizes, initial=0), sizes))


class ProgramKey(NamedTuple):
    """Everything that the program of one rank depends on; addresses are not part of it.

    - `length`: the number of elements of the vector for bcast, reductions to vectors and scans, and of the block of one
      rank for all others; 0 if blocks differ in size;
    - `in_place`: the input is in the receive buffer; for scatter, the output stays in the send buffer of the root;
    - `segments`: the number of segments of a pipelined algorithm;
    - `longest`: the length of the longest message in bytes;
    - `sends`, `recvs`: the positions of input and output, if blocks differ in size;
    - `counts`: the bytes of blocks as other ranks sent them, row by row; between neighbors, a row is for the edges of a
      rank.  If the algorithm needs counts, a key without them is for the part that exchanges them;
    - `hosts`: the hosts of the ranks, if the algorithm depends on them;
    - `neighbors`: those of this rank, for a collective between neighbors.
    """

    algorithm: Algorithm
    rank: int
    size: int
    root: int
    length: int
    itemsize: int
    in_place: bool
    segments: int
    longest: int
    sends: Extents | None = None
    recvs: Extents | None = None
    counts: tuple[int, ...] | None = None
    hosts: Hosts = None
    neighbors: Neighbors | None = None

    @property
    def counts_missing(self) -> bool:
        """Whether this key is for the part in which the ranks exchange their counts."""
        return self.counts is None and self.algorithm.needs_counts and bool(self.count_rows)

    @property
    def count_rows(self) -> dict[int, int]:
        """The ranks that send their counts to this one, and how many counts each one has."""
        return self.algorithm.count_rows(self.rank, self.size, self.root, self.hosts, self.neighbors)

    def between(self, neighbors: Neighbors) -> ProgramKey:
        """Return the key for these neighbors, with blocks of this length side by side in both buffers."""
        nbytes, sent = self.length * self.itemsize, len(neighbors.outgoing)
        sends = side_by_side([nbytes] * sent) if self.algorithm.primitive.takes_all else ((0, nbytes),) * sent
        recvs = side_by_side([nbytes] * len(neighbors.incoming))
        return self._replace(neighbors=neighbors, sends=sends, recvs=recvs)

    def with_equal_counts(self) -> ProgramKey:
        """Return the key after the exchange of counts, if all blocks have the same length."""
        return self._replace(counts=(self.length * self.itemsize,) * sum(self.count_rows.values()))


def key_of(call: ProgramKey, rank: int) -> ProgramKey:
    """Return the key of another rank in the same call, for its layout.

    Both work in place, or neither.  With a root, only the root may, and only the root knows whether it does.
    """
    call = call._replace(rank=rank)
    if call.algorithm.primitive.name == "bcast":
        return call._replace(in_place=rank == call.root)
    if call.algorithm.primitive.rooted:
        return call._replace(in_place=call.in_place and rank == call.root)
    if call.algorithm.primitive.varies and call.recvs:  # allgatherv
        return call._replace(sends=call.recvs if call.in_place else ((0, call.recvs[rank][1]),))
    if call.sends:  # reduce-scatter with counts
        return call._replace(recvs=((0, call.sends[rank][1]),))
    return call


def longest_message(call: ProgramKey) -> int:
    """Return the length of the longest message in bytes; none ends in the middle of an element."""
    return max(1, call.longest // call.itemsize) * call.itemsize
