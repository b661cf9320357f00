"""The search: blocks are matched to links, round after round, until all ranks have all blocks.

A round is a step of the time-expanded network of TACOS (Won et al., MICRO 2024): in the time of a round, a link carries
as many blocks as its latency and bandwidth allow, all of which its sender held before the round.  Links choose in
random order, each the block that the fewest ranks have.

A slow link must not carry what a fast one brings sooner.  So a link carries a block only if no rank that has it, or
gets it in this round, reaches the receiver by a faster route.  The next link of the fastest route from the nearest such
rank always may carry the block; therefore the search ends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..base.links import Links

NO_LIMIT = 1 << 62
EQUAL = 1 - 1e-9  # the ratio of two times from which they count as equal


class LinkTransfer(NamedTuple):
    """A block that passes a link."""

    source: int
    to: int
    block: int


Rounds = list[list[LinkTransfer]]


def durations(links: Links, nbytes: float) -> list[float]:
    """Return durations of a round to try: the times of a block on each kind of link, and their doubles.

    If there are more than five kinds, these are the quartiles.
    """
    seconds = sorted({float(f"{times.alpha + times.beta * nbytes:.12g}") for times in links.values()})
    chosen = seconds if len(seconds) <= 5 else np.quantile(seconds, [0, 0.25, 0.5, 0.75, 1], method="lower").tolist()
    return sorted({number * time for number in (1, 2) for time in chosen})


def reversed_in_time(rounds: Rounds) -> Rounds:
    """Return the rounds of a reduction, from those in which its results would spread on the reversed links."""
    return [[LinkTransfer(to, source, block) for source, to, block in each] for each in reversed(rounds)]


def spread(
    links: Links, held: np.ndarray, nbytes: float, duration: float, seed: int, most: int = NO_LIMIT
) -> Rounds | None:
    """Return rounds after which all ranks have all blocks; None if links that are fast enough do not connect them.

    Parameters
    ----------
    links : Links
        The links between ranks.
    held : numpy.ndarray
        Whether each rank (row) holds each block (column) at the start.
    nbytes : float
        The bytes of a block.
    duration : float
        The seconds of a round.
    seed : int
        The seed of the random choices.
    most : int
        The most blocks that a rank sends in a round.  In a reduction, which is backwards, it combines so many.
    """
    draw = np.random.default_rng(seed)
    usable = {}
    for pair, (alpha, beta) in links.items():
        if (blocks := int(min((duration - alpha) / (beta * nbytes) / EQUAL, NO_LIMIT))) > 0:
            usable[pair] = blocks, alpha + beta * nbytes
    pairs = [*usable]
    far = _distances({pair: seconds for pair, (_, seconds) in usable.items()}, len(held))
    near = np.stack([far[held[:, block]].min(axis=0) for block in range(held.shape[1])], axis=1)
    if np.isinf(near).any():
        return None
    promised = held.copy()
    rounds: Rounds = []
    while not promised.all():
        held = promised.copy()
        rarity = held.sum(axis=0) + draw.random(held.shape[1])
        rounds.append([])
        left = [most] * len(held)
        for number in draw.permutation(len(pairs)):
            source, to = pairs[number]
            blocks, seconds = usable[source, to]
            limit = min(blocks, left[source])
            wanted = (held[source] & (near[to] >= seconds * EQUAL)).nonzero()[0]  # `near` is 0 for what it has
            for block in wanted[rarity[wanted].argsort()[:limit]].tolist():
                promised[to, block] = True
                rarity[block] += 1
                near[:, block] = np.minimum(near[:, block], far[to])
                rounds[-1].append(LinkTransfer(source, to, block))
                left[source] -= 1
    return rounds


def _distances(seconds: dict[tuple[int, int], float], ranks: int) -> np.ndarray:
    """Return the time of the fastest route between any two ranks (Floyd, 1962)."""
    found = np.full((ranks, ranks), np.inf)
    np.fill_diagonal(found, 0.0)
    for pair, each in seconds.items():
        found[pair] = each
    for middle in range(ranks):
        found = np.minimum(found, found[:, middle, None] + found[None, middle])
    return found
