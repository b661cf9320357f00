"""What two-level algorithms do inside each host, all ranks of it with each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..schedule import Block, Move, Recv, Reduce, Schedule, Send
from .topology import Lanes


def inside_reduce_scatter(lanes: Lanes, part: Callable[[int], Sequence[Block]]) -> Schedule:
    """Each rank in a lane ends with the host's sum of that lane's blocks: pairwise exchange."""
    for to, source in lanes.pairs():
        moves: list[Move] = []
        if to < lanes.count:
            moves.append(Send(lanes.here[to], part(to)))
        if lanes.inside:
            moves.append(Reduce(lanes.here[source], part(lanes.lane)))
        if moves:
            yield tuple(moves)


def inside_allgather(lanes: Lanes, part: Callable[[int, int], Sequence[Block]]) -> Schedule:
    """Each rank in a lane gives that lane's blocks, those for a rank, to all others of its host."""
    for to, source in lanes.pairs():
        moves: list[Move] = []
        if lanes.inside:
            moves.append(Send(lanes.here[to], part(lanes.lane, lanes.here[to])))
        if source < lanes.count:
            moves.append(Recv(lanes.here[source], part(source, lanes.here[lanes.place])))
        if moves:
            yield tuple(moves)
