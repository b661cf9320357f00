"""The matrix for many ranks: neighboring ranks that do the same are one band, and steps that repeat are narrow.

Two ranks do the same if their partners are as many ranks away in the same direction, or in opposite directions on even
and odd ranks, or have the same bits flipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from typing import NamedTuple

from .frames import Film
from .language import say
from .markup import tag, words
from .matrix import TOP, partners, rank_label, says, share
from .names import sentence

ROW, WIDTH, NARROW, LEFT, BAR = 12, 84, 22, 64, 9
LABELED, AGAIN = 4, 1000  # every fourth rank has a label; width after which the labels are repeated
HINTS = 8  # messages that the hint of a band names


class Measure(NamedTuple):
    """A way to measure how far the partner of a rank is away, among `size` ranks, and to name the partner."""

    distance: Callable[[int, int, int], int]  # of a rank, its partner, and the number of ranks
    name: Callable[[int, int], str]  # of a distance, and the number of ranks


def _signed(plus: str, minus: str) -> Callable[[int, int], str]:
    return lambda far, size: f"r{plus}{far}" if far <= size // 2 else f"r{minus}{size - far}"


MEASURES = (
    Measure(lambda rank, peer, size: rank ^ peer, lambda far, size: f"r^{far}"),
    Measure(lambda rank, peer, size: (peer - rank) % size, _signed("+", "\u2212")),
    Measure(lambda rank, peer, size: (rank - peer if rank % 2 else peer - rank) % size, _signed("\u00b1", "\u2213")),
)


class Band(NamedTuple):
    """Ranks that do the same: the first and the last one, its class, and its text."""

    first: int
    last: int
    kind: str
    text: str


class Activity(NamedTuple):
    """The partners of a rank in a frame, or their distances, and whether it combines, waits, or moves blocks itself."""

    sends: tuple[int, ...]
    receives: tuple[int, ...]
    combines: bool
    waits: bool
    local: bool

    def measured(self, measure: Measure, rank: int, size: int) -> Activity:
        """Return the activity of a rank with distances instead of partners."""
        far = [tuple(sorted(measure.distance(rank, peer, size) for peer in peers)) for peers in self[:2]]
        return self._replace(sends=far[0], receives=far[1])

    def text(self, name: Callable[[int], str]) -> str:
        """Describe the activity, with these names of partners."""
        return says([*map(name, self.sends)], [*map(name, self.receives)], self.combines) or say("local") * self.local

    @property
    def kind(self) -> str:
        """The class of its band."""
        if self.combines:
            return "combines"
        return "acts" if self.sends or self.receives or self.local else "hatch" if self.waits else "rests"


def bands(film: Film, index: int) -> list[Band]:
    """Return the bands of a frame: each one is as long as possible."""
    size = film.size
    acts = [_activity(film, index, rank) for rank in range(size)]
    measured = [[one.measured(each, rank, size) for rank, one in enumerate(acts)] for each in MEASURES]
    found: list[Band] = []
    while (first := found[-1].last + 1 if found else 0) < size:
        lasts = [_last(keys, first) for keys in measured]
        last = max(lasts)
        way = lasts.index(last)
        name = partial(_named, MEASURES[way], size)
        text = acts[first].text(str) if first == last else measured[way][first].text(name)
        found.append(Band(first, last, acts[first].kind, text))
    return found


def _named(measure: Measure, size: int, far: int) -> str:
    return measure.name(far, size)


def _activity(film: Film, index: int, rank: int) -> Activity:
    frame = film.frames[index]
    sent, received, combines = partners(frame, rank)
    local = frame.local and rank in frame.rounds
    return Activity(tuple(sent), tuple(received), combines, rank in film.waiting[index], local)


def _last(acts: list[Activity], first: int) -> int:
    """Return the last of the ranks from the first one on that do the same."""
    return next((rank for rank in range(first, len(acts)) if acts[rank] != acts[first]), len(acts)) - 1


def banded(film: Film) -> tuple[str, float, float]:
    """Return SVG elements, width and height: a group of elements as column for each step."""
    shares, columns = share(film), [bands(film, index) for index in range(len(film.frames))]
    drawn, left, labeled = _labels(film.size, 0), LEFT, 0
    for index, column in enumerate(columns):
        if left - labeled > AGAIN:
            drawn += _labels(film.size, left)
            labeled, left = left, left + LEFT
        width = NARROW if index and column == columns[index - 1] else WIDTH
        parts = _column(film, index, column, shares[index], width)
        drawn.append(tag("g", *parts, data_step=index, transform=f"translate({left} 0)"))
        left += width
    return "".join(drawn), left + 4, TOP + film.size * ROW + 4


def _labels(size: int, left: float) -> list[str]:
    return [rank_label(rank, left + LEFT - 8, TOP + rank * ROW + 10) for rank in range(0, size, LABELED)]


def _column(film: Film, index: int, column: list[Band], shares: list[float], width: int) -> Iterator[str]:
    frame = film.frames[index]
    kind = "title" if width == WIDTH else "act"
    yield tag("text", frame.short_title, class_=kind, x=width / 2, y=TOP - 9, text_anchor="middle")
    for band in column:
        top, height = TOP + band.first * ROW, (band.last - band.first + 1) * ROW
        box = {"x": 1, "y": top + 0.5, "width": width - 2, "height": height - 1, "rx": 2}
        yield tag("rect", *_hint(film, index, band), class_=band.kind, **box)
        if width == WIDTH:
            middle = {"x": (width - BAR) / 2, "y": top + height / 2 + 3.5}
            yield tag("text", words(band.text), class_="act", text_anchor="middle", **middle)
    top = TOP
    for done, group in groupby(shares):
        height = len(list(group)) * ROW
        if done:
            bar = BAR * done
            yield tag("rect", class_="done", x=width - 1 - bar, y=top + 0.5, width=bar, height=height - 1)
        top += height


def _hint(film: Film, index: int, band: Band) -> list[str]:
    ranks = range(band.first, band.last + 1)
    said = [sentence(film, one) for one in film.frames[index].messages if one.source in ranks or one.to in ranks]
    more = [say("more", n=len(said) - HINTS)] if len(said) > HINTS else []
    return [tag("title", words("; ".join([*said[:HINTS], *more])))] if said else []
