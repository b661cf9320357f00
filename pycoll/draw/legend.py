"""The legend of drawings: lines of text, and samples of arrows and of hatching."""

from __future__ import annotations

from typing import NamedTuple

from .arrows import head, heads, thickness
from .frames import MANY, VERY_MANY, Film
from .markup import tag

BANDS = (
    "r: each rank of a band, modulo p; r\u00b11: plus on even ranks, minus on odd ones; r^4: exclusive or; "
    "narrow columns: as in the step before"
)
WIDTH, HEIGHT = 40, 14  # of the picture of a sample
DONE = "\u2713 finished \u00b7 faded: no longer needed \u00b7 thick edge: written in this step"


class Sample(NamedTuple):
    """A picture, `WIDTH` wide and `HEIGHT` high, and its meaning."""

    picture: str
    meaning: str


def legend(film: Film) -> list[str]:
    """Return explanations of colors and marks."""
    if film.size > MANY:
        bands = [BANDS]
        bands = bands if film.size > VERY_MANY else []
        return [*bands, "\u2192 sends to, \u2190 receives from, + receives from and combines; bar: finished fraction"]
    if film.hears:
        return ["blocks: the ranks that a rank has heard from, directly or through others", DONE]
    if film.algorithm.primitive.reduces:
        return ["stripes: the contributing ranks, in the order of combination", DONE]
    counts = ["#1: the counts of blocks from rank 1"] if film.counts_traffic else []
    return ["colors: the rank that the block comes from", *counts, DONE]


def definitions() -> str:
    """Return the heads of arrows, and the hatching; all drawings of a document refer to them."""
    lines = tag("path", class_="hatching", d="M-1 1L1 -1M0 6L6 0M5 7L7 5")
    return tag("defs", *heads(), tag("pattern", lines, id="hatch", width=6, height=6, patternUnits="userSpaceOnUse"))


def samples(film: Film) -> list[Sample]:
    """Return samples of the arrows in a film, by color and thickness, and of waiting ranks if there are any."""
    arrows = [] if film.size > MANY or film.hears else _arrows(film)
    hatch = tag("rect", class_="hatch", x=2, y=1, width=WIDTH - 6, height=HEIGHT - 2, rx=3)
    return arrows + [Sample(hatch, "waiting rank")] * any(film.waiting)


def _arrows(film: Film) -> list[Sample]:
    both = film.algorithm.primitive.reduces
    kinds = [Sample(_arrow("move", 0.3), "stored on arrival"), Sample(_arrow("combine", 0.3), "combined on arrival")]
    sizes = [Sample(_arrow("move", share), f"{text} bytes") for share, text in ((0.25, "Z/4"), (1, "Z"))]
    return kinds * both + sizes


def _arrow(kind: str, share: float) -> str:
    thick = thickness(share)
    reach = head(thick).reach
    path = f"M2 {HEIGHT / 2:.6g}H{WIDTH - 4 - reach:.6g}"
    look = {"style": f"stroke-width:{thick:.3g}px", "marker_end": f"url(#{head(thick).name(kind)})"}
    return tag("path", class_=f"sample {kind}", d=path, **look)
