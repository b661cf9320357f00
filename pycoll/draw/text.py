"""Drawings as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from .frames import MANY, DrawnBlock, Film, Frame
from .language import say
from .layout import layout
from .matrix import act, share
from .names import block_name, caption, runs, sentence, summary, title

KEY = "*: finished; (brackets): no longer needed"
MATRIX_KEY = (
    "Columns are steps. >2: sends to rank 2; <1: receives from rank 1; +1: receives from rank 1 and combines; "
    ">x3: sends to 3 ranks; *: finished."
)


def text(film: Film) -> str:
    """Return the whole drawing; every line ends with a newline."""
    lines = [title(film), summary(film), "", *caption(film), ""]
    lines += _matrix(film) if film.size > MANY else _steps(film)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _steps(film: Film) -> list[str]:
    states = film.states()
    arranged = layout(film, states)
    lines: list[str] = []
    for index, frame in enumerate(film.frames):
        table = [["", *(say("rank_label", rank=rank) for rank in range(film.size))]]
        for row, name in enumerate(arranged.names):
            cells = [name]
            for rank, held in enumerate(states[index]):
                here = [block for block in held if arranged.rows[index][rank].get(block) == row]
                cells.append(_cell(film, here[0], held[here[0]]) if here else "")
            table.append(cells)
        lines += [_heading(film, frame), *columns(table), ""]
    return [*lines, _key(film)]


def _heading(film: Film, frame: Frame) -> str:
    return frame.title + (
        ": " + ", ".join(sentence(film, one, ">") for one in frame.messages) if frame.messages else ""
    )


def _cell(film: Film, block: object, cell: DrawnBlock) -> str:
    reduces = film.algorithm.primitive.reduces
    name = runs(cell.value.contributors, "+") if reduces else block_name(film, block, ">")
    return f"{name}*" if cell.finished else name if cell.needed else f"({name})"


def _key(film: Film) -> str:
    if film.hears:
        return "Cells: the ranks that a rank has heard from, directly or through others; *: from all ranks."
    if film.algorithm.primitive.reduces:
        return f"0>1 [+2]: part 2 is combined on arrival; 0+1: contributing ranks, in order; {KEY}."
    counts = "#1: the counts of blocks from rank 1; " if film.counts_traffic else ""
    what = "part" if film.algorithm.primitive.cuts else "block"
    return f"{counts}0>1 [2]: {what} 2 goes from rank 0 to rank 1; {KEY}."


def _matrix(film: Film) -> list[str]:
    shares = share(film)
    table = [["", *(frame.short_title for frame in film.frames[1:])]]
    for rank in range(film.size):
        cells = [act(frame, rank, ">", "<") for frame in film.frames[1:]]
        done = [one[rank] == 1 for one in shares[1:]]
        table.append([say("rank_label", rank=rank), *(cell + "*" * now for cell, now in zip(cells, done))])
    return [*columns(table), "", MATRIX_KEY]


def columns(table: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of left-aligned columns, each as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*table)]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in table]
