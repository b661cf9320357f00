"""Schedules from searches: a reduce-scatter is an all-gather on the reversed links, backwards in time."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

from ..base.links import Links, reversed_links
from ..schedule.moves import Move, Recv, Reduce, Round, Send
from ..schedule.registry import Primitive
from .search import EQUAL, NO_LIMIT, Rounds, reversed_in_time, spread


class SearchProblem(NamedTuple):
    """What is searched for: a collective on these links, with the vector cut into `parts` blocks of `nbytes` bytes."""

    primitive: Primitive
    links: Links
    ranks: int
    parts: int
    nbytes: float
    root: int
    gamma: float  # the seconds per byte combined

    def rounds(self, duration: float, seed: int) -> list[list[Round]] | None:
        """Return the rounds of each rank; None if links that are fast enough do not connect the ranks."""
        owners = np.arange(self.parts) * self.ranks // self.parts
        if self.primitive.rooted:
            owners[:] = self.root
        held = owners == np.arange(self.ranks)[:, None]
        found: list[list[Round]] = [[] for _ in range(self.ranks)]
        if self.primitive.reduces:
            combining = self.gamma * self.nbytes
            most = max(1, int(min(duration / combining / EQUAL, NO_LIMIT))) if combining else NO_LIMIT
            back = spread(reversed_links(self.links), held, self.nbytes, duration, seed, most)
            if back is None:
                return None
            _add(found, reversed_in_time(back), Reduce)
        if not self.primitive.takes_all:
            forward = spread(self.links, held, self.nbytes, duration, seed)
            if forward is None:
                return None
            _add(found, forward, Recv)
        return found


def _add(found: list[list[Round]], rounds: Rounds, kind: type[Recv] | type[Reduce]) -> None:
    """Append rounds to those of each rank, without the ones in which a rank does nothing.

    The blocks that pass a link in a round are one message.  But a block that a rank receives from several others in one
    round is a message of its own, because moves that write a block must write the same list of blocks.
    """
    for transfers in rounds:
        copies = Counter((to, block) for _, to, block in transfers)
        messages: defaultdict[tuple[int, int, int | None], list[int]] = defaultdict(list)
        for source, to, block in transfers:
            messages[source, to, block if copies[to, block] > 1 else None].append(block)
        moves: defaultdict[int, list[Move]] = defaultdict(list)
        for (source, to, _), blocks in messages.items():
            moves[source].append(Send(to, blocks))
            moves[to].append(kind(source, blocks))
        for rank, each in moves.items():
            found[rank].append(tuple(each))
