"""The bandwidth bound: the least time in which the bytes of a collective can pass the links of a network.

Latencies, and the time for combining, are left out.  Let n be the bytes of the whole vector, p the number of ranks, and
S a set of s ranks with the bandwidths in(S) and out(S) of all links into and out of it together.

- All-gather: the blocks of the other ranks enter S, and the blocks of S leave it, so the time is at least
  n(p-s)/p / in(S) and ns/p / out(S).  Reduce-scatter is the same backwards.
- Broadcast: n / in(S), if the root is not in S, and n / out(S), if it is.
- All-reduce: n / in(S) and n / out(S).  If the ranks are divided into m sets, each element passes a link between two
  sets at least 2(m-1) times (the least number of messages after which m persons know all gossip; Harary and Schwenk,
  1974), so the time is at least 2n(m-1) / B, where B is the bandwidth of all links between sets together.

These bounds hold for any sets.  `bandwidth_bound` returns the largest one for each rank alone and, as links are added
from the fastest to the slowest, for the sets of ranks that they connect, which are for example the hosts and the
islands of a cluster.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from ..base.links import Links


def bandwidth_bound(primitive: str, links: Links, ranks: int, nbytes: int, root: int = 0) -> float:
    """Return the bandwidth bound in seconds."""
    return max(max(_bounds(primitive, links, sets, nbytes, root)) for sets in _divisions(links, ranks))


def _divisions(links: Links, ranks: int) -> Iterator[list[int]]:
    """Yield the set of each rank: first its own one, and then those that ever slower links connect."""
    sets, before = list(range(ranks)), None
    for here, there in sorted(links, key=lambda pair: links[pair].beta):
        if sets[here] == sets[there]:
            continue
        if links[here, there].beta != before:
            yield sets
        before = links[here, there].beta
        sets = [sets[here] if each == sets[there] else each for each in sets]


def _bounds(primitive: str, links: Links, sets: list[int], nbytes: int, root: int) -> Iterator[float]:
    into: defaultdict[int, float] = defaultdict(float)
    out: defaultdict[int, float] = defaultdict(float)
    for (here, there), times in links.items():
        if sets[here] != sets[there]:
            out[sets[here]] += 1 / times.beta
            into[sets[there]] += 1 / times.beta
    for each, members in Counter(sets).items():
        share = nbytes * members / len(sets)
        if primitive == "allreduce":
            yield nbytes / min(into[each], out[each])
        elif primitive == "bcast":
            yield nbytes / (out if sets[root] == each else into)[each]
        else:
            own, others = (out, into) if primitive == "allgather" else (into, out)
            yield max(share / own[each], (nbytes - share) / others[each])
    if primitive == "allreduce":
        yield 2 * nbytes * (len(out) - 1) / sum(out.values())
