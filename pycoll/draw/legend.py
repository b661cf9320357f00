"""The legend of drawings: lines of text, and samples of arrows and of hatching."""

from __future__ import annotations

from typing import NamedTuple

from .arrows import head, heads, look, thickness
from .frames import MANY, VERY_MANY, Film
from .language import say
from .markup import tag

WIDTH, HEIGHT = 40, 14  # of the picture of a sample


class Sample(NamedTuple):
    """A picture, `WIDTH` wide and `HEIGHT` high, and its meaning."""

    picture: str
    meaning: str


def legend(film: Film) -> list[str]:
    """Return explanations of colors and marks."""
    if film.size > MANY:
        return [say("bands_key")] * (film.size > VERY_MANY) + [say("matrix_key")]
    if film.hears:
        return [say("heard_key"), say("done")]
    if film.algorithm.primitive.reduces:
        return [say("stripes_key"), say("done")]
    return [say("colors_key"), *[say("counts_key")] * bool(film.counts_traffic), say("done")]


def definitions() -> str:
    """Return the heads of arrows, and the hatching; all drawings of a document refer to them."""
    lines = tag("path", class_="hatching", d="M-1 1L1 -1M0 6L6 0M5 7L7 5")
    return tag("defs", *heads(), tag("pattern", lines, id="hatch", width=6, height=6, patternUnits="userSpaceOnUse"))


def samples(film: Film) -> list[Sample]:
    """Return samples of the arrows in a film, by color and thickness, and of waiting ranks if there are any."""
    arrows = [] if film.size > MANY or film.hears else _arrows(film)
    hatch = tag("rect", class_="hatch", x=2, y=1, width=WIDTH - 6, height=HEIGHT - 2, rx=3)
    return arrows + [Sample(hatch, say("waiting_rank"))] * any(film.waiting)


def _arrows(film: Film) -> list[Sample]:
    both = film.algorithm.primitive.reduces
    kinds = [Sample(_arrow("move", 0.3), say("stored")), Sample(_arrow("combine", 0.3), say("combined_on_arrival"))]
    sizes = [
        Sample(_arrow("move", share), say("bytes_sample", amount=text)) for share, text in ((0.25, "Z/4"), (1, "Z"))
    ]
    return kinds * both + sizes


def _arrow(kind: str, share: float) -> str:
    thick = thickness(share)
    path = f"M2 {HEIGHT / 2:.6g}H{WIDTH - 4 - head(thick).reach:.6g}"
    return tag("path", class_=f"sample {kind}", d=path, **look(kind, thick))
