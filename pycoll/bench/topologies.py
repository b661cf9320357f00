"""Simulate algorithms on tori, and the bytes between the groups of a dragonfly and the switches of a fat tree.

    python -m pycoll.bench.topologies

The tables are in bench/results/topologies.md.  The guide draws them, beside what the papers on Swing, Trivance and
Bine trees say.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from statistics import median

import pycoll
from pycoll.simulate import Link, Network
from pycoll.tune.options import size_label

from .markdown import table

# an example: links of 100 Gbit/s, 200 ns for each further link, and no time for combining
NETWORK = Network(between=Link(alpha=1.5e-6, beta=8e-11, overhead=0.3e-6), gamma=0.0, hop=0.2e-6)
ONE_PORT = "ring", "recursive_doubling", "rabenseifner"
SWING = ["torus:64", "torus:8x8", "torus:4x4x4"], [1 << power for power in (10, 18, 22, 26)]
TRIVANCE = ["torus:27", "torus:81", "torus:9x9", "torus:64"], [1 << power for power in (10, 15, 18, 20, 23, 26)]

RANKS, MACHINE = 128, 256
TAPERED = {"dragonfly:16x4x4:2": "group ", "fat-tree:32x8:2": "switch "}
PAIRS = [  # primitive, Bine's algorithm, and the binomial tree or butterfly
    *(("bcast", "bine", "tree"), ("reduce", "bine", "tree"), ("gather", "bine", "tree"), ("scatter", "bine", "tree")),
    *(("allgather", "bine", "recursive_multiplying:2"), ("reduce_scatter", "bine", "recursive_halving")),
    ("allreduce", "swing", "rabenseifner"),
]
TRIES = 5


def congestion(tori: Sequence[str], sizes: Sequence[int], names: Sequence[str]) -> Iterator[list[str]]:
    """Yield rows of times, each divided by the last one; K in a name stands for the dimensions of the torus."""
    for topology in tori:
        lengths = topology.partition(":")[2].split("x")
        for nbytes in sizes:
            setting = {"ranks": math.prod(map(int, lengths)), "topology": topology, "network": NETWORK}
            *times, best = (
                pycoll.simulate(
                    "allreduce", algorithm=name.replace("K", str(len(lengths))), nbytes=nbytes, **setting
                ).time
                for name in names
            )
            yield [topology, size_label(nbytes), *(f"{time / best:.2f}" for time in times), f"{best * 1e6:,.0f}"]


def block(draw: random.Random) -> list[int]:
    """Put the ranks on the first hosts, in order."""
    return list(range(RANKS))


def fragmented(draw: random.Random) -> list[int]:
    """Put the ranks on any hosts, in order, as a batch system that fills gaps."""
    return sorted(draw.sample(range(MACHINE), RANKS))


def scattered(draw: random.Random) -> list[int]:
    """Put the ranks on any hosts, in any order."""
    return draw.sample(range(MACHINE), RANKS)


def crossing(topology: str, prefix: str, primitive: str, algorithm: str, hosts: Sequence[int]) -> int:
    """Return the bytes on the links whose names begin with the prefix."""
    found = pycoll.simulate(
        primitive, algorithm=algorithm, ranks=RANKS, nbytes=RANKS << 10, hosts=hosts, topology=topology, network=NETWORK
    )
    return sum(link.nbytes for name, link in found.links.items() if name.startswith(prefix))


def traffic() -> Iterator[list[str]]:
    """Yield rows of the bytes of Bine trees between groups or switches, divided by those of binomial trees."""
    placements: list[Callable[[random.Random], list[int]]] = [block, fragmented, scattered]
    for topology, prefix in TAPERED.items():
        for primitive, bine, binomial in PAIRS:
            row = [topology, primitive, f"{bine} / {binomial}"]
            for chosen in placements:
                ratios = []
                for number in range(1 if chosen is block else TRIES):
                    hosts = chosen(random.Random(number))
                    ours, theirs = (crossing(topology, prefix, primitive, each, hosts) for each in (bine, binomial))
                    ratios.append(ours / theirs)
                row.append(f"{median(ratios):.2f}")
            yield row


def main(argv: Sequence[str]) -> None:
    """Print the tables."""
    argparse.ArgumentParser(
        prog="python -m pycoll.bench.topologies",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args(argv)
    times = ["topology", "bytes", "ring", "recursive doubling", "Rabenseifner", "bucket"]
    swing, trivance = (
        (*ONE_PORT, "bucket:K", "swing", "torus_swing:K"),
        (*ONE_PORT, "bucket:K", "torus_swing:K", "trivance"),
    )
    print(table([*times, "swing on one port", "torus_swing (µs)"], congestion(*SWING, swing)), flush=True)
    print()
    print(table([*times, "torus_swing", "trivance (µs)"], congestion(*TRIVANCE, trivance)), flush=True)
    print()
    print(table(["topology", "collective", "algorithms", "block", "fragmented", "scattered"], traffic(), left=3))


if __name__ == "__main__":
    main(sys.argv[1:])
