"""All-reduce: the ranks' vectors are combined element by element; every rank gets the result."""

from __future__ import annotations

from ..schedule.moves import AFTER, BEFORE, Combine, Copy, Move, Recv, Reduce, Schedule, Send
from ..schedule.registry import Hosts, algorithm, per_lane_and_host, per_rank, two_per_segment
from . import allgather, bcast, reduce, reduce_scatter
from .patterns import inside_allgather, inside_reduce_scatter
from .topology import Lanes, depth, halvings, inorder


@algorithm()
def naive(rank: int, size: int) -> Schedule:
    """Reduce to rank 0, then broadcast from it, both naive: what a parameter server does.

    Rounds: 2*(p-1)
    Messages: p-1
    Sent: (p-1)*Z
    Received: (p-1)*Z
    Cost: 2*(p-1)*alpha + 2*(p-1)*Z*beta + (p-1)*Z*gamma
    Limits: rank 0's link carries (p-1)*Z in each direction.
    Source: the definition of MPI_Allreduce in the MPI standard.
    """
    yield from reduce.naive(rank, size, 0)
    yield from bcast.naive(rank, size, 0)


@algorithm()
def tree(rank: int, size: int) -> Schedule:
    """A binomial reduce to rank 0, then a binomial broadcast from it.

    Rounds: 2*lg(p)
    Messages: lg(p)
    Sent: lg(p)*Z
    Received: lg(p)*Z
    Cost: 2*lg(p)*alpha + 2*lg(p)*Z*beta + lg(p)*Z*gamma
    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
    """
    yield from reduce.tree(rank, size, 0)
    yield from bcast.tree(rank, size, 0)


@algorithm(cut=per_rank, ordered=False)
def ring(rank: int, size: int) -> Schedule:
    """A ring reduce-scatter, then a ring all-gather: the least bytes any all-reduce can send.

    Rounds: 2*(p-1)
    Messages: 2*(p-1)
    Sent: 2*(p-1)/p*Z
    Received: 2*(p-1)/p*Z
    Cost: 2*(p-1)*alpha + 2*(p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Limits: commutative operations; best for long vectors.
    Source: Patarasuk and Yuan, JPDC 69 (2009).
    """
    yield from reduce_scatter.ring(rank, size)
    yield from allgather.ring(rank, size)


@algorithm()
def recursive_doubling(rank: int, size: int) -> Schedule:
    """Halves that hold their own result exchange it; all combine the lower half's with the upper's.

    Rounds: lg(p)
    Messages: lg(p); at most lg(p)+1
    Sent: lg(p)*Z; at most (lg(p)+1)*Z
    Received: lg(p)*Z
    Cost: lg(p)*alpha + lg(p)*Z*beta + lg(p)*Z*gamma;
        at most (2*lg(p)-1)*alpha + (2*lg(p)-1)*Z*beta + lg(p)*Z*gamma
    Limits: best for short vectors; any number of ranks, without the usual two extra rounds.
    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005), with uneven halves.
    """
    for level in reversed(halvings(rank, size)):
        order = AFTER if level.mine[0] < level.other[0] else BEFORE
        yield (*(Send(to, [0]) for to in level.targets), Reduce(level.source, [0], order))


@algorithm(cut=per_rank, ordered=False)
def rabenseifner(rank: int, size: int) -> Schedule:
    """Reduce-scatter by recursive halving, then all-gather by recursive doubling.

    Rounds: 2*lg(p)
    Messages: 2*lg(p); at most 2*lg(p)+1
    Sent: 2*(p-1)/p*Z; at most 8/3*(p-1)/p*Z
    Received: 2*(p-1)/p*Z; at most 8/3*(p-1)/p*Z
    Cost: 2*lg(p)*alpha + 2*(p-1)/p*Z*beta + (p-1)/p*Z*gamma;
        at most (4*lg(p)-2)*alpha + 4*(p-1)/p*Z*beta + 2*(p-1)/p*Z*gamma
    Limits: commutative operations.
    Source: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004.
    """
    yield from reduce_scatter.recursive_halving(rank, size)
    yield from allgather.tree(rank, size)


