"""The layout of a drawing: the row of each block in the column of its rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from ..schedule.moves import Block
from ..schedule.neighbors import Edge
from ..schedule.registry import counts_of
from .frames import DrawnBlock, Film, State
from .language import say
from .names import exchanges, row_name


@dataclass(frozen=True)
class RowLayout:
    """The names of all rows, the rows with a gap before them, and the row of each block by frame and rank.

    `copies` are the rows of blocks beside those of the vector, if the vector has blocks.
    """

    names: list[str]
    gaps: set[int]
    rows: list[list[dict[Block, int]]]
    copies: frozenset[int] = frozenset()


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
    copies = frozenset(row for row, kind in enumerate(kinds) if kind > 1) if 1 in kinds else frozenset[int]()
    names = [row_name(film, block) for block in blocks]
    return RowLayout(names, gaps, [[row_of] * film.size for _ in states], copies)


def _by_position(film: Film, states: list[State]) -> RowLayout:
    """Make rows for counts, the send buffer and the receive buffer; below them, for blocks to forward."""
    counts_from = film.count_sources
    positions = [_positions(film, rank) for rank in range(film.size)]
    sent, received = (max(max(at.values(), default=-1) for at in which) + 1 for which in zip(*positions))
    rows: list[list[dict[Block, int]]] = [[] for _ in states]
    passing = 0
    for rank in range(film.size):
        fixed: dict[Block, int] = {counts_of(source): row for row, source in enumerate(counts_from)}
        for start, indices in zip((len(counts_from), len(counts_from) + sent), positions[rank]):
            fixed.update({block: start + at for block, at in indices.items()})
        for index, extra in enumerate(_passing([state[rank] for state in states], fixed)):
            passing = max(passing, len(extra) and max(extra.values()) + 1)
            start = len(counts_from) + sent + received
            rows[index].append(fixed | {block: start + row for block, row in extra.items()})
    out, back = ("send_row", "receive_row") if film.neighborhood else ("to", "from")
    names = [say("counts")] * len(counts_from) + [say(out, rank=row) for row in range(sent)]
    names += [say(back, rank=row) for row in range(received)] + [say("passing")] * passing
    gaps = {len(counts_from), len(counts_from) + sent, len(counts_from) + sent + received} - {0, len(names)}
    return RowLayout(names, gaps, rows)


def _positions(film: Film, rank: int) -> tuple[dict[Block, int], dict[Block, int]]:
    """Return the positions of blocks in the send buffer and in the receive buffer of a rank."""
    if edges := film.edges[rank]:
        return _numbered(edges.outgoing), _numbered(edges.incoming)
    primitive, case = film.algorithm.primitive, (rank, film.size, film.root, film.parts)
    return primitive.holds(*case), primitive.wants(*case)


def _numbered(edges: Sequence[Edge | None]) -> dict[Block, int]:
    return {edge: at for at, edge in enumerate(edges) if edge}


def _passing(cells: list[dict[Block, DrawnBlock]], fixed: dict[Block, int]) -> Iterator[dict[Block, int]]:
    """Yield for each frame the rows of all other blocks; each keeps the first free row until it is not needed."""
    kept: dict[Block, int] = {}
    for held in cells:
        here = [block for block, cell in held.items() if block not in fixed and cell.needed]
        kept = {block: row for block, row in kept.items() if block in here}
        for block in here:
            if block not in kept:
                kept[block] = next(row for row in count() if row not in kept.values())
        yield dict(kept)
