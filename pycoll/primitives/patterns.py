"""Communication patterns that the algorithms of several primitives share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..schedule.moves import AFTER, BEFORE, Block, Blocks, Move, Recv, Reduce, Schedule, Send
from .topology import Lanes, Node, halvings


def one_to_all(rank: int, size: int, root: int, blocks: Blocks) -> Schedule:
    """The root sends the same blocks to each rank in turn."""
    if rank != root:
        yield (Recv(root, blocks),)
        return
    for peer in range(size):
        if peer != root:
            yield (Send(peer, blocks),)


def broadcast_down(node: Node, blocks: Blocks) -> Schedule:
    """Broadcast: each rank of a tree forwards the blocks to its children."""
    if node.parent is not None:
        yield (Recv(node.parent, blocks),)
    for level in node.levels:
        yield tuple(Send(child, blocks) for child, _ in level)


def reduce_up(node: Node, rank: int, blocks: Blocks) -> Schedule:
    """Reduce: each rank of a tree combines the blocks of its children, the nearest ranks first, with its own."""
    for level in reversed(node.levels):
        children = sorted((child for child, _ in level), key=lambda child: abs(child - rank))
        yield tuple(Reduce(child, blocks, AFTER if child > rank else BEFORE) for child in children)
    if node.parent is not None:
        yield (Send(node.parent, blocks),)


def scatter_down(node: Node) -> Schedule:
    """Scatter: each rank of a tree sends its children the blocks of their subtrees."""
    if node.parent is not None:
        yield (Recv(node.parent, node.subtree),)
    for level in node.levels:
        yield tuple(Send(child, ranks) for child, ranks in level)


def gather_up(node: Node) -> Schedule:
    """Gather: each rank of a tree collects the blocks of its subtree and sends them to its parent."""
    for level in reversed(node.levels):
        yield tuple(Recv(child, ranks) for child, ranks in level)
    if node.parent is not None:
        yield (Send(node.parent, node.subtree),)


def recursive_halving(rank: int, size: int) -> Schedule:
    """Reduce-scatter: each round halves the set of ranks that exchange, and the set of blocks that a rank combines."""
    for level in halvings(rank, size):
        yield (Send(level.source, level.other), *(Reduce(target, level.mine) for target in level.targets))


def inside_reduce_scatter(lanes: Lanes, part: Callable[[int], Sequence[Block]]) -> Schedule:
    """Reduce-scatter inside a host, by pairwise exchange: the rank in a lane gets the sums of its blocks."""
    for to, source in lanes.pairs():
        moves: list[Move] = []
        if to < lanes.count:
            moves.append(Send(lanes.here[to], part(to)))
        if lanes.inside:
            moves.append(Reduce(lanes.here[source], part(lanes.lane)))
        if moves:
            yield tuple(moves)


def inside_allgather(lanes: Lanes, part: Callable[[int, int], Sequence[Block]]) -> Schedule:
    """All-gather inside a host: each rank in a lane sends the blocks of that lane to all other ranks of the host."""
    for to, source in lanes.pairs():
        moves: list[Move] = []
        if lanes.inside:
            moves.append(Send(lanes.here[to], part(lanes.lane, lanes.here[to])))
        if source < lanes.count:
            moves.append(Recv(lanes.here[source], part(source, lanes.here[lanes.place])))
        if moves:
            yield tuple(moves)
