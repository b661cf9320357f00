"""The matrix: the activity of each rank in each step, for more ranks than can be drawn block by block."""

from __future__ import annotations

from .frames import Film, Frame
from .language import say
from .markup import tag
from .names import sentence

ROW, WIDTH, LEFT, TOP = 20, 68, 64, 26
AGAIN = 16  # columns after which the names of the ranks are repeated


def act(frame: Frame, rank: int, out: str = "\u2192", back: str = "\u2190") -> str:
    """Describe the ranks that a rank sends to and receives from, or their number, with a plus if it combines."""
    sent, received, combined = partners(frame, rank)
    text = says([*map(str, sent)], [*map(str, received)], combined, out, back)
    return text or (say("local") if frame.local and rank in frame.rounds else "")


def partners(frame: Frame, rank: int) -> tuple[list[int], list[int], bool]:
    """Return the ranks that a rank sends to and receives from, and whether it combines."""
    received = [message for message in frame.messages if message.to == rank]
    sent = [message.to for message in frame.messages if message.source == rank]
    return sent, [message.source for message in received], any(message.combined for message in received)


def rank_label(rank: int, x: float, y: float) -> str:
    """Return the label of a row, which ends at `x`."""
    return tag("text", say("rank_label", rank=rank), class_="label", x=x, y=y, text_anchor="end")


def says(sent: list[str], received: list[str], combined: bool, out: str = "\u2192", back: str = "\u2190") -> str:
    """Name the receivers and the senders of messages, or their number."""
    texts = [f"{out}{_who(sent)}" if sent else "", f"{'+' if combined else back}{_who(received)}" if received else ""]
    return " ".join(filter(None, texts))


def _who(ranks: list[str]) -> str:
    return ranks[0] if len(ranks) == 1 else f"x{len(ranks)}"


def share(film: Film) -> list[list[float]]:
    """Return the fraction of its final blocks that each rank has, by frame and rank; 0 if it has no final blocks."""
    return [
        [
            sum(block in blocks and film.finished(rank, block, blocks) for block in wanted) / max(1, len(wanted))
            for rank, (blocks, wanted) in enumerate(zip(held, film.wanted))
        ]
        for held in film.held()
    ]


def matrix(film: Film) -> tuple[str, float, float]:
    """Return SVG elements, width and height: a row for each rank, and a group of elements as column for each step."""
    shares = share(film)
    labels = [
        rank_label(rank, _left(index) - 8, TOP + rank * ROW + 14)
        for index in range(0, len(film.frames), AGAIN)
        for rank in range(film.size)
    ]
    columns = [
        tag("g", *_column(film, index, shares[index]), data_step=index, transform=f"translate({_left(index)} 0)")
        for index, frame in enumerate(film.frames)
    ]
    return "".join(labels + columns), _left(len(columns) - 1) + WIDTH + 4, TOP + film.size * ROW + 4


def _left(index: int) -> int:
    return LEFT * (1 + index // AGAIN) + index * WIDTH


def _column(film: Film, index: int, shares: list[float]) -> list[str]:
    frame = film.frames[index]
    drawn = [tag("text", frame.short_title, class_="title", x=WIDTH / 2, y=TOP - 9, text_anchor="middle")]
    for rank, done in enumerate(shares):
        top = TOP + rank * ROW
        says = act(frame, rank)
        kind = "combines" if "+" in says else "acts" if says else "rests"
        hint = (
            [tag("title", "; ".join(sentence(film, one) for one in frame.messages if rank in one[:2]))] if says else []
        )
        drawn.append(tag("rect", *hint, class_=kind, x=1, y=top + 1, width=WIDTH - 2, height=ROW - 2, rx=3))
        if rank in film.waiting[index]:
            drawn.append(tag("rect", class_="hatch", x=1, y=top + 1, width=WIDTH - 2, height=ROW - 2, rx=3))
        if done:
            drawn.append(tag("rect", class_="done", x=1, y=top + ROW - 4, width=(WIDTH - 2) * done, height=3))
        drawn.append(tag("text", says, class_="act", x=WIDTH / 2, y=top + 13, text_anchor="middle"))
    return drawn
