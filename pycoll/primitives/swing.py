"""Swing exchanges and Bine trees: partners at distances 1, -1, 3, -5, 11, ..., whose signs alternate.

In one dimension these distances keep the ranks of a group nearer to each other than powers of two do.  The distances
are sums of powers of -2, so groups of ranks have common digits in base -2.
"""

from __future__ import annotations

from ..schedule.moves import Recv, Schedule, Send
from .rank_arithmetic import TreeNode


def distance(step: int) -> int:
    """Return the distance in a step: (1 - (-2)**(step+1)) / 3.  Even ranks add it, odd ranks subtract it."""
    return int(1 - (-2) ** (step + 1)) // 3


def steps(size: int) -> int:
    """Return the number of steps: the logarithm of the number of ranks to base 2, rounded up."""
    return (size - 1).bit_length()


def swing_allgather(rank: int, size: int) -> Schedule:
    """All-gather on an even number of ranks: the farthest partners first; each block is received once.

    An even rank holds the blocks rank + o for the same offsets o as every other even rank; an odd rank holds rank - o.
    """
    sign = 1 if rank % 2 == 0 else -1
    held = [0]
    for step in reversed(range(steps(size))):
        away = distance(step)
        partner = (rank + sign * away) % size
        known = set(held)
        new = [offset for offset in ((away - o) % size for o in held) if offset not in known]
        yield (
            Send(partner, [(partner - sign * o) % size for o in new]),
            Recv(partner, [(rank + sign * o) % size for o in new]),
        )
        held += new


def bine_alltoall(rank: int, size: int) -> Schedule:
    """All-to-all on an even number of ranks: a block moves if the later partners cannot bring it to its destination.

    A pair (o, d) is the block from rank + o to rank + d if the rank that has it is even, otherwise from rank - o to
    rank - d; all ranks have the same pairs.
    """
    sign = 1 if rank % 2 == 0 else -1
    here = [(0, d) for d in range(1, size)]
    for step, within in enumerate(_reached_after(size)):
        away = distance(step)
        partner = (rank + sign * away) % size
        moving = [(o, d) for o, d in here if d not in within]
        yield (
            Send(partner, [((rank + sign * o) % size, (rank + sign * d) % size) for o, d in moving]),
            Recv(partner, [((partner - sign * o) % size, (partner - sign * d) % size) for o, d in moving]),
        )
        came = [((away - o) % size, (away - d) % size) for o, d in moving]
        here = [(o, d) for o, d in here if d in within] + came


def _reached_after(size: int) -> list[set[int]]:
    """Return for each step the offsets of ranks that an even rank reaches through the later steps."""
    reached = [{0}]
    for step in reversed(range(1, steps(size))):
        away = distance(step)
        reached.append(reached[-1] | {(away - o) % size for o in reached[-1]})
    return reached[::-1]


def bine(rank: int, size: int, root: int) -> TreeNode:
    """Return the node of `rank` in a Bine tree: each rank that has the vector sends it to its partner in each step.

    The farthest partners are first.  In base -2, a child is its parent with some of the last digits inverted, and the
    ranks of a subtree agree in the digits before these.  If the number of ranks is not a power of two, some neighbors
    form pairs, each of which acts as one rank; the second rank of a pair is a child of the first one.
    """
    count = 1 << size.bit_length() - 1  # of pairs and single ranks
    pairs = size - count
    relative = (rank - root) % size
    number = relative // 2 if relative < 2 * pairs else relative - pairs
    mask = 0xAAAAAAAAAAAAAAAA & count - 1  # the digits of negative weight: (n + mask) ^ mask converts n to base -2

    def members(digits: int) -> list[int]:
        """Return the ranks of the pair or single rank with these digits in base -2."""
        one = ((digits ^ mask) - mask) % count
        doubles = [2 * one, 2 * one + 1] if one < pairs else [one + pairs]
        return [(root + each) % size for each in doubles]

    def subtree(digits: int, last: int) -> list[int]:
        first = digits >> last << last
        return sorted(member for low in range(1 << last) for member in members(first + low))

    digits = (number + mask) % count ^ mask
    first, *second = members(digits)
    if rank != first:
        return TreeNode(first, [], [rank])
    same = _equal_last_digits(digits, steps(count))
    parent = members(digits ^ (1 << same) - 1)[0] if digits else None
    most = same - 1 if digits else steps(count)
    children = [digits ^ (1 << last) - 1 for last in range(most, 0, -1)]
    levels = [[(members(child)[0], subtree(child, last))] for child, last in zip(children, range(most - 1, -1, -1))]
    levels += [[(other, [other])] for other in second]
    return TreeNode(parent, levels, subtree(digits, most))


def _equal_last_digits(digits: int, length: int) -> int:
    """Return how many of the last binary digits are equal to the last one."""
    ones = digits if digits & 1 else ~digits
    return min(length, (~ones & ones + 1).bit_length() - 1)