@algorithm(cut=two_per_segment)
def double_tree(rank: int, size: int, segments: int) -> Schedule:
    """Two pipelined binary trees, each for half the vector; a rank that is inner in one is a leaf in the other.

    Rounds: 2*lg(p)+S-1
    Messages: at most 4*S
    Sent: at most 2*Z
    Received: at most 2*Z
    Cost: at most (2*lg(p)+S-1)*4*alpha + (2*lg(p)+S-1)/S*2*Z*beta + (lg(p)+S)/S*3/2*Z*gamma
    Limits: best for vectors of middling length on many ranks.
    Source: Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and
        scan", Parallel Computing 35 (2009).  One tree is that of NCCL (ncclGetBtree), the other the same
        tree shifted by one rank.
    """
    if size == 1:
        return
    trees = [_Tree(rank + 1, size + 1, rootless=True), _Tree(rank, size, rootless=False)]
    for step in range(2 * trees[1].height + segments):
        moves = [move for k, side in enumerate(trees) for move in side.moves(step, segments, k)]
        if moves:
            yield tuple(moves)


class _Tree:
    """One rank's view of one of the two trees: what moves in which step."""

    def __init__(self, index: int, size: int, rootless: bool) -> None:
        # without node 0 the nodes 1, 2, ... are ranks 0, 1, ... and every level is one higher up
        shift = 1 if rootless else 0
        parent, left, right = inorder(index, size)
        self.parents = [parent - shift] if parent is not None and parent >= shift else []
        self.children = [
            (child - shift, order) for child, order in ((left, BEFORE), (right, AFTER)) if child is not None
        ]
        self.depth = depth(index, size) - shift
        self.height = (size - 1).bit_length() - shift

    def moves(self, step: int, segments: int, k: int) -> list[Move]:
        """Segment s leaves depth d upwards in step height - d + s, and downwards in height + d + s."""

        def block(first: int) -> list[int]:
            """The one block that moves in this step, if it moves in step `first` + s; else none."""
            return [2 * (step - first) + k] if 0 <= step - first < segments else []

        up, down = self.height - self.depth, self.height + self.depth
        moves: list[Move] = [Reduce(child, block(up - 1), order) for child, order in self.children]
        moves += [Send(parent, block(up)) for parent in self.parents]
        moves += [Recv(parent, block(down - 1)) for parent in self.parents]
        moves += [Send(child, block(down)) for child, _ in self.children]
        return [move for move in moves if move[1]]


@algorithm(cut=per_lane_and_host, ordered=False)
def two_level(rank: int, size: int, hosts: Hosts) -> Schedule:
    """Reduce-scatter inside each host, rings between the hosts side by side, all-gather inside each host.

    Rounds: 2*(h-1) + 2*(p/h-1)
    Messages: 2*(h-1) + 2*(p/h-1)
    Sent: 2*(p-1)/p*Z
    Received: 2*(p-1)/p*Z
    Cost: 2*(h+p/h-2)*alpha + 2*(p-1)/p*Z*beta + (p-1)/p*Z*gamma
    Limits: commutative operations.  Formulas are for as many ranks on each of h hosts; a host's link then carries
        2*(h-1)/h*Z in each direction, the least that it can, whatever the order of ranks.
    Source: Hierarchical rings as in Jia et al., "Highly scalable deep learning training system with mixed-precision",
        2018, with a ring for each rank of a host as in Cho et al., "BlueConnect", SysML 2019.
    """
    lanes = Lanes(rank, size, hosts)
    count = len(lanes.hosts)

    def part(lane: int) -> range:
        return range(lane * count, (lane + 1) * count)

    yield from inside_reduce_scatter(lanes, part)
    if lanes.inside:
        right, left = lanes.ring()
        mine = part(lanes.lane)
        for step in range(1, count):
            yield Send(right, [mine[lanes.host - step]]), Reduce(left, [mine[lanes.host - step - 1]])
        for step in range(count - 1):
            yield Send(right, [mine[lanes.host - step]]), Recv(left, [mine[lanes.host - step - 1]])
    yield from inside_allgather(lanes, lambda lane, to: part(lane))


@algorithm()
def ring_whole(rank: int, size: int) -> Schedule:
    """Uncut vectors go once round the ring, and every rank combines them all, in rank order.

    It answers, in numbers, why gradients are cut: compare its Sent with `ring`'s.

    Rounds: p-1
    Messages: p-1
    Sent: (p-1)*Z
    Received: (p-1)*Z
    Cost: (p-1)*alpha + (p-1)*Z*beta + (p-1)*Z*gamma
    Limits: (p-1)*Z of scratch, since all ranks must combine in the same order to end with the same bits.
    Source: ring all-gather (see `allgather.ring`) of whole vectors; the textbook's "naive ring".
    """
    right, left = (rank + 1) % size, (rank - 1) % size
    yield (Copy(0, (rank, 0)),)
    for step in range(size - 1):
        yield Send(right, [((rank - step) % size, 0)]), Recv(left, [((rank - step - 1) % size, 0)])
    yield (Copy((0, 0), 0),)
    for source in range(1, size):
        yield (Combine((source, 0), 0, AFTER),)
