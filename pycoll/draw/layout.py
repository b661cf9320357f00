"""The layout of a drawing: the row of each block in the column of its rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from ..schedule.moves import Block
from ..schedule.registry import counts_of
from .frames import Cell, Film, State
from .language import say
from .names import exchanges, row_name


@dataclass(frozen=True)
class RowLayout:
    """The names of all rows, the rows with a gap before them, and the row of each block by frame and rank."""

    names: list[str]
    gaps: set[int]
    rows: list[list[dict[Block, int]]]


def layout(film: Film, states: list[State]) -> RowLayout:
    """Give each block a row, or, if every rank has a block for every rank, each position in the buffers."""
    return _by_position(film, states) if exchanges(film) else _by_name(film, states)


def _order(block: Block) -> tuple[int, int, tuple[Any, ...]]:
    """Return a sort key: counts come first, then numbers, then other names."""
    match block:
        case int():
            return 1, block, ()
        case (str(), int(source)) if block == counts_of(source):
            return 0, source, ()
        case (str(), *_):
            return 3, 0, tuple(block)
        case tuple():
            return 2, 0, block
    return 3, 0, (str(block),)


def _by_name(film: Film, states: list[State]) -> RowLayout:
    blocks = sorted({block for state in states for cells in state for block in cells}, key=_order)
    row_of = {block: row for row, block in enumerate(blocks)}
    kinds = [_order(block)[0] for block in blocks]
    gaps = {row for row in range(1, len(blocks)) if kinds[row] != kinds[row - 1]}
    return RowLayout([row_name(film, block) for block in blocks], gaps, [[row_of] * film.size for _ in states])


def _by_position(film: Film, states: list[State]) -> RowLayout:
    """Make rows for counts, the send buffer and the receive buffer; below them, for blocks to forward."""
    size, primitive = film.size, film.algorithm.primitive
    counts_from = film.algorithm.count_sources(size, film.root)
    rows: list[list[dict[Block, int]]] = [[] for _ in states]
    passing = 0
    for rank in range(size):
        fixed: dict[Block, int] = {counts_of(source): row for row, source in enumerate(counts_from)}
        for half, wanted in enumerate((False, True)):
            start = len(counts_from) + half * size
            indices = (primitive.wants if wanted else primitive.holds)(rank, size, film.root, film.parts)
            fixed.update({block: start + at for block, at in indices.items()})
        for index, extra in enumerate(_passing([state[rank] for state in states], fixed)):
            passing = max(passing, len(extra) and max(extra.values()) + 1)
            rows[index].append(fixed | {block: len(counts_from) + 2 * size + row for block, row in extra.items()})
    names = [say("counts")] * len(counts_from) + [say("to", rank=rank) for rank in range(size)]
    names += [say("from", rank=rank) for rank in range(size)] + [say("passing")] * passing
    gaps = {len(counts_from), len(counts_from) + size, len(counts_from) + 2 * size} - {0, len(names)}
    return RowLayout(names, gaps, rows)


def _passing(cells: list[dict[Block, Cell]], fixed: dict[Block, int]) -> Iterator[dict[Block, int]]:
    """Yield for each frame the rows of all other blocks; each keeps the first free row until it is not needed."""
    kept: dict[Block, int] = {}
    for held in cells:
        here = [block for block, cell in held.items() if block not in fixed and cell.needed]
        kept = {block: row for block, row in kept.items() if block in here}
        for block in here:
            if block not in kept:
                kept[block] = next(row for row in count() if row not in kept.values())
        yield dict(kept)
