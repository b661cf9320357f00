"""Sends the pieces of copies to the ranks whose drivers need them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

import pycoll

from ..contents import Contents, PieceValues
from ..flat import Piece
from .copies import StateCopy


class PieceSpan(NamedTuple):
    """Elements `start` to ``stop - 1`` of a flattened array."""

    kind: str
    name: str
    start: int
    stop: int


class Transfer(NamedTuple):
    """Elements that one rank sends to another, or to itself."""

    source: int
    target: int
    span: PieceSpan


def plan(have: Sequence[Iterable[PieceSpan]], want: Sequence[Iterable[PieceSpan]]) -> list[Transfer]:
    """Return the transfers from the spans that each rank has to those that each rank wants.

    Ranks may have the same spans; other spans do not overlap.  A rank uses what it has itself.
    """
    holders: dict[tuple[str, str], dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank, spans in enumerate(have):
        for kind, name, start, stop in spans:
            holders[kind, name][start, stop].append(rank)
    transfers = []
    for target, spans in enumerate(want):
        for kind, name, first, last in spans:
            for (start, stop), ranks in holders[kind, name].items():
                begin, end = max(first, start), min(last, stop)
                if begin < end:
                    source = target if target in ranks else ranks[target % len(ranks)]
                    transfers.append(Transfer(source, target, PieceSpan(kind, name, begin, end)))
    return transfers


def redistribute(comm: pycoll.Comm, copies: Sequence[StateCopy], contents: Contents) -> PieceValues:
    """Return the values for the pieces of this rank from copies on all ranks; all ranks call this together.

    Raises
    ------
    ValueError
        On ranks for which pieces are missing.
    """
    mine = {_span(*piece): piece[2] for copy in copies for piece in copy.pieces()}
    wanted = {_span(*piece): piece[2] for piece in contents.pieces()}
    steps: dict[str, int] = {}
    spans = comm.allgather(([*mine], [*wanted], [copy.steps() for copy in copies]))
    for counters in (one for _, _, several in spans for one in several):
        steps |= counters
    transfers = plan([have for have, _, _ in spans], [want for _, want, _ in spans])
    outgoing: list[list[np.ndarray]] = [[] for _ in range(comm.size)]
    incoming: list[list[PieceSpan]] = [[] for _ in range(comm.size)]
    for source, target, span in transfers:
        if source == comm.rank:
            outgoing[target].append(_elements(mine, span).values.view(np.uint8))
        if target == comm.rank:
            incoming[source].append(span)
    found = _exchange(comm, outgoing, incoming, wanted)
    return contents.read(lambda kind, name, piece: found[kind, name], {"optimizer": steps})


def _exchange(
    comm: pycoll.Comm,
    outgoing: Sequence[Sequence[np.ndarray]],
    incoming: Sequence[Sequence[PieceSpan]],
    wanted: dict[PieceSpan, Piece],
) -> dict[tuple[str, str], list[Piece]]:
    """Send bytes to each rank; return the pieces that were received, by kind and name."""
    like = {(span.kind, span.name): piece for span, piece in wanted.items()}
    lengths = [
        [(span.stop - span.start) * like[span.kind, span.name].values.itemsize for span in spans] for spans in incoming
    ]
    sent = np.concatenate([np.empty(0, np.uint8), *(part for parts in outgoing for part in parts)])
    received = np.empty(sum(map(sum, lengths)), np.uint8)
    counts = [sum(part.nbytes for part in parts) for parts in outgoing]
    comm.Alltoallv([sent, counts], [received, [*map(sum, lengths)]])
    found: dict[tuple[str, str], list[Piece]] = defaultdict(list)
    at = 0
    for spans, sizes in zip(incoming, lengths):
        for span, nbytes in zip(spans, sizes):
            piece = like[span.kind, span.name]
            values = received[at : at + nbytes].copy().view(piece.values.dtype)
            found[span.kind, span.name].append(Piece(span.start, values, piece.shape))
            at += nbytes
    return found


def _span(kind: str, name: str, piece: Piece) -> PieceSpan:
    return PieceSpan(kind, name, piece.start, piece.stop)


def _elements(pieces: dict[PieceSpan, Piece], wanted: PieceSpan) -> Piece:
    """Return the elements of a span, which lies within one of the pieces."""
    for span, piece in pieces.items():
        if span[:2] == wanted[:2] and span.start <= wanted.start and wanted.stop <= span.stop:
            return Piece(
                wanted.start, piece.values[wanted.start - piece.start : wanted.stop - piece.start], piece.shape
            )
    raise KeyError(wanted)
