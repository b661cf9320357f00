"""What `pycoll.schedule.registry.algorithm` takes: cuts, and grids of symmetric schedules.

A cut returns the number of parts into which an algorithm cuts the vector, for primitives with `Primitive.cuts`.
A schedule is symmetric on a grid of ranks, see `pycoll.schedule.symmetry`; the grid is empty where it is not.
"""

from __future__ import annotations

import itertools
from collections import Counter
from functools import cache

from .hosts import Hosts


def whole(size: int, segments: int, hosts: Hosts) -> int:
    """One part: the whole vector."""
    return 1


def per_rank(size: int, segments: int, hosts: Hosts) -> int:
    """One part for each rank."""
    return size


def per_segment(size: int, segments: int, hosts: Hosts) -> int:
    """One part for each segment of the pipeline."""
    return segments


def two_per_segment(size: int, segments: int, hosts: Hosts) -> int:
    """Two parts for each segment, one for each of two trees."""
    return 2 * segments


def per_lane_and_host(size: int, segments: int, hosts: Hosts) -> int:
    """One part for each lane and host: the number of hosts times the number of ranks on the smallest host."""
    ranks_of = Counter(range(size) if hosts is None else hosts)
    return len(ranks_of) * min(ranks_of.values())


def side(p: int, k: int) -> int:
    """Return the side of the smallest cube of k dimensions that has room for p ranks."""
    return next(side for side in itertools.count(1) if side**k >= p)


@cache
def sides(size: int, k: int) -> tuple[int, ...]:
    """Return the sizes of a torus of k dimensions, as equal as possible and in decreasing order, as MPI_Dims_create."""
    found: list[int] = []
    for left in range(k, 0, -1):
        side = max(each for each in range(1, size + 1) if size % each == 0 and each**left <= size)
        found.append(side)
        size //= side
    return tuple(sorted(found, reverse=True))


def ports(size: int, k: int) -> int:
    """Return the number of ports of a rank in a torus of k dimensions: two for each side of at least two ranks."""
    return 2 * sum(side > 1 for side in sides(size, k)) or 1


def per_port_and_rank(size: int, segments: int, hosts: Hosts, k: int = 1) -> int:
    """One part for each port and each rank."""
    return ports(size, k) * size


def around(size: int) -> tuple[int, ...]:
    """Return the grid of one dimension: each rank does what the rank before does, one rank further."""
    return (size,)


def halves(size: int) -> tuple[int, ...]:
    """Return the hypercube of a power of two ranks."""
    return (2,) * (size.bit_length() - 1) if size & (size - 1) == 0 else ()
