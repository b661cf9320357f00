"""Shows the progress of a measurement on stderr of rank 0: a bar on a terminal, or else a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from mpi4py import MPI

Item = TypeVar("Item")
INTERVAL = 10.0  # seconds between two lines


def shown(items: Sequence[Item], comm: MPI.Intracomm, what: str) -> Iterator[Item]:
    """Yield the items and show the progress."""
    if comm.rank != 0:
        yield from items
        return
    if sys.stderr.isatty():
        try:
            from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]
        except ImportError:
            pass
        else:
            yield from tqdm(items, desc=what, unit="point", leave=False)
            return
    start = printed = time.monotonic()
    for number, item in enumerate(items):
        yield item
        now = time.monotonic()
        if now - printed > INTERVAL or number + 1 == len(items):
            printed = now
            print(f"{what}: {number + 1} of {len(items)} points, {now - start:.0f} s", file=sys.stderr, flush=True)
