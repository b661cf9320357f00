"""Shows the progress of a long command, with the time left, on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")
INTERVAL = 5.0  # seconds between two updates where stderr is not a terminal: a pipe of mpiexec, or a file


def progress_bar(
    items: Iterable[Item], title: str, unit: str, total: int | None = None, shown: bool = True
) -> Iterable[Item]:
    """Iterate over `items` with a progress bar, if `shown` and if tqdm is installed."""
    try:
        from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return items
    interval = 0.1 if sys.stderr.isatty() else INTERVAL
    bar: Iterable[Item] = tqdm(
        items, title, total, unit=unit, leave=False, disable=not shown, mininterval=interval, maxinterval=2 * interval
    )
    return bar
