"""Barrier: no rank leaves before all ranks have entered.  Its messages carry no blocks."""

from __future__ import annotations

from ..schedule.cuts import around
from ..schedule.hosts import Hosts
from ..schedule.moves import Recv, Schedule, Send
from ..schedule.registry import algorithm
from . import bcast, rank_arithmetic, reduce
from .patterns import broadcast_down, reduce_up


@algorithm()
def naive(rank: int, size: int) -> Schedule:
    """Every rank reports to rank 0, which then releases the ranks in turn.

    Rounds: 2*(p-1)
    Messages: p-1
    Cost: 2*(p-1)*alpha
    Source: Mellor-Crummey and Scott, ACM TOCS 9 (1991), the central barrier.
    """
    yield from reduce.naive(rank, size, 0, ())
    yield from bcast.naive(rank, size, 0, ())


@algorithm()
def tree(rank: int, size: int) -> Schedule:
    """Reports go up a binomial tree to rank 0; then the release comes down the tree.

    Rounds: 2*lg(p)
    Messages: lg(p)
    Cost: 2*lg(p)*alpha
    Source: Mellor-Crummey and Scott, ACM TOCS 9 (1991), the combining tree barrier.
    """
    yield from reduce.tree(rank, size, 0, ())
    yield from bcast.tree(rank, size, 0, ())


@algorithm()
def ring(rank: int, size: int) -> Schedule:
    """A token goes twice around the ring: the first time it collects all ranks, the second time it releases them.

    Rounds: 2*p-1
    Messages: 2
    Cost: (2*p-1)*alpha
    Source: the "double ring" barrier in coll/base of Open MPI.
    """
    if size == 1:
        return
    right, left = (rank + 1) % size, (rank - 1) % size
    if rank == 0:
        yield (Send(right, ()),)
        yield (Recv(left, ()),)
        yield (Send(right, ()),)
    else:
        yield (Recv(left, ()),)
        yield (Send(right, ()),)
        yield (Recv(left, ()),)
        if right != 0:
            yield (Send(right, ()),)


@algorithm(symmetry=around)
def dissemination(rank: int, size: int) -> Schedule:
    """In round n every rank signals the rank 2**n after it.

    Rounds: lg(p)
    Messages: lg(p)
    Cost: lg(p)*alpha
    Source: Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", IJPP 17 (1988).
    """
    distance = 1
    while distance < size:
        yield Send((rank + distance) % size, ()), Recv((rank - distance) % size, ())
        distance *= 2


@algorithm(listed=(4, 8), symmetry=around)
def recursive_multiplying(rank: int, size: int, k: int) -> Schedule:
    """As `dissemination`, with radix k: in round n every rank signals the ranks k**n, 2*k**n, ..., (k-1)*k**n after it.

    Rounds: log(p, k)
    Messages: fan(p, k)
    Cost: fan(p, k)*alpha
    Source: Wilkins et al., "Generalized collective algorithms for the exascale era", CLUSTER 2023.
    """
    distance = 1
    while distance < size:
        away = range(distance, min(k * distance, size), distance)
        yield (*(Send((rank + d) % size, ()) for d in away), *(Recv((rank - d) % size, ()) for d in away))
        distance *= k


@algorithm()
def two_level(rank: int, size: int, hosts: Hosts) -> Schedule:
    """Reports go up a binomial tree inside each host and between the hosts; then the release comes down.

    Rounds: 2*(lg(h) + lg(p/h))
    Messages: lg(h) + lg(p/h)
    Cost: 2*(lg(h) + lg(p/h))*alpha
    Limits: the formulas are for p/h ranks on each of h hosts.
    Source: as `bcast.two_level_log`.
    """
    node = rank_arithmetic.domain_tree(rank, size, 0, hosts)
    yield from reduce_up(node, rank, ())
    yield from broadcast_down(node, ())


@algorithm(levels=("node", "numa"))
def hierarchical(rank: int, size: int, hosts: Hosts) -> Schedule:
    """As `two_level`, with a binomial tree at each level of domains: hosts, their sockets, memory, caches.

    Rounds: 2*(lg(h) + lg(p/h))
    Messages: lg(h) + lg(p/h)
    Cost: 2*(lg(h) + lg(p/h))*alpha
    Limits: the formulas are for p/h ranks on each of h hosts, without smaller domains.
    Source: as `bcast.hierarchical`.
    """
    yield from two_level(rank, size, hosts)
