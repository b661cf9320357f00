"""Which ranks share a host, and smaller domains of a host."""

from __future__ import annotations

from collections.abc import Sequence

# The host of each rank, as a number, or its domains, the largest first, such as the numbers of its host and of its NUMA
# domain; None means that each rank has its own host.
Hosts = tuple[int, ...] | tuple[tuple[int, ...], ...] | None
LEVELS = ("node", "socket", "numa", "l3")
"""The kinds of domains, the largest first: ranks of a domain share a host, a socket, memory or a third-level cache."""


def in_order(ranks: int, ranks_per_host: int) -> tuple[int, ...] | None:
    """Return the hosts of ranks of which so many consecutive ones share a host; None if each has its own."""
    return None if ranks_per_host == 1 else tuple(rank // ranks_per_host for rank in range(ranks))


def without_domains(hosts: Sequence[int | tuple[int, ...]]) -> tuple[int, ...]:
    """Return the host of each rank."""
    return tuple(each[0] if isinstance(each, tuple) else each for each in hosts)
