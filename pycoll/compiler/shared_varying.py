"""Programs for registered buffers with blocks of different lengths, if a rank knows only the places of its own blocks.

The program of a rank copies blocks between its own buffers and blocks of other ranks.  The address of such a block is
the address of a peer buffer; the ranks exchange the places of their blocks in each call.  Blocks are copied by the rank
that gets them; in a gather, by the ranks that send them, so that they are copied at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ..schedule.registry import Primitive
from .blocks import Extents, ProgramKey
from .program import INPUT, OUTPUT, RECV, SCRATCH, SEND, CopyBytes, Program, Region, peer_buffer
from .shared import SharedProgram, has_shared_programs
from .storage import ALIGNMENT


def has_varying_programs(primitive: Primitive) -> bool:
    """Return whether there are such programs, because ranks do not know the lengths of the blocks of others."""
    return primitive.varies and not has_shared_programs(primitive)


def accessed(primitive: Primitive) -> int:
    """Return which buffer other ranks access: INPUT, from which they read, or OUTPUT, to which they write."""
    return OUTPUT if primitive.name == "gatherv" else INPUT


def blocks_by_rank(key: ProgramKey) -> tuple[Extents, Extents]:
    """Return the places of the blocks for each rank in the input, and of those from each rank in the output."""
    sends, recvs = key.sends or (), key.recvs or ()
    primitive = key.algorithm.primitive
    if key.in_place and primitive.rooted:  # the block of the root stays where it is
        sends, recvs = (sends, (sends[key.root],)) if primitive.takes_all else ((recvs[key.root],), recvs)
    return _by_rank(key, sends), _by_rank(key, recvs)


def _by_rank(key: ProgramKey, places: Extents) -> Extents:
    """Return a place for each rank; a single one is for the root."""
    if len(places) == key.size:
        return places
    return tuple(places[0] if places and rank == key.root else (0, 0) for rank in range(key.size))


@lru_cache(maxsize=512)
def shared_varying(key: ProgramKey) -> SharedProgram:
    """Return the program of one rank; which buffers must be registered depends on the lengths on all ranks."""
    own = (Region(SEND, *blocks_by_rank(key)[0][key.rank]), Region(RECV, *blocks_by_rank(key)[1][key.rank]))
    copies = [] if key.in_place or not own[1].size else [CopyBytes(*own)]
    copies += _copies(key)
    after: list[CopyBytes] = []
    scratch = 0
    if key.in_place and not key.algorithm.primitive.rooted:  # others read the blocks that are replaced
        for i, (source, to) in enumerate(copies):
            place = Region(SCRATCH, scratch, to.size)
            copies[i], scratch = CopyBytes(source, place), scratch + to.size + -to.size % ALIGNMENT
            after.append(CopyBytes(place, to))
    name = str(key.algorithm)
    return SharedProgram(Program([*copies], [], scratch, name), Program([*after], [], scratch, name), ())


def _copies(key: ProgramKey) -> Iterator[CopyBytes]:
    """Yield the copies from or to other ranks, which begin with the next rank, so that ranks access different ones."""
    which = accessed(key.algorithm.primitive)
    sends, recvs = blocks_by_rank(key)
    for peer in (*range(key.rank + 1, key.size), *range(key.rank)):
        mine = Region(SEND, *sends[peer]) if which == OUTPUT else Region(RECV, *recvs[peer])
        theirs = Region(peer_buffer(peer, which), 0, mine.size)
        if mine.size:
            yield CopyBytes(mine, theirs) if which == OUTPUT else CopyBytes(theirs, mine)
