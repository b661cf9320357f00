"""The legend of drawings: lines of text, and samples of arrows."""

from __future__ import annotations

from typing import NamedTuple

from .arrows import head, thickness
from .frames import MANY, Film
from .markup import tag

WIDTH, HEIGHT = 40, 14  # of the picture of a sample
DONE = "\u2713 finished \u00b7 faded: no longer needed \u00b7 thick edge: written in this step"


class Sample(NamedTuple):
    """A picture, `WIDTH` wide and `HEIGHT` high, and its meaning."""

    picture: str
    meaning: str


def legend(film: Film) -> list[str]:
    """Return explanations of colors and marks."""
    if film.size > MANY:
        return ["\u2192 sends to, \u2190 receives from, + receives from and combines; bar: finished fraction"]
    if film.hears:
        return ["blocks: the ranks that a rank has heard from, directly or through others", DONE]
    if film.algorithm.primitive.reduces:
        return ["stripes: the contributing ranks, in the order of combination", DONE]
    counts = ["#1: the counts of blocks from rank 1"] if film.counts_traffic else []
    return ["colors: the rank that the block comes from", *counts, DONE]


def samples(film: Film) -> list[Sample]:
    """Return samples of the arrows in a film: their colors, and how thick they are."""
    if film.size > MANY or film.hears:
        return []
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
