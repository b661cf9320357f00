"""Simulate which algorithm is the fastest for which size on which network: ``python -m pycoll.bench.what_if``.

The tables are in the guide, beside what the papers on Swing, Bine trees and PAT and a text on PXN in NCCL say.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from math import log2
from typing import Any

import pycoll
from pycoll.simulate import Link, Network
from pycoll.simulate.crossings import Curves, crossings
from pycoll.tune.options import size_label

from .markdown import table
from .topologies import NETWORK

RANKS = 64
SIZES = [1 << power for power in range(10, 27, 2)]  # 1 KiB to 64 MiB
GPUS = Network(
    between=Link(alpha=4e-6, beta=2e-11, overhead=0.5e-6),
    inside=Link(alpha=1e-6, beta=1 / 450e9, overhead=0.5e-6),
    gamma=0.0,
)
NETWORKS: dict[str, dict[str, Any]] = {
    "64 hosts on a switch": {"network": NETWORK},
    "`fat-tree:8x8:4`": {"network": NETWORK, "topology": "fat-tree:8x8:4"},
    "`dragonfly:8x2x4:2`": {"network": NETWORK, "topology": "dragonfly:8x2x4:2"},
    "`torus:8x8`": {"network": NETWORK, "topology": "torus:8x8"},
    "`torus:4x4x4`": {"network": NETWORK, "topology": "torus:4x4x4"},
    "8 hosts of 8 GPUs, a card in each host": {"network": GPUS, "ranks_per_host": 8},
    "8 hosts of 8 GPUs, a card for each GPU (`rails:8x8`)": {"network": GPUS, "topology": "rails:8x8"},
}
PRIMITIVES = "allreduce", "allgather", "reduce_scatter", "alltoall"
OTHERS = {"allreduce": ["bucket:3", "torus_swing:3"]}  # beside those that are listed
SLOW = "ring_whole", "hierarchical:levels=node+numa"  # never the fastest here; the last one needs domains
PAT = ["pat:2", "pat:8", "pat:32"]  # the most blocks in a message
RAILS = [8, 16, 32]  # hosts of 8 GPUs
BLOCKS = [1 << power for power in (8, 12, 16, 20)]  # bytes that one rank sends to another


def curves(primitive: str, names: Sequence[str], setting: dict[str, Any]) -> Curves:
    """Return the seconds of each algorithm at each size."""
    return {
        name: [
            pycoll.simulate(primitive, algorithm=name, ranks=RANKS, nbytes=nbytes, **setting).time for nbytes in SIZES
        ]
        for name in names
    }


def fastest(primitive: str) -> Iterator[list[str]]:
    """Yield, for each network, the fastest algorithms, and the sizes at which they change, as powers of two."""
    names = [name for name in [*pycoll.algorithms(primitive), *OTHERS.get(primitive, [])] if name not in SLOW]
    for name, setting in NETWORKS.items():
        found = curves(primitive, names, setting)
        changes = crossings(SIZES, found)
        first = changes[0].before if changes else min(found, key=lambda each: found[each][0])
        text = [f"`{first}`", *(f"from {size_label(1 << round(log2(each.at)))}: `{each.after}`" for each in changes)]
        ring = found["ring"]
        gain = max(slow / min(times) for slow, *times in zip(ring, *found.values()))
        yield [name, "; ".join(text), f"{gain:.1f}"]


def parallel_trees() -> Iterator[list[str]]:
    """Yield the time of a ring all-gather divided by the time of PAT with the best number of blocks in a message."""
    for name, setting in NETWORKS.items():
        found = curves("allgather", ["ring", *PAT], setting)
        ratios = [slow / min(times) for slow, *times in zip(*found.values())]
        yield [name, *(f"{ratio:.2f}" for ratio in ratios[::2])]


def aggregated() -> Iterator[list[str]]:
    """Yield the time of a pairwise all-to-all on rails, divided by the time if each host collects blocks by rail."""
    for hosts in RAILS:
        setting = {"ranks": 8 * hosts, "network": GPUS, "topology": f"rails:{hosts}x8"}
        ratios = []
        for block in BLOCKS:
            pairwise, two_level = (
                pycoll.simulate("alltoall", algorithm=name, nbytes=8 * hosts * block, **setting).time
                for name in ("pairwise", "two_level")
            )
            ratios.append(f"{pairwise / two_level:.2f}")
        yield [f"`rails:{hosts}x8`", *ratios]


def main(argv: Sequence[str]) -> None:
    """Print the tables."""
    argparse.ArgumentParser(
        prog="python -m pycoll.bench.what_if", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(argv)
    for primitive in PRIMITIVES:
        print(table([f"{primitive} on", "fastest", "ring / fastest, at most"], fastest(primitive), left=2), flush=True)
        print()
    print(table(["ring / PAT on", *map(size_label, SIZES[::2])], parallel_trees()), flush=True)
    print()
    print(table(["pairwise / two_level on", *map(size_label, BLOCKS)], aggregated()))


if __name__ == "__main__":
    main(sys.argv[1:])
