"""Draws a time interval of a trace: a band for each rank, and arrows for messages.

Above the time axis, the numbers of training steps mark the times at which they begin.  A band has, from top to bottom:
phases; blocking calls and waits; their steps; collectives in flight; predicted collectives, if there are any.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from ..draw.arrows import tip
from ..draw.markup import tag, words
from ..draw.sheet import LINE, XMLNS, style
from .chrome import label
from .events import Event, InvalidTrace, Trace, TracedRank
from .training_steps import training_steps

WIDTH, MARGIN, TALL, THIN, GAP = 900, 70, 16, 8, 30
TICKS = 10  # at most
MANY = 600  # messages; if there are more, none is drawn
APART = 20.0  # pixels between numbers of steps, at least
LETTER = 6.0  # the width of one, in pixels
COLORS = {
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "phase": "other phases",
    "collective": "blocking collectives",
    "wait": "waiting",
    "start": "starting messages",
    "combine": "combining, copying",
    "flight": "collectives in flight",
    "predicted": "predicted collectives",
}


class Bar(NamedTuple):
    """An activity of a rank."""

    begin: int
    end: int
    name: str
    kind: str


class _Window:
    """The time interval that is drawn, in ns."""

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.end = begin, max(end, begin + 1)

    def x(self, time: int) -> float:
        """The horizontal position of a time."""
        inside = min(max(time, self.begin), self.end)
        return MARGIN + (WIDTH - MARGIN) * (inside - self.begin) / (self.end - self.begin)

    def shows(self, begin: int, end: int) -> bool:
        """Whether an interval is visible."""
        return begin <= self.end and end >= self.begin


def timeline(
    trace: Trace, begin: float = 0.0, end: float | None = None, predicted: Mapping[int, Sequence[Bar]] | None = None
) -> str:
    """Draw the time from `begin` to `end`, in ms, as an SVG document; raise `InvalidTrace` if the trace ends before.

    `predicted` has the predicted collectives of each rank, which are drawn below the measured ones.
    """
    if begin * 1e6 > trace.end:
        raise InvalidTrace(f"there are no events after {begin:g} ms: the trace ends after {trace.end / 1e6:.3f} ms")
    window = _Window(round(begin * 1e6), trace.end if end is None else min(trace.end, round(end * 1e6)))
    numbers = list(_step_numbers(trace, window))
    axis = (3.4 if numbers else 2.4) * LINE
    drawn, edges, top = [], {}, axis + 0.6 * LINE
    kinds: set[str] = set()
    for rank in trace.ranks.values():
        lanes = _lanes(rank, window)
        lanes += [(bars, TALL) for bars in _stacked((predicted or {}).get(rank.number, ()), window)]
        kinds |= {bar.kind for bars, _ in lanes for bar in bars}
        band, height = _band(rank.number, lanes, window)
        drawn.append(tag("g", *band, transform=f"translate(0 {top:.6g})"))
        edges[rank.number] = top, top + height
        top += height + GAP
    hops = list(_hops(trace, window, edges))
    shown = f"{window.begin / 1e6:.3f} to {window.end / 1e6:.3f} ms of {trace.end / 1e6:.3f}"
    left_out = f"; its {len(hops)} messages are left out" if len(hops) > MANY else ""
    heading = tag("text", words(f"{shown}, {trace.library}{left_out}"), class_="title", x=0, y=LINE - 3)
    content = [heading, *_axis(window, axis, top), *_step_ticks(numbers, window, axis - LINE, top)]
    content += [*(hops if len(hops) <= MANY else []), *drawn, *_legend(top + 4, kinds)]
    size = {"width": WIDTH + 40, "height": top + 3 * LINE}
    paper = tag("rect", class_="paper", x=-20, y=-10, **size)
    look = style("drawing.css") + files(__package__).joinpath("timeline.css").read_text(encoding="utf-8")
    view = f"-20 -10 {size['width']:.6g} {size['height']:.6g}"
    return tag(
        "svg",
        tag("style", words(look)),
        tag("defs", tip()),
        paper,
        *content,
        xmlns=XMLNS,
        class_="drawing",
        style="max-width: 100%; height: auto",
        viewBox=view,
        **size,
    )


def _lanes(rank: TracedRank, window: _Window) -> list[tuple[list[Bar], float]]:
    """The lanes of a rank: their bars and their height."""
    lanes: list[tuple[list[Bar], float]] = [(bars, TALL) for bars in _stacked(_phases(rank), window)]
    lanes += [(bars, TALL) for bars in _stacked(_calls(rank), window)]
    lanes += [(list(_steps(rank, window)), THIN)]
    in_flight = (Bar(one.begin, one.end, one.name, "flight") for one in rank.collectives if not one.blocks)
    return lanes + [(bars, TALL) for bars in _stacked(in_flight, window)]


def _band(number: int, lanes: list[tuple[list[Bar], float]], window: _Window) -> tuple[list[str], float]:
    """Draw the lanes of a rank; returns their total height as well."""
    drawn, top = [tag("text", f"rank {number}", class_="number", x=0, y=TALL - 4)], 0.0
    for bars, height in lanes:
        drawn.append(tag("path", class_="lane", d=f"M{MARGIN} {top + height:.6g}H{WIDTH}"))
        drawn += _bars(bars, window, top, height)
        top += height + 1
    return drawn, top


def _phases(rank: TracedRank) -> Iterator[Bar]:
    for phase in rank.phases:
        if phase.what != "wait":
            kind = next((name for name in ("forward", "backward", "optimizer") if phase.what.startswith(name)), "phase")
            yield Bar(phase.begin, phase.end, phase.what, kind)


def _calls(rank: TracedRank) -> Iterator[Bar]:
    for one in rank.collectives:
        if one.blocks:
            yield Bar(one.begin, one.end, one.name, "collective")
    for phase in rank.phases:
        if phase.what == "wait":
            yield Bar(phase.begin, phase.end, "wait", "wait")


def _steps(rank: TracedRank, window: _Window) -> Iterator[Bar]:
    for step in rank.steps():
        if window.shows(step.begin, step.end):
            kind = step.what if step.what in ("start", "wait") else "combine"
            yield Bar(step.begin, step.end, f"{label(step)}, round {step.round + 1}", kind)


def _stacked(bars: Iterable[Bar], window: _Window) -> list[list[Bar]]:
    """Distribute bars over as few lanes as possible without overlaps."""
    lanes: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda bar: (bar.begin, -bar.end)):
        if window.shows(bar.begin, bar.end):
            free = next((lane for lane in lanes if lane[-1].end <= bar.begin), None)
            if free is None:
                lanes.append(free := [])
            free.append(bar)
    return lanes


def _bars(bars: Iterable[Bar], window: _Window, top: float, height: float) -> Iterator[str]:
    """Draw bars; of those narrower than half a pixel, only one for each half pixel."""
    narrow: set[tuple[str, int]] = set()
    for bar in bars:
        left, right = window.x(bar.begin), window.x(bar.end)
        pixel = bar.kind, int(2 * left)
        if right - left < 0.5 and pixel in narrow:
            continue
        narrow.add(pixel)
        title = tag("title", words(f"{bar.name}: {(bar.end - bar.begin) / 1e3:.3f} \u00b5s"))
        width = max(right - left, 0.5)
        yield tag("rect", title, class_=f"bar {bar.kind}", x=left, y=top, width=width, height=height)
        if height > THIN and width > LETTER * len(bar.name):
            yield tag("text", words(bar.name), class_="in", x=left + 3, y=top + height - 4.5)


def _hops(trace: Trace, window: _Window, edges: dict[int, tuple[float, float]]) -> Iterator[str]:
    """An arrow for each message from the band of its sender to that of its receiver; `edges` are top and bottom."""
    sent: dict[tuple[Any, ...] | None, tuple[int, Event]] = {}
    for rank in trace.ranks.values():
        starts = (step for step in rank.steps() if step.what == "start" and step.message and step.message.outgoing)
        sent |= {step.key: (rank.number, step) for step in starts}
    for rank in trace.ranks.values():
        for step in rank.steps():
            if step.what == "wait" and step.key in sent and step.message and not step.message.outgoing:
                source, start = sent[step.key]
                if window.shows(start.begin, step.end):
                    ends = {"x1": window.x(start.begin), "x2": window.x(step.end)}
                    down = edges[source] < edges[rank.number]
                    ends |= {"y1": edges[source][down], "y2": edges[rank.number][not down]}
                    yield tag("line", class_="hop", **ends, marker_end="url(#tip)")


def _step_numbers(trace: Trace, window: _Window) -> Iterator[tuple[int, int]]:
    """The training steps that begin in the window, and when; if there are many, only round numbers."""
    begins = [(number, begin) for number, (begin, _) in enumerate(training_steps(trace), 1)]
    inside = [(number, begin) for number, begin in begins if window.shows(begin, begin)]
    width = APART + LETTER * len(str(len(begins)))
    round_numbers = (times * 10**exponent for exponent in itertools.count() for times in (1, 2, 5))
    every = next(each for each in round_numbers if len(inside) * width <= each * (WIDTH - MARGIN))
    free = 0.0
    for number, begin in inside:
        if number % every == 0 and window.x(begin) >= free:
            yield number, begin
            free = window.x(begin) + width


def _step_ticks(numbers: list[tuple[int, int]], window: _Window, top: float, bottom: float) -> Iterator[str]:
    for number, begin in numbers:
        x = window.x(begin)
        yield tag("path", class_="tick step", d=f"M{x:.6g} {top - 0.8 * LINE:.6g}V{bottom - GAP / 2:.6g}")
        yield tag("text", str(number), class_="label step", x=x + 3, y=top)
    if numbers:
        yield tag("text", "step", class_="label step", x=0, y=top)


def _axis(window: _Window, top: float, bottom: float) -> Iterator[str]:
    step, digits = _spacing((window.end - window.begin) / 1e6)
    for number in range(math.ceil(window.begin / 1e6 / step), math.floor(window.end / 1e6 / step) + 1):
        x = window.x(round(number * step * 1e6))
        yield tag("path", class_="tick", d=f"M{x:.6g} {top + 0.2 * LINE:.6g}V{bottom - GAP / 2:.6g}")
        yield tag("text", f"{number * step:.{digits}f}", class_="label", x=x, y=top, text_anchor="middle")
    yield tag("text", "ms", class_="label", x=0, y=top)


def _spacing(length: float) -> tuple[float, int]:
    """The smallest of 1, 2 and 5 times a power of ten that gives few enough ticks, and its decimal places."""
    exponent = math.floor(math.log10(length / TICKS))
    step = next(times * 10.0**exponent for times in (1, 2, 5, 10) if times * 10.0**exponent * TICKS >= length)
    return step, max(0, -math.floor(math.log10(step)))


def _legend(top: float, kinds: set[str]) -> Iterator[str]:
    left = float(MARGIN)
    for kind, meaning in COLORS.items():
        if kind not in kinds:
            continue
        yield tag("rect", class_=f"bar {kind}", x=left, y=top, width=12.0, height=12.0)
        yield tag("text", meaning, class_="label", x=left + 17, y=top + 10)
        left += 34 + LETTER * len(meaning)
