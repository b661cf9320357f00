"""Shows the progress of a long command, with the time left, on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from time import monotonic
from typing import TypeVar

Item = TypeVar("Item")
INTERVAL = 1.0  # the least number of seconds between two lines
SHARE = 0.05  # and the least share of the time since the start, so that long commands write fewer lines


def progress_bar(
    items: Iterable[Item], title: str, unit: str, total: int | None = None, shown: bool = True
) -> Iterable[Item]:
    """Iterate over `items` and, if `shown`, write the progress to stderr.

    On a terminal, this is a progress bar if tqdm is installed.  Otherwise, for example in a pipe of mpiexec, it is
    whole lines.
    """
    if not shown:
        return items
    if not sys.stderr.isatty():
        return _lines(items, title, unit, len(items) if total is None and isinstance(items, Sized) else total)
    try:
        from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return items
    bar: Iterable[Item] = tqdm(items, title, total, unit=unit, leave=False)
    return bar


def _lines(items: Iterable[Item], title: str, unit: str, total: int | None) -> Iterator[Item]:
    start = last = monotonic()
    for done, item in enumerate(items):
        now = monotonic()
        if done and now - last >= max(INTERVAL, SHARE * (now - start)):
            last = now
            known = f"{done} of {total} {unit}s, {(now - start) / done * (total - done):.0f} s left" if total else ""
            print(f"{title}: {known or f'{done} {unit}s'}", file=sys.stderr, flush=True)
        yield item
