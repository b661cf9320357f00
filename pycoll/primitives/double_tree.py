"""The two pipelined binary trees of `allreduce.double_tree`."""

from __future__ import annotations

from ..schedule.moves import AFTER, BEFORE, Move, Recv, Reduce, Schedule, Send
from .rank_arithmetic import depth, inorder


def two_trees(rank: int, size: int, segments: int) -> Schedule:
    """Combine and broadcast two parts of each segment, one in each tree."""
    if size == 1:
        return
    trees = [_Tree(rank + 1, size + 1, rootless=True), _Tree(rank, size, rootless=False)]
    for step in range(2 * trees[1].height + segments):
        moves = [move for number, tree in enumerate(trees) for move in tree.moves(step, segments, number)]
        if moves:
            yield tuple(moves)


class _Tree:
    """One of the two trees as one rank sees it: which blocks move in which step."""

    def __init__(self, index: int, size: int, rootless: bool) -> None:
        # without node 0, the nodes 1, 2, ... are ranks 0, 1, ..., and all depths decrease by one
        shift = 1 if rootless else 0
        parent, left, right = inorder(index, size)
        self.parents = [parent - shift] if parent is not None and parent >= shift else []
        self.children = [
            (child - shift, order) for child, order in ((left, BEFORE), (right, AFTER)) if child is not None
        ]
        self.depth = depth(index, size) - shift
        self.height = (size - 1).bit_length() - shift

    def moves(self, step: int, segments: int, number: int) -> list[Move]:
        """Return the moves of a step: segment s leaves depth d upwards in step height-d+s, downwards in height+d+s."""

        def block(first: int) -> list[int]:
            """Return the block that moves in this step, if segment s moves in step `first` + s."""
            return [2 * (step - first) + number] if 0 <= step - first < segments else []

        up, down = self.height - self.depth, self.height + self.depth
        moves: list[Move] = [Reduce(child, block(up - 1), order) for child, order in self.children]
        moves += [Send(parent, block(up)) for parent in self.parents]
        moves += [Recv(parent, block(down - 1)) for parent in self.parents]
        moves += [Send(child, block(down)) for child, _ in self.children]
        return [move for move in moves if move[1]]
