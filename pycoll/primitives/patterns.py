"""Communication patterns that the algorithms of several primitives share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

from ..schedule.moves import AFTER, BEFORE, Block, Blocks, Move, Recv, Reduce, Round, Schedule, Send
from .rank_arithmetic import Grid, Lanes, TreeNode, divisions


def in_parallel(*columns: Sequence[Move | None]) -> Schedule:
    """Generate rounds from columns of moves that run in parallel; None leaves a gap."""
    for moves in zip_longest(*columns):
        if present := tuple(move for move in moves if move is not None):
            yield present


def one_to_all(rank: int, size: int, root: int, blocks: Blocks) -> Schedule:
    """The root sends the same blocks to each rank in turn."""
    if rank != root:
        yield (Recv(root, blocks),)
        return
    for peer in range(size):
        if peer != root:
            yield (Send(peer, blocks),)


def broadcast_down(node: TreeNode, blocks: Blocks) -> Schedule:
    """Broadcast: each rank of a tree forwards the blocks to its children."""
    if node.parent is not None:
        yield (Recv(node.parent, blocks),)
    for level in node.levels:
        yield tuple(Send(child, blocks) for child, _ in level)


def reduce_up(node: TreeNode, rank: int, blocks: Blocks) -> Schedule:
    """Reduce: each rank of a tree combines the blocks of its children, the nearest ranks first, with its own."""
    for level in reversed(node.levels):
        children = sorted((child for child, _ in level), key=lambda child: abs(child - rank))
        yield tuple(Reduce(child, blocks, AFTER if child > rank else BEFORE) for child in children)
    if node.parent is not None:
        yield (Send(node.parent, blocks),)


def scatter_down(node: TreeNode) -> Schedule:
    """Scatter: each rank of a tree sends its children the blocks of their subtrees."""
    if node.parent is not None:
        yield (Recv(node.parent, node.subtree),)
    for level in node.levels:
        yield tuple(Send(child, ranks) for child, ranks in level)


def gather_up(node: TreeNode) -> Schedule:
    """Gather: each rank of a tree collects the blocks of its subtree and sends them to its parent."""
    for level in reversed(node.levels):
        yield tuple(Recv(child, ranks) for child, ranks in level)
    if node.parent is not None:
        yield (Send(node.parent, node.subtree),)


def reversed_allgather(rounds: Schedule) -> Schedule:
    """Reduce-scatter: the rounds of an all-gather in reverse order; what a rank received, it now sends.

    The all-gather must not send a block twice to the same rank.  The result is for commutative operations only.
    """
    for moves in reversed(list(rounds)):
        yield (
            *(Send(move.source, move.blocks) for move in moves if isinstance(move, Recv)),
            *(Reduce(move.to, move.blocks) for move in moves if isinstance(move, Send)),
        )


def grid_allgather(grid: Grid, blocks: Callable[[range], Blocks]) -> Schedule:
    """All-gather: a ring in each dimension of a grid; `blocks` returns the blocks of some positions."""
    for level, count in enumerate(grid.sizes):
        right, left = grid.neighbor(level, 1), grid.neighbor(level, -1)
        for step in range(count - 1):
            sent, received = (grid.lane(level, grid.here[level] - step - late) for late in (0, 1))
            yield Send(right, blocks(sent)), Recv(left, blocks(received))


def recursive_multiplying(rank: int, size: int, k: int) -> Schedule:
    """All-gather: k parts of the ranks, in which every rank has all blocks of its part, exchange their blocks."""
    for level in reversed(divisions(rank, size, k)):
        yield (*(Send(to, level.mine) for to in level.targets), *(Recv(source, part) for part, source in level.others))


def pat(rank: int, size: int, k: int) -> Schedule:
    """All-gather: the block of each rank goes down a binomial tree; a message has at most k blocks.

    Offset o stands for the block of the rank o places below, which comes from the distance of the lowest set bit of o.
    The first rounds halve the distance and double the number of blocks, until a rank holds k of them.  Each later round
    sends the next offset below all of these blocks at once, depth first.
    """

    def exchange(away: int, offsets: list[int]) -> Round:
        below, above = (rank - away) % size, (rank + away) % size
        return (
            Send(above, [(above - o) % size for o in offsets]),
            Recv(below, [(rank - o) % size for o in offsets]),
        )

    depth = (-(-size // k) - 1).bit_length()
    held = [0]
    for bit in reversed(range(depth, (size - 1).bit_length())):
        coming = [o + (1 << bit) for o in held if o + (1 << bit) < size]
        yield exchange(1 << bit, coming)
        held += coming
    for more in range(1, min(1 << depth, size)):
        yield exchange(more & -more, [o + more for o in held if o + more < size])


def trivance(rank: int, size: int) -> Schedule:
    """All-gather: each round exchanges blocks with two ranks, at the same distance on both sides.

    Offset o stands for the block of the rank o places above.  The distances are powers of three, the largest first, and
    all offsets are sums of some of them, added or subtracted.  If a rank needs other blocks from one side than from the
    other one, because some are there already, the two sides take turns.
    """
    held, distances = [0], [1]
    while 3 * distances[-1] < size:
        distances.append(3 * distances[-1])
    for distance in reversed(distances):
        before, sides = list(held), []
        for away in (distance, -distance):
            new = [offset for offset in before if (offset + away) % size not in held]
            held += [(offset + away) % size for offset in new]
            sides.append((away, new))
        exchanges = [_exchange(rank, size, away, new) for away, new in sides if new]
        yield from [sum(exchanges, ())] if len(exchanges) > 1 and sides[0][1] == sides[1][1] else exchanges


def _exchange(rank: int, size: int, away: int, offsets: list[int]) -> Round:
    """Receive from the rank `away` places above its blocks at some offsets, and send those of this rank below."""
    below, above = (rank - away) % size, (rank + away) % size
    return (
        Send(below, [(rank + offset) % size for offset in offsets]),
        Recv(above, [(above + offset) % size for offset in offsets]),
    )


def bruck_between(lanes: Lanes, part: Callable[[int], Sequence[Block]]) -> Schedule:
    """All-gather between the hosts of a lane, as `allgather.bruck`; `part` returns the blocks of a host."""
    if not lanes.inside:
        return
    held, count = 1, len(lanes.hosts)
    while held < count:
        below, above = ((lanes.host + step) % count for step in (-held, held))
        numbers = range(min(held, count - held))
        yield (
            Send(lanes.hosts[below][lanes.lane], [block for i in numbers for block in part((lanes.host + i) % count)]),
            Recv(lanes.hosts[above][lanes.lane], [block for i in numbers for block in part((above + i) % count)]),
        )
        held *= 2


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
            moves.append(Recv(lanes.here[source], part(source, lanes.here[lanes.local_rank])))
        if moves:
            yield tuple(moves)


def gather_beside(lanes: Lanes, rank: int) -> Schedule:
    """The ranks that are assigned to a lane send their blocks to the rank in the lane."""
    first, *beside = lanes.ranks(lanes.host, lanes.lane)
    if rank in beside:
        yield (Send(first, [rank]),)
    elif beside:
        yield tuple(Recv(other, [other]) for other in beside)


def scatter_beside(lanes: Lanes, rank: int, blocks: Callable[[int], Sequence[Block]]) -> Schedule:
    """The rank in a lane sends `blocks` of the ranks that are assigned to the lane to them."""
    first, *beside = lanes.ranks(lanes.host, lanes.lane)
    if rank in beside:
        yield (Recv(first, blocks(rank)),)
    elif beside:
        yield tuple(Send(other, blocks(other)) for other in beside)
